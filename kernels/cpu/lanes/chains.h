#ifndef FOVEA_KERNELS_CPU_LANES_CHAINS_H
#define FOVEA_KERNELS_CPU_LANES_CHAINS_H

/* Weighted sums of rows, y = y * c + x w with w [K, N] row-major: lanes run along N, and each lane
 * is one chain of fused multiply-adds over K, so there is no tree. */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/lanes/dots.h"

/* acc += x times one row of w, nv registers of it. */
static ALWAYS_INLINE void value_step(f32x16 *acc, const int nv, float x, const f32x16 *v) {
    f32x16 all = f32x16_all(x);
    UNROLL for (int i = 0; i < nv; i++) acc[i] = f32x16_fma(all, v[i], acc[i]);
}

/* y = y * c + x w: M rows of chains that run along K rows of a panel of f32. */
typedef struct chains {
    const float *x; /* [M, ldx] */
    size_t ldx;
    const float *panel; /* [K, ldp] */
    size_t ldp, K, registers;
    const float *c; /* [M] or GOES_ON; NULL: chains begin at 0, and y is not read */
    float *y;       /* [M, ldy] in registers of 16 columns */
    size_t ldy;
    const char *next; /* memory to prefetch, a cache line for every step; or NULL */
} chains;

/* Factors c of 1. */
static const float GOES_ON[] = {1, 1, 1, 1, 1, 1};
_Static_assert(sizeof GOES_ON / sizeof *GOES_ON >= MR, "a factor for each row of a tile");

/* Chains of mr rows at x and y and of nv registers from column d on; mr and nv are constants after
 * inlining. */
static ALWAYS_INLINE void chains_tile(const chains *a, const float *x, const float *c, float *y,
                                      size_t d, const int mr, const int nv) {
    const float *panel = a->panel + d;
    const size_t ldx = a->ldx, ldy = a->ldy, ldp = a->ldp;
    /* Without `next` prefetches the panel itself, which costs nothing. */
    const char *next = a->next && d == 0 ? a->next : (const char *)panel;
    const size_t line = a->next && d == 0 ? 64 : 0;
    f32x16 acc[TILE], w[NR];
    y += d;
    if (c) {
        UNROLL for (int i = 0; i < mr * nv; i++) {
            const float *at = y + (size_t)(i / nv) * ldy + (size_t)(i % nv) * LANES;
            acc[i] = f32x16_mul(f32x16_load(at), f32x16_all(c[i / nv]));
        }
    } else {
        UNROLL for (int i = 0; i < mr * nv; i++) acc[i] = f32x16_zero();
    }
    for (size_t k = 0; k < a->K; k++, panel += ldp, next += line) {
        _mm_prefetch(next, _MM_HINT_T1);
        UNROLL for (int j = 0; j < nv; j++) w[j] = f32x16_load(panel + j * LANES);
        UNROLL for (int i = 0; i < mr; i++) value_step(acc + i * nv, nv, x[(size_t)i * ldx + k], w);
    }
    UNROLL for (int i = 0; i < mr * nv; i++) {
        f32x16_store(y + (size_t)(i / nv) * ldy + (size_t)(i % nv) * LANES, acc[i]);
    }
}

/* Chains of mr rows for any number of registers. */
static ALWAYS_INLINE void chains_columns(const chains *a, const float *x, const float *c, float *y,
                                         const int mr) {
    size_t v = 0;
    for (; v + NR <= a->registers; v += NR) chains_tile(a, x, c, y, v * LANES, mr, NR);
    for (; v < a->registers; v++) chains_tile(a, x, c, y, v * LANES, mr, 1);
}

/* Chains of M <= MR rows. */
static void chains_rows(const chains *a, const float *x, const float *c, float *y, int M) {
    switch (M) {
    case 1: chains_columns(a, x, c, y, 1); break;
    case 2: chains_columns(a, x, c, y, 2); break;
    case 3: chains_columns(a, x, c, y, 3); break;
    case 4: MR < 4 ? assert(0) : chains_columns(a, x, c, y, 4); break;
    case 5: MR < 5 ? assert(0) : chains_columns(a, x, c, y, 5); break;
    case 6: MR < 6 ? assert(0) : chains_columns(a, x, c, y, 6); break;
    default: assert(0);
    }
}

