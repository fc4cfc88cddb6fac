#ifndef FOVEA_KERNELS_CPU_LANES_ATTENTION_BF16_H
#define FOVEA_KERNELS_CPU_LANES_ATTENTION_BF16_H

/* The products of attention in bf16, for a path with 16-lane vectors: panels of lanes/linear_bf16.h.
 *
 *     scores   lanes are keys: a panel is 16 of them, transposed
 *     values   lanes are columns of v: a panel is 16 of them, 64 rows
 *
 * Up to four vectors read keys and values in bf16 in place.
 *
 * Rows of v that a vector does not see are multiplied by p = 0, which does not change its bits as long
 * as the rows are finite (kernels/ops.h). Where they are not, v is packed for each vector by itself. */
#include "kernels/cpu/lanes/attention.h"
#include "kernels/cpu/lanes/linear_bf16.h"

/* Query vectors per item: with AVX-512 BF16 they share keys and values packed as words, and their sums fit L2. */
#ifdef __AVX512F__
enum { BF16_VECTORS = 96 };
#else
enum { BF16_VECTORS = ITEM_VECTORS };
#endif

/* Columns of v per tile of few vectors. */
enum { VALUES_NV = 2, VALUES_COLUMNS = VALUES_NV * LANES };

/* Multiplies with `wide` if rows are many enough. */
static void multiply_panels(const packed_products *wide, const bf16_product *a) {
    if (a->M >= BF16_WORDS)
        wide->multiply(a);
    else
        bf16_products(a);
}

static void copy_queries_bf16(attn_item *t) {
    for (int32_t v = 0; v < t->R; v++) {
        float *to = t->q + (size_t)v * t->Dp;
        const float *q = attn_query(t, v);
        for (size_t d = 0; d < t->Dp; d++) to[d] = d < t->D ? f32_of_bf16(bf16_of_f32(q[d])) : 0.0f;
    }
}

/* Scores of few vectors, with keys read in place. */
static void scores_bf16_few(attn_item *t, const void *k, ptrdiff_t next, int32_t n) {
    for (int32_t j = 0; j < n; j += LANES)
        bf16_few_products(&(bf16_few){.x = t->q,
                                      .ldx = t->Dp,
                                      .M = t->R,
                                      .rows = min_int(LANES, n - j),
                                      .w = (const uint16_t *)k + (size_t)j * t->D,
                                      .K = t->D,
                                      .acc = t->s + j,
                                      .ld = FV_KV_BLOCK,
                                      .next = next});
}

static void scores_bf16(attn_item *t, const void *k, const void *after, int32_t n) {
    fv_tensor keys = fv_tensor_of((void *)(uintptr_t)k, t->a->kv_dtype, n, (int32_t)t->D);
    ptrdiff_t next = after ? (const char *)after - (const char *)k : 0;
    int panels = (int)div_up(n, LANES);
    memset(t->s, 0, (size_t)t->R * FV_KV_BLOCK * sizeof *t->s);
    if (bf16_in_place(&keys, t->R)) {
        scores_bf16_few(t, k, next, n);
        return;
    }
    for (int j = 0; j < panels; j++)
        bf16_panel(&keys, j * LANES, min_int(LANES, n - j * LANES), 0, t->Dp / BF16_STEP, next,
                   t->k + (size_t)j * t->Dp * LANES);
    multiply_panels(t->panels, &(bf16_product){.x = t->q,
                                               .w = t->k,
                                               .ldx = t->Dp,
                                               .ldw = t->Dp * LANES,
                                               .ld_line = LANES,
                                               .M = t->R,
                                               .panels = panels,
                                               .steps = t->Dp / BF16_STEP,
                                               .acc = t->s,
                                               .ld_row = FV_KV_BLOCK,
                                               .ld_panel = LANES});
}

/* Packs the first n rows of v, rounded, then zeros, as panels [64, 16] into t->v. */
static void pack_values(attn_item *t, const void *block, int32_t n, const void *next) {
    fv_dtype type = t->a->kv_dtype;
    size_t size = fv_dtype_bytes(type);
    for (size_t b = 0; next && b < FV_KV_BLOCK * t->D * size; b += 64)
        _mm_prefetch((const char *)next + b, _MM_HINT_T1);
    for (size_t d = 0; d < t->Dp; d += LANES) {
        float *to = t->v + d * FV_KV_BLOCK;
        size_t cols = d < t->D ? t->D - d : 0;
        for (int32_t j = 0; j < FV_KV_BLOCK; j++, to += LANES) {
            const char *at = (const char *)block + ((size_t)j * t->D + d) * size;
            f32x16 v = j >= n || cols == 0 ? f32x16_zero()
                       : cols >= LANES     ? f32x16_widen(at, type)
                                           : f32x16_widen_tail(at, type, cols);
            f32x16_store(to, type == FV_BF16 ? v : f32x16_round_bf16(v));
        }
    }
}

