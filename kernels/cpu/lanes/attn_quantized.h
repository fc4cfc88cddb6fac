#ifndef FOVEA_KERNELS_CPU_LANES_ATTN_QUANTIZED_H
#define FOVEA_KERNELS_CPU_LANES_ATTN_QUANTIZED_H

/* Attention on quantized and depth-merged tokens, in the order of summation of
 * kernels/ops.h, for a path with 16-lane vectors.
 *
 * An item is a KV head times some query rows: the R vectors of its query heads share every row.
 * A softmax block of 64 tokens is decoded once, into panels of f32 that stay in the cache, and used
 * by all of them:
 *
 *     keys     [D, 64]   in tiles of 16 tokens; outliers are inserted, then keys are rotated
 *     scores   S [R, 64] = q K        chains of lanes/chains.h
 *     softmax                         that of lanes/softmax.h
 *     values   o [R, D] = o c + P V   valid tokens
 *
 * In bf16 the chains are canonical products (packed_products.h) of the same panels, rounded. */
#include <string.h>

#include "kernels/cpu/lanes/packed.h"
#include "kernels/cpu/lanes/packed_rows.h"
#include "kernels/cpu/lanes/softmax.h"
#include "kernels/cpu/path.h"

typedef struct codes_item {
    const fv_attn_packed_args *a;
    const fv_packed_seq *seq;
    const packed_products *products;
    codes_view k, v;
    size_t g, D, Dp;            /* KV head; head dim, and padded */
    int32_t group, row0, n_row; /* query heads; rows of the sequence */
    int32_t R;                  /* vectors: v is row v / group, head v % group of the KV head's */
    int32_t anchor;             /* anchor block of the row listed last */
    int32_t n_list, list[FV_KV_BLOCK]; /* valid rows of the block */

    /* scratch */
    float *q, *keys;  /* [R, Dp], [Dp, 64] */
    float *s, *p;     /* [R, 64] scores, then p; p of the valid rows */
    float *w, *o;     /* [64, Dp] values; [R, Dp] */
    float *m, *l, *c; /* [R] */
    int32_t *n_seen;  /* [R] */
} codes_item;

static int32_t codes_rows(const fv_attn_packed_args *a) {
    int32_t rows = PACKED_VECTORS / (a->n_head / a->n_kv);
    return rows > 0 ? rows : 1;
}

/* Vectors to allocate for. */
static size_t codes_vectors(const fv_attn_packed_args *a) {
    return (size_t)(codes_rows(a) * (a->n_head / a->n_kv)) + MR;
}

/* Places the item's arrays in `scratch`; NULL: only counts the bytes. */
static size_t codes_scratch(const fv_attn_packed_args *a, codes_item *t, void *scratch) {
    scratch_bump at = {.base = scratch};
    size_t R = codes_vectors(a);
    t->D = (size_t)a->d_head;
    t->Dp = stepped(t->products, t->D);
    t->q = scratch_take(&at, R * t->Dp);
    t->keys = scratch_take(&at, t->Dp * FV_KV_BLOCK);
    t->s = scratch_take(&at, R * FV_KV_BLOCK);
    t->p = scratch_take(&at, R * FV_KV_BLOCK);
    t->w = scratch_take(&at, FV_KV_BLOCK * t->Dp);
    t->o = scratch_take(&at, R * t->Dp);
    t->m = scratch_take(&at, R);
    t->l = scratch_take(&at, R);
    t->c = scratch_take(&at, R);
    t->n_seen = (int32_t *)scratch_take(&at, R);
    return at.bytes;
}

static int64_t codes_items(const fv_attn_packed_args *a, const fv_packed_seq *seq) {
    return a->n_kv * div_up(seq->n_rows, codes_rows(a));
}

static fv_cpu_plan attn_quantized_plan(const void *args) {
    const fv_attn_packed_args *a = ((const fv_cpu_attention *)args)->a;
    codes_item t = {.products = packed_for(args)};
    fv_cpu_plan plan = {.grain = 1, .scratch_bytes = codes_scratch(a, &t, NULL)};
    for (int i = 0; i < a->n_seq; i++) plan.n_item += codes_items(a, &a->seqs[i]);
    return plan;
}

/* ---- keys ------------------------------------------------------------------------------- */

static ALWAYS_INLINE void keys_tile(const codes_item *t, size_t j0, float *to, const int bits) {
    const char *at = (const char *)codes_at(&t->k, t->g, j0);
    const float *pair = codes_pair(&t->k, t->g * t->D);
    size_t line = fv_packed_row_bytes(&t->k.s, FV_PACKED_TILE);
    for (size_t d = 0; d < t->D; d++, at += line, pair += 2, to += FV_KV_BLOCK)
        codes_line(at, bits, LANES, (code_scale){.lo = pair, .step = pair + 1}, to);
}

