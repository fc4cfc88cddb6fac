#ifndef FOVEA_POLICY_PLAN_FLOPS_H
#define FOVEA_POLICY_PLAN_FLOPS_H

/* FLOPS: what a plan's prefill costs in the text model, counted, not measured. Papers count by different
 * rules, so each rule is one here. Norms, RoPE, softmax, the choice of tokens and packing are in none; nor
 * is the vision tower. */
#include "policy/plan/plan.h"

/* Widths of a text model of plan->shape's layers and heads. */
typedef struct fv_flops_net {
    int32_t d_model, d_ffn, n_head, vocab; /* the FFN is gated: three matrices */
} fv_flops_net;

typedef enum fv_flops_rule {
    /* What fovea executes: 2 per multiply-add; a token attends to itself and those before it; one row of
     * logits. */
    FV_FLOPS_EXECUTED = 0,
    /* As ST3 (arXiv 2412.20105, table 3) and FastV: 2 per multiply-add, attention as a full square, logits
     * of every token that is left. */
    FV_FLOPS_SQUARE,
    /* As VisiPruner: 1 per multiply-add, visual tokens alone, as if there were no text, no logits. */
    FV_FLOPS_VISUAL,
    FV_N_FLOPS_RULE
} fv_flops_rule;

/* "executed", "square", "visual" */
const char *fv_flops_rule_name(fv_flops_rule rule);

/* Of the whole prompt, plan->shape.n_visual and n_text tokens. Where counts depend on data
 * (!plan->exact_counts) it is an upper bound. Whole numbers, exact below 2^53. Any thread. */
double fv_plan_flops(const fv_plan *plan, const fv_flops_net *net, fv_flops_rule rule);

#endif
