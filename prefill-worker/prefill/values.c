/* The table of evict methods with a value per token, generated from methods.def. For the thread that owns
 * the store. */
#include "prefill-worker/prefill/values.h"

#include "model/net/accum.h"

typedef fv_status value_fn(const fv_value_tokens *tokens, float *value);

static value_fn *const methods[FV_N_METHOD + 1] = {
    [FV_N_METHOD] = NULL, /* an array must not be empty */
#define FV_VALUE(stage, name) [FV_METHOD_##stage##_##name] = FV_NAME(fv_value_, stage, name),
#include "policy/methods.def"
};

fv_status fv_values_fill(const fv_plan *plan, fv_backend *be, fv_kv *kv, int32_t layer,
                         fv_arena *arena) {
    fv_value_tokens tokens = {.params = &plan->params[FV_STAGE_EVICT],
                              .be = be,
                              .kv = kv,
                              .layer = layer,
                              .arena = arena};
    if (plan->evict.accum.kind != FV_ACCUM_VALUE) return FV_OK;
    value_fn *fill = methods[plan->policy.stage[FV_STAGE_EVICT].method->id];
    for (; tokens.head < fv_kv_get_shape(kv)->n_kv; tokens.head++)
        for (int seg = 0; seg < FV_N_SEG; seg++) {
            tokens.seg = (fv_kv_segment)seg;
            tokens.n = fv_kv_len(kv, layer, tokens.head, tokens.seg);
            FV_TRY(fill(&tokens, fv_accum_values(kv, layer, tokens.head, tokens.seg)));
        }
    return FV_OK;
}
