#ifndef FOVEA_PREFILL_WORKER_PRUNE_PRUNE_H
#define FOVEA_PREFILL_WORKER_PRUNE_PRUNE_H

/* PRUNE: chooses the visual tokens that continue, before the layers where the plan drops some. One file
 * per method in prune/, one row each in policy/methods.def; prune.c makes the table from those rows. */
#include "common/top.h"
#include "policy/plan/plan.h"

typedef struct fv_prune_context {
    const fv_params *params; /* a union: the method reads its own member */
    int32_t layer;           /* the first layer that will not see the tokens that are pruned */
    int32_t n_layer;         /* of the network */
    int32_t n_visual;        /* visual tokens present */
    const int32_t *pos;      /* [n_visual] their prompt positions, ascending */
    int32_t keep;            /* how many the plan keeps, 0..n_visual */
    int32_t merged;          /* how many more rows are merged from the dropped ones */
    const float *x;          /* [n_visual, d] their hidden states, if rows are merged */
    int32_t d;
    int32_t n_span;
    const fv_token_span *span; /* [n_span] of the prompt's images */
    double share;              /* fv_plan_edit.share */
    /* [n_visual] attention of the last prompt token in the layer before, or with look-ahead attention in
     * `layer` itself, mean over heads; NULL: not captured. */
    const float *attention;
    /* Sums of the plan's FV_CAPTURE of the layer before (methods.def), [n_head, n_key], for HEAD_MAX
     * [FV_N_SEG, n_key]; visual tokens come first. NULL: not captured. */
    const float *sums;
    int32_t n_head, n_key;
    /* [n_visual] their influence on the last prompt token in the layer before (ablation.h); NULL: not
     * captured. */
    const float *l2, *cos;
    fv_plan_thresholds thresholds; /* the plan's */
    const char *thresholds_of; /* the model that they come from; NULL: the request gave them all */
} fv_prune_context;

/* A request's state, from layer to layer, of a method that decides by data. */
typedef struct fv_prune_state {  /* {0} to begin with */
    int32_t stage, count;        /* only the method uses them */
    bool over;                   /* no more rows will be dropped: the method is not called again */
    char said[FV_PLAN_NOTE_MAX]; /* the decisions, for the report; empty: none yet */
} fv_prune_state;

typedef struct fv_prune_method {
    /* Writes the indices of the kept rows, ascending, to kept[n_visual], and their number: ctx->keep,
     * or at most that many if the method decides by data; such a method may use *state. */
    fv_status (*keep)(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                      int32_t *n_kept);
    /* Or NULL. Merges dropped rows into ctx->merged new ones: group[n_visual] is the new row that a row
     * goes into, -1: none. New row i is the mean of its group, and takes the place of row centre[i] of
     * that group in the prompt. */
    fv_status (*merge)(const fv_prune_context *ctx, const int32_t *kept, int32_t *group,
                       int32_t *centre);
} fv_prune_method;

const fv_prune_method *fv_prune_method_of(fv_method_id id);

/* mean[j] = sum_h p[h, j] / H for the first n of n_key columns: p [H, n_key] as a capture gives it,
 * mean [n]. Heads are summed in order, in double. */
void fv_prune_head_mean(const float *p, int32_t n_head, int32_t n_key, int32_t n, float *mean);

/* Makes the choice of most methods: the `keep` rows of highest score (common/top.h). */
static inline void fv_prune_top(const fv_prune_context *ctx, const float *score, int32_t *kept,
                                int32_t *n_kept) {
    fv_top(score, ctx->n_visual, ctx->keep, kept);
    *n_kept = ctx->keep;
}

/* The `keep` function of methods whose score is ctx->attention. */
fv_status fv_prune_by_attention(const fv_prune_context *ctx, fv_prune_state *state, int32_t *kept,
                                int32_t *n_kept);

#endif
