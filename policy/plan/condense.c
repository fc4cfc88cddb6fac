/* Shared by the condense methods. The stage changes the shape that later stages see: first to the
 * most tokens that images can have, and once it has run to the actual number. */
#include "policy/plan/condense.h"

#include "policy/plan/contribute.h"

/* Reason why the method cannot run; NULL: it can. */
static const char *why_not(const fv_plan_shape *s, const fv_condense_rule *rule) {
    if (s->uncondensable) return s->uncondensable;
    if (s->tiled && !rule->tiles)
        return "this model cuts images into tiles, and the method condenses an image of one tile";
    return NULL;
}

fv_status fv_plan_condense(fv_plan *plan, const fv_condense_rule *rule, const void *params) {
    fv_plan_shape *s = &plan->shape;
    const char *why = why_not(s, rule);
    int32_t images = 0, most = 0;
    bool unchanged = true, exact = rule->exact && !s->tiled;
    for (int32_t at = 0, n; fv_plan_next_image(s, true, &at, &n); images++) {
        fv_condense_count c = rule->count(params, n);
        most += c.most;
        unchanged = unchanged && c.unchanged;
    }
    if (unchanged) {
        fv_plan_note(plan, FV_STAGE_CONDENSE,
                     images ? "every visual token is kept" : "the prompt has no image");
        return FV_OK;
    }
    if (why)
        return FV_FAIL(FV_EINVAL, "condense=%s: %s",
                       plan->policy.stage[FV_STAGE_CONDENSE].method->name, why);
    plan->condense.acts = true;
    if (s->n_encoded == 0) {
        s->n_encoded = s->n_visual;
        s->n_visual = most;
        s->n_span = 0;
        s->span = NULL;
        if (!exact) plan->exact_counts = false;
    }
    FV_TRY(fv_plan_check_kept(plan, FV_STAGE_CONDENSE, s->n_visual, most, !exact));
    for (int32_t l = 0; l < s->n_layer; l++) plan->visual[l] = s->n_visual;
    return FV_OK;
}
