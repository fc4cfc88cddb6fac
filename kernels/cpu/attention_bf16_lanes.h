#ifndef FOVEA_KERNELS_CPU_ATTENTION_BF16_LANES_H
#define FOVEA_KERNELS_CPU_ATTENTION_BF16_LANES_H

/* The products of attention in bf16, for a path with 16-lane vectors: panels of linear_bf16_lanes.h.
 *
 *     scores   lanes are keys: a panel is 16 of them, transposed
 *     values   lanes are columns of v: a panel is 16 of them, 64 rows
 *
 * Rows of v are multiplied by p = 0 where a vector does not see them, which leaves its bits alone as
 * long as they are finite (kernels/ops.h). Where they are not, each vector gets v as it sees it. */
#include "kernels/cpu/attention_lanes.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/linear_bf16_lanes.h"

static void copy_queries_bf16(attn_item *t) {
    for (int32_t v = 0; v < t->R; v++) {
        float *to = t->q + (size_t)v * t->Dp;
        const float *q = query_of(t, v);
        for (size_t d = 0; d < t->Dp; d++) to[d] = d < t->D ? f32_of_bf16(bf16_of_f32(q[d])) : 0.0f;
    }
}

static void scores_bf16(attn_item *t, const void *k, const void *v, int32_t n) {
    fv_tensor keys = fv_tensor_of((void *)(uintptr_t)k, t->a->kv_dtype, n, (int32_t)t->D);
    ptrdiff_t next = (const char *)v - (const char *)k;
    int panels = (int)div_up(n, LANES);
    for (int j = 0; j < panels; j++)
        bf16_panel(&keys, j * LANES, min_int(LANES, n - j * LANES), 0, t->Dp / BF16_STEP, next,
                   t->k + (size_t)j * t->Dp * LANES);
    memset(t->s, 0, (size_t)t->R * FV_KV_BLOCK * sizeof *t->s);
    bf16_products(&(bf16_product){.x = t->q,
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

/* The first n rows of v, rounded, with zeros after them: panels [64, 16] of t->v. */
static void pack_values(attn_item *t, const void *block, int32_t n) {
    fv_dtype type = t->a->kv_dtype;
    size_t size = fv_dtype_bytes(type);
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
    bf16_products(&(bf16_product){.x = t->s + (size_t)v0 * FV_KV_BLOCK,
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

static void values_bf16(attn_item *t, const void *block, int32_t n, const fv_kv_block *next) {
    (void)next;
    attn_shrink(t);
    if (attn_rows_shared(t, block, n)) {
        pack_values(t, block, attn_most_seen(t));
        add_values(t, 0, t->R);
        return;
    }
    for (int32_t v = 0; v < t->R; v++) {
        pack_values(t, block, t->n_seen[v]);
        add_values(t, v, 1);
    }
}

static const attn_products products_bf16 = {.bf16 = true,
                                            .item_vectors = ITEM_VECTORS,
                                            .pad = BF16_STEP,
                                            .zero = 0.0f,
                                            .copy_queries = copy_queries_bf16,
                                            .scores = scores_bf16,
                                            .values = values_bf16};

static fv_cpu_plan attention_bf16_plan(const void *args) { return plan_with(args, &products_bf16); }

static void attention_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    attention_with(args, &products_bf16, scratch, begin, end);
}

#endif
