#ifndef FOVEA_KERNELS_CPU_LANES_DOTS_H
#define FOVEA_KERNELS_CPU_LANES_DOTS_H

/* Tiles of canonical dot products, over 16-lane vectors (lanes/lanes.h).
 *
 * A tile is some rows of x times some rows of w. Every output has 16 lane accumulators of its
 * own that run along K, so x and w need no transposition, and every output has the same bits as
 * alone. Two ways to feed a tile:
 *
 *   dots_few     w in place, widened on load: for few rows of x, when each weight is used
 *                once or a few times and memory is the limit
 *   dots_panel   w packed and widened before: for many rows, when arithmetic is the limit
 *
 * A panel of w is NR rows, stored [ceil(K / 16)][NR][16] f32: the operands of one step are
 * contiguous, rows and columns beyond the matrix are zero, and the inner loop has no edge cases. */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "kernels/cpu/lanes/lanes.h"

enum { TILE = MR * NR, TILE_OUT = (TILE + 3) / 4 * 4 }; /* a tile, padded for tree4 */

/* out[i] = tree(acc[i]), i < n; out has space for n rounded up to 4. */
static ALWAYS_INLINE void trees(const f32x16 *acc, const int n, float *out) {
    UNROLL for (int i = 0; i < n; i += 4) {
        f32x16 z = f32x16_zero();
        f32x16_tree4(acc[i], i + 1 < n ? acc[i + 1] : z, i + 2 < n ? acc[i + 2] : z,
                     i + 3 < n ? acc[i + 3] : z, out + i);
    }
}

/* A step of one row of x: adds 16 elements of K to NR accumulators. */
static ALWAYS_INLINE void tile_row(f32x16 *acc, f32x16 x, const f32x16 w[NR]) {
    UNROLL for (int j = 0; j < NR; j++) acc[j] = f32x16_fma(x, w[j], acc[j]);
}

/* ---- w in a panel ---------------------------------------------------------------------- */

/* Copies `rows` <= n rows of type t, columns [0, K), as f32: row i of step s goes to
 * to + (s * n + i) * 16. Elements beyond the matrix become zero. */
static void pack_panel(const void *src, fv_dtype t, size_t bytes_row, int rows, size_t K,
                       const int n, float *to) {
    size_t size = fv_dtype_bytes(t), step = (size_t)n * LANES, whole = K / LANES, s;
    for (int i = 0; i < n; i++, to += LANES) {
        const char *p = (const char *)src + (size_t)i * bytes_row;
        if (i >= rows) {
            for (s = 0; s < steps_of(K); s++) f32x16_store(to + s * step, f32x16_zero());
            continue;
        }
        for (s = 0; s < whole; s++)
            f32x16_store(to + s * step, f32x16_widen(p + s * LANES * size, t));
        if (K % LANES)
            f32x16_store(to + s * step, f32x16_widen_tail(p + s * LANES * size, t, K % LANES));
    }
}

/* Adds the products of MR rows of x and a panel of NR rows of w along K to the accumulators. */
static ALWAYS_INLINE void dots_panel(f32x16 acc[TILE], const float *x, size_t ldx,
                                     const float *panel, size_t K) {
    f32x16 wk[NR];
    for (; K >= LANES; K -= LANES, x += LANES, panel += NR * LANES) tile_step(acc, x, ldx, panel);
    if (K == 0) return;
    UNROLL for (int j = 0; j < NR; j++) wk[j] = f32x16_load(panel + j * LANES);
    UNROLL for (int i = 0; i < MR; i++)
        tile_row(acc + i * NR, f32x16_widen_tail(x + (size_t)i * ldx, FV_F32, K), wk);
}

/* ---- w as stored ----------------------------------------------------------------------- */

/* Arguments of dots_few: x [M, K], w [n, K] of type t. */
typedef struct few {
    const float *x;
    size_t ldx;
    int M;
    const void *w;
    size_t bytes_row; /* of w */
    int n;            /* 1..NR; missing ones repeat the last row */
    fv_dtype t;
    size_t K;
    /* Address of the memory read next, for prefetching: as many bytes, contiguous, or, if `apart`, the same
     * columns of NR rows. 0: not known. */
    uintptr_t next;
    bool apart;
    float *accs; /* [M * NR][16]: accumulators kept between blocks of K; or NULL */
    bool resume; /* starts from accs */
    bool wait;   /* leaves accs for a later call */
} few;

