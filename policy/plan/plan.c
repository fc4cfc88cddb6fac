/* Compiles a policy into a plan: `exact`, and what each method adds to it, stage by stage. The
 * methods' parts stand in policy/plan/. Pure function, any thread. */
#include "policy/plan/plan.h"

#include <assert.h>
#include <string.h>

#include "policy/plan/contribute.h"
#include "policy/plan/packed_shape.h"

/* In the order of fv_policy_methods: both come from methods.def. */
static fv_status (*const contributions[])(fv_plan *) = {
#define FV_METHOD(stage, name, source, summary) FV_PLAN_##stage(name),
#define FV_METHOD_AS(stage, name, source, summary, plan) FV_METHOD(stage, plan, source, summary)
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
        plan.source_layer[l] = l;
    }
    for (int s = 0; s < FV_N_STAGE; s++)
        if (policy->stage[s].method) FV_TRY(contributions[policy->stage[s].method - first](&plan));
    for (int s = 0; s < FV_N_STAGE; s++)
        if (plan.note[s][0]) fv_plan_forget_mapped(&plan, (fv_stage)s);
    *out = plan;
    return FV_OK;
}

int32_t fv_plan_reused_text(const fv_plan *plan) {
    int32_t n = 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        n += plan->reused_text && plan->source_layer[l] != l;
    return n > plan->splits ? n - plan->splits : 0;
}
