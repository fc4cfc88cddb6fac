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
        plan.leader[l] = l;
    }
    for (int s = 0; s < FV_N_STAGE; s++)
        if (policy->stage[s].method) FV_TRY(contributions[policy->stage[s].method - first](&plan));
    *out = plan;
    return FV_OK;
}

/* Keys of its own among a head's `rows`. */
static int32_t own_keys(const fv_plan *plan, int32_t l, int32_t rows) {
    if (plan->leader[l] == l) return rows;
    if (plan->lent_text) return 0;
    int32_t text = plan->shape.n_text, most = text + (text < plan->twice ? text : plan->twice);
    return rows < most ? rows : most;
}

fv_plan_bytes fv_plan_count(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    uint64_t part = (uint64_t)s->d_head * (uint64_t)s->bytes_value; /* a key, or a value */
    uint64_t packed = 0;
    int64_t held = 0, visual = 0;
    for (int32_t l = 0; l < s->n_layer; l++) {
        packed += fv_plan_packed_bytes(plan, l);
        for (int32_t g = 0; g < s->n_kv; g++) {
            if (plan->pack[l].rank[FV_PACKED_V]) {
                held += s->n_text + own_keys(plan, l, s->n_text); /* and no select stage */
                continue;
            }
            int32_t n = plan->forget[l] ? 0 : plan->visual[l], ran = n + s->n_text;
            int32_t kept = plan->select ? plan->select(plan, l, g) : ran;
            if (kept > ran) kept = ran;
            int32_t most = n + (n < plan->twice ? n : plan->twice);
            int32_t image = kept < most ? kept : most;
            held += kept + own_keys(plan, l, kept);
            visual += plan->leader[l] == l ? 2 * image : image;
        }
    }
    uint64_t raw = (uint64_t)s->n_layer * (uint64_t)s->n_kv * (uint64_t)(s->n_visual + s->n_text);
    return (fv_plan_bytes){2 * part * raw, part * (uint64_t)held + packed,
                           part * (uint64_t)visual + packed};
}

int32_t fv_plan_lent_text(const fv_plan *plan) {
    int32_t n = 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) n += plan->lent_text && plan->leader[l] != l;
    return n;
}
