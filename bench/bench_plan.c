/* Measures how long planning takes, since the router plans every request on its loop: each preset
 * and the slowest of N random policies, for a network of 256 layers with 32 KV heads and a prompt
 * of 2^20 text and 2^20 visual rows. Times are CPU time.
 *
 *     bench_plan --policies 20000 */
#include <stdio.h>

#include "bench/program.h"
#include "policy/plan/plan.h"
#include "tests/support/random_policy.h"

/* Returns the minimum of three runs; 0: the policy does not fit the network. */
static double seconds(const fv_policy *p) {
    static const fv_plan_shape shape = {.n_layer = FV_PLAN_MAX_LAYERS,
                                        .n_kv = 32,
                                        .d_head = 128,
                                        .bytes_value = 2,
                                        .n_visual = 1 << 20,
                                        .n_text = 1 << 20,
                                        .text_bound = true};
    static fv_plan plan;
    double least = 1e9;
    for (int i = 0; i < 3; i++) {
        double begin = bench_cpu_s(0);
        if (fv_plan_make(p, &shape, &plan) != FV_OK) return 0;
        fv_plan_count(&plan);
        double took = bench_cpu_s(0) - begin;
        if (took < least) least = took;
    }
    return least;
}

static void random_ones(int32_t n) {
    uint64_t state = 14;
    double most = 0;
    fv_policy p, slowest = {0};
    char text[FV_POLICY_TEXT_MAX];
    for (int32_t i = 0; i < n; i++) {
        random_policy(&state, &p);
        double s = seconds(&p);
        if (s <= most) continue;
        most = s;
        slowest = p;
    }
    fv_policy_print(&slowest, text);
    printf("slowest of %d random policies %*s %7.3f ms\n    %s\n", n, 10, "", 1e3 * most, text);
}

int main(int argc, char **argv) {
    static const fv_option table[] = {
        {"policies", NULL, FV_OPTION_INT, "N", "20000", "random policies", 1, 100000000},
    };
    fv_options *o =
        bench_options(table, 1, argc, argv, "bench_plan [--policies N]", "Time of a plan.");
    int32_t n;
    const fv_preset_info *preset = fv_policy_presets(&n);
    for (int32_t i = 0; i < n; i++) {
        fv_policy p;
        bench_must(fv_policy_parse(preset[i].text, &p));
        printf("%-48s %7.3f ms\n", preset[i].name, 1e3 * seconds(&p));
    }
    random_ones((int32_t)fv_options_int(o, "policies"));
    fv_options_free(o);
    return 0;
}
