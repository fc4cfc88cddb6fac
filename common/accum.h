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
    int32_t most;   /* a KV head with more rows than this evicts before a token runs */
    int32_t left;   /* rows that stay: the last `recent`, then the most important others */
    int32_t recent; /* last rows that always stay */
    bool mean;      /* divide a sum by the number of rows that could see the row */
    bool shared;    /* all heads of a layer evict the same rows */
} fv_accum_rule;    /* {0}: nothing is accumulated or evicted */

#endif
