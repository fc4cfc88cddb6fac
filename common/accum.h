#ifndef FOVEA_COMMON_ACCUM_H
#define FOVEA_COMMON_ACCUM_H

/* TALLY: what is written down of the attention that rows of a KV store are paid, and which rows
 * leave by it. A policy says so (policy/plan/plan.h), a store does it (model/net/accum.h). */
#include <stdbool.h>
#include <stdint.h>

typedef enum fv_accum_kind {
    FV_ACCUM_NONE = 0,
    FV_ACCUM_SUM,  /* what all rows paid, summed: the prompt's and the answer's */
    FV_ACCUM_LAST, /* what the last row paid */
    FV_ACCUM_LOW   /* how many rows paid less than an even share, since rows were last let go */
} fv_accum_kind;

typedef struct fv_accum_rule {
    fv_accum_kind kind;
    int32_t most;   /* rows that a KV head may hold when a token is about to run; if it has more, */
    int32_t left;   /* so many are left: */
    int32_t recent; /* its last ones in any case, and of the others those that matter most */
    bool mean;      /* a sum counts as a mean over the rows that could see the row */
    bool shared;    /* the heads of a layer let the same rows go */
} fv_accum_rule;    /* {0}: nothing is written down, and nothing leaves */

#endif
