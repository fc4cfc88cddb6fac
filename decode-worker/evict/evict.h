#ifndef FOVEA_DECODE_WORKER_EVICT_EVICT_H
#define FOVEA_DECODE_WORKER_EVICT_EVICT_H

/* EVICT: drops KV entries of an answer as it grows. One file per method in evict/, one row
 * each in policy/methods.def; evict.c makes the table from those rows.
 *
 * The clock is t, the number of tokens generated: 1 when the first token, chosen after
 * the prompt, runs. It goes on through the answers of a kept conversation, because evicted entries
 * do not come back; tokens of later questions do not count. An answer that was interrupted
 * and continues on another worker continues at its t, and its layers hold what they
 * held. A conversation that is sent again as a whole is a new prompt, and begins at 1.
 *
 * The computing thread. */
#include "model/net/kv.h"
#include "policy/plan/decode.h"

typedef struct fv_evict fv_evict;

typedef struct fv_evict_method {
    /* Called before every step, with a t that never falls: lets go what is not to be seen at t. */
    fv_status (*step)(const fv_evict *e, fv_kv *kv, int32_t t);
} fv_evict_method;

struct fv_evict {
    const fv_evict_method *method; /* NULL: everything stays */
    fv_params params;              /* the method's are its member */
    fv_accum_rule accum;           /* of methods with an attention-score accumulator */
    bool answers;                  /* the row of a token runs next, and not those of a question */
    int32_t before;                /* tokens of the answers before this one, on the same rows */
    int32_t t;                     /* of the last step */
};                                 /* {0} lets nothing go */

/* The plan's stage, for a prompt of n_prompt tokens; tokens of a resumed answer are not counted. */
void fv_evict_init(fv_evict *e, const fv_decode_plan *plan, int32_t n_prompt);

/* Lets go what is not to be seen by rows that run when this answer has n_token tokens. */
fv_status fv_evict_step(fv_evict *e, fv_kv *kv, int32_t n_token);

/* Rows of KV heads that were let go so far. */
uint64_t fv_evict_rows(const fv_kv *kv);

#endif
