/* Checks that the memory of a fleet's processes does not grow over many short requests. Starts a
 * fleet with one worker of each kind and a tiny checkpoint, sends the requests in portions over one
 * connection, every second portion with an image, and reads each process's resident memory after
 * each portion. The slope of a line fitted to the second half shows leaks; in the first half (in
 * the router: some 15,000 requests) pools, caches and the allocator reach their size.
 *
 *     bench_memory --requests 40000 --json results/memory.json */
#include <stdio.h>
#include <unistd.h>

#include "bench/program.h"
#include "cli/bench/load.h"
#include "cli/client/request.h"
#include "tests/support/fleet.h"

enum { N_PROCESS = 3, PORTION = 500, CLIENTS = 16, TOKENS = 4, MAX_PORTION = 4000 };
static const char *const programs[N_PROCESS] = {"fovea-router", "fovea-prefill", "fovea-decode"};

typedef struct bench {
    fleet fleet;
    fv_remote *remote;
    int pid[N_PROCESS];
    int32_t n; /* samples */
    double kib[N_PROCESS][MAX_PORTION];
} bench;

/* Returns resident memory in KiB. */
static double resident(int pid) {
    char path[64];
    long pages = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", pid);
    FILE *f = fopen(path, "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        bench_must(FV_FAIL(FV_EIO, "process %d is gone", pid));
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static void run_portion(bench *b, Fovea__Inference__V1__Image **image, uint64_t *number) {
    fv_bench_row row = {0};
    fv_bench_load load = {.policy_text = "exact",
                          .prompt = "What is in the image?",
                          .images = image,
                          .n_image = b->n % 2,
                          .max_tokens = TOKENS,
                          .ignore_eos = true,
                          .n_request = PORTION,
                          .concurrency = CLIENTS,
                          .deadline_ms = 600000};
    bench_must(fv_bench_run(b->remote, &load, number, &row));
    if (row.n_ok != PORTION)
        bench_must(FV_FAIL(FV_EIO, "%d of %d requests were answered", row.n_ok, PORTION));
    fv_bench_row_free(&row);
    printf("%8d", (b->n + 1) * PORTION);
    for (int i = 0; i < N_PROCESS; i++) {
        b->kib[i][b->n] = resident(b->pid[i]);
        printf("  %13.0f", b->kib[i][b->n]);
    }
    printf("\n");
    fflush(stdout);
    b->n++;
}

/* Returns KiB per 1000 requests: a least-squares fit over the samples from `from`. */
static double slope(const bench *b, int process, int32_t from) {
    double x0 = (from + b->n - 1) / 2.0, above = 0, below = 0;
    for (int32_t i = from; i < b->n; i++) {
        above += (i - x0) * b->kib[process][i];
        below += (i - x0) * (i - x0);
    }
    return above / below * 1000 / PORTION;
}

static void print(const bench *b) {
    int32_t half = b->n / 2;
    for (int i = 0; i < N_PROCESS; i++)
        printf("%-13s first %.0f, half-way %.0f, last %.0f KiB; in the second half %+.1f KiB per "
               "1000 requests\n",
               programs[i], b->kib[i][0], b->kib[i][half], b->kib[i][b->n - 1], slope(b, i, half));
}

static json_t *to_json(const bench *b) {
    json_t *root = json_object();
    json_object_set_new(root, "requests", json_integer((json_int_t)b->n * PORTION));
    for (int i = 0; i < N_PROCESS; i++) {
        json_t *kib = json_array();
        for (int32_t j = 0; j < b->n; j++) json_array_append_new(kib, json_real(b->kib[i][j]));
        json_object_set_new(
            root, programs[i],
            json_pack("{s:f, s:o}", "kib_per_1000_requests", slope(b, i, b->n / 2), "kib", kib));
    }
    return root;
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"requests", NULL, FV_OPTION_INT, "N", "40000", "in portions of 500", 4 * PORTION,
         PORTION * MAX_PORTION},
        {"image", NULL, FV_OPTION_STRING, "FILE", NULL, "picture of every second portion", 0, 0},
        {"json", NULL, FV_OPTION_STRING, "FILE", NULL, "write the numbers as JSON", 0, 0},
    };
    enum { N_OPTION = sizeof table / sizeof *table };
    static bench b;
    fv_arena arena = {0};
    Fovea__Inference__V1__Image *image = NULL;
    uint64_t number = 0;
    fv_options *o =
        bench_options(table, N_OPTION, argc, argv, "bench_memory --image FILE [options]",
                      "Memory of a fleet's processes over many requests.");
    if (!fv_options_string(o, "image")) bench_must(FV_FAIL(FV_EINVAL, "--image FILE is needed"));
    bench_must(fv_request_image(fv_options_string(o, "image"), &arena, &image));
    fleet_open(&b.fleet, "bench-memory");
    fleet_synth(&b.fleet, "tiny");
    fleet_start(&b.fleet, "");
    for (int i = 0; i < N_PROCESS; i++) b.pid[i] = fleet_child(&b.fleet, programs[i]);
    bench_must(fv_remote_open(&(fv_remote_options){.target = b.fleet.address}, &b.remote));
    printf("%8s  %13s  %13s  %13s   resident KiB\n", "requests", programs[0], programs[1],
           programs[2]);
    while ((int64_t)b.n * PORTION < fv_options_int(o, "requests")) run_portion(&b, &image, &number);
    print(&b);
    bench_write_json(o, to_json(&b));
    fv_remote_close(b.remote);
    fleet_stop(&b.fleet);
    fleet_close(&b.fleet);
    fv_arena_fini(&arena);
    fv_options_free(o);
    return 0;
}
