/* SAMPLING: how long choosing a token takes, compared with sorting the vocabulary.
 *
 * Logits are normal; in the first case one in 4001 is 12 higher, as when a network is nearly sure,
 * and in the flat case none is. One thread; times are CPU time, the minimum of several rounds.
 *
 *     bench_sample --rounds 20 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/program.h"
#include "eval/scenes/random.h"
#include "text/sample.h"

enum { MOST = 151936, SURE = 4001 };

static const struct {
    const char *name;
    fv_sampling how;
} ways[] = {
    {"greedy", {.repetition_penalty = 1, .top_p = 1}},
    {"temperature", {.repetition_penalty = 1, .temperature = 1, .top_p = 1}},
    {"top_k=50", {.repetition_penalty = 1, .temperature = 1, .top_k = 50, .top_p = 1}},
    {"top_p=0.9", {.repetition_penalty = 1, .temperature = 1, .top_p = 0.9f}},
    {"top_p=0.9, repetition_penalty=1.1, 5 logprobs",
     {.repetition_penalty = 1.1f, .temperature = 1, .top_p = 0.9f, .n_logprobs = 5}},
};

static float logits[MOST];
static fv_logprob scratch[FV_SAMPLE_SCRATCH(MOST)];
static int32_t seen[640];

static int by_logit(const void *a, const void *b) {
    const fv_logprob *x = a, *y = b;
    return x->logprob < y->logprob ? 1 : x->logprob > y->logprob ? -1 : x->id - y->id;
}

static double sorting(int32_t n) {
    double begin = bench_cpu_s(0);
    for (int32_t i = 0; i < n; i++) scratch[i] = (fv_logprob){i, logits[i]};
    qsort(scratch, (size_t)n, sizeof *scratch, by_logit);
    return bench_cpu_s(0) - begin;
}

static double sampling(const fv_sampling *how, int32_t n, uint64_t step) {
    enum { CALLS = 20 };
    fv_sampled got;
    double begin = bench_cpu_s(0);
    for (uint64_t i = 0; i < CALLS; i++)
        (void)fv_sample(how, NULL, logits, n, seen, sizeof seen / sizeof *seen, 600,
                        step * CALLS + i, scratch, &got);
    return (bench_cpu_s(0) - begin) / CALLS;
}

/* Fills `logits` with standard deviation 2. */
static void fill(bool flat) {
    uint64_t state = 1;
    for (int32_t i = 0; i < MOST; i++) {
        double sum = 0;
        for (int k = 0; k < 12; k++) sum += (double)(fv_random_splitmix(&state) >> 11) * 0x1p-53;
        logits[i] = (float)(2 * (sum - 6)) + (!flat && i % SURE == 7 ? 12 : 0);
    }
}

static double least_of(const fv_sampling *how, int32_t n, uint64_t rounds) {
    double least = 1e9;
    for (uint64_t r = 0; r < rounds; r++) {
        double took = how ? sampling(how, n, r) : sorting(n);
        if (took < least) least = took;
    }
    return least;
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"rounds", NULL, FV_OPTION_INT, "N", "20", "of which the least counts", 1, 100000},
    };
    static const int32_t sizes[] = {32000, 128256, MOST};
    fv_options *o = bench_options(table, 1, argc, argv, "bench_sample [--rounds N]",
                                  "Time of the choice of a token.");
    uint64_t rounds = (uint64_t)fv_options_int(o, "rounds");
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) seen[i] = (int32_t)(37 * i);
    for (size_t k = 0; k < 2 * sizeof sizes / sizeof *sizes; k++) {
        int32_t n = sizes[k / 2];
        fill(k % 2);
        double sorted = least_of(NULL, n, rounds);
        printf("%d ids%s, sorted in %.3f ms\n", n, k % 2 ? ", flat" : "", 1e3 * sorted);
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            double took = least_of(&ways[w].how, n, rounds);
            printf("  %-46s %7.3f ms  %6.1fx as fast as sorting\n", ways[w].name, 1e3 * took,
                   sorted / took);
        }
    }
    fv_options_free(o);
    return 0;
}
