#ifndef FOVEA_DECODE_WORKER_EVICT_EVICT_H
#define FOVEA_DECODE_WORKER_EVICT_EVICT_H

/* EVICT: drops KV entries of an answer as it grows. One file per method in evict/, one row
 * each in policy/methods.def; evict.c makes the table from those rows.
 *
 * Time is t, the number of tokens generated: 1 when the first token, chosen after
 * the prompt, runs. t goes on through the answers of a kept conversation, because evicted entries
 * do not come back; tokens of later questions do not count. An answer that was interrupted
 * and continues on another worker continues at its t, with the same entries in its
 * layers. A conversation that is sent again as a whole is a new prompt, and begins at 1.
 *
 * For the computing thread. */
#include "kv/kv.h"
#include "policy/plan/decode.h"

typedef struct fv_evict fv_evict;

typedef struct fv_evict_method {
    /* Evicts the entries that must not be read at t. Called before every step; t never falls. */
    fv_status (*step)(const fv_evict *e, fv_kv *kv, int32_t t);
} fv_evict_method;

struct fv_evict {
    const fv_evict_method *method; /* NULL: everything stays */
    fv_params params;              /* a union: the method reads its own member */
    fv_accum_rule accum;           /* of methods with an attention-score accumulator */
    bool answers;                  /* a generated token runs next, not the tokens of a question */
    int32_t before;                /* tokens of earlier answers in the same store */
    int32_t t;                     /* of the last step */
};                                 /* {0} evicts nothing */

/* Sets up the plan's stage for a prompt of n_prompt tokens, without those of a resumed answer. */
void fv_evict_init(fv_evict *e, const fv_decode_plan *plan, int32_t n_prompt);

/* Evicts before a step. n_token: tokens that this answer has when the step runs; 0 in a question. */
fv_status fv_evict_step(fv_evict *e, fv_kv *kv, int32_t n_token);

/* Number of KV entries evicted so far, in all layers and heads. */
uint64_t fv_evict_count(const fv_kv *kv);

#endif
