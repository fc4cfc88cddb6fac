#ifndef FOVEA_PREFILL_WORKER_SELECT_H
#define FOVEA_PREFILL_WORKER_SELECT_H

/* SELECT: which rows of the KV cache stay when prefill ends, per layer and KV head. Attention
 * inside prefill is untouched. One file per method in select/, one row each in
 * policy/methods.def. */
#include "model/net/kv.h"
#include "policy/plan.h"

typedef struct fv_select_context {
    const fv_choice *choice;
    int32_t layer, head, n_kv;
    int32_t n_prompt;             /* rows of the prompt before any left */
    int32_t n[FV_N_SEG];          /* rows that this head holds */
    const int32_t *pos[FV_N_SEG]; /* their prompt positions, ascending */
} fv_select_context;

typedef struct fv_select_method {
    const char *name;
    /* Writes the indices of the rows of segment `seg` that stay, ascending, and their number. */
    fv_status (*keep)(const fv_select_context *ctx, fv_kv_segment seg, int32_t *kept,
                      int32_t *n_kept);
} fv_select_method;

/* Runs the plan's select stage on layers [l0, l1) of a store; they are prefilled. */
fv_status fv_select_run(const fv_plan *plan, fv_kv *kv, int32_t l0, int32_t l1);

#endif