/* Decodes a tile of merged keys: directions times the layer's norms. */
static ALWAYS_INLINE void merged_tile(const codes_item *t, size_t j0, float *to,
                                      const fv_dtype type) {
    const char *at = (const char *)codes_at(&t->k, t->g, j0);
    size_t line = FV_PACKED_TILE * fv_dtype_bytes(type);
    f32x16 norm = f32x16_load(merged_norms(&t->k, t->g, j0));
    for (size_t d = 0; d < t->D; d++, at += line, to += FV_KV_BLOCK)
        f32x16_store(to, f32x16_mul(norm, f32x16_widen(at, type)));
}

static void keys_of_tile(const codes_item *t, size_t j0, float *to) {
    if (t->k.s.codes.bits == 8)
        keys_tile(t, j0, to, 8);
    else if (t->k.s.codes.bits == 4)
        keys_tile(t, j0, to, 4);
    else if (t->k.s.dtype == FV_BF16)
        merged_tile(t, j0, to, FV_BF16);
    else if (t->k.s.dtype == FV_F16)
        merged_tile(t, j0, to, FV_F16);
    else
        merged_tile(t, j0, to, FV_F32);
}

/* Decodes the keys of rows [j0, j0 + n) as columns. */
static void take_keys(codes_item *t, int32_t j0, int32_t n) {
    for (int32_t j = j0; j < j0 + n; j += FV_PACKED_TILE) {
        float *to = t->keys + (j - j0);
        keys_of_tile(t, (size_t)j, to);
        for (int32_t i = j; i < min_int(j + FV_PACKED_TILE, j0 + n); i++)
            codes_put_outliers(&t->k, t->g, (size_t)i, t->keys + (i - j0), FV_KV_BLOCK);
        lanes_rotate(t->seq->rows, t->D, (size_t)j / FV_PACKED_TILE, to);
        as_lines(t->products, to, FV_KV_BLOCK, t->D, FV_PACKED_TILE);
    }
}

static void coded_scores(codes_item *t, int32_t j0, int32_t n) {
    take_keys(t, j0, n);
    packed_multiply(t->products,
                    (chains){t->q, t->Dp, t->keys, FV_KV_BLOCK, t->D, fv_packed_tiles((size_t)n),
                             NULL, t->s, FV_KV_BLOCK, NULL},
                    t->R, 0);
    rows_hide_others(t->s, t->R, j0, t->list, t->n_list);
}

/* ---- values ----------------------------------------------------------------------------- */

static ALWAYS_INLINE void coded_rows(const codes_item *t, const int bits) {
    float *to = t->w;
    for (int32_t i = 0; i < t->n_list; i++, to += t->Dp) {
        size_t j = (size_t)t->list[i];
        const float *pair = codes_pair(&t->v, j);
        codes_line((const char *)codes_at(&t->v, t->g, j), bits, t->D,
                   (code_scale){.lo = pair, .step = pair + 1}, to);
        codes_put_outliers(&t->v, t->g, j, to, 1);
    }
}

/* Widens values that are not coded, beside coded keys. */
static ALWAYS_INLINE void plain_rows(const codes_item *t, const fv_dtype type) {
    float *to = t->w;
    for (int32_t i = 0; i < t->n_list; i++, to += t->Dp)
        numbers_line((const char *)codes_at(&t->v, t->g, (size_t)t->list[i]), type, t->D, to);
}

static ALWAYS_INLINE void merged_rows(const codes_item *t, const fv_dtype type) {
    float *to = t->w;
    for (int32_t i = 0; i < t->n_list; i++, to += t->Dp) {
        size_t j = (size_t)t->list[i];
        f32x16 norm = f32x16_all(*merged_norms(&t->v, t->g, j));
        numbers_line((const char *)codes_at(&t->v, t->g, j), type, t->D, to);
        for (size_t d = 0; d < t->D; d += LANES)
            f32x16_store(to + d, f32x16_mul(norm, f32x16_load(to + d)));
        codes_put_outliers(&t->v, t->g, j, to, 1);
    }
}