/* o = o + p v for `rows` vectors from v0 on. */
static void add_values(attn_item *t, int32_t v0, int32_t rows) {
    multiply_panels(t->panels, &(bf16_product){.x = t->s + (size_t)v0 * FV_KV_BLOCK,
                                               .w = t->v,
                                               .ldx = FV_KV_BLOCK,
                                               .ldw = FV_KV_BLOCK * LANES,
                                               .ld_line = LANES,
                                               .M = rows,
                                               .panels = (int)(t->Dp / LANES),
                                               .steps = FV_KV_BLOCK / BF16_STEP,
                                               .acc = t->o + (size_t)v0 * t->Dp,
                                               .ld_row = t->Dp,
                                               .ld_panel = LANES});
}

/* sum = sum + p v for one row of v, mr vectors and nv registers of columns; prefetches the line `ahead`
 * bytes after it. */
static ALWAYS_INLINE void value_row_bf16(const float *p, const uint16_t *v, ptrdiff_t ahead,
                                         const int mr, const int nv, f32x16 *sum) {
    _mm_prefetch((const void *)((uintptr_t)v + (size_t)ahead), _MM_HINT_T1);
    UNROLL for (int x = 0; x < nv; x++) {
        f32x16 column = f32x16_widen(v + x * LANES, FV_BF16);
        UNROLL for (int i = 0; i < mr; i++) {
            sum[i * nv + x] = f32x16_fma(f32x16_all(p[i * FV_KV_BLOCK]), column, sum[i * nv + x]);
        }
    }
}

/* o = o + p v for mr vectors and nv registers of columns from d on, with the first n rows of v read in
 * place. Further rows of zeros would change nothing. */
static ALWAYS_INLINE void values_tile_bf16(const attn_item *t, const uint16_t *v, int32_t n,
                                           size_t d, ptrdiff_t ahead, const int mr, const int nv) {
    const size_t D = t->D;
    v += d;
    for (int32_t j = 0; j < n;) {
        const int32_t end = min_int(n, j + BF16_STEP);
        f32x16 even[BF16_IN_PLACE * VALUES_NV], odd[BF16_IN_PLACE * VALUES_NV];
        UNROLL for (int i = 0; i < mr * nv; i++) even[i] = odd[i] = f32x16_zero();
        for (; j + 1 < end; j += 2, v += 2 * D) {
            value_row_bf16(t->s + j, v, ahead, mr, nv, even);
            value_row_bf16(t->s + j + 1, v + D, ahead, mr, nv, odd);
        }
        if (j < end) value_row_bf16(t->s + j++, v, ahead, mr, nv, even);
        UNROLL for (int i = 0; i < mr; i++) {
            UNROLL for (int x = 0; x < nv; x++) {
                float *o = t->o + (size_t)i * t->Dp + d + (size_t)x * LANES;
                f32x16 sum = f32x16_add(even[i * nv + x], odd[i * nv + x]);
                f32x16_store(o, f32x16_add(f32x16_load(o), sum));
            }
        }
    }
}

/* Not inlined, as bf16_tiles. */
static NEVER_INLINE void values_tiles_bf16(const attn_item *t, const uint16_t *v, int32_t n,
                                           ptrdiff_t next) {
    for (size_t d = 0; d < t->D; d += VALUES_COLUMNS) {
        switch (t->R) {
        case 1: values_tile_bf16(t, v, n, d, next, 1, VALUES_NV); break;
        case 2: values_tile_bf16(t, v, n, d, next, 2, VALUES_NV); break;
        case 3: values_tile_bf16(t, v, n, d, next, 3, VALUES_NV); break;
        default: values_tile_bf16(t, v, n, d, next, BF16_IN_PLACE, VALUES_NV);
        }
    }
}

static bool values_in_place(const attn_item *t) {
    return t->R <= BF16_IN_PLACE && t->a->kv_dtype == FV_BF16 && t->D % VALUES_COLUMNS == 0;
}

/* o = o + p v over rows [0, n) of v, packed, for `count` vectors from v0 on. */
static void values_of(attn_item *t, const void *block, int32_t n, int32_t v0, int32_t count) {
    pack_values(t, block, n, t->after ? t->after->k : NULL);
    add_values(t, v0, count);
}

static void values_bf16(attn_item *t, const void *block, int32_t n) {
    attn_shrink(t);
    if (!attn_rows_shared(t, block, n)) {
        for (int32_t v = 0; v < t->R; v++) values_of(t, block, t->n_seen[v], v, 1);
        return;
    }
    if (!values_in_place(t)) {
        values_of(t, block, attn_most_seen(t), 0, t->R);
        return;
    }
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    values_tiles_bf16(t, block, attn_most_seen(t),
                      t->after ? (const char *)t->after->k - (const char *)block : 0);
    _mm_setcsr(before);
}

static const attn_products products_bf16 = {.bf16 = true,
                                            .item_vectors = BF16_VECTORS,
                                            .pad = BF16_STEP,
                                            .zero = 0.0f,
                                            .copy_queries = copy_queries_bf16,
                                            .scores = scores_bf16,
                                            .values = values_bf16};

#endif
