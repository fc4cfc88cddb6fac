/* Compiles a policy into its decode plan: calls the function of each FV_DECODE row. */
#include "policy/plan/decode.h"

typedef void (*add_fn)(fv_decode_plan *plan, const fv_params *params, int32_t n_prompt);

#define FV_DECODE(stage, name)                                                                     \
    static void FV_NAME(add_, stage, name)(fv_decode_plan * plan, const fv_params *params,         \
                                           int32_t n_prompt) {                                     \
        FV_NAME(fv_decode_, stage, name)                                                           \
        (plan, &params->FV_PARAMS_MEMBER(stage, name), n_prompt);                                  \
    }
#include "policy/methods.def"

static const add_fn add[FV_N_METHOD] = {
#define FV_DECODE(stage, name) [FV_METHOD_##stage##_##name] = FV_NAME(add_, stage, name),
#include "policy/methods.def"
};

void fv_decode_plan_make(const fv_policy *policy, int32_t n_prompt, fv_decode_plan *out) {
    *out = (fv_decode_plan){.evict = policy->stage[FV_STAGE_EVICT].method};
    for (int s = 0; s < FV_N_STAGE; s++) {
        const fv_choice *c = &policy->stage[s];
        fv_params params;
        if (!c->method) continue;
        fv_choice_params(c, 32, &params); /* decode methods have no layers */
        if (add[c->method->id]) add[c->method->id](out, &params, n_prompt);
        if (s == FV_STAGE_EVICT) out->evict_params = params;
    }
}

fv_accum_rule fv_decode_accum(const fv_method_info *evict, const fv_params *params,
                              int32_t n_prompt) {
    fv_decode_plan plan = {0};
    if (evict && add[evict->id]) add[evict->id](&plan, params, n_prompt);
    return plan.accum;
}
