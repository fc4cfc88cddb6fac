/* HINTS: how long the router takes to choose among workers by what they keep (router/kept.h), and how much memory that needs.
 *
 * A fleet of --workers prefill workers, which keep --names beginnings of prompts together, each of them on 1 to 4 workers, and a
 * hot one on all. A choice looks up the names of a request, most of which somebody keeps, and takes a worker
 * (router/balancer.h). Also: what a report's change takes, and a worker that leaves. One thread; times are CPU time
 * a call, the median of several rounds.
 *
 *     bench_router_hints --rounds 5 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/program.h"
#include "eval/scenes/random.h"
#include "router/balancer.h"
#include "router/hints.h"
#include "router/registry_internal.h"

enum { ENDS = 12, CHOICES = 20000, ROUNDS_MAX = 64, NAME_BYTES = 16 };

static fv_hints *hints;
static fv_fleet fleet;
static fv_registered_worker *worker;
static fv_introduction *intro;
static int32_t n_worker;
static uint64_t n_name, state = 1;
static const fv_work work = {.prompt = 1000, .answer = 100};

/* Name i of a prompt's beginning, as uniform as a digest. */
static uint64_t name_of(uint64_t i) {
    uint64_t x = i + 1;
    return fv_random_splitmix(&x) | 1;
}

static uint64_t draw(uint64_t n) { return fv_random_splitmix(&state) % n; }

static long resident_kib(void) {
    long pages = 0, kib = sysconf(_SC_PAGESIZE) / 1024;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1) pages = 0;
    if (f) fclose(f);
    return pages * kib;
}

static void make_fleet(void) {
    worker = calloc((size_t)n_worker, sizeof *worker);
    intro = calloc((size_t)n_worker, sizeof *intro);
    char *names = calloc((size_t)n_worker, NAME_BYTES);
    if (!worker || !intro || !names) bench_must(FV_FAIL(FV_ENOMEM, "out of memory for workers"));
    for (int32_t i = n_worker - 1; i >= 0; i--) {
        fovea__fleet__v1__introduction__init(&intro[i]);
        intro[i].name = names + (size_t)i * NAME_BYTES;
        snprintf(intro[i].name, NAME_BYTES, "p%d", i);
        worker[i] = (fv_registered_worker){.intro = &intro[i],
                                           .fleet = &fleet,
                                           .role = FV_WORKER_PREFILL,
                                           .state = FV_WORKER_READY,
                                           .next = fleet.first};
        fovea__inference__v1__load__init(&worker[i].load);
        fleet.first = &worker[i];
    }
    fv_fleet_index(&fleet);
    if (fleet.n_at != n_worker) bench_must(FV_FAIL(FV_ENOMEM, "out of memory for workers"));
    fleet.estimate.pace.prefill = (fv_ratio){.x = 1000, .y = 1};
    fleet.estimate.pace.kept = (fv_ratio){.x = 1, .y = 0.01};
}

static void fill(void) {
    for (int32_t i = 0; i < n_worker; i++) worker[i].place = fv_hints_enter(hints, &worker[i]);
    for (uint64_t i = 0; i < n_name; i++)
        for (uint64_t k = i ? i % 4 + 1 : (uint64_t)n_worker; k > 0; k--)
            fv_hints_add(hints, name_of(i), worker[draw((uint64_t)n_worker)].place,
                         &(fv_hint){.tokens = 64, .seconds = 0.1f});
}

/* A request with ENDS beginnings, of which the last is not kept, and how its worker is found. */
static const fv_registered_worker *choose(void) {
    static void *holder[FV_HINT_HOLDERS];
    fv_kept kept[FV_KEPT_MAX];
    fv_hint hint;
    int32_t n = 0;
    uint64_t first = draw(n_name - ENDS);
    for (uint64_t e = ENDS; e > 0; e--) {
        uint64_t name = e == ENDS ? name_of(n_name + first) : name_of(draw(8) ? first + e : 0);
        int32_t found = fv_hints_find(hints, name, &hint, holder);
        for (int32_t k = 0; k < found && n < FV_KEPT_MAX; k++)
            kept[n++] = (fv_kept){.worker = holder[k], .tokens = hint.tokens, .left = work};
    }
    const fv_constraints c = {.role = FV_WORKER_PREFILL,
                              .exclude = "",
                              .estimate = &fleet.estimate,
                              .work = &work,
                              .kept = kept,
                              .n_kept = n,
                              .now_s = 1};
    return fv_balance(&fleet, &c);
}

static double choose_us(void) {
    double began = bench_cpu_s(0);
    for (int32_t i = 0; i < CHOICES; i++)
        if (!choose()) bench_must(FV_FAIL(FV_EDATA, "no worker was chosen"));
    return 1e6 * (bench_cpu_s(0) - began) / CHOICES;
}

static double change_us(void) {
    double began = bench_cpu_s(0);
    for (int32_t i = 0; i < CHOICES; i++) {
        uint64_t name = name_of(draw(n_name));
        uint16_t place = worker[draw((uint64_t)n_worker)].place;
        if (i % 2)
            fv_hints_add(hints, name, place, &(fv_hint){.tokens = 64});
        else
            fv_hints_remove(hints, name, place);
    }
    return 1e6 * (bench_cpu_s(0) - began) / CHOICES;
}

/* The longest tick after a worker has left. */
static double leave_us(int32_t i) {
    double most = 0;
    fv_hints_leave(hints, worker[i].place);
    for (uint64_t k = 0; k <= n_name / 10000; k++) {
        double began = bench_cpu_s(0);
        fv_hints_tick(hints);
        double took = 1e6 * (bench_cpu_s(0) - began);
        if (took > most) most = took;
    }
    worker[i].place = fv_hints_enter(hints, &worker[i]);
    return most;
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"rounds", NULL, FV_OPTION_INT, "N", "5", "of which the median counts", 1, ROUNDS_MAX},
        {"workers", NULL, FV_OPTION_INT, "N", "1000", "prefill workers", 2, 4096},
        {"names", NULL, FV_OPTION_INT, "N", "1000000", "beginnings of prompts that they keep", 1000,
         1 << 24},
    };
    double choice[ROUNDS_MAX], change[ROUNDS_MAX], leave[ROUNDS_MAX];
    fv_options *o = bench_options(table, 3, argc, argv,
                                  "bench_router_hints [--rounds N] [--workers N] [--names N]",
                                  "Time and memory of choosing workers by what they keep.");
    int rounds = (int)fv_options_int(o, "rounds");
    n_worker = (int32_t)fv_options_int(o, "workers");
    n_name = (uint64_t)fv_options_int(o, "names");
    make_fleet();
    long before = resident_kib();
    bench_must(fv_hints_open(n_name, &hints));
    fill();
    double bytes = 1024.0 * (double)(resident_kib() - before) / (double)n_name;
    for (int r = 0; r < rounds; r++) choice[r] = choose_us();
    for (int r = 0; r < rounds; r++) change[r] = change_us();
    for (int r = 0; r < rounds; r++) leave[r] = leave_us(r % n_worker);
    printf("%d workers, %llu names\n", n_worker, (unsigned long long)n_name);
    printf("%-44s %8.1f bytes\n", "memory a name, workers included", bytes);
    printf("%-44s %8.2f us\n", "a choice", bench_median(choice, rounds));
    printf("%-44s %8.2f us\n", "a change in a report", bench_median(change, rounds));
    printf("%-44s %8.1f us\n", "the longest tick after a worker has left",
           bench_median(leave, rounds));
    fv_hints_close(hints);
    fv_options_free(o);
    return 0;
}
