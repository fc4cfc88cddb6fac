/* Compares a fleet of one prefill and one decode worker (`fovea up`) with one process that runs the
 * same two stages (one_process.h), for several numbers of clients. Each client sends its next
 * request when the last is answered.
 *
 * On one machine the two workers share the cores that the one process has to itself, so the fleet's
 * total throughput cannot be higher. The benchmark shows the cost of the split, and its gain: the
 * batch keeps decoding while other requests are prefilled.
 *
 * Run it on an idle machine: on a busy one the fleet gets a larger share of the CPU because it has
 * more threads. The ratio of CPU seconds is hardly affected.
 *
 * The two sides take turns. Tables cover all rounds; ratios are the median of the rounds' ratios.
 *
 *     bench_fleet --checkpoint DIR --image F --rounds 3 --json results/fleet.json */
#include <assert.h>
#include <stdio.h>

#include "bench/one_process.h"
#include "bench/program.h"
#include "cli/bench/print.h"
#include "cli/client/request.h"
#include "cli/client/table.h"
#include "tests/support/fleet.h"

enum { N_LEVEL = 3, N_SIDE = 2, N_PROCESS = 3 };
static const int32_t levels[N_LEVEL] = {1, 4, 16};
static const char *const sides[N_SIDE] = {"one process", "fleet 1+1"};

static const char *const programs[N_PROCESS] = {"fovea-router", "fovea-prefill", "fovea-decode"};

typedef struct bench {
    fleet fleet;
    int pid[N_PROCESS];
    fv_remote *remote;
    one_process *one;
    fv_bench_load load;
    uint64_t number;
    int32_t n_level;
    fv_bench_result results[N_LEVEL][N_SIDE];
    fv_samples rate_ratio[N_LEVEL], ttft_ratio[N_LEVEL], tpot_ratio[N_LEVEL], cpu_ratio[N_LEVEL];
} bench;

static double cpu_s(const bench *b, int side) {
    double sum = 0;
    if (side == 0) return bench_cpu_s(0);
    for (int i = 0; i < N_PROCESS; i++) sum += bench_cpu_s(b->pid[i]);
    return sum;
}

static void run_side(bench *b, int side, fv_bench_row *row, double *cpu) {
    double before = cpu_s(b, side);
    bench_must(side == 0 ? one_process_run(b->one, &b->load, &b->number, row)
                         : fv_bench_run(b->remote, &b->load, &b->number, row));
    *cpu = cpu_s(b, side) - before;
    if (row->n_ok == b->load.n_request) return;
    for (int code = 0; code < FV_BENCH_CODES; code++)
        if (row->errors[code].n > 0) bench_must(FV_FAIL(FV_EIO, "%s", row->errors[code].first));
}

