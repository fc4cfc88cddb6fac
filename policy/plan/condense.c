/* What the condense methods' files share. The stage changes the shape that later stages see: at
 * first to what images come to at most, and once it has run to what they came to. */
#include "policy/plan/condense.h"

int32_t fv_plan_image_rows(const fv_plan *plan) {
    const fv_plan_shape *s = &plan->shape;
    if (s->n_image == 0) return 0;
    return (s->n_encoded ? s->n_encoded : s->n_visual) / s->n_image;
}

fv_status fv_plan_condense(fv_plan *plan, int32_t most, bool exact) {
    fv_plan_shape *s = &plan->shape;
    plan->condense.acts = true;
    if (s->n_encoded == 0) {
        s->n_encoded = s->n_visual;
        s->n_visual = most * s->n_image;
        s->image = NULL;
        if (!exact) plan->exact_counts = false;
    }
    FV_TRY(fv_plan_check_kept(plan, FV_STAGE_CONDENSE, s->n_visual, most * s->n_image, !exact));
    for (int32_t l = 0; l < s->n_layer; l++) plan->visual[l] = s->n_visual;
    return FV_OK;
}