static void numbers_of_rows(const codes_item *t) {
    bool merged = t->v.s.form == FV_PACKED_MERGED;
    if (t->v.s.dtype == FV_BF16)
        merged ? merged_rows(t, FV_BF16) : plain_rows(t, FV_BF16);
    else if (t->v.s.dtype == FV_F16)
        merged ? merged_rows(t, FV_F16) : plain_rows(t, FV_F16);
    else
        merged ? merged_rows(t, FV_F32) : plain_rows(t, FV_F32);
}

static void take_values(const codes_item *t) {
    if (t->v.s.codes.bits == 8)
        coded_rows(t, 8);
    else if (t->v.s.codes.bits == 4)
        coded_rows(t, 4);
    else
        numbers_of_rows(t);
}

static void coded_values(codes_item *t, int32_t j0) {
    size_t n = (size_t)t->n_list;
    take_values(t);
    as_lines(t->products, t->w, t->Dp, n, padded(t->D));
    packed_multiply(t->products,
                    (chains){listed(t->s, t->p, t->R, j0, t->list, t->n_list), FV_KV_BLOCK, t->w,
                             t->Dp, n, steps_of(t->D), t->c, t->o, t->Dp, NULL},
                    t->R, 0);
}

/* ---- one item --------------------------------------------------------------------------- */

static size_t codes_head(const codes_item *t, int32_t v) {
    return t->g * (size_t)t->group + (size_t)(v % t->group);
}

static int64_t codes_row_of(const codes_item *t, int32_t v) {
    return (int64_t)t->seq->row0 + t->row0 + v / t->group;
}

/* Returns the line for the scores of vector v, or NULL. */
static float *codes_score_line(const codes_item *t, int32_t v) {
    return rows_score_line(t->seq, codes_head(t, v), t->row0 + v / t->group);
}

static void codes_leave_scores(const codes_item *t, int32_t j0, int32_t n) {
    for (int32_t v = 0; v < t->R; v++) {
        float *line = codes_score_line(t, v);
        for (int32_t j = 0; line && j < n; j++)
            line[j0 + j] = t->s[v * FV_KV_BLOCK + j] * t->a->scale;
    }
}

static void codes_begin(codes_item *t) {
    memset(t->q, 0, (size_t)t->R * t->Dp * sizeof *t->q);
    memset(t->o, 0, (size_t)t->R * t->Dp * sizeof *t->o);
    t->anchor = 0;
    for (int32_t v = 0; v < t->R; v++) {
        memcpy(t->q + (size_t)v * t->Dp,
               row_f32(&t->a->q, codes_row_of(t, v)) + codes_head(t, v) * t->D,
               t->D * sizeof *t->q);
        rows_begin(t->seq, codes_score_line(t, v), &t->m[v], &t->l[v], &t->n_seen[v]);
    }
    as_rows(t->products, t->q, t->Dp, t->R, t->D);
}

static void codes_end(const codes_item *t) {
    for (int32_t v = 0; v < t->R; v++)
        rows_end(t->a, codes_row_of(t, v), codes_head(t, v), t->o + (size_t)v * t->Dp, t->m[v],
                 t->l[v]);
}

static void codes_attend(codes_item *t) {
    int32_t n = t->seq->rows->n;
    codes_begin(t);
    for (int32_t j0 = 0, rows; j0 < n; j0 += rows) {
        rows = min_int(FV_KV_BLOCK, n - j0);
        t->n_list = rows_valid(t->seq->rows, j0, rows, &t->anchor, t->list);
        if (t->n_list == 0) continue;
        coded_scores(t, j0, rows);
        codes_leave_scores(t, j0, rows);
        softmax(t->R, t->a->scale, t->n_seen, t->products->multiply, t->s, t->m, t->l, t->c);
        coded_values(t, j0);
    }
    codes_end(t);
}

static void attn_quantized(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_attn_packed_args *a = ((const fv_cpu_attention *)args)->a;
    const packed_products *products = packed_for(args);
    codes_item t = {.a = a, .products = products, .group = a->n_head / a->n_kv};
    codes_scratch(a, &t, scratch);
    if (products->open) products->open();
    for (int q = 0; q < a->n_seq; q++) {
        t.seq = &a->seqs[q];
        t.k = codes_view_of(t.seq->k);
        t.v = codes_view_of(t.seq->v);
        int64_t n = codes_items(a, t.seq);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++) {
            t.g = (size_t)(i % a->n_kv);
            t.row0 = (int32_t)(i / a->n_kv) * codes_rows(a);
            t.n_row = min_int(codes_rows(a), t.seq->n_rows - t.row0);
            t.R = t.group * t.n_row;
            codes_attend(&t);
        }
        begin -= n;
        end -= n;
    }
    if (products->close) products->close();
}

#endif
