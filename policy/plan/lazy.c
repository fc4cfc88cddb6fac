/* Block maps of lazy attention: runs of neighbouring layers; the first of a run is its source
 * layer.
 *
 *   paper_like     layers 0, 1 and the last are single, the others in blocks of 5 from layer 2
 *                  on: of 32 layers 23 are lazy, the share that Q Cache reports
 *   training_free  the first 15/32 of the layers and the last are single, the others in blocks
 *                  of 4: where sharing costs little without any training (ST3, table of layers)
 *   calibrated     as `fovea calibrate` measured it on this checkpoint
 *   given          `2-6/7-11`: first and last layer of each block */
#include <stdlib.h>
#include <string.h>

#include "policy/plan/contribute.h"

/* Parameters of vla or gla, whose rows in methods.def are the same. */
static const fv_lazy_vla_params *params_of(const fv_plan *plan) {
    _Static_assert(sizeof(fv_lazy_vla_params) == sizeof(fv_lazy_gla_params), "the same fields");
    return &plan->params[FV_STAGE_LAZY].lazy_vla;
}

static const char *name_of(const fv_plan *plan) {
    return plan->policy.stage[FV_STAGE_LAZY].method->name;
}

static fv_status bad_blocks(const fv_plan *plan, const char *why) {
    return FV_FAIL(FV_EINVAL, "policy: lazy=%s,blocks=%s: %s", name_of(plan),
                   params_of(plan)->blocks, why);
}

/* Layers [from, end) in blocks of `size`. */
static void even_blocks(int32_t from, int32_t end, int32_t size, int32_t *source_layer) {
    for (int32_t l = from; l < end; l++) source_layer[l] = from + (l - from) / size * size;
}

static fv_status read_layer(const fv_plan *plan, const char **at, int32_t *layer) {
    char *end;
    if (**at < '0' || **at > '9') return bad_blocks(plan, "write it as 2-6/7-11");
    long v = strtol(*at, &end, 10);
    if (v >= plan->shape.n_layer)
        return FV_FAIL(FV_EINVAL, "policy: lazy=%s,blocks=%s: this checkpoint has layers 0..%d",
                       name_of(plan), params_of(plan)->blocks, plan->shape.n_layer - 1);
    *at = end;
    *layer = (int32_t)v;
    return FV_OK;
}

static fv_status given_blocks(const fv_plan *plan, int32_t *source_layer) {
    const char *at = params_of(plan)->blocks;
    for (int32_t after = 0;; at++) {
        int32_t first = 0, last = 0;
        FV_TRY(read_layer(plan, &at, &first));
        if (*at++ != '-') return bad_blocks(plan, "write it as 2-6/7-11");
        FV_TRY(read_layer(plan, &at, &last));
        if (first < after || last < first)
            return bad_blocks(plan, "blocks ascend and do not overlap");
        for (int32_t l = first; l <= last; l++) source_layer[l] = first;
        after = last + 1;
        if (*at == '\0') return FV_OK;
        if (*at != '/') return bad_blocks(plan, "write it as 2-6/7-11");
    }
}

static fv_status calibrated_blocks(const fv_plan *plan, int32_t *source_layer) {
    if (plan->shape.uncalibrated)
        return FV_FAIL(FV_EINVAL, "policy: lazy=%s,map=calibrated: %s", name_of(plan),
                       plan->shape.uncalibrated);
    if (!plan->shape.calibrated)
        return FV_FAIL(FV_EINVAL,
                       "policy: lazy=%s,map=calibrated: the checkpoint has no calibration; run "
                       "`fovea calibrate --checkpoint DIR`, or choose another map",
                       name_of(plan));
    memcpy(source_layer, plan->shape.calibrated,
           (size_t)plan->shape.n_layer * sizeof *source_layer);
    return FV_OK;
}

static fv_status read_map(const fv_plan *plan, int32_t *source_layer) {
    const fv_lazy_vla_params *p = params_of(plan);
    int32_t n = plan->shape.n_layer;
    for (int32_t l = 0; l < n; l++) source_layer[l] = l;
    if (!p->map_given && strcmp(p->blocks, "-") != 0)
        return bad_blocks(plan, "blocks are for map=given");
    if (p->map_given) return given_blocks(plan, source_layer);
    if (p->map_calibrated) return calibrated_blocks(plan, source_layer);
    if (p->map_paper_like)
        even_blocks(2, n - 1, 5, source_layer);
    else
        even_blocks(fv_layer_of_32(15, n), n - 1, 4, source_layer);
    return FV_OK;
}

/* Returns whether layer's rows differ from those of the layer before it. */
static bool rows_change(const fv_plan *plan, int32_t layer) {
    for (int32_t e = 0; e < plan->prune.n_edit; e++)
        if (plan->prune.edit[e].layer == layer && !plan->prune.edit[e].by_data) return true;
    return plan->prune.drop_visual_kv[layer] != plan->prune.drop_visual_kv[layer - 1];
}

/* Counts blocks that may be cut because data decides where rows are dropped. */
static void count_splits(fv_plan *plan) {
    for (int32_t e = 0; e < plan->prune.n_edit; e++)
        plan->share.split_max +=
            plan->prune.edit[e].by_data &&
            plan->share.source_layer[plan->prune.edit[e].layer] != plan->prune.edit[e].layer;
    if (plan->share.split_max > plan->prune.most_edits)
        plan->share.split_max = plan->prune.most_edits;
}

/* Lets visual tokens of lazy layers reuse queries and keys; with `text`, text tokens too. A block
 * is cut where visual tokens are pruned: all its layers must have its source layer's tokens. */
static fv_status share_attention(fv_plan *plan, bool text) {
    int32_t map[FV_PLAN_MAX_LAYERS], n_lazy = 0;
    FV_TRY(read_map(plan, map));
    if (!text && fv_plan_text_only(plan, FV_STAGE_LAZY)) return FV_OK;
    plan->share.text = text;
    for (int32_t l = 1; l < plan->shape.n_layer; l++) {
        bool nothing = !text && plan->visual[l] == 0;
        if (map[l] == l || nothing || rows_change(plan, l)) continue;
        plan->share.source_layer[l] = plan->share.source_layer[l - 1];
        n_lazy++;
    }
    count_splits(plan);
    if (n_lazy == 0)
        fv_plan_note(plan, FV_STAGE_LAZY, "no layer shares a block with an earlier one");
    return FV_OK;
}

fv_status fv_plan_lazy_vla(fv_plan *plan, const fv_lazy_vla_params *p) {
    (void)p;
    return share_attention(plan, false);
}

fv_status fv_plan_lazy_gla(fv_plan *plan, const fv_lazy_gla_params *p) {
    (void)p;
    return share_attention(plan, true);
}
