#ifndef FOVEA_ROUTER_MERGE_H
#define FOVEA_ROUTER_MERGE_H

/* MERGE: a prefill worker reports on what it did, a decode worker on what came then; the client
 * gets one report. Pure functions. */
#include "common/arena.h"
#include "inference.pb-c.h"

/* What only the router knows. */
typedef struct fv_relay_facts {
    uint32_t n_generated; /* tokens that went to the client */
    uint32_t n_replay;
    double seconds_first_token, seconds_queued;
    size_t n_digest;
    uint64_t *digest;    /* [n_digest] of those tokens, for who asked; borrowed */
    const char *missing; /* why a half is not there: a note for the reader; "" none. Borrowed. */
    const char *prefill_worker, *decode_worker; /* names; "" when there was none. Borrowed. */
} fv_relay_facts;

/* Where both halves have a field, *out has the prefill worker's. Either may be NULL: *out is the
 * other one then. Lists and strings are borrowed from halves and facts, new ones are in the
 * arena. */
fv_status fv_report_merge(const Fovea__Inference__V1__Report *prefill,
                          const Fovea__Inference__V1__Report *decode, const fv_relay_facts *facts,
                          fv_arena *arena, Fovea__Inference__V1__Report *out);

#endif
