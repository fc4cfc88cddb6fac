/* Jacobi's method (Golub and Van Loan, Matrix Computations, 8.5): slow, short, and accurate for the
 * head dimensions of attention. */
#include "eval/suite/spectrum.h"

#include <math.h>
#include <stdlib.h>

enum { SWEEPS_MAX = 40 };

static const double DONE = 1e-30; /* share of the squares that is left beside the diagonal */

void fv_gram_add(double *gram, int32_t d, const float *row) {
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = i; j < d; j++) gram[i * d + j] += (double)row[i] * (double)row[j];
}

static double squares(const double *a, int32_t d, int diagonal) {
    double sum = 0;
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = diagonal ? i : i + 1; j < (diagonal ? i + 1 : d); j++)
            sum += a[i * d + j] * a[i * d + j];
    return sum;
}

/* Turns rows and columns p and q so that a[p, q] vanishes. */
static void rotate(double *a, int32_t d, int32_t p, int32_t q) {
    double apq = a[p * d + q];
    if (apq == 0) return;
    double theta = (a[q * d + q] - a[p * d + p]) / (2 * apq);
    double t = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int32_t k = 0; k < d; k++) {
        double x = a[k * d + p], y = a[k * d + q];
        a[k * d + p] = c * x - s * y;
        a[k * d + q] = s * x + c * y;
    }
    for (int32_t k = 0; k < d; k++) {
        double x = a[p * d + k], y = a[q * d + k];
        a[p * d + k] = c * x - s * y;
        a[q * d + k] = s * x + c * y;
    }
}

static int descending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

void fv_singular_values(double *gram, int32_t d, double *out) {
    for (int32_t i = 0; i < d; i++)
        for (int32_t j = 0; j < i; j++) gram[i * d + j] = gram[j * d + i];
    for (int32_t n = 0; n < SWEEPS_MAX && squares(gram, d, 0) > DONE * squares(gram, d, 1); n++)
        for (int32_t p = 0; p < d; p++)
            for (int32_t q = p + 1; q < d; q++) rotate(gram, d, p, q);
    for (int32_t i = 0; i < d; i++) out[i] = sqrt(fmax(gram[i * d + i], 0));
    qsort(out, (size_t)d, sizeof *out, descending);
}

int32_t fv_spectrum_rank(const double *values, int32_t d, double share) {
    double all = 0, sum = 0;
    for (int32_t i = 0; i < d; i++) all += values[i] * values[i];
    for (int32_t i = 0; i < d; i++) {
        if (sum >= share * all) return i;
        sum += values[i] * values[i];
    }
    return d;
}
