/* Measures the cost of HTTP: the same fleet (`fovea up --http`) serves streams over gRPC and,
 * through the gateway, over HTTP, to 1, 16 and 64 clients. Each client sends its next request when
 * the last is answered.
 *
 * There are two measurements, because the speed of a shared machine changes from second to second:
 *   added TTFT            Half of the clients use gRPC and half HTTP at the same time, so that both
 *                         wait in the same queue; a single client alternates. A round's difference
 *                         is that of its medians.
 *   ratio of requests/s   All clients use one side at a time: gRPC, HTTP, HTTP, gRPC. A round's
 *                         ratio is that of the sums.
 * The output is the median over the rounds, with their minimum and maximum. The clients share the
 * machine with the fleet; a gRPC client uses more CPU than an HTTP client.
 *
 *     bench_gateway --checkpoint DIR --image F --rounds 7 --json results/gateway.json */
#include <stdio.h>
#include <uv.h>

#include "bench/http_load.h"
#include "bench/program.h"
#include "cli/bench/print.h"
#include "cli/client/request.h"
#include "cli/client/table.h"
#include "tests/support/fleet.h"

enum { N_LEVEL = 3, GRPC = 0, HTTP, N_SIDE };
static const int32_t levels[N_LEVEL] = {1, 16, 64};
static const char *const sides[N_SIDE] = {"gRPC", "HTTP"};

typedef struct bench {
    fleet fleet;
    char address[64]; /* the gateway's */
    int gateway;      /* the gateway's pid */
    fv_remote *remote;
    fv_bench_load load;
    uint64_t number[N_SIDE]; /* number of the next request; it is in the prompt */
    fv_samples ttft_ms[N_LEVEL][N_SIDE], rate[N_LEVEL][N_SIDE]; /* per round: median; requests/s */
    fv_samples added_ms[N_LEVEL], rate_ratio[N_LEVEL], cpu_ms[N_LEVEL]; /* cpu_ms: the gateway's */
} bench;

static double median(fv_samples *s) { return fv_samples_quantile(s, 0.5); }

static void note(fv_samples *s, double v) { bench_must(fv_samples_add(s, v)); }

static void run_side(bench *b, int side, const fv_bench_load *load, fv_bench_row *row) {
    if (side == HTTP)
        http_load_run(b->address, load, &b->number[side], row);
    else
        bench_must(fv_bench_run(b->remote, load, &b->number[side], row));
    for (int code = 0; code < FV_BENCH_CODES; code++)
        if (row->errors[code].n > 0) bench_must(FV_FAIL(FV_EIO, "%s", row->errors[code].first));
}

/* ---- the first token ---------------------------------------------------------------------- */

typedef struct half {
    bench *bench;
    fv_bench_load load;
    fv_bench_row row;
} half;

static void run_http(void *user) {
    half *h = user;
    run_side(h->bench, HTTP, &h->load, &h->row);
}

/* Runs n_request requests on each side at the same time. */
static void run_together(bench *b, int32_t n_client, int32_t n_request, fv_bench_row row[N_SIDE]) {
    half h = {.bench = b, .load = b->load};
    fv_bench_load mine = b->load;
    uv_thread_t thread;
    mine.n_request = h.load.n_request = n_request;
    mine.concurrency = h.load.concurrency = n_client / 2;
    if (uv_thread_create(&thread, run_http, &h) != 0)
        bench_must(FV_FAIL(FV_ENOMEM, "a thread for the clients over HTTP cannot be started"));
    run_side(b, GRPC, &mine, &row[GRPC]);
    uv_thread_join(&thread);
    row[HTTP] = h.row;
}

static void run_in_turn(bench *b, int32_t n_request, fv_bench_row row[N_SIDE]) {
    fv_bench_load one = b->load;
    one.n_request = one.concurrency = 1;
    for (int32_t i = 0; i < n_request; i++)
        for (int j = 0; j < N_SIDE; j++)
            run_side(b, (i + j) % N_SIDE, &one, &row[(i + j) % N_SIDE]);
}