/* Chains of M rows, tile by tile; prefetches up to `bytes` of `next`, as far as the steps suffice. */
static void chains_all(chains a, int64_t M, size_t bytes) {
    const float *x = a.x, *c = a.c;
    float *y = a.y;
    for (int64_t m = 0; m < M; m += MR) {
        if (bytes == 0) a.next = NULL;
        chains_rows(&a, x, c, y, min_int(MR, M - m));
        x += MR * a.ldx;
        y += MR * a.ldy;
        c += c && c != GOES_ON ? MR : 0;
        a.next += a.next ? a.K * 64 : 0;
        bytes -= bytes < a.K * 64 ? bytes : a.K * 64;
    }
}

/* Chains with w as stored, widened on the way: for few rows of x, when memory is the limit. Rows of w
 * follow each other without gaps. */
static ALWAYS_INLINE void stored_tile(const float *x, size_t ldx, const char *w, size_t stride,
                                      size_t K, const fv_dtype t, const int mr, const int nv,
                                      const float *c, float *y, size_t ldy) {
    enum { AHEAD = 2048 }; /* bytes that are read during one memory latency */
    f32x16 acc[TILE], b[TILE];
    if (c) {
        UNROLL for (int i = 0; i < mr * nv; i++) {
            const float *at = y + (size_t)(i / nv) * ldy + (size_t)(i % nv) * LANES;
            acc[i] = f32x16_mul(f32x16_load(at), f32x16_all(c[i / nv]));
        }
    } else {
        UNROLL for (int i = 0; i < mr * nv; i++) acc[i] = f32x16_zero();
    }
    for (size_t k = 0; k < K; k++, w += stride) {
        UNROLL for (int j = 0; j < nv; j++) {
            const char *at = w + (size_t)j * LANES * fv_dtype_bytes(t);
            if (j % 2 == 0) _mm_prefetch((const void *)((uintptr_t)at + AHEAD), _MM_HINT_T1);
            b[j] = f32x16_widen(at, t);
        }
        UNROLL for (int i = 0; i < mr; i++) value_step(acc + i * nv, nv, x[(size_t)i * ldx + k], b);
    }
    UNROLL for (int i = 0; i < mr * nv; i++) {
        f32x16_store(y + (size_t)(i / nv) * ldy + (size_t)(i % nv) * LANES, acc[i]);
    }
}

/* Chains along w [K, registers * 16]; one row of x gets twice the registers, because its chains would
 * otherwise wait for each other. */
static ALWAYS_INLINE void stored_columns(const float *x, size_t ldx, const char *w, size_t stride,
                                         size_t K, const fv_dtype t, const int mr, size_t registers,
                                         const float *c, float *y, size_t ldy) {
    const int wide = mr == 1 ? 2 * NR : NR;
    size_t v = 0, step = LANES * fv_dtype_bytes(t);
    for (; v + (size_t)wide <= registers; v += (size_t)wide)
        stored_tile(x, ldx, w + v * step, stride, K, t, mr, wide, c, y + v * LANES, ldy);
    for (; mr == 1 && v + NR <= registers; v += NR)
        stored_tile(x, ldx, w + v * step, stride, K, t, mr, NR, c, y + v * LANES, ldy);
    for (; v < registers; v++)
        stored_tile(x, ldx, w + v * step, stride, K, t, mr, 1, c, y + v * LANES, ldy);
}

static ALWAYS_INLINE void stored_rows(const float *x, size_t ldx, const char *w, size_t stride,
                                      size_t K, const fv_dtype t, int M, size_t registers,
                                      const float *c, float *y, size_t ldy) {
    switch (M) {
    case 1: stored_columns(x, ldx, w, stride, K, t, 1, registers, c, y, ldy); break;
    case 2: stored_columns(x, ldx, w, stride, K, t, 2, registers, c, y, ldy); break;
    default: assert(M == 3); stored_columns(x, ldx, w, stride, K, t, 3, registers, c, y, ldy);
    }
}

enum { STORED_ROWS = 3 }; /* the most rows of x that chains_stored takes */
_Static_assert((int)STORED_ROWS <= (int)MR && 2 * NR <= TILE, "tiles fit the registers");

static void chains_stored(const float *x, size_t ldx, const char *w, fv_dtype t, size_t K, int M,
                          size_t registers, const float *c, float *y, size_t ldy) {
    size_t stride = registers * LANES * fv_dtype_bytes(t);
    switch (t) {
    case FV_BF16: stored_rows(x, ldx, w, stride, K, FV_BF16, M, registers, c, y, ldy); break;
    case FV_F16: stored_rows(x, ldx, w, stride, K, FV_F16, M, registers, c, y, ldy); break;
    default: stored_rows(x, ldx, w, stride, K, FV_F32, M, registers, c, y, ldy);
    }
}

#endif
