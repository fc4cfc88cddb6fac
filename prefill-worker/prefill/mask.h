#ifndef FOVEA_PREFILL_WORKER_PREFILL_MASK_H
#define FOVEA_PREFILL_WORKER_PREFILL_MASK_H

/* MASKS: how each token's attention to visual tokens is changed in the layers that the plan masks
 * (fv_plan_prune_stage.mask), in the form that the decoder takes. */
#include "common/arena.h"
#include "kv/kv.h"
#include "policy/plan/plan.h"

/* Rows of one request in a pass. */
typedef struct fv_mask_rows {
    int32_t n;
    const int32_t *pos; /* [n] */
    const uint8_t *seg; /* [n] */
    int32_t visual0;    /* position of the prompt's first visual token */
    int32_t n_prompt;   /* rows from here on are an answer's, and see everything */
} fv_mask_rows;

/* *share: NULL when no layer of [l0, l1) is masked, else for each layer below l1 NULL or [n]
 * fv_attn_share, in memory of the arena. */
fv_status fv_mask_shares(const fv_plan *plan, int32_t l0, int32_t l1, const fv_mask_rows *rows,
                         fv_arena *arena, const uint8_t *const **share);

#endif
