/* The measure of similar layers, and the blocks made from it. */
#include <criterion/criterion.h>
#include <math.h>

#include "eval/scenes/divergence.h"

Test(divergence, is_zero_for_equals_and_ln_2_for_strangers) {
    static const float a[] = {1, 0}, b[] = {0, 1}, c[] = {0.25f, 0.75f};
    cr_assert_float_eq(fv_js_divergence(a, b, 2), log(2), 1e-15);
    cr_assert_eq(fv_js_divergence(a, a, 2), 0);
    cr_assert_eq(fv_js_divergence(c, c, 2), 0);
    cr_assert_eq(fv_js_divergence(a, b, 0), 0);
}

Test(divergence, is_symmetric_and_between_the_two) {
    static const float a[] = {0.7f, 0.2f, 0.1f, 0}, b[] = {0.1f, 0.3f, 0, 0.6f};
    double ab = fv_js_divergence(a, b, 4);
    cr_assert_eq(ab, fv_js_divergence(b, a, 4));
    cr_assert(ab > 0 && ab < log(2));
    /* by hand: m = (0.4, 0.25, 0.05, 0.3) */
    double want = 0.5 * (0.7 * log(0.7 / 0.4) + 0.2 * log(0.2 / 0.25) + 0.1 * log(0.1 / 0.05) +
                         0.1 * log(0.1 / 0.4) + 0.3 * log(0.3 / 0.25) + 0.6 * log(0.6 / 0.3));
    cr_assert_float_eq(ab, want, 1e-7);
}

Test(divergence, parts_of_distributions_are_compared_as_if_they_were_whole) {
    static const float a[] = {0.7f, 0.2f, 0.1f}, part[] = {0.35f, 0.1f, 0.05f};
    static const float b[] = {0.1f, 0.3f, 0.6f}, none[] = {0, 0, 0};
    cr_assert_float_eq(fv_js_divergence(part, b, 3), fv_js_divergence(a, b, 3), 1e-7);
    cr_assert_float_eq(fv_js_divergence(a, part, 3), 0, 1e-7);
    cr_assert_eq(fv_js_divergence(none, none, 3), 0);
}

/* S with the given divergences between neighbours. */
static void neighbours(const double *d, int32_t n, double *s) {
    for (int32_t i = 0; i < n * n; i++) s[i] = 9;
    for (int32_t l = 1; l < n; l++) s[(l - 1) * n + l] = s[l * n + l - 1] = d[l - 1];
}

Test(divergence, blocks_are_runs_of_alike_neighbours_up_to_a_cap) {
    static const double d[] = {0.5, 0.01, 0.02, 0.05, 0.01, 0.01, 0.01};
    double s[64];
    int32_t source_layer[8];
    neighbours(d, 8, s);
    fv_similar_blocks(s, 8, 0.05, 3, source_layer);
    static const int32_t want[] = {0, 1, 1, 1, 4, 4, 4, 7};
    for (int l = 0; l < 8; l++) cr_assert_eq(source_layer[l], want[l], "layer %d", l);
    fv_similar_blocks(s, 8, 1, 1, source_layer);
    for (int l = 0; l < 8; l++) cr_assert_eq(source_layer[l], l, "a cap of 1 makes no block");
    fv_similar_blocks(s, 8, 1, 8, source_layer);
    for (int l = 0; l < 8; l++) cr_assert_eq(source_layer[l], 0);
}

Test(divergence, an_epsilon_is_found_for_a_number_of_lazy_layers) {
    enum { N = 6 };
    static const double next[N - 1] = {0.5, 0.01, 0.02, 0.3, 0.02};
    double s[N * N] = {0};
    int32_t source_layer[N];
    for (int l = 1; l < N; l++) s[(l - 1) * N + l] = next[l - 1];
    static const int want[] = {0, 1, 3, 3, 4, 5, 5};
    for (int n = 0; n <= N; n++) {
        int32_t lazy = 0;
        fv_similar_blocks(s, N, fv_similar_epsilon(s, N, n, N), N, source_layer);
        for (int l = 0; l < N; l++) lazy += source_layer[l] != l;
        cr_assert_eq(lazy, want[n], "%d asked for: %d", n, lazy);
    }
    fv_similar_blocks(s, N, fv_similar_epsilon(s, N, N, 2), 2, source_layer);
    cr_assert(source_layer[1] == 0 && source_layer[3] == 2 && source_layer[5] == 4,
              "as many as a cap of 2 allows");
}

Test(divergence, tokens_differ_by_what_the_one_says_of_the_other) {
    static const float even[2] = {3, 3}, odd[2] = {0, 1.0986123F}; /* 1/4 and 3/4 */
    cr_assert_float_eq(fv_kl_divergence(even, even, 2), 0, 1e-12);
    cr_assert_float_eq(fv_kl_divergence(even, odd, 2), log(2) - log(3) / 2, 1e-7);
    cr_assert_float_eq(fv_kl_divergence(odd, even, 2), 0.75 * log(3) - log(2), 1e-7);
    static const float far[3] = {1000, 0, -1000}, near[3] = {0, 0, 0};
    cr_assert_float_eq(fv_kl_divergence(far, near, 3), log(3), 1e-12, "no number overflows");
    cr_assert_float_eq(fv_kl_divergence(near, far, 3), (1000 + 2000) / 3.0 - log(3), 1e-9);
}
