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

/* Keys of its own among the `rows` of a head of a layer that borrows. */
static int32_t own_keys(const fv_plan *plan, int32_t rows) {
    if (plan->lent_text) return 0;
    int32_t text = plan->shape.n_text, most = text + (text < plan->twice ? text : plan->twice);
    return rows < most ? rows : most;
}

/* Keys and values that a layer holds: in all, and of image rows; and bytes of its factors. */
typedef struct layer_count {
    uint64_t held, visual, packed;
} layer_count;

/* leads: the keys are its own. */
static layer_count count_layer(const fv_plan *plan, int32_t l, bool leads) {
    const fv_plan_shape *s = &plan->shape;
    layer_count c = {.packed = fv_plan_packed_bytes(plan, l, leads)};
    bool packed = plan->pack[l].rank[FV_PACKED_V] > 0; /* and no select stage */
    for (int32_t g = 0; g < s->n_kv; g++) {
        int32_t n = plan->forget[l] || packed ? 0 : plan->visual[l], ran = n + s->n_text;
        int32_t kept = plan->select ? plan->select(plan, l, g) : ran;
        if (kept > ran) kept = ran;
        int32_t most = n + (n < plan->twice ? n : plan->twice);
        int32_t image = kept < most ? kept : most;
        c.held += (uint64_t)kept + (uint64_t)(leads ? kept : own_keys(plan, kept));
        c.visual += leads ? 2 * (uint64_t)image : (uint64_t)image;
    }
    return c;
}

static void most_of(uint64_t *most, uint64_t with, uint64_t without) {
    if (with > without && with - without > *most) *most = with - without;
}

fv_plan_bytes fv_plan_count(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    uint64_t part = (uint64_t)s->d_head * (uint64_t)s->bytes_value; /* a key, or a value */
    layer_count sum = {0}, more = {0}; /* more: what a lazy layer that comes to lead adds */
    for (int32_t l = 0; l < s->n_layer; l++) {
        layer_count c = count_layer(plan, l, plan->leader[l] == l);
        layer_count leads = count_layer(plan, l, true);
        sum.held += c.held;
        sum.visual += c.visual;
        sum.packed += c.packed;
        most_of(&more.held, leads.held, c.held);
        most_of(&more.visual, leads.visual, c.visual);
        most_of(&more.packed, leads.packed, c.packed);
    }
    uint64_t n = (uint64_t)plan->splits, packed = sum.packed + n * more.packed;
    uint64_t raw = (uint64_t)s->n_layer * (uint64_t)s->n_kv * (uint64_t)(s->n_visual + s->n_text);
    return (fv_plan_bytes){2 * part * raw, part * (sum.held + n * more.held) + packed,
                           part * (sum.visual + n * more.visual) + packed};
}

int32_t fv_plan_lent_text(const fv_plan *plan) {
    int32_t n = 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++) n += plan->lent_text && plan->leader[l] != l;
    return n > plan->splits ? n - plan->splits : 0;
}
