#ifndef FOVEA_FACTOR_DOUBLES_H
#define FOVEA_FACTOR_DOUBLES_H

/* Sums and differences of rows of double, for functions that are compiled for several CPUs (common/vectors.h), in one
 * order of operations. */
#include <stddef.h>
#include <stdint.h>

#include "common/vectors.h"

enum { LANES = 8, VECTOR = 4 };

/* VECTOR numbers at x, with no more than a double's alignment. */
typedef double vector __attribute__((vector_size(VECTOR * sizeof(double)), aligned(8)));

#define VECTOR_AT(x) (*(vector *)(uintptr_t)(x))

/* Returns the sum of x_i y_i, in LANES chains; z += f x unless z is NULL. */
VECTORS_PART double dot_add(const double *x, const double *y, size_t n, double f, double *z) {
    vector low = {0}, high = {0};
    size_t k = 0;
    for (; k + LANES <= n; k += LANES) {
        low += VECTOR_AT(x + k) * VECTOR_AT(y + k);
        high += VECTOR_AT(x + k + VECTOR) * VECTOR_AT(y + k + VECTOR);
        if (!z) continue;
        VECTOR_AT(z + k) += f * VECTOR_AT(x + k);
        VECTOR_AT(z + k + VECTOR) += f * VECTOR_AT(x + k + VECTOR);
    }
    low += high;
    double sum = (low[0] + low[2]) + (low[1] + low[3]);
    for (; k < n; k++) {
        sum += x[k] * y[k];
        if (z) z[k] += f * x[k];
    }
    return sum;
}

/* x -= f y */
VECTORS_PART void subtract(double *x, double f, const double *y, size_t n) {
    size_t k = 0;
    for (; k + VECTOR <= n; k += VECTOR) VECTOR_AT(x + k) -= f * VECTOR_AT(y + k);
    for (; k < n; k++) x[k] -= f * y[k];
}

/* x -= f y + g z */
VECTORS_PART void subtract_both(double *x, double f, const double *y, double g, const double *z,
                                size_t n) {
    size_t k = 0;
    for (; k + VECTOR <= n; k += VECTOR)
        VECTOR_AT(x + k) -= f * VECTOR_AT(y + k) + g * VECTOR_AT(z + k);
    for (; k < n; k++) x[k] -= f * y[k] + g * z[k];
}

#endif
