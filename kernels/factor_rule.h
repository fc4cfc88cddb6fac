#ifndef FOVEA_KERNELS_FACTOR_RULE_H
#define FOVEA_KERNELS_FACTOR_RULE_H

/* The rules of the iteration of factor/factor.h: number of vectors and convergence, the same on all
 * backends. C, C++ and kernels. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef FV_ANYWHERE
#define FV_RULE static inline FV_ANYWHERE
#else
#define FV_RULE static inline
#endif

enum { FV_FACTOR_MAX_STEPS = 40 };

/* Directions iterated beyond those that are kept: with many, one step is enough for the keys and values of
 * a network, but each makes all products longer. */
FV_RULE int32_t fv_factor_oversample(int32_t rank) { return 16 + rank / 8; }

/* The iteration ends when the gain still possible is less than this share of the squared error, about half
 * that share of the error. The gain is an estimate; the true excess of the error is at most 0.33 % over the
 * spectra of tests/unit/factor/test_factor.c. */
#define FV_FACTOR_GAIN_SHARE 0.01

/* The last products, which gain much themselves, are tried from this share of possible gain on. */
#define FV_FACTOR_TRY_SHARE 0.025

/* Bound on the factor by which an estimate is too low. */
#define FV_FACTOR_ESTIMATE_MARGIN 1.4

/* Shares that count as rounding: of ||M||^2 in the energy left over, and of a vector's square in its
 * residual. */
#define FV_FACTOR_LEFT_NOISE 1e-6
#define FV_FACTOR_RESIDUAL_NOISE 1e-6

/* Larger numbers cannot be packed. */
#define FV_FACTOR_MAX 0x1p100f

/* A row is dropped if less than this share of its square is new. Rows are products in f32, whose rounding
 * is 1e-14 of the square; after the first pass at least 99 % of every row is new. */
#define FV_FACTOR_NEW_SHARE_FIRST 1e-12
#define FV_FACTOR_NEW_SHARE_SECOND 1e-2

/* Whether sketching takes fewer operations (counted in halves): G is symmetric, and both ways usually take
 * two steps. */
FV_RULE bool fv_factor_sketches(int32_t T, int32_t W, int32_t p) {
    double gram = 0.5 * T * T * W + 3.0 * p * T * T, sketch = 5.0 * p * T * W;
    return gram > sketch;
}

/* Random number i of a seed: roughly normal, the sum of the four quarters of a draw of splitmix64. */
FV_RULE float fv_factor_random(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    int32_t sum = (int32_t)(z & 0xffff) + (int32_t)(z >> 16 & 0xffff) +
                  (int32_t)(z >> 32 & 0xffff) + (int32_t)(z >> 48) - 2 * 0xffff;
    return (float)sum * 0x1p-16f;
}

/* Energy that a Ritz vector lacks, r2 being the square of G u: with the residual r = G u - w u, by
 * second-order perturbation, |r|^2 / (w - w'), where w' is the eigenvalue outside of Q along r, at most the
 * smallest inside. */
FV_RULE double fv_factor_missing(double r2, double w, double smallest) {
    r2 -= w * w;
    if (r2 <= FV_FACTOR_RESIDUAL_NOISE * w * w) return 0;
    return w > smallest ? r2 / (w - smallest) : (double)INFINITY;
}

/* Whether to try the last products after a step, if Q keeps `kept` of ||M||^2 and the best subspace would
 * keep about `gain` more. *last: no step follows in any case. */
FV_RULE bool fv_factor_try_next(double norm2, double kept, double gain, int32_t steps, bool *last) {
    double left = norm2 - kept;
    *last = steps == FV_FACTOR_MAX_STEPS || left <= FV_FACTOR_LEFT_NOISE * norm2;
    return *last || gain <= FV_FACTOR_TRY_SHARE * left;
}

/* Whether the last products, which keep `now`, are good enough: reduces the estimated gain by what they
 * have gained. */
FV_RULE bool fv_factor_enough(double norm2, double kept, double gain, double now) {
    return FV_FACTOR_ESTIMATE_MARGIN * gain - (now - kept) <= FV_FACTOR_GAIN_SHARE * (norm2 - now);
}

#undef FV_RULE
#endif
