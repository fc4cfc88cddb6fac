/* Samples: quantiles against values counted by hand. */
#include <criterion/criterion.h>
#include <math.h>

#include "cli/bench/samples.h"

static bool near(double a, double b) { return fabs(a - b) < 1e-12; }

static fv_samples of(const double *v, size_t n) {
    fv_samples s = {0};
    for (size_t i = 0; i < n; i++) cr_assert_eq(fv_samples_add(&s, v[i]), FV_OK);
    return s;
}

Test(samples, of_none_there_is_no_quantile_and_no_mean) {
    fv_samples s = {0};
    cr_assert(isnan(fv_samples_quantile(&s, 0.5)));
    cr_assert(isnan(fv_samples_mean(&s)));
    fv_samples_free(&s);
}

Test(samples, one_is_every_quantile) {
    fv_samples s = of((double[]){7}, 1);
    cr_assert(near(fv_samples_quantile(&s, 0), 7));
    cr_assert(near(fv_samples_quantile(&s, 0.5), 7));
    cr_assert(near(fv_samples_quantile(&s, 1), 7));
    fv_samples_free(&s);
}

Test(samples, quantiles_lie_on_the_line_between_neighbours) {
    fv_samples s = of((double[]){4, 1, 3, 2}, 4);
    cr_assert(near(fv_samples_quantile(&s, 0), 1));
    cr_assert(near(fv_samples_quantile(&s, 0.5), 2.5));
    cr_assert(near(fv_samples_quantile(&s, 0.9), 3.7));
    cr_assert(near(fv_samples_quantile(&s, 1), 4));
    cr_assert(near(fv_samples_mean(&s), 2.5));
    fv_samples_free(&s);
}

Test(samples, one_that_comes_after_a_question_counts_too) {
    fv_samples s = of((double[]){5, 1}, 2), more = of((double[]){0, 9}, 2), none = {0};
    cr_assert(near(fv_samples_quantile(&s, 1), 5));
    cr_assert_eq(fv_samples_add(&s, 0.5), FV_OK);
    cr_assert(near(fv_samples_quantile(&s, 0), 0.5));
    cr_assert_eq(fv_samples_append(&s, &more), FV_OK);
    cr_assert_eq(fv_samples_append(&s, &none), FV_OK);
    cr_assert_eq(s.n, 5);
    cr_assert(near(fv_samples_quantile(&s, 0), 0));
    cr_assert(near(fv_samples_quantile(&s, 1), 9));
    fv_samples_clear(&s);
    cr_assert(isnan(fv_samples_quantile(&s, 0.5)));
    fv_samples_free(&s);
    fv_samples_free(&more);
}

Test(samples, many_are_kept) {
    fv_samples s = {0};
    for (int i = 1000; i >= 0; i--) cr_assert_eq(fv_samples_add(&s, i), FV_OK);
    cr_assert(near(fv_samples_quantile(&s, 0.99), 990));
    cr_assert(near(fv_samples_mean(&s), 500));
    fv_samples_free(&s);
}
