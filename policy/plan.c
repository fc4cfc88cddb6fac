/* Compiles a policy into a plan: `exact`, and what each method adds to it, stage by stage. The
 * methods' parts stand in policy/plan/. Pure function, any thread. */
#include "policy/plan.h"

#include <assert.h>
#include <string.h>

#include "policy/packed_shape.h"
#include "policy/plan/contribute.h"

/* In the order of fv_policy_methods: both come from methods.def. */
static fv_status (*const contributions[])(fv_plan *) = {
#define FV_METHOD(stage, name, source, summary) FV_PLAN_##stage(name),
#include "policy/methods.def"
};

fv_status fv_plan_make(const fv_policy *policy, const fv_plan_shape *shape, fv_plan *out) {
    assert(shape->n_layer > 0 && shape->n_layer <= FV_PLAN_MAX_LAYERS);
    fv_plan plan;
    int32_t n;
    memset(&plan, 0, sizeof plan); /* gaps too: what is equal is so byte by byte */
    plan.shape = *shape;
    plan.policy = *policy;
    plan.exact_counts = true;
    plan.keeps_packed = 1;
    const fv_method_info *first = fv_policy_methods(&n);
    for (int32_t l = 0; l < shape->n_layer; l++) {
        plan.visual[l] = shape->n_visual;
        plan.rank_from[l] = -1;
    }
    for (int s = 0; s < FV_N_STAGE; s++)
        if (policy->stage[s].method) FV_TRY(contributions[policy->stage[s].method - first](&plan));
    *out = plan;
    return FV_OK;
}

fv_plan_bytes fv_plan_count(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    uint64_t row = 2 * (uint64_t)s->d_head * (uint64_t)s->bytes_value;
    uint64_t packed = 0;
    int64_t held = 0, visual = 0;
    for (int32_t l = 0; l < s->n_layer; l++) {
        packed += fv_plan_packed_bytes(plan, l);
        for (int32_t g = 0; g < s->n_kv; g++) {
            if (plan->pack[l].rank[FV_PACKED_V]) {
                held += s->n_text; /* packed layers never meet a select stage */
                continue;
            }
            int32_t n = plan->forget[l] ? 0 : plan->visual[l], ran = n + s->n_text;
            int32_t kept = plan->select ? plan->select(plan, l, g) : ran;
            if (kept > ran) kept = ran;
            int32_t most = n + (n < plan->twice ? n : plan->twice);
            held += kept;
            visual += kept < most ? kept : most;
        }
    }
    uint64_t raw = (uint64_t)s->n_layer * (uint64_t)s->n_kv * (uint64_t)(s->n_visual + s->n_text);
    return (fv_plan_bytes){row * raw, row * (uint64_t)held + packed,
                           row * (uint64_t)visual + packed};
}
