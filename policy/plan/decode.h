#ifndef FOVEA_POLICY_PLAN_DECODE_H
#define FOVEA_POLICY_PLAN_DECODE_H

/* THE DECODE PLAN: the part of a policy for the decode worker, compiled once when a hand-off is
 * offered. A method with a decode part has a row FV_DECODE in methods.def and a function that adds
 * the part. Pure functions, any thread. */
#include "common/accum.h"
#include "common/text_rule.h"
#include "policy/policy.h"

/* Factors of the keys of the prompt's text tokens, with raw values: in every layer whose keys
 * become smaller by `gain`. */
typedef struct fv_text_keys {
    double gain, energy;
    int32_t rank; /* largest rank; 0: text is raw */
    int32_t bits;
    int32_t block; /* positions that share an anchor; 0: all */
    int32_t again; /* a kept turn is compressed again after this many more tokens; 0: never */
} fv_text_keys;

/* Rank at which compressed tokens are read: full for all, or by importance. */
typedef struct fv_plan_read {
    bool by_importance;
    double full;  /* share of the tokens read at full rank */
    double alpha; /* share of a token's importance that remains from token to token */
} fv_plan_read;

typedef struct fv_decode_plan {
    int32_t dup_max; /* tokens of a segment that a KV head may hold twice */
    float nsoftmax;  /* n of n-softmax in the answer's attention; 0: softmax */
    fv_plan_read read;
    fv_text_keys text_keys;
    fv_text_rule text;
    bool coded_keys;             /* keys of latents are rebuilt once, to codes */
    fv_accum_rule accum;         /* for the prompt that the plan was made for */
    const fv_method_info *evict; /* NULL: every token stays */
    fv_params evict_params;
} fv_decode_plan; /* {0}: exact */

/* Compiles the decode plan. n_prompt: tokens of the hand-off. */
void fv_decode_plan_make(const fv_policy *policy, int32_t n_prompt, fv_decode_plan *out);

/* Accumulator rule of an evict method, which may be NULL, for a prompt of n_prompt tokens, not
 * counting a resumed answer. kind NONE: no accumulators, or nothing is evicted. */
fv_accum_rule fv_decode_accum(const fv_method_info *evict, const fv_params *params,
                              int32_t n_prompt);

/* fv_decode_<stage>_<method>, one per row FV_DECODE. */
#define FV_DECODE(stage, name)                                                                     \
    void FV_NAME(fv_decode_, stage, name)(fv_decode_plan * decode,                                 \
                                          const FV_PARAMS(stage, name) * p, int32_t n_prompt);
#include "policy/methods.def"

#endif
