/* Shared by the methods' files. Pure functions, any thread. */
#include "policy/plan/contribute.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan/budget.h"
#include "policy/plan/decode.h"

void fv_plan_note(fv_plan *plan, fv_stage stage, const char *why) {
    bool text = stage == FV_STAGE_PACK && plan->pack.text.bits > 0;
    snprintf(plan->note[stage], sizeof plan->note[stage], "%s=%s does nothing %shere: %s",
             fv_stage_name(stage), plan->policy.stage[stage].method->name,
             text ? "to visual tokens " : "", why);
}

bool fv_plan_text_only(fv_plan *plan, fv_stage stage) {
    if (plan->shape.n_visual > 0) return false;
    fv_plan_note(plan, stage,
                 plan->condense.acts ? "no visual token is left" : "the prompt has no image");
    return true;
}

void fv_plan_clear_mapped(fv_plan *plan, fv_stage stage) {
    int32_t n = 0;
    for (int32_t i = 0; i < plan->n_mapped; i++)
        if (plan->mapped[i].stage != stage) plan->mapped[n++] = plan->mapped[i];
    memset(plan->mapped + n, 0, (size_t)(plan->n_mapped - n) * sizeof plan->mapped[0]);
    plan->n_mapped = n;
}

/* 1e-9: shares are not exact in binary, and 0.7 * 10 must be 7. */
int32_t fv_plan_share(double share, int32_t n) { return (int32_t)floor(share * n + 1e-9); }

int32_t fv_plan_share_of_images(const fv_plan_shape *s, double share) {
    int32_t all = 0;
    for (int32_t at = 0, n; fv_plan_next_image(s, false, &at, &n);) all += fv_plan_share(share, n);
    return all;
}

/* Returns false, and adds no edit, if every row is kept. */
static bool add_edit(fv_plan *plan, fv_plan_edit edit) {
    assert(edit.keep >= 0 && plan->prune.n_edit < FV_PLAN_MAX_LAYERS);
    assert(plan->prune.n_edit == 0 || plan->prune.edit[plan->prune.n_edit - 1].layer < edit.layer);
    if (edit.keep >= plan->visual[edit.layer]) {
        if (plan->prune.n_edit == 0)
            fv_plan_note(plan, FV_STAGE_PRUNE, "every visual token is kept");
        return false;
    }
    plan->note[FV_STAGE_PRUNE][0] = '\0';
    plan->prune.edit[plan->prune.n_edit++] = edit;
    return true;
}

void fv_plan_drop(fv_plan *plan, int32_t layer, int32_t keep) {
    if (!add_edit(plan, (fv_plan_edit){.layer = layer, .keep = keep})) return;
    for (int32_t l = layer; l < plan->shape.n_layer; l++) plan->visual[l] = keep;
}

void fv_plan_mask_after(fv_plan *plan, int32_t layer, int32_t keep) {
    add_edit(plan, (fv_plan_edit){.layer = layer, .keep = keep, .masks = true});
}

void fv_plan_select(fv_plan *plan, fv_plan_count_fn rows) {
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        for (int32_t g = 0; g < plan->shape.n_kv; g++)
            if (rows(plan, l, g) < plan->visual[l] + plan->shape.n_text) {
                plan->select.count = rows;
                return;
            }
    fv_plan_note(plan, FV_STAGE_SELECT, "every head keeps every token of a prompt this short");
}

fv_status fv_plan_accumulate(fv_plan *plan, int32_t tokens) {
    plan->evict.accum = fv_decode_accum(plan->policy.stage[FV_STAGE_EVICT].method,
                                        &plan->params[FV_STAGE_EVICT], fv_budget_prompt(plan));
    if (plan->evict.accum.kind)
        plan->evict.accum_tokens = tokens;
    else
        fv_plan_note(plan, FV_STAGE_EVICT,
                     "its budget is the whole prompt, so every token is kept");
    return FV_OK;
}
