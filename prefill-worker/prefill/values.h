#ifndef FOVEA_PREFILL_WORKER_PREFILL_VALUES_H
#define FOVEA_PREFILL_WORKER_PREFILL_VALUES_H

/* VALUES of an evict method, one per prompt token: a row FV_VALUE in methods.def, and
 * fv_value_<stage>_<method> in a file of this folder. They are stored in the column FV_KV_ACCUM, and
 * stay with their tokens through selection, hand-off and eviction; generated tokens have 0. */
#include "common/arena.h"
#include "kv/kv.h"
#include "policy/plan/plan.h"

/* The tokens of one layer, KV head and segment. Their keys and values are in the store. */
typedef struct fv_value_tokens {
    const fv_params *params; /* a union: the method reads its own member */
    fv_backend *be;
    const fv_kv *kv;
    int32_t layer, head;
    fv_kv_segment seg;
    int32_t n;
    fv_arena *arena;
} fv_value_tokens;

/* Writes value[n]. */
#define FV_VALUE(stage, name)                                                                      \
    fv_status FV_NAME(fv_value_, stage, name)(const fv_value_tokens *tokens, float *value);
#include "policy/methods.def"

/* Writes the values of a layer, after the prompt has run through it and before the select stage. Does
 * nothing if the plan's evict method has no values. */
fv_status fv_values_fill(const fv_plan *plan, fv_backend *be, fv_kv *kv, int32_t layer,
                         fv_arena *arena);

#endif
