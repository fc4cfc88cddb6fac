#ifndef FOVEA_PREFILL_WORKER_SELECT_SELECT_ROWS_H
#define FOVEA_PREFILL_WORKER_SELECT_SELECT_ROWS_H

/* A KV HEAD'S ENTRIES IN PROMPT ORDER, and the attention that they received: shared by the select
 * methods that rank text and visual tokens together. Pure functions of their arguments. */
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

/* Attention of tokens of segment `from` (of all segments, if they were summed together) to a row in
 * query head h. 0 without a capture, as a window of no tokens gives none. */
float fv_select_attention(const fv_select_context *ctx, int32_t h, int from, fv_select_row row);

/* Reduces x[h * ld] over the context's query heads h to their largest or mean, in order, in double. */
float fv_select_reduce(const fv_select_context *ctx, const float *x, size_t ld);

/* score[i]: attention of all captured tokens to row i, reduced over query heads. */
fv_status fv_select_score(const fv_select_context *ctx, const fv_select_rows *rows, fv_arena *arena,
                          float *score);

/* Chooses as most methods do, by the context's budget: keeps the last `recent` rows, and of the rows
 * before them the `heavy` of highest score; keeps all rows if there are no more. score [n]; scores of the
 * last rows are not read. */
fv_status fv_select_by_budget(const fv_select_context *ctx, const fv_select_rows *rows,
                              const float *score, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                              int32_t n_kept[FV_N_SEG]);

/* Chooses by the attention of all prompt tokens: by its sum, or with `mean` by that sum divided by the
 * number of tokens that attend to a row, n_prompt less its position. */
fv_status fv_select_by_attention(const fv_select_context *ctx, bool mean, fv_arena *arena,
                                 int32_t *const kept[FV_N_SEG], int32_t n_kept[FV_N_SEG]);

#endif
