/* prune=visipruner: masks in the first layers, and layers after which the method may drop rows.
 * Where it does depends on data, so counts are upper bounds. */
#include <stdlib.h>
#include <string.h>

#include "policy/plan/contribute.h"
#include "policy/plan/visipruner.h"

fv_status fv_visipruner_filter(const fv_prune_visipruner_params *p, int32_t n_layer,
                               int32_t *layer) {
    const char *text = p->filter;
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

/* Reads a threshold; *given: the request has it. */
static fv_status read_number(const char *param, const char *text, double min, double max,
                             double *out, bool *given) {
    char *end;
    *given = strcmp(text, "auto") != 0;
    if (!*given) return FV_OK;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= min && v <= max))
        return FV_FAIL(FV_EINVAL,
                       "policy: prune=visipruner,%s=%s: write auto, or a number from %g to %g",
                       param, text, min, max);
    *out = v;
    return FV_OK;
}

/* Thresholds missing from the request are the checkpoint's, or LLaVA-1.5's: VisiPruner publishes no
 * others. */
static fv_status choose_thresholds(const fv_plan *plan, const fv_prune_visipruner_params *p,
                                   fv_plan_thresholds *t, const char **whose) {
    static const fv_plan_thresholds published = {.cos = 0.995, .l2 = 0.2, .exit_cos = 0.999};
    const double *measured = plan->shape.thresholds;
    bool given[3];
    *whose = NULL;
    *t = measured ? (fv_plan_thresholds){measured[0], measured[1], measured[2]} : published;
    FV_TRY(read_number("cos", p->cos, -1, 1, &t->cos, &given[0]));
    FV_TRY(read_number("l2", p->l2, 0, 1e6, &t->l2, &given[1]));
    FV_TRY(read_number("exit_cos", p->exit_cos, -1, 1, &t->exit_cos, &given[2]));
    if (given[0] && given[1] && given[2]) return FV_OK;
    *whose = measured                   ? "the checkpoint's calibration"
             : plan->shape.uncalibrated ? "LLaVA-1.5, as the checkpoint's calibration "
                                          "is of other weights or damaged"
                                        : "LLaVA-1.5, as the checkpoint has none";
    return FV_OK;
}

static void mask_layers(fv_plan *plan, const fv_prune_visipruner_params *p) {
    fv_plan_mask first = p->first_merge ? FV_MASK_MERGE : FV_MASK_HALF;
    for (int32_t l = 0; l < p->shallow; l++) {
        plan->prune.mask[l] = l == 0 ? first : p->self_keep ? FV_MASK_TEXT : FV_MASK_ALL;
        plan->prune.drop_visual_kv[l] = p->kv_shallow_drop;
    }
}

fv_status fv_plan_prune_visipruner(fv_plan *plan, const fv_prune_visipruner_params *p) {
    int32_t filter, n = plan->shape.n_layer;
    fv_plan_thresholds thresholds;
    const char *whose;
    FV_TRY(fv_visipruner_filter(p, n, &filter));
    FV_TRY(choose_thresholds(plan, p, &thresholds, &whose));
    if (fv_plan_text_only(plan, FV_STAGE_PRUNE)) return FV_OK;
    plan->prune.thresholds = thresholds;
    plan->prune.thresholds_of = whose;
    mask_layers(plan, p);
    for (int32_t l = filter >= 0 ? filter : p->detect; l < n - 1; l++) {
        plan->capture[l] |= FV_CAPTURE_ABLATION;
        plan->prune.edit[plan->prune.n_edit++] =
            (fv_plan_edit){.layer = l + 1, .keep = plan->shape.n_visual, .by_data = true};
    }
    if (plan->prune.n_edit) plan->exact_counts = false;
    plan->prune.most_edits =
        plan->prune.n_edit < 2 ? plan->prune.n_edit : 2; /* the filter and the exit */
    if (plan->prune.n_edit == 0 && p->shallow == 0)
        fv_plan_note(plan, FV_STAGE_PRUNE, "no layer is left after which tokens could be dropped");
    return FV_OK;
}
