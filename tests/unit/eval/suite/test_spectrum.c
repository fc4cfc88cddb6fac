/* Singular values of matrices whose singular values are known. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "eval/scenes/random.h"
#include "eval/suite/spectrum.h"

enum { D = 24, N = 100 };

static double gram[D * D], value[D], room[FV_EIGEN_SCRATCH * D];

/* A reflection I - 2 u u^T / u^T u of the row space. */
static void reflect(float *row, const double u[D]) {
    double dot = 0, norm = 0;
    for (int i = 0; i < D; i++) {
        dot += u[i] * (double)row[i];
        norm += u[i] * u[i];
    }
    for (int i = 0; i < D; i++) row[i] = (float)((double)row[i] - 2 * dot / norm * u[i]);
}

/* Rows s[i] e_i, rotated: their singular values are s. */
static void turned(const double *s) {
    fv_random r = fv_random_seeded(4);
    double u[D];
    for (int i = 0; i < D; i++) u[i] = fv_random_between(&r, -100, 100) / 100.0;
    for (int i = 0; i < D; i++) {
        float row[D] = {0};
        row[i] = (float)s[i];
        reflect(row, u);
        fv_gram_add(gram, D, row);
    }
}

Test(spectrum, values_of_a_turned_diagonal_matrix_are_its_own) {
    double s[D];
    for (int i = 0; i < D; i++) s[i] = pow(0.6, i);
    turned(s);
    cr_assert_eq(fv_singular_values(gram, D, value, room), FV_OK);
    for (int i = 0; i < D; i++)
        cr_assert_float_eq(value[i], s[i], 1e-6, "value %d: %g", i, value[i]);
}

Test(spectrum, a_matrix_of_rank_two_has_two_values) {
    fv_random r = fv_random_seeded(9);
    for (int n = 0; n < N; n++) {
        float row[D];
        float a = (float)fv_random_between(&r, -9, 9), b = (float)fv_random_between(&r, -9, 9);
        for (int i = 0; i < D; i++) row[i] = a * (float)(i % 3) + b * (float)(i % 5);
        fv_gram_add(gram, D, row);
    }
    double all = 0, squares = 0;
    for (int i = 0; i < D; i++) all += gram[i * D + i];
    cr_assert_eq(fv_singular_values(gram, D, value, room), FV_OK);
    for (int i = 0; i < D; i++) squares += value[i] * value[i];
    cr_assert_gt(value[1], 1);
    cr_assert_lt(value[2], 1e-5 * value[0]);
    cr_assert_float_eq(squares / all, 1, 1e-9, "the sum of squares stays");
    cr_assert_eq(fv_spectrum_rank(value, D, 0.999999), 2);
}

Test(spectrum, of_nothing_is_zero) {
    cr_assert_eq(fv_singular_values(gram, D, value, room), FV_OK);
    for (int i = 0; i < D; i++) cr_assert_eq(value[i], 0);
    cr_assert_eq(fv_spectrum_rank(value, D, 0.99), 0);
}

Test(spectrum, rank_is_the_fewest_that_hold_the_share) {
    const double s[4] = {3, 2, 1, 0}; /* squares 9, 4, 1 of 14 */
    cr_assert_eq(fv_spectrum_rank(s, 4, 0.5), 1);
    cr_assert_eq(fv_spectrum_rank(s, 4, 0.9), 2);
    cr_assert_eq(fv_spectrum_rank(s, 4, 0.95), 3);
    cr_assert_eq(fv_spectrum_rank(s, 4, 1), 3);
}