/* dots_panel with rows of w in place, widened on load; prefetches the next rows. */
static ALWAYS_INLINE void dots_stored(f32x16 acc[TILE], const int mr, const fv_dtype t,
                                      const few *a, const float *x) {
    const size_t size = t == FV_F32 ? 4 : 2, ldx = a->ldx, K = a->K;
    const size_t to_row = a->apart || !a->next ? a->bytes_row : LANES * size;
    const size_t step = a->apart || !a->next ? LANES * size : NR * LANES * size;
    /* A core drops prefetches while its fill buffers are full, so each line is prefetched twice. */
    const size_t again = a->next ? NR * a->bytes_row : 0;
    const char *w[NR];
    uintptr_t next[NR];
    f32x16 wk[NR];
    UNROLL for (int j = 0; j < NR; j++) {
        w[j] = (const char *)a->w + (size_t)(j < a->n ? j : a->n - 1) * a->bytes_row;
        next[j] = (a->next ? a->next : (uintptr_t)a->w) + (size_t)j * to_row;
    }
    size_t k = 0, at = 0;
    for (; k + LANES <= K; k += LANES, at += step) {
        UNROLL for (int j = 0; j < NR; j++) {
            _mm_prefetch((const void *)(next[j] + at + again), _MM_HINT_T1);
            _mm_prefetch((const void *)(next[j] + at), _MM_HINT_T1);
            wk[j] = f32x16_widen(w[j] + k * size, t);
        }
        UNROLL for (int i = 0; i < mr; i++)
            tile_row(acc + i * NR, f32x16_load(x + (size_t)i * ldx + k), wk);
    }
    if (k == K) return;
    UNROLL for (int j = 0; j < NR; j++) wk[j] = f32x16_widen_tail(w[j] + k * size, t, K - k);
    UNROLL for (int i = 0; i < mr; i++)
        tile_row(acc + i * NR, f32x16_widen_tail(x + (size_t)i * ldx + k, FV_F32, K - k), wk);
}

/* Dot products of mr rows of x from row m on. */
static ALWAYS_INLINE void few_rows(const few *a, const int mr, int m, float *out) {
    const float *x = a->x + (size_t)m * a->ldx;
    float *accs = a->accs ? a->accs + (size_t)m * NR * LANES : NULL;
    f32x16 acc[TILE];
    if (a->resume) {
        UNROLL for (int i = 0; i < mr * NR; i++) acc[i] = f32x16_load(accs + i * LANES);
    } else {
        UNROLL for (int i = 0; i < mr * NR; i++) acc[i] = f32x16_zero();
    }
    switch (a->t) {
    case FV_BF16: dots_stored(acc, mr, FV_BF16, a, x); break;
    case FV_F16: dots_stored(acc, mr, FV_F16, a, x); break;
    default: dots_stored(acc, mr, FV_F32, a, x);
    }
    if (a->wait) {
        UNROLL for (int i = 0; i < mr * NR; i++) f32x16_store(accs + i * LANES, acc[i]);
    } else {
        trees(acc, mr * NR, out + (size_t)m * NR);
    }
}

/* out[i * NR + j] = dot(x_i, w_j), out with space for M * NR + 3 numbers; with `wait` the accumulators go
 * to accs instead. Rows of x are processed in groups of equal size, at most MR. */
static void dots_few(const few *a, float *out) {
    int group = (a->M + (a->M + MR - 1) / MR - 1) / ((a->M + MR - 1) / MR);
    for (int m = 0; m < a->M; m += group) {
        switch (a->M - m < group ? a->M - m : group) {
        case 1: few_rows(a, 1, m, out); break;
        case 2: few_rows(a, 2, m, out); break;
        case 3: few_rows(a, 3, m, out); break;
        case 4: MR < 4 ? assert(0) : few_rows(a, 4, m, out); break;
        case 5: MR < 5 ? assert(0) : few_rows(a, 5, m, out); break;
        case 6: MR < 6 ? assert(0) : few_rows(a, 6, m, out); break;
        default: assert(0);
        }
    }
}

#endif