static void first_token(bench *b, int level, int32_t n_request) {
    fv_bench_row row[N_SIDE] = {0};
    double ms[N_SIDE];
    if (levels[level] == 1)
        run_in_turn(b, n_request, row);
    else
        run_together(b, levels[level], n_request, row);
    for (int side = 0; side < N_SIDE; side++) {
        ms[side] = 1e3 * median(&row[side].ttft_s);
        note(&b->ttft_ms[level][side], ms[side]);
        fv_bench_row_free(&row[side]);
    }
    note(&b->added_ms[level], ms[HTTP] - ms[GRPC]);
}

/* ---- requests per second ------------------------------------------------------------------ */

static void throughput(bench *b, int level, int32_t n_request) {
    static const int order[] = {GRPC, HTTP, HTTP, GRPC};
    double seconds[N_SIDE] = {0}, rate[N_SIDE], cpu_s = 0;
    fv_bench_load all = b->load;
    all.n_request = n_request;
    all.concurrency = levels[level];
    for (int i = 0; i < 4; i++) {
        fv_bench_row row = {0};
        double before_s = bench_cpu_s(b->gateway);
        run_side(b, order[i], &all, &row);
        if (order[i] == HTTP) cpu_s += bench_cpu_s(b->gateway) - before_s;
        seconds[order[i]] += row.seconds;
        fv_bench_row_free(&row);
    }
    for (int side = 0; side < N_SIDE; side++) {
        rate[side] = 2 * n_request / seconds[side];
        note(&b->rate[level][side], rate[side]);
    }
    note(&b->rate_ratio[level], rate[HTTP] / rate[GRPC]);
    note(&b->cpu_ms[level], 1e3 * cpu_s / (2 * n_request));
}

/* ---- opening and closing ------------------------------------------------------------------ */

static void open_fleet(bench *b, const char *checkpoint, const char *image, fv_arena *arena) {
    Fovea__Inference__V1__Image **images;
    bench_must(FV_ARENA_NEW(arena, 1, images));
    if (image) bench_must(fv_request_image(image, arena, &images[0]));
    b->load.images = images;
    b->load.n_image = image ? 1 : 0;
    fleet_open(&b->fleet, "bench-gateway");
    command_run(&fleet_said, "ln -s \"$(realpath '%s')\" %s/ck", checkpoint, b->fleet.dir);
    fleet_start(&b->fleet, "--http 127.0.0.1:0");
    fleet_gateway(&b->fleet, b->address);
    b->gateway = fleet_child(&b->fleet, "fovea-gateway");
    bench_must(fv_remote_open(&(fv_remote_options){.target = b->fleet.address}, &b->remote));
}

/* Pages in the weights and fills the image cache. */
static void warm_up(bench *b) {
    fv_bench_row row[N_SIDE] = {0};
    run_in_turn(b, 2, row);
    for (int side = 0; side < N_SIDE; side++) fv_bench_row_free(&row[side]);
}

static void close_fleet(bench *b) {
    fv_remote_close(b->remote);
    fleet_stop(&b->fleet);
    fleet_close(&b->fleet);
    for (int level = 0; level < N_LEVEL; level++) {
        for (int side = 0; side < N_SIDE; side++) {
            fv_samples_free(&b->ttft_ms[level][side]);
            fv_samples_free(&b->rate[level][side]);
        }
        fv_samples_free(&b->added_ms[level]);
        fv_samples_free(&b->rate_ratio[level]);
        fv_samples_free(&b->cpu_ms[level]);
    }
}

/* ---- output ------------------------------------------------------------------------------- */

static void cell_range(fv_table *t, fv_samples *s, int decimals) {
    fv_table_cell(t, "%.*f (%.*f to %.*f)", decimals, median(s), decimals,
                  fv_samples_quantile(s, 0), decimals, fv_samples_quantile(s, 1));
}

