#ifndef FOVEA_KERNELS_CPU_ATTENTION_PAIRS_H
#define FOVEA_KERNELS_CPU_ATTENTION_PAIRS_H

/* Attention of few vectors to keys and values in bf16 where they lie, with AVX-512 BF16 (pairs_avx512.h):
 * what the AVX-512 path uses where fv_attn_pairs_take(). */
#include "kernels/cpu/attention_item.h"

/* Whether the item's products run here: the same for all of its blocks. */
bool fv_attn_pairs_take(const attn_item *t);

/* The item's vectors as words, to t->q. */
void fv_attn_pairs_queries(attn_item *t);

/* s[v][j] = dot(q_v, k_j), j < n; columns up to the next multiple of 16 become any numbers. Meanwhile
 * n_ahead rows at `ahead` are fetched. */
void fv_attn_pairs_scores(attn_item *t, const void *k, int32_t n, const void *ahead,
                          int32_t n_ahead);

/* o = o + p v of `count` vectors from v0 on, rows j < n. */
void fv_attn_pairs_values(attn_item *t, const void *v, int32_t n, int32_t v0, int32_t count,
                          const void *ahead, int32_t n_ahead);

#endif
