#ifndef FOVEA_KERNELS_CPU_LANES_EXP_H
#define FOVEA_KERNELS_CPU_LANES_EXP_H

/* e^x over 16 lanes. */
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/mathf.h"

/* exp_f32 (mathf.h) of 16 numbers that are not above 0, by the same operations. */
static ALWAYS_INLINE f32x16 exp_lanes(f32x16 x) {
    const f32x16 round = f32x16_all(0x1.8p23f), least = f32x16_all(-104.0f);
    x = f32x16_max(least, x);
    f32x16 n = f32x16_add(f32x16_fma(x, f32x16_all(0x1.715476p+0f), round), f32x16_all(-0x1.8p23f));
    f32x16 r = f32x16_fma(n, f32x16_all(-LN2_HI), x);
    r = f32x16_fma(n, f32x16_all(-LN2_LO), r);
    f32x16 p = f32x16_fma(f32x16_all(0x1.6a4b98p-10f), r, f32x16_all(0x1.123e5cp-7f));
    p = f32x16_fma(p, r, f32x16_all(0x1.5558bap-5f));
    p = f32x16_fma(p, r, f32x16_all(0x1.55548cp-3f));
    p = f32x16_fma(p, r, f32x16_all(0x1.fffffcp-2f));
    p = f32x16_add(f32x16_fma(p, f32x16_mul(r, r), r), f32x16_all(1.0f));
    return f32x16_scale(p, n, x, least);
}

#endif