/* Adds a round's measurements to the totals. */
static void add_row(fv_bench_row *to, fv_bench_row *row) {
    fv_samples *all[][2] = {{&to->ttft_s, &row->ttft_s},
                            {&to->tpot_s, &row->tpot_s},
                            {&to->itl_s, &row->itl_s},
                            {&to->e2e_s, &row->e2e_s},
                            {&to->bytes_raw, &row->bytes_raw},
                            {&to->bytes_sent, &row->bytes_sent},
                            {&to->bytes_resident, &row->bytes_resident},
                            {&to->bytes_end, &row->bytes_end},
                            {&to->open_s, &row->open_s},
                            {&to->send_s, &row->send_s},
                            {&to->exposed_s, &row->exposed_s},
                            {&to->commit_s, &row->commit_s},
                            {&to->attach_s, &row->attach_s}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        bench_must(fv_samples_append(all[i][0], all[i][1]));
    to->n_ok += row->n_ok;
    to->n_token += row->n_token;
    to->n_prompt_row += row->n_prompt_row;
    to->seconds += row->seconds;
}

static double median(fv_samples *s) { return fv_samples_quantile(s, 0.5); }

static double tokens_per_s(const fv_bench_row *row) { return (double)row->n_token / row->seconds; }

static void note(fv_samples *s, double v) { bench_must(fv_samples_add(s, v)); }

static void run_level(bench *b, int level, int32_t n_request, bool record) {
    fv_bench_row row[N_SIDE] = {0};
    double cpu[N_SIDE];
    assert(level < N_LEVEL);
    b->load.concurrency = levels[level];
    b->load.n_request = n_request > levels[level] ? n_request : levels[level];
    for (int side = 0; side < N_SIDE; side++) run_side(b, side, &row[side], &cpu[side]);
    if (record) {
        note(&b->rate_ratio[level], tokens_per_s(&row[1]) / tokens_per_s(&row[0]));
        note(&b->ttft_ratio[level], median(&row[1].ttft_s) / median(&row[0].ttft_s));
        note(&b->tpot_ratio[level], median(&row[1].tpot_s) / median(&row[0].tpot_s));
        note(&b->cpu_ratio[level], cpu[1] / cpu[0]);
    }
    for (int side = 0; side < N_SIDE; side++) {
        if (record) add_row(&b->results[level][side].row, &row[side]);
        fv_bench_row_free(&row[side]);
    }
}

/* ---- opening and closing ------------------------------------------------------------------ */

static void open_sides(bench *b, const char *checkpoint, const char *image, fv_arena *arena) {
    Fovea__Inference__V1__Image **images;
    bench_must(FV_ARENA_NEW(arena, 1, images));
    if (image) bench_must(fv_request_image(image, arena, &images[0]));
    b->load.images = images;
    b->load.n_image = image ? 1 : 0;
    bench_must(one_process_open(checkpoint, image, &b->one));
    fleet_open(&b->fleet, "bench-fleet");
    command_run(&fleet_said, "ln -s \"$(realpath '%s')\" %s/ck", checkpoint, b->fleet.dir);
    fleet_start(&b->fleet, "");
    for (int i = 0; i < N_PROCESS; i++) b->pid[i] = fleet_child(&b->fleet, programs[i]);
    bench_must(fv_remote_open(&(fv_remote_options){.target = b->fleet.address}, &b->remote));
}

static void close_sides(bench *b) {
    fv_remote_close(b->remote);
    fleet_stop(&b->fleet);
    fleet_close(&b->fleet);
    one_process_close(b->one);
    for (int level = 0; level < b->n_level; level++) {
        for (int side = 0; side < N_SIDE; side++) fv_bench_row_free(&b->results[level][side].row);
        fv_samples_free(&b->rate_ratio[level]);
        fv_samples_free(&b->ttft_ratio[level]);
        fv_samples_free(&b->tpot_ratio[level]);
        fv_samples_free(&b->cpu_ratio[level]);
    }
}

/* ---- output ------------------------------------------------------------------------------- */

static void print(bench *b) {
    fv_table t;
    bench_must(fv_bench_print(stdout, "", &b->results[0][0], b->n_level * N_SIDE));
    printf("\nfleet / one process, median of the rounds\n");
    fv_table_init(&t, 5);
    fv_table_cell(&t, "at once");
    fv_table_cell(&t, "tokens/s");
    fv_table_cell(&t, "TTFT p50");
    fv_table_cell(&t, "TPOT p50");
    fv_table_cell(&t, "CPU seconds");
    for (int level = 0; level < N_LEVEL && level < b->n_level; level++) {
        fv_table_cell(&t, "%d", levels[level]);
        fv_table_number(&t, median(&b->rate_ratio[level]), 2);
        fv_table_number(&t, median(&b->ttft_ratio[level]), 2);
        fv_table_number(&t, median(&b->tpot_ratio[level]), 2);
        fv_table_number(&t, median(&b->cpu_ratio[level]), 2);
    }
    bench_must(fv_table_print(stdout, &t));
    fv_table_fini(&t);
}

static json_t *to_json(bench *b, int32_t rounds) {
    json_t *rows = json_array(), *ratios = json_array();
    for (int level = 0; level < b->n_level; level++) {
        for (int side = 0; side < N_SIDE; side++)
            json_array_append_new(rows, fv_bench_json(&b->results[level][side]));
        json_array_append_new(
            ratios,
            json_pack("{s:i, s:f, s:f, s:f, s:f}", "concurrency", levels[level], "tokens_per_s",
                      median(&b->rate_ratio[level]), "ttft", median(&b->ttft_ratio[level]), "tpot",
                      median(&b->tpot_ratio[level]), "cpu_seconds", median(&b->cpu_ratio[level])));
    }
    return json_pack("{s:i, s:i, s:o, s:o}", "rounds", rounds, "max_tokens", b->load.max_tokens,
                     "rows", rows, "fleet_to_one_process", ratios);
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"checkpoint", NULL, FV_OPTION_STRING, "DIR", NULL, "what both sides serve", 0, 0},
        {"image", NULL, FV_OPTION_STRING, "FILE", NULL, "picture of all requests", 0, 0},
        {"prompt", NULL, FV_OPTION_STRING, "TEXT", "What is in the image?", "the question", 0, 0},
        {"requests", NULL, FV_OPTION_INT, "N", "2", "in each run, but one for each client at least",
         1, 100000},
        {"max-tokens", NULL, FV_OPTION_INT, "N", "16", "of each answer", 2, 4096},
        {"most", NULL, FV_OPTION_INT, "N", "16", "clients at once: 1, 4, 16 up to this", 1, 16},
        {"rounds", NULL, FV_OPTION_INT, "N", "1", "runs of each side at each level", 1, 100},
        {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the numbers as JSON", 0, 0},
    };
    enum { N_OPTION = sizeof table / sizeof *table };
    static bench b;
    fv_arena arena = {0};
    fv_options *o =
        bench_options(table, N_OPTION, argc, argv, "bench_fleet --checkpoint DIR [options]",
                      "A fleet of 1+1 against one process.");
    if (!fv_options_string(o, "checkpoint"))
        bench_must(FV_FAIL(FV_EINVAL, "--checkpoint DIR is needed"));
    while (b.n_level < N_LEVEL && levels[b.n_level] <= fv_options_int(o, "most")) b.n_level++;
    int32_t rounds = (int32_t)fv_options_int(o, "rounds");
    int32_t n_request = (int32_t)fv_options_int(o, "requests");
    b.load = (fv_bench_load){.policy_text = "fleet 1+1",
                             .prompt = fv_options_string(o, "prompt"),
                             .max_tokens = (int32_t)fv_options_int(o, "max-tokens"),
                             .ignore_eos = true,
                             .deadline_ms = 3600000};
    open_sides(&b, fv_options_string(o, "checkpoint"), fv_options_string(o, "image"), &arena);
    for (int level = 0; level < b.n_level; level++)
        for (int side = 0; side < N_SIDE; side++)
            b.results[level][side] =
                (fv_bench_result){.policy = sides[side], .concurrency = levels[level]};
    run_level(&b, 0, 1, false); /* warm up: page in the weights, cache the image */
    for (int32_t i = 0; i < rounds; i++)
        for (int level = 0; level < b.n_level; level++) run_level(&b, level, n_request, true);
    print(&b);
    bench_write_json(o, to_json(&b, rounds));
    close_sides(&b);
    fv_arena_fini(&arena);
    fv_options_free(o);
    return 0;
}
