#ifndef FOVEA_KERNELS_CPU_PLAIN_QUERY_H
#define FOVEA_KERNELS_CPU_PLAIN_QUERY_H

/* A query vector of plain attention: the keys it sees, and its scores. */
#include "kernels/cpu/plain/bf16.h"

/* A query vector, and the block tables of its KV head. */
typedef struct query {
    const fv_attn_args *a;
    const fv_attn_seq *seq;
    const float *q;               /* [D] */
    const fv_block_table *tables; /* [n_seg] */
    int32_t row;                  /* of the sequence */
    fv_compute compute;
    const int32_t *const *position; /* [n_seg]; NULL: no window */
} query;

/* How many keys of segment s the query sees. */
static inline int32_t visible(const query *u, int s) {
    const int32_t *masked_tail = u->seq->masked_tail;
    int32_t n = u->tables[s].len - (masked_tail ? masked_tail[s * u->seq->n_rows + u->row] : 0);
    return n < 0 ? 0 : n;
}

/* Whether key j of segment s is in the query's window. */
static inline bool in_window(const query *u, int s, int32_t j) {
    return !u->position || u->position[s][j] >= u->seq->window_from[u->row];
}

/* How many of keys [j0, j0 + n) of segment s, all visible, are in the query's window. */
static inline int32_t n_in_window(const query *u, int s, int32_t j0, int32_t n) {
    int32_t count = 0;
    for (int32_t j = j0; j < j0 + n; j++) count += in_window(u, s, j);
    return count;
}

static inline const void *kv_row(const query *u, const void *base, int32_t j) {
    size_t bytes = (size_t)u->a->d_head * fv_dtype_bytes(u->a->kv_dtype);
    return (const char *)base + (size_t)(j % FV_KV_BLOCK) * bytes;
}

static inline float score(const query *u, int s, int32_t j) {
    const void *k = kv_row(u, u->tables[s].block[j / FV_KV_BLOCK].k, j);
    size_t D = (size_t)u->a->d_head;
    return u->a->scale * (u->compute == FV_COMPUTE_BF16
                              ? plain_dot_bf16(u->q, FV_F32, k, u->a->kv_dtype, D)
                              : plain_dot(u->q, k, u->a->kv_dtype, D));
}

static inline query query_of(const fv_attn_args *a, const fv_attn_seq *seq, int32_t i, int32_t h,
                             fv_compute compute) {
    int32_t group = a->n_head / a->n_kv;
    const float *q = row_f32(&a->q, (int64_t)seq->row0 + i) + (size_t)h * (size_t)a->d_head;
    ptrdiff_t table = (ptrdiff_t)(h / group) * seq->n_seg;
    query u = {a, seq, q, seq->tables + table, i, compute, NULL};
    if (seq->window_from) u.position = seq->position + table;
    return u;
}

#endif
