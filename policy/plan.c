/* Compiles a policy into a plan: per-layer row counts and edits, with a note for every stage
 * that would change nothing. Pure function, any thread. */
#include "policy/plan.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "policy/streaming.h"

static fv_status check_layer(const fv_choice *c, int32_t layer, int32_t n_layer) {
    if (layer >= 0 && layer < n_layer) return FV_OK;
    return FV_FAIL(FV_EINVAL, "policy: %s=%s,layer=%d: this checkpoint has layers 0..%d",
                   fv_stage_name(c->method->stage), c->method->name, layer, n_layer - 1);
}

static void note(fv_plan *plan, fv_stage stage, const char *why) {
    snprintf(plan->note[stage], sizeof plan->note[stage], "%s=%s does nothing here: %s",
             fv_stage_name(stage), plan->policy.stage[stage].method->name, why);
}

/* How many of n visual rows stay. 1e-9: shares are not exact in binary, and 0.7 * 10 must be 7. */
static int32_t visual_kept(const fv_choice *c, int32_t n) {
    if (strcmp(c->method->name, "vtw") == 0) return 0;
    double share = fv_choice_value(c, "keep") * n;
    /* FastV's authors write Python's round(): halves go to the even number. */
    if (strcmp(c->method->name, "fastv") == 0) return (int32_t)rint(share);
    return (int32_t)floor(share + 1e-9);
}

/* Where rows leave, how many stay, and what the choice is made from. */
static fv_status plan_prune(fv_plan *plan) {
    const fv_choice *c = &plan->policy.stage[FV_STAGE_PRUNE];
    if (!c->method) return FV_OK;
    const fv_plan_shape *shape = &plan->shape;
    int32_t layer = fv_choice_layer(c, "layer", shape->n_layer);
    int32_t keep = visual_kept(c, shape->n_visual);
    FV_TRY(check_layer(c, layer, shape->n_layer));
    if (shape->n_visual == 0) {
        note(plan, FV_STAGE_PRUNE, "the prompt has no image");
    } else if (keep >= shape->n_visual) {
        note(plan, FV_STAGE_PRUNE, "every visual row is kept");
    } else {
        plan->edit[plan->n_edit++] = (fv_plan_edit){.layer = layer, .keep = keep};
        if (strcmp(c->method->name, "fastv") == 0) plan->tap[layer - 1] |= FV_TAP_LAST_ROW;
    }
    return FV_OK;
}

/* Rows of one head and layer after the select stage. */
static int32_t head_rows(const fv_plan *plan, int32_t layer, int32_t head) {
    int32_t rows = plan->visual[layer] + plan->shape.n_text;
    const fv_choice *c = &plan->policy.stage[FV_STAGE_SELECT];
    if (!c->method || !plan->select) return rows;
    int32_t n_prompt = plan->shape.n_visual + plan->shape.n_text;
    fv_streaming_span span = fv_streaming_head(c, head, plan->shape.n_kv, n_prompt);
    if (span.recent_from == 0) return rows;
    int32_t kept = span.sink + (n_prompt - span.recent_from);
    return kept < rows ? kept : rows;
}

static void plan_select(fv_plan *plan) {
    if (!plan->policy.stage[FV_STAGE_SELECT].method) return;
    plan->select = true;
    bool drops = false;
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        for (int32_t g = 0; g < plan->shape.n_kv; g++)
            drops |= head_rows(plan, l, g) < plan->visual[l] + plan->shape.n_text;
    plan->select = drops;
    if (!drops) note(plan, FV_STAGE_SELECT, "every head keeps every row of a prompt this short");
}

fv_status fv_plan_make(const fv_policy *policy, const fv_plan_shape *shape, fv_plan *out) {
    assert(shape->n_layer > 0 && shape->n_layer <= FV_PLAN_MAX_LAYERS);
    fv_plan plan = {.shape = *shape, .policy = *policy};
    FV_TRY(plan_prune(&plan));
    int32_t visual = shape->n_visual;
    for (int32_t l = 0, e = 0; l < shape->n_layer; l++) {
        if (e < plan.n_edit && plan.edit[e].layer == l) visual = plan.edit[e++].keep;
        plan.visual[l] = visual;
    }
    plan_select(&plan);
    *out = plan;
    return FV_OK;
}

int64_t fv_plan_kv_rows(const fv_plan *plan) {
    int64_t rows = 0;
    for (int32_t l = 0; l < plan->shape.n_layer; l++)
        for (int32_t g = 0; g < plan->shape.n_kv; g++) rows += head_rows(plan, l, g);
    return rows;
}
