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

/* Attention of tokens of segment `from` (of any, where they were summed together) to a token for
 * query head h. 0 without a capture: a window of no tokens gives nothing. */
float fv_select_attention(const fv_select_context *ctx, int32_t h, int from, fv_select_row row);

/* One number of the query heads that the context names, at x[h * ld]: in order, in double. */
float fv_select_reduce(const fv_select_context *ctx, const float *x, size_t ld);

/* score[i] of token i: attention of all tokens, for all heads together. */
fv_status fv_select_score(const fv_select_context *ctx, const fv_select_rows *rows, fv_arena *arena,
                          float *score);

/* The choice of most methods: the context's budget. The last `recent` rows stay, and of those
 * ahead of them the `heavy` of highest score; all, where there are no more. score [n]; that of the
 * last rows is not read. */
fv_status fv_select_heavy(const fv_select_context *ctx, const fv_select_rows *rows,
                          const float *score, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                          int32_t n_kept[FV_N_SEG]);

/* The score by the attention of all prompt tokens: sums, or means over the tokens that attend to a
 * token, which are n_prompt less its position. */
fv_status fv_select_hitters(const fv_select_context *ctx, bool mean, fv_arena *arena,
                            int32_t *const kept[FV_N_SEG], int32_t n_kept[FV_N_SEG]);

#endif
