#ifndef FOVEA_KERNELS_CPU_LANES_PACKED_ROWS_H
#define FOVEA_KERNELS_CPU_LANES_PACKED_ROWS_H

/* Helpers of attention on packed rows, for every form: lists the valid rows of a softmax block, writes scores
 * for the caller, and begins and ends a query vector. */
#include <math.h>

#include "kernels/cpu/path.h"
#include "kernels/mathf.h"
#include "kernels/ops.h"

/* Lists the valid rows among [j0, j0 + n); returns how many. *anchor: in, the anchor block of an earlier row;
 * out, that of the last row. */
static inline int32_t rows_valid(const fv_packed_rows *rows, int32_t j0, int32_t n, int32_t *anchor,
                                 int32_t *list) {
    int32_t n_list = 0;
    for (int32_t j = j0; j < j0 + n; j++) {
        while (j >= rows->first[*anchor + 1]) ++*anchor;
        if (!rows->valid || j - rows->first[*anchor] < rows->valid[*anchor]) list[n_list++] = j;
    }
    return n_list;
}

/* Sets scores s [R, FV_KV_BLOCK] of rows from j0 on that are not listed, which may have any value, to
 * -inf. */
static inline void rows_hide_others(float *s, int32_t R, int32_t j0, const int32_t *list,
                                    int32_t n_list) {
    for (int32_t v = 0; v < R; v++, s += FV_KV_BLOCK)
        for (int32_t j = 0, i = 0; j < FV_KV_BLOCK; j++)
            if (i < n_list && list[i] == j0 + j)
                i++;
            else
                s[j] = -INFINITY;
}

/* Returns the line for the scores of a head's query row, counted from the sequence's first, or NULL. */
static inline float *rows_score_line(const fv_packed_seq *q, size_t head, int32_t row) {
    int32_t i = row - (q->n_rows - q->score_rows);
    if (!q->score || i < 0) return NULL;
    return q->score + (head * (size_t)q->score_rows + (size_t)i) * (size_t)q->score_ld;
}

/* Begins a query vector; `line`: its scores, or NULL. */
static inline void rows_begin(const fv_packed_seq *q, float *line, float *m, float *l,
                              int32_t *n_seen) {
    *m = -INFINITY;
    *l = 0.0f;
    *n_seen = FV_KV_BLOCK;
    for (int32_t j = 0; line && j < q->score_ld; j++) line[j] = -INFINITY;
}

/* Ends a query vector: writes o [D] / l, and lse; `row`: of q. */
static inline void rows_end(const fv_attn_packed_args *a, int64_t row, size_t head, const float *o,
                            float m, float l) {
    size_t D = (size_t)a->d_head;
    float *to = row_f32(&a->o, row) + head * D;
    for (size_t d = 0; d < D; d++) to[d] = l == 0.0f ? 0.0f : o[d] / l;
    if (a->lse.data) row_f32(&a->lse, row)[head] = l == 0.0f ? -INFINITY : m + log_f32(l);
}

#endif
