#ifndef FOVEA_ROUTER_MERGE_H
#define FOVEA_ROUTER_MERGE_H

/* MERGE: makes one report for the client from the prefill worker's and the decode worker's. Pure functions. */
#include "common/arena.h"
#include "inference.pb-c.h"

/* Facts that only the router knows. */
typedef struct fv_relay_facts {
    uint32_t n_generated; /* tokens that went to the client */
    uint32_t n_replay;
    double seconds_first_token, seconds_queued;
    size_t n_digest;
    uint64_t *digest;    /* [n_digest] of those tokens, if the client asked for them; borrowed */
    const char *missing; /* why a half is missing, for the client; "": none is. Borrowed */
    const char *prefill_worker, *decode_worker; /* names; "": there was none. Borrowed */
} fv_relay_facts;

/* Merges the halves. Fields of both come from the prefill worker's, except those about the decoding. Either
 * half may be NULL: *out is then based on the other one. Lists and strings are borrowed from halves and facts;
 * new ones are in the arena. */
fv_status fv_report_merge(const Fovea__Inference__V1__Report *prefill,
                          const Fovea__Inference__V1__Report *decode, const fv_relay_facts *facts,
                          fv_arena *arena, Fovea__Inference__V1__Report *out);

#endif
