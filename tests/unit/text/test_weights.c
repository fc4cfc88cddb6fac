/* text/weights.c */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/weights.h"

enum { MOST = 200 };

static float l[MOST], w[MOST], sum[FV_WEIGHT_BLOCKS(MOST)], highest[FV_WEIGHT_BLOCKS(MOST)];

/* Weights of n logits between -a and a, and their highest. */
static fv_weights weighed(int32_t n, double a, float temperature, float least) {
    fv_weights v = {.n = n, .w = w, .sum = sum, .highest = highest};
    for (int32_t i = 0; i < n; i++) l[i] = (float)(a * sin(i * 12.9898 + n));
    fv_weights_fill(&v, l, fv_highest(l, n), temperature, least);
    return v;
}

Test(weights, are_the_exponential_to_2_ulp) {
    for (double x = 0; x > -87; x -= 0.0037) {
        float at = (float)x, got = fv_weight(at, 0, 1);
        double want = exp((double)at);
        cr_assert_lt(fabs((double)got - want), 0x1p-22 * want, "e^%g is %g", x, (double)got);
    }
    cr_assert_eq(fv_weight(0, 0, 1), 1);
    cr_assert_eq(fv_weight(-87.5f, 0, 1), 0);
    cr_assert_eq(fv_weight(-INFINITY, 0, 1), 0);
    cr_assert_eq(fv_weight(NAN, 0, 1), 0);
    cr_assert_eq(fv_weight(3, 3, 1e-45f), 1);
    cr_assert_eq(fv_weight(2.5f, 3, 1e-45f), 0);
}

Test(weights, have_the_bits_of_one_alone_and_add_up) {
    for (int32_t n = 1; n <= MOST; n += n < 70 ? 1 : 13) {
        fv_weights v = weighed(n, 4, 0.7f, 0);
        double total = 0, by_block = 0, from_logs = 0;
        float most = -INFINITY;
        for (int32_t i = 0; i < n; i++) {
            float alone = fv_weight(l[i], fv_highest(l, n), 0.7f);
            cr_assert_eq(memcmp(&w[i], &alone, sizeof alone), 0, "id %d of %d", i, n);
            total += (double)w[i];
            most = fmaxf(most, l[i]);
            from_logs += exp((double)l[i]);
        }
        for (int32_t b = 0; b < FV_WEIGHT_BLOCKS(n); b++) {
            float top = 0;
            for (int32_t i = 32 * b; i < n && i < 32 * b + 32; i++) top = fmaxf(top, w[i]);
            cr_assert_eq(highest[b], top);
            by_block += (double)sum[b];
        }
        cr_assert_eq(v.total, by_block);
        cr_assert_float_eq(v.total, total, 1e-6 * total);
        cr_assert_eq(fv_highest(l, n), most);
        cr_assert_eq(l[fv_index_of(l, n, most)], most);
        cr_assert_float_eq(fv_log_sum_exp(l, n), log(from_logs), 1e-6);
    }
}

Test(weights, below_the_least_are_0) {
    fv_weights v = weighed(100, 4, 1, 0.25f);
    int32_t left = 0;
    for (int32_t i = 0; i < v.n; i++) {
        float whole = fv_weight(l[i], fv_highest(l, v.n), 1);
        cr_assert_eq(w[i], whole < 0.25f ? 0 : whole);
        left += w[i] > 0;
    }
    cr_assert(left > 0 && left < v.n);
}

/* Sorts by weight for the definition, one id after the other. */
static int by_weight(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    return w[i] != w[j] ? (w[i] > w[j] ? -1 : 1) : i - j;
}

Test(weights, the_smallest_set_that_reaches_a_share_is_left) {
    static const float shares[] = {1e-6f, 0.05f, 0.3f, 0.5f, 0.9f, 0.999f, 0.9999999f};
    int32_t order[MOST], ids[MOST];
    float before[MOST];
    for (int32_t n = 1; n <= MOST; n += n < 70 ? 1 : 13)
        for (size_t k = 0; k < 4 * sizeof shares / sizeof *shares; k++) {
            static const double spread[] = {0.001, 1, 6, 80};
            float share = shares[k / 4];
            fv_weights v = weighed(n, spread[k % 4], 1, 0);
            for (int32_t i = 0; i < n; i++) order[i] = i;
            qsort(order, (size_t)n, sizeof *order, by_weight);
            memcpy(before, w, sizeof before);
            double total = v.total, ahead = 0;
            fv_weights_cut(&v, share, ids);
            bool cut = false;
            for (int32_t i = 0; i < n; i++) {
                bool stays = w[order[i]] > 0;
                cr_assert(!stays || !cut, "the ranking's front stays");
                cut |= !stays;
                if (stays) cr_assert_eq(w[order[i]], before[order[i]]);
                /* sums in another order differ by as much */
                if (ahead > (share + 1e-6) * total)
                    cr_assert_not(stays, "%d ids, %g", n, (double)share);
                if (i == 0 || ahead < (share - 1e-6) * total)
                    cr_assert(stays || before[order[i]] == 0, "%d ids, %g", n, (double)share);
                ahead += (double)before[order[i]];
            }
            double left = 0;
            for (int32_t b = 0; b < FV_WEIGHT_BLOCKS(n); b++) left += (double)v.sum[b];
            cr_assert_eq(v.total, left);
        }
}

Test(weights, one_that_is_not_finite_is_seen) {
    static const float odd[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (int32_t n = 1; n <= 70; n++)
        for (int32_t at = 0; at < n; at++) {
            for (int32_t i = 0; i < n; i++) l[i] = i % 2 ? 3.4e38f : -3.4e38f;
            cr_assert(fv_all_finite(l, n));
            l[at] = odd[at % 4];
            cr_assert_not(fv_all_finite(l, n), "id %d of %d", at, n);
        }
}

Test(weights, the_first_id_of_the_highest_is_found) {
    for (int32_t n = 1; n <= 100; n++)
        for (int32_t at = 0; at < n; at++) {
            for (int32_t i = 0; i < n; i++) l[i] = i >= at && i % 7 == at % 7 ? 2 : 1;
            cr_assert_eq(fv_index_of(l, n, fv_highest(l, n)), at);
        }
    cr_assert_eq(fv_index_of(l, 50, 3), 49, "there is none");
}

Test(weights, an_id_comes_where_the_sum_exceeds_it) {
    for (int32_t n = 1; n <= MOST; n += n < 70 ? 1 : 13) {
        fv_weights v = weighed(n, 30, 1, 1e-6f); /* many are 0 */
        for (int k = 0; k < 1000; k++) {
            double to = v.total * k / 1000, before = 0;
            int32_t at = fv_weights_draw(&v, to);
            for (int32_t i = 0; i < at; i++) before += (double)w[i];
            cr_assert(at >= 0 && at < n && w[at] > 0, "%d of %d ids", at, n);
            cr_assert(before <= to + 1e-6 * v.total, "%d of %d ids", at, n);
            cr_assert(before + (double)w[at] >= to - 1e-6 * v.total, "%d of %d ids", at, n);
        }
        int32_t last = fv_weights_draw(&v, v.total);
        cr_assert_gt(w[last], 0);
        for (int32_t i = last + 1; i < n; i++) cr_assert_eq(w[i], 0, "%d comes after %d", i, last);
    }
}
