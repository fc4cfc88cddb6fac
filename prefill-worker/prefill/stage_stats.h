#ifndef FOVEA_PREFILL_WORKER_PREFILL_STAGE_STATS_H
#define FOVEA_PREFILL_WORKER_PREFILL_STAGE_STATS_H

/* STAGE STATS: what each stage of prefill did to the rows, for the report. Rows are KV entries: each a key
 * and a value of one head of one layer. */
#include "kv/kv.h"
#include "policy/plan/plan.h"

typedef struct fv_stage_stats_stage {
    uint64_t entries_in, entries_out; /* rows before and after the stage; equal: it dropped none */
    int32_t n_layer; /* layers in which the stage did something; 0: it did nothing */
} fv_stage_stats_stage;

typedef struct fv_stage_stats {
    fv_stage_stats_stage stage[FV_N_STAGE];
    int32_t visual_tokens_held
        [FV_PLAN_MAX_LAYERS]; /* image tokens in each layer's KV, mean over KV heads */
} fv_stage_stats;

/* visual_tokens [N]: image tokens that each layer ran; `kv` as prefill left it. */
void fv_stage_stats_take(const fv_plan *plan, const int32_t *visual_tokens, const fv_kv *kv,
                         fv_stage_stats *out);

#endif
