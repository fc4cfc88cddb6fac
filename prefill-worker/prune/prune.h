#ifndef FOVEA_PREFILL_WORKER_PRUNE_PRUNE_H
#define FOVEA_PREFILL_WORKER_PRUNE_PRUNE_H

/* PRUNE: which visual tokens go on, where the plan lets some leave. One file per method in
 * prune/, one row each in policy/methods.def; prune.c makes the table from those rows. */
#include "common/top.h"
#include "policy/plan/plan.h"

typedef struct fv_prune_context {
    const fv_params *params; /* the method's are its member */
    int32_t layer;           /* the first layer that will not see the tokens that are pruned */
    int32_t n_layer;         /* of the network */
    int32_t n_visual;        /* visual tokens present */
    const int32_t *pos;      /* [n_visual] their prompt positions, ascending */
    int32_t keep;            /* how many go on, 0..n_visual: the plan's number */
    int32_t merged;          /* how many more rows are made of those that do not */
    const float *x;          /* [n_visual, d] their hidden states, where rows are merged */
    int32_t d;
    int32_t n_span;
    const fv_token_span *span; /* [n_span] of the prompt's images */
    double share;              /* fv_plan_edit.share */
    /* [n_visual] attention of the last prompt token in the layer before, mean over heads;
     * NULL unless the plan captures that layer. */
    const float *attention; /* with look-ahead attention, in the layer itself */
    /* What the plan's FV_CAPTURE of the layer before summed (methods.def), NULL without one:
     * [n_head, n_key], of HEAD_MAX [FV_N_SEG, n_key]; visual tokens stand first. */
    const float *sums;
    int32_t n_head, n_key;
    /* [n_visual] their influence on that row in the layer before (ablation.h); NULL likewise. */
    const float *l2, *cos;
    fv_plan_thresholds thresholds; /* the plan's, */
    const char *thresholds_of;     /* and whose; NULL: the request's */
} fv_prune_context;

/* What a method that decides by data remembers of a request from layer to layer. */
typedef struct fv_prune_state {  /* {0} to begin with */
    int32_t stage, count;        /* the method's own */
    bool over;                   /* no more rows will leave: nothing is asked any more */
    char said[FV_PLAN_NOTE_MAX]; /* what it decided, for the report; empty: nothing yet */
} fv_prune_state;

typedef struct fv_prune_method {
    /* Writes the indices of the rows that go on, ascending, to kept[n_visual], and their number:
     * ctx->keep, or at most so many where the method decides by data; then *state is its own. */
    fv_status (*keep)(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept);
    /* Where ctx->merged rows are made of those that are not kept: group[n_visual] is which of them
     * a row goes into, -1: none; each is the mean of its own, and takes the place of centre[merged]
     * in the prompt, a row of its own. */
    fv_status (*merge)(const fv_prune_context *ctx, const int32_t *kept, int32_t *group,
                       int32_t *centre);
} fv_prune_method;

const fv_prune_method *fv_prune_method_of(fv_method_id id);

/* mean[j] = sum_h p[h, j] / H for the first n of n_key columns: p [H, n_key] as a capture gives it,
 * mean [n]. Heads are summed in order, in double. */
void fv_prune_head_mean(const float *p, int32_t n_head, int32_t n_key, int32_t n, float *mean);

/* The choice that most methods make: the `keep` rows of highest score (common/top.h). */
static inline void fv_prune_top(const fv_prune_context *ctx, const float *score, int32_t *kept,
                                int32_t *n_kept) {
    fv_top(score, ctx->n_visual, ctx->keep, kept);
    *n_kept = ctx->keep;
}

/* The whole of such a method whose score is ctx->attention. */
fv_status fv_prune_by_attention(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                                int32_t *n_kept);

#endif
