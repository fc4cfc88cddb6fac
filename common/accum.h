#ifndef FOVEA_COMMON_ACCUM_H
#define FOVEA_COMMON_ACCUM_H

/* ATTENTION-SCORE ACCUMULATOR: which attention scores a KV store accumulates per entry, and the
 * rule by which entries are evicted. A policy decides (policy/plan/plan.h), a store applies it
 * (model/net/accum.h). */
#include <stdbool.h>
#include <stdint.h>

typedef enum fv_accum_kind {
    FV_ACCUM_NONE = 0,
    FV_ACCUM_SUM,   /* sum over all query tokens, of the prompt and of the answer */
    FV_ACCUM_LAST,  /* score of the last query token */
    FV_ACCUM_VALUE, /* no score: the method's own value of each prompt token (FV_VALUE) */
    /* number of query tokens that gave less than an even share since the last eviction */
    FV_ACCUM_LOW
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
