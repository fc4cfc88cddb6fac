/* A plan depends on the end of the prompt from a layer on; the layers before it are found here. Any thread. */
#include "policy/plan/prefix.h"

#include <stdio.h>
#include <string.h>

#include "policy/depends.h"

static bool own_alone(const fv_plan *plan, fv_stage stage) {
    return fv_inputs_are_own(fv_choice_inputs(&plan->policy.stage[stage]));
}

static bool is_lazy(const fv_plan *plan) {
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        if (plan->share.source_layer[l] != l) return true;
    return false;
}

/* Whether a layer's attention is looked at for more tokens than the prompt's last one, or changed by the number of
 * its visual tokens. Other masks change a token's attention by its own place and that of the first image. */
static bool looked_at(const fv_plan *plan, int32_t layer) {
    const int alone = FV_CAPTURE_LAST_ROW | FV_CAPTURE_ABLATION;
    return plan->prune.mask[layer] == FV_MASK_HALF || plan->capture[layer] & ~alone;
}

static bool is_masked(const fv_plan *plan, int32_t layers) {
    for (int32_t l = 0; l < layers; l++)
        if (plan->prune.mask[l]) return true;
    return false;
}

/* Whether the stage chooses tokens by the embeddings of the whole prompt. */
static bool needs_embeddings(const fv_plan *plan) {
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        if (plan->capture[l] & FV_CAPTURE_SCORERS) return true;
    return false;
}

/* The first layer of the lazy block that goes on at `layer`. */
static int32_t block_start(const fv_plan *plan, int32_t layer) {
    for (int32_t l = layer; l < plan->shape.n_layer; l++)
        if (plan->share.source_layer[l] < layer) layer = plan->share.source_layer[l];
    return layer;
}

int32_t fv_plan_prefix_layers(const fv_plan *plan) {
    int32_t n = plan->shape.n_layer;
    if (plan->condense.acts && !own_alone(plan, FV_STAGE_CONDENSE)) return 0;
    if (is_lazy(plan) && !own_alone(plan, FV_STAGE_LAZY)) return 0;
    if (needs_embeddings(plan)) return 0;
    if (plan->prune.n_edit && plan->prune.edit[0].layer < n) n = plan->prune.edit[0].layer;
    for (int32_t l = 0; l < n; l++)
        if (looked_at(plan, l)) n = l;
    return block_start(plan, n);
}

void fv_plan_prefix_stages(const fv_plan *plan, char out[FV_PLAN_PREFIX_TEXT]) {
    const int32_t layers = fv_plan_prefix_layers(plan);
    size_t n = 0;
    out[0] = '\0';
    if (plan->condense.acts) {
        fv_policy alone = {0};
        alone.stage[FV_STAGE_CONDENSE] = plan->policy.stage[FV_STAGE_CONDENSE];
        fv_policy_print(&alone, out);
        n = strlen(out);
    }
    if (is_lazy(plan)) {
        n += (size_t)snprintf(out + n, FV_PLAN_PREFIX_TEXT - n, ";keys of layers%s",
                              plan->share.text ? ", text too" : "");
        for (int32_t l = 0; l < layers; l++)
            n += (size_t)snprintf(out + n, FV_PLAN_PREFIX_TEXT - n, " %d",
                                  plan->share.source_layer[l]);
    }
    if (is_masked(plan, layers)) {
        n += (size_t)snprintf(out + n, FV_PLAN_PREFIX_TEXT - n, ";masks");
        for (int32_t l = 0; l < layers; l++)
            n += (size_t)snprintf(out + n, FV_PLAN_PREFIX_TEXT - n, " %d", plan->prune.mask[l]);
    }
    if (layers < plan->shape.n_layer)
        snprintf(out + n, FV_PLAN_PREFIX_TEXT - n, ";before layer %d", layers);
}
