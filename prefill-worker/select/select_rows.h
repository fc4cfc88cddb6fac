#ifndef FOVEA_PREFILL_WORKER_SELECT_SELECT_ROWS_H
#define FOVEA_PREFILL_WORKER_SELECT_SELECT_ROWS_H

/* A KV HEAD'S ROWS IN PROMPT ORDER, and what they were paid: what select methods share that rank
 * rows of text and of images together. Pure functions of their arguments. */
#include "prefill-worker/select/select.h"

typedef struct fv_select_row {
    uint8_t seg; /* fv_kv_segment */
    int32_t at;  /* its index in the segment */
} fv_select_row;

typedef struct fv_select_rows {
    int32_t n;
    fv_select_row *row; /* [n] by prompt position */
} fv_select_rows;

fv_status fv_select_order(const fv_select_context *ctx, fv_arena *arena, fv_select_rows *out);

/* What rows of segment `from` (of any, where they were summed together) paid to a row for query
 * head h. 0 where nobody was asked: a window of no rows pays nothing. */
float fv_select_paid(const fv_select_context *ctx, int32_t h, int from, fv_select_row row);

/* One number of the query heads that the context names, at x[h * ld]: in order, in double. */
float fv_select_reduce(const fv_select_context *ctx, const float *x, size_t ld);

/* score[i] of row i: what it was paid by all, for all the heads together. */
fv_status fv_select_score(const fv_select_context *ctx, const fv_select_rows *rows, fv_arena *arena,
                          float *score);

/* The choice of most methods: the context's budget. The last `recent` rows stay, and of those
 * ahead of them the `heavy` of highest score; all, where there are no more. score [n]; that of the
 * last rows is not read. */
fv_status fv_select_heavy(const fv_select_context *ctx, const fv_select_rows *rows,
                          const float *score, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                          int32_t n_kept[FV_N_SEG]);

/* That by what all tokens of the prompt paid: sums, or means over the rows that see a row, which are
 * n_prompt less its position. */
fv_status fv_select_hitters(const fv_select_context *ctx, bool mean, fv_arena *arena,
                            int32_t *const kept[FV_N_SEG], int32_t n_kept[FV_N_SEG]);

#endif
