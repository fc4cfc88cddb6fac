#ifndef FOVEA_POLICY_PLAN_FLOPS_H
#define FOVEA_POLICY_PLAN_FLOPS_H

/* FLOPS of a plan's prefill in the text model, counted, not measured. Papers count by different
 * rules, which are all here. None includes norms, routers, RoPE, softmax, the choice of tokens, packing, or
 * the vision tower. */
#include "policy/plan/plan.h"

/* Columns of a layer's projections; those of queries are also the output's. v 0: values are made of the
 * keys' projection. */
typedef struct fv_flops_heads {
    int32_t q, k, v;
} fv_flops_heads;

/* Widths of a text model that has plan->shape's layers and heads. */
typedef struct fv_flops_net {
    int32_t d_model, d_ffn, n_head, vocab; /* the FFN is gated: three matrices */
    const int64_t *ffn_of; /* [n_layer] its width for a token, with a mixture of experts that of the
                            * active ones together; NULL: d_ffn */
    const fv_flops_heads
        *heads_of; /* [n_layer] where layers differ; NULL: all have the plan's heads */
    bool gated;    /* the projection of queries also makes a gate for attention's output */
    /* Layers after the last one, which share keys and values, see the last token alone: their number, and their
     * multiply-adds for it without attention. */
    int32_t n_sharer;
    double sharers;
    double recurrent; /* multiply-adds of a token in the recurrent layers of one layer */
} fv_flops_net;

typedef enum fv_flops_rule {
    /* fovea's own execution: 2 per multiply-add; a token attends to itself and earlier tokens; one
     * row of logits. */
    FV_FLOPS_EXECUTED = 0,
    /* ST3 (arXiv 2412.20105, table 3) and FastV: 2 per multiply-add, attention as a full square,
     * logits of every token that is left. */
    FV_FLOPS_SQUARE,
    /* VisiPruner: 1 per multiply-add, visual tokens only, as if there were no text; no logits. */
    FV_FLOPS_VISUAL,
    FV_N_FLOPS_RULE
} fv_flops_rule;

/* "executed", "square", "visual" */
const char *fv_flops_rule_name(fv_flops_rule rule);

/* FLOPS of the whole prompt, plan->shape.n_visual and n_text tokens: an upper bound if counts
 * depend on data (!plan->exact_counts). Whole numbers, exact below 2^53. Any thread. */
double fv_plan_flops(const fv_plan *plan, const fv_flops_net *net, fv_flops_rule rule);

#endif
