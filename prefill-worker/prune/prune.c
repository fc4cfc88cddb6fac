/* The table of prune methods, made from methods.def (a row without its file does not link), and
 * functions that several of them share. */
#include "prefill-worker/prune/prune.h"

#include <assert.h>

#include "policy/stage_rows.h"

static const fv_prune_method *const methods[] = {
#undef PRUNE
#define PRUNE(name) [FV_METHOD_PRUNE_##name] = &fv_prune_##name,
#define FV_METHOD(stage, name, source, summary) stage(name)
#include "policy/methods.def"
};

const fv_prune_method *fv_prune_method_of(fv_method_id id) { return methods[id]; }

void fv_prune_head_mean(const float *p, int32_t n_head, int32_t n_key, int32_t n, float *mean) {
    for (int32_t j = 0; j < n; j++) {
        double sum = 0;
        for (int32_t h = 0; h < n_head; h++)
            sum += (double)p[(size_t)h * (size_t)n_key + (size_t)j];
        mean[j] = (float)(sum / n_head);
    }
}

fv_status fv_prune_by_attention(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                                int32_t *n_kept) {
    (void)state;
    assert(ctx->attention);
    fv_prune_top(ctx, ctx->attention, kept, n_kept);
    return FV_OK;
}
