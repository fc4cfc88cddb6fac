/* select=streaming: attention sinks and the recent window (StreamingLLM, arXiv 2309.17453). Rows
 * keep their original positions. Some heads of every layer keep all rows (DuoAttention, arXiv
 * 2410.10819), so lengths differ between the heads of one layer. */
#include "policy/plan/streaming.h"
#include "prefill-worker/select/select.h"

static fv_status keep(const fv_select_context *ctx, fv_arena *arena, int32_t *const kept[FV_N_SEG],
                      int32_t n_kept[FV_N_SEG]) {
    (void)arena;
    fv_streaming_span span =
        fv_streaming_head(&ctx->params->select_streaming, ctx->head, ctx->n_kv, ctx->n_prompt);
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        for (int32_t i = 0; i < ctx->n[seg]; i++) {
            int32_t pos = ctx->pos[seg][i];
            if (pos < span.sink || pos >= span.recent_from) kept[seg][n_kept[seg]++] = i;
        }
    }
    return FV_OK;
}

const fv_select_method fv_select_streaming = {.keep = keep};
