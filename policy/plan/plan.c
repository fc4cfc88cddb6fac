/* Compiles a policy into a plan: starts with `exact` and adds the contribution of each method,
 * stage by stage. The methods' parts are in policy/plan/. Pure function, any thread. */
#include "policy/plan/plan.h"

#include <assert.h>
#include <string.h>

#include "policy/plan/contribute.h"

/* add_<stage>_<method> calls the row's function with its parameters. */
#define FV_METHOD_AS(stage, name, source, summary, call)                                           \
    static fv_status FV_NAME(add_, stage, name)(fv_plan * plan) {                                  \
        const FV_PARAMS(stage, name) *p =                                                          \
            &plan->params[FV_STAGE_##stage].FV_PARAMS_MEMBER(stage, name);                         \
        return FV_NAME(fv_plan_, stage, call);                                                     \
    }
#define FV_METHOD(stage, name, source, summary)                                                    \
    FV_METHOD_AS(stage, name, source, summary, name(plan, p))
#include "policy/methods.def"

static fv_status (*const add[])(fv_plan *) = {
#define FV_METHOD(stage, name, source, summary)                                                    \
    [FV_METHOD_##stage##_##name] = FV_NAME(add_, stage, name),
#include "policy/methods.def"
};

/* Checks that the stage's layers exist, and records those that were mapped, for the report. */
static fv_status check_layers(fv_plan *plan, fv_stage stage) {
    const fv_choice *c = &plan->policy.stage[stage];
    int32_t n_layer = plan->shape.n_layer;
    for (int32_t i = 0; i < c->method->n_param; i++) {
        fv_param_type type = c->method->param[i].type;
        if (!fv_param_is_layer(type)) continue;
        int32_t layer = fv_choice_layer(c, i, n_layer);
        if (type == FV_PARAM_LAYER && layer >= n_layer)
            return FV_FAIL(FV_EINVAL, "policy: %s=%s,%s=%d: this checkpoint has layers 0..%d",
                           fv_stage_name(stage), c->method->name, c->method->param[i].name, layer,
                           n_layer - 1);
        if (c->given[i]) continue;
        assert(plan->n_mapped < FV_PLAN_MAX_MAPPED);
        plan->mapped[plan->n_mapped++] = (fv_plan_mapped){stage, i, layer};
    }
    return FV_OK;
}

static fv_status add_stage(fv_plan *plan, fv_stage stage) {
    const fv_choice *c = &plan->policy.stage[stage];
    if (!c->method) return FV_OK;
    fv_choice_params(c, plan->shape.n_layer, &plan->params[stage]);
    FV_TRY(check_layers(plan, stage));
    return add[c->method->id](plan);
}

static int32_t count_runs(const fv_plan_shape *s) {
    int32_t n = s->n_visual > 0;
    for (int32_t i = 1; i < s->n_span; i++) {
        const fv_token_span *before = &s->span[i - 1], *span = &s->span[i];
        n += span->image != before->image || span->first != before->first + before->n;
    }
    return n;
}

fv_status fv_plan_make(const fv_policy *policy, const fv_plan_shape *shape, fv_plan *out) {
    assert(shape->n_layer > 0 && shape->n_layer <= FV_PLAN_MAX_LAYERS);
    fv_plan plan;
    memset(&plan, 0, sizeof plan); /* padding too: plans are compared byte by byte */
    plan.shape = *shape;
    plan.policy = *policy;
    plan.exact_counts = true;
    plan.evict.keep_packed = 1;
    plan.visual_runs = count_runs(shape);
    for (int32_t l = 0; l < shape->n_layer; l++) {
        plan.visual[l] = shape->n_visual;
        plan.evict.rank_from[l] = -1;
        plan.share.source_layer[l] = l;
    }
    for (int s = 0; s < FV_N_STAGE; s++) FV_TRY(add_stage(&plan, (fv_stage)s));
    if (shape->state_bytes) FV_TRY(fv_plan_check_recurrent(&plan));
    for (int s = 0; s < FV_N_STAGE; s++)
        if (plan.note[s][0]) fv_plan_clear_mapped(&plan, (fv_stage)s);
    *out = plan;
    return FV_OK;
}

fv_status fv_plan_check_kept(const fv_plan *plan, fv_stage stage, int32_t kept, int32_t planned,
                             bool by_data) {
    if (by_data ? kept <= planned : kept == planned) return FV_OK;
    return FV_FAIL(FV_EFATAL, "%s=%s kept %d tokens but planned %s%d", fv_stage_name(stage),
                   plan->policy.stage[stage].method->name, kept, by_data ? "at most " : "",
                   planned);
}

bool fv_plan_next_image(const fv_plan_shape *s, bool encoded, int32_t *at, int32_t *n) {
    if (s->n_span == 0) {
        *n = encoded && s->n_encoded ? s->n_encoded : s->n_visual;
        return *n > 0 && (*at)++ == 0;
    }
    if (*at >= s->n_span) return false;
    int32_t image = s->span[*at].image;
    for (*n = 0; *at < s->n_span && s->span[*at].image == image; ++*at) {
        const fv_token_span *span = &s->span[*at];
        *n += encoded && span->encoded ? span->encoded : span->n;
    }
    return true;
}

int32_t fv_plan_reused_text(const fv_plan *plan) {
    int32_t n = 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        n += plan->share.text && plan->share.source_layer[l] != l;
    return n > plan->share.split_max ? n - plan->share.split_max : 0;
}
