/* Solves one system of equations for all tokens that the same layers hold: see lacking.h. */
#include "prefill-worker/pack/lacking.h"

#include <math.h>

/* Factors a [n, n] into L U in place, with partial pivoting. */
static void factorise(double *a, int32_t n, int32_t *pivot) {
    for (int32_t k = 0; k < n; k++) {
        int32_t top = k;
        for (int32_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[top * n + k])) top = i;
        pivot[k] = top;
        for (int32_t j = 0; top != k && j < n; j++) {
            double at = a[k * n + j];
            a[k * n + j] = a[top * n + j];
            a[top * n + j] = at;
        }
        for (int32_t i = k + 1; i < n; i++) {
            double f = a[i * n + k] /= a[k * n + k];
            for (int32_t j = k + 1; j < n; j++) a[i * n + j] -= f * a[k * n + j];
        }
    }
}

/* x <- (L U)^-1 x. */
static void solve(const double *a, int32_t n, const int32_t *pivot, double *x) {
    for (int32_t k = 0; k < n; k++) {
        double at = x[pivot[k]];
        x[pivot[k]] = x[k];
        x[k] = at;
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < i; j++) x[i] -= a[i * n + j] * x[j];
    for (int32_t i = n - 1; i >= 0; i--) {
        for (int32_t j = i + 1; j < n; j++) x[i] -= a[i * n + j] * x[j];
        x[i] /= a[i * n + i];
    }
}

fv_status fv_lacking_init(fv_arena *arena, const float *deviation, const double *gram, int32_t n,
                          fv_lacking *out) {
    double last = (double)deviation[n - 1];
    *out = (fv_lacking){0};
    FV_TRY(FV_ARENA_NEW(arena, (size_t)n * (size_t)n, out->factors));
    FV_TRY(FV_ARENA_NEW(arena, n, out->pivot));
    for (int32_t r = 0; r < n; r++) {
        double noise = deviation[r] > 0 ? last / (double)deviation[r] : 1;
        noise = noise > 1e-3 ? noise * noise : 1e-6; /* so that a solution always exists */
        for (int32_t c = 0; c < n; c++) {
            double g = gram[r * n + c];
            out->factors[c * n + r] = g + noise * ((r == c) - g); /* transposed: z is a row */
        }
    }
    factorise(out->factors, n, out->pivot);
    out->n = n;
    return FV_OK;
}

void fv_missing_estimate(const fv_lacking *l, float *z, double *room) {
    for (int32_t r = 0; r < l->n; r++) room[r] = (double)z[r];
    solve(l->factors, l->n, l->pivot, room);
    for (int32_t r = 0; r < l->n; r++) z[r] = (float)room[r];
}