static void print(bench *b) {
    static const char *const heads[] = {"clients",     "TTFT p50 gRPC, ms",        "HTTP, ms",
                                        "added, ms",   "requests/s gRPC",          "HTTP",
                                        "HTTP / gRPC", "gateway's CPU, ms/request"};
    enum { N_COL = sizeof heads / sizeof *heads };
    fv_table t;
    fv_table_init(&t, N_COL);
    for (int i = 0; i < N_COL; i++) fv_table_cell(&t, "%s", heads[i]);
    for (int level = 0; level < N_LEVEL; level++) {
        fv_table_cell(&t, "%d", levels[level]);
        for (int side = 0; side < N_SIDE; side++)
            fv_table_number(&t, median(&b->ttft_ms[level][side]), 2);
        cell_range(&t, &b->added_ms[level], 2);
        for (int side = 0; side < N_SIDE; side++)
            fv_table_number(&t, median(&b->rate[level][side]), 1);
        cell_range(&t, &b->rate_ratio[level], 3);
        fv_table_number(&t, median(&b->cpu_ms[level]), 3);
    }
    bench_must(fv_table_print(stdout, &t));
    fv_table_fini(&t);
}

static json_t *range(fv_samples *s) {
    return json_pack("{s:f, s:f, s:f}", "median", median(s), "lowest", fv_samples_quantile(s, 0),
                     "highest", fv_samples_quantile(s, 1));
}

static json_t *to_json(bench *b, int32_t rounds) {
    json_t *rows = json_array();
    for (int level = 0; level < N_LEVEL; level++) {
        for (int side = 0; side < N_SIDE; side++)
            json_array_append_new(rows, json_pack("{s:i, s:s, s:f, s:f}", "concurrency",
                                                  levels[level], "side", sides[side], "ttft_ms",
                                                  median(&b->ttft_ms[level][side]),
                                                  "requests_per_s", median(&b->rate[level][side])));
        json_array_append_new(rows, json_pack("{s:i, s:s, s:o, s:o, s:f}", "concurrency",
                                              levels[level], "side", "HTTP against gRPC",
                                              "added_ms", range(&b->added_ms[level]),
                                              "requests_ratio", range(&b->rate_ratio[level]),
                                              "gateway_cpu_ms", median(&b->cpu_ms[level])));
    }
    return json_pack("{s:i, s:i, s:o}", "rounds", rounds, "max_tokens", b->load.max_tokens, "rows",
                     rows);
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"checkpoint", NULL, FV_OPTION_STRING, "DIR", NULL, "what the fleet serves", 0, 0},
        {"image", NULL, FV_OPTION_STRING, "FILE", NULL, "image of all requests", 0, 0},
        {"prompt", NULL, FV_OPTION_STRING, "TEXT", "What is in the image?", "the question", 0, 0},
        {"requests", NULL, FV_OPTION_INT, "N", "64",
         "of each side in a measurement, but two for each client at least", 1, 100000},
        {"max-tokens", NULL, FV_OPTION_INT, "N", "32", "of each answer", 2, 4096},
        {"rounds", NULL, FV_OPTION_INT, "N", "1", "runs of each side at each level", 1, 100},
        {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the numbers as JSON", 0, 0},
    };
    enum { N_OPTION = sizeof table / sizeof *table };
    static bench b;
    fv_arena arena = {0};
    fv_options *o =
        bench_options(table, N_OPTION, argc, argv, "bench_gateway --checkpoint DIR [options]",
                      "The same fleet over gRPC and over HTTP.");
    if (!fv_options_string(o, "checkpoint"))
        bench_must(FV_FAIL(FV_EINVAL, "--checkpoint DIR is needed"));
    int32_t rounds = (int32_t)fv_options_int(o, "rounds");
    b.load = (fv_bench_load){.policy_text = "exact",
                             .prompt = fv_options_string(o, "prompt"),
                             .max_tokens = (int32_t)fv_options_int(o, "max-tokens"),
                             .ignore_eos = true,
                             .deadline_ms = 3600000};
    open_fleet(&b, fv_options_string(o, "checkpoint"), fv_options_string(o, "image"), &arena);
    b.number[HTTP] = 50000000; /* makes every prompt unique */
    warm_up(&b);
    for (int32_t i = 0; i < rounds; i++)
        for (int level = 0; level < N_LEVEL; level++) {
            int32_t n = (int32_t)fv_options_int(o, "requests");
            if (n < 2 * levels[level]) n = 2 * levels[level];
            first_token(&b, level, n);
            throughput(&b, level, n);
        }
    print(&b);
    bench_write_json(o, to_json(&b, rounds));
    close_fleet(&b);
    fv_arena_fini(&arena);
    fv_options_free(o);
    return 0;
}
