#ifndef FOVEA_KERNELS_MATHF_H
#define FOVEA_KERNELS_MATHF_H

/* exp, log, erf and tanh, for CPU and GPU code.
 *
 * A library's versions differ from machine to machine and are not vectorized. These functions are
 * a fixed series of correctly rounded operations, an fma only where fmaf is written, so every
 * path computes the same bits; both sides of a condition are evaluated and one is chosen.
 * Coefficients: weighted least squares refined towards minimax, the low orders rounded to f32
 * first. Errors: largest over a sweep of the whole range, as tests/ops/ops_reference.c measures
 * and bounds them. */
#include <math.h>

#include "common/convert.h"

static const float LN2_HI = 0x1.62e430p-1f, LN2_LO = -0x1.05c610p-29f; /* sum: ln 2 + 2^-58 */

/* e^x = 2^n e^r,  n = round(x / ln 2),  |r| <= ln 2 / 2,  e^r = 1 + r + r^2 P(r)
 *
 * Adding 3 * 2^22 rounds to an integer, which is then in the low bits. 2^n is applied as
 * two factors: the first product is exact, the second rounds once, also into subnormals and
 * infinity. e^-inf = 0, e^NaN = NaN. Error <= 0.99 ulp. */
FV_ANYWHERE static inline float exp_f32(float x) {
    const float round = 0x1.8p23f;
    x = x > 89.0f ? 89.0f : x;     /* infinity from 88.73 on */
    x = x < -104.0f ? -104.0f : x; /* 0 below -103.98 */
    float t = fmaf(x, 0x1.715476p+0f, round);
    float n = t - round;
    float r = fmaf(n, -LN2_HI, x);
    r = fmaf(n, -LN2_LO, r);
    float p = 0x1.6a4b98p-10f;
    p = fmaf(p, r, 0x1.123e5cp-7f);
    p = fmaf(p, r, 0x1.5558bap-5f);
    p = fmaf(p, r, 0x1.55548cp-3f);
    p = fmaf(p, r, 0x1.fffffcp-2f);
    p = fmaf(p, r * r, r) + 1.0f;
    int32_t k = (int32_t)(bits_of_f32(t) - bits_of_f32(round)), half = k >> 1;
    float s0 = f32_of_bits((uint32_t)(half + 127) << 23);
    float s1 = f32_of_bits((uint32_t)(k - half + 127) << 23);
    return p * s0 * s1;
}

/* ln x = e ln 2 + ln(1 + f),  1 + f = x / 2^e in [sqrt 1/2, sqrt 2)
 * ln(1 + f) = f - f^2/2 + f^3 P(f).  ln 0 = -inf, below 0 NaN. Error <= 0.81 ulp. */
FV_ANYWHERE static inline float log_f32(float x) {
    if (!(x > 0.0f)) return x == 0.0f ? -INFINITY : NAN;
    if (x == INFINITY) return x;
    int32_t e0 = 0;
    if (x < 0x1p-126f) {
        x *= 0x1p23f;
        e0 = -23;
    }
    uint32_t u = bits_of_f32(x);
    int32_t e = (int32_t)(u - 0x3f3504f3u) >> 23; /* sqrt 1/2 */
    float f = f32_of_bits(u - ((uint32_t)e << 23)) - 1.0f;
    float n = (float)(e + e0);
    float p = -0x1.392534p-4f;
    p = fmaf(p, f, 0x1.05b362p-3f);
    p = fmaf(p, f, -0x1.0d9a78p-3f);
    p = fmaf(p, f, 0x1.22d004p-3f);
    p = fmaf(p, f, -0x1.546f36p-3f);
    p = fmaf(p, f, 0x1.99a056p-3f);
    p = fmaf(p, f, -0x1.000232p-2f);
    p = fmaf(p, f, 0x1.555554p-2f);
    float ff = f * f;
    float y = fmaf(n, LN2_LO, f * ff * p);
    y = fmaf(-0.5f, ff, y) + f;
    return fmaf(n, LN2_HI, y);
}

/* |x| <= 0.92: erf x = x + x P(x^2);  above: erf x = 1 - e^-Q(|x|) with the sign of x.
 * Error <= 1.04 ulp. */
FV_ANYWHERE static inline float erf_f32(float x) {
    float t = fabsf(x), s = x * x;
    float p = 0x1.4e7d90p-14f;
    p = fmaf(p, s, -0x1.a5c63ep-11f);
    p = fmaf(p, s, 0x1.544332p-8f);
    p = fmaf(p, s, -0x1.b80088p-6f);
    p = fmaf(p, s, 0x1.ce2d60p-4f);
    p = fmaf(p, s, -0x1.812740p-2f);
    p = fmaf(p, s, 0x1.06eba8p-3f);
    float small = fmaf(x, p, x);
    float c = t > 4.0f ? 4.0f : t; /* erf 4 rounds to 1 */
    float q = 0x1.61e0c6p-16f;
    q = fmaf(q, c, -0x1.c78c5ap-12f);
    q = fmaf(q, c, 0x1.1159ecp-8f);
    q = fmaf(q, c, -0x1.9b8e32p-6f);
    q = fmaf(q, c, 0x1.bb83dap-4f);
    q = fmaf(q, c, 0x1.44460cp-1f);
    q = fmaf(q, c, 0x1.2127e4p+0f);
    q = fmaf(q, c, -0x1.6e56fap-13f);
    float large = copysignf(1.0f - exp_f32(-q), x);
    return t > 0.92f ? large : small;
}

/* |x| <= 0.6: tanh x = x + x^3 P(x^2);  above: 1 - 2 / (e^2|x| + 1) with the sign of x.
 * Error <= 1.31 ulp. */
FV_ANYWHERE static inline float tanh_f32(float x) {
    float t = fabsf(x), s = x * x;
    float p = -0x1.7f2e50p-8f;
    p = fmaf(p, s, 0x1.541d80p-6f);
    p = fmaf(p, s, -0x1.b88504p-5f);
    p = fmaf(p, s, 0x1.110934p-3f);
    p = fmaf(p, s, -0x1.55553cp-2f);
    float small = fmaf(x * s, p, x);
    float large = copysignf(1.0f - 2.0f / (exp_f32(2.0f * t) + 1.0f), x);
    return t > 0.6f ? large : small;
}

/* ln(e^lse + n): the log-sum-exp of a row under n-softmax (fv_score_sums_args). */
FV_ANYWHERE static inline float lse_with(float lse, float n) {
    if (n == 0.0f) return lse;
    float ln = log_f32(n), top = lse > ln ? lse : ln;
    return top + log_f32(exp_f32(lse - top) + exp_f32(ln - top));
}

#endif
