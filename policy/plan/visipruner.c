/* prune=visipruner: masks in the first layers, and layers in which the method may decide that rows
 * leave before the next. Where it does depends on data, so counts are upper bounds. */
#include <stdlib.h>
#include <string.h>

#include "policy/plan/contribute.h"
#include "policy/plan/visipruner.h"

fv_status fv_visipruner_filter(const fv_choice *c, int32_t n_layer, int32_t *layer) {
    const char *text = fv_choice_text(c, "filter");
    char *end;
    if (strcmp(text, "auto") == 0) {
        *layer = -1;
        return FV_OK;
    }
    long l = strtol(text, &end, 10);
    if (end != text && strcmp(end, "/32") == 0 && l >= 0 && l < 32) {
        l = fv_layer_of_32((double)l, n_layer);
        end += 3;
    }
    if (end == text || *end || l < 0 || l >= n_layer)
        return FV_FAIL(FV_EINVAL,
                       "policy: prune=visipruner,filter=%s: write auto, a layer 0..%d or "
                       "a layer of 32, as 15/32",
                       text, n_layer - 1);
    *layer = (int32_t)l;
    return FV_OK;
}

static void mask_layers(fv_plan *plan, const fv_choice *c, int32_t shallow) {
    bool self = fv_choice_is(c, "self", "keep"), keep = fv_choice_is(c, "kv_shallow", "keep");
    for (int32_t l = 0; l < shallow; l++) {
        plan->mask[l] = l == 0 ? FV_MASK_MERGE : self ? FV_MASK_TEXT : FV_MASK_ALL;
        plan->forget[l] = !keep;
    }
}

fv_status fv_plan_prune_visipruner(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_PRUNE];
    int32_t shallow, detect, filter, n = plan->shape.n_layer;
    FV_TRY(fv_plan_layer(plan, FV_STAGE_PRUNE, "shallow", &shallow));
    FV_TRY(fv_plan_layer(plan, FV_STAGE_PRUNE, "detect", &detect));
    FV_TRY(fv_visipruner_filter(c, n, &filter));
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    mask_layers(plan, c, shallow);
    for (int32_t l = filter >= 0 ? filter : detect; l < n - 1; l++) {
        plan->tap[l] |= FV_TAP_INFLUENCE;
        plan->edit[plan->n_edit++] =
            (fv_plan_edit){.layer = l + 1, .keep = plan->shape.n_visual, .by_data = true};
    }
    if (plan->n_edit) plan->exact_counts = false;
    plan->most_edits = plan->n_edit < 2 ? plan->n_edit : 2; /* the filter, and the exit */
    if (plan->n_edit == 0 && shallow == 0)
        fv_plan_note(plan, FV_STAGE_PRUNE, "no layer is left to decide in");
    return FV_OK;
}
