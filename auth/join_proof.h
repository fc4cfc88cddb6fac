#ifndef FOVEA_AUTH_JOIN_PROOF_H
#define FOVEA_AUTH_JOIN_PROOF_H

/* How a worker and a router prove to each other that they know the fleet's secret when the worker
 * joins (proto/fovea/fleet/v1/fleet.proto):
 *
 *     worker                                      router
 *       nonce of the worker      -------------->
 *                                <--------------   nonce of the router, proof ROUTER
 *       identity, proof WORKER   -------------->
 *                                <--------------   proof WELCOME
 *
 * A proof is a MAC over its kind, both nonces and everything that the worker has said about itself
 * so far. Nonces are fresh, so a proof is valid for one join only; the kind prevents a proof from
 * being returned as another. Until the router has proved itself it learns nothing about the
 * worker. */
#include "auth/mac.h"

enum { FV_JOIN_NONCE_BYTES = 32, FV_INCARNATION_BYTES = 16 };

typedef enum fv_join_kind {
    FV_JOIN_ROUTER = 1, /* over the nonces only */
    FV_JOIN_WORKER,
    FV_JOIN_WELCOME,
} fv_join_kind;

/* The facts that a proof covers. For FV_JOIN_ROUTER only the nonces; the rest is zero. */
typedef struct fv_join_transcript {
    uint8_t nonce_worker[FV_JOIN_NONCE_BYTES], nonce_router[FV_JOIN_NONCE_BYTES];
    uint32_t role;                       /* fovea.inference.v1.Role */
    const char *name, *address, *compat; /* borrowed; NULL: "" */
    uint64_t compat_hash;
    uint8_t incarnation[FV_INCARNATION_BYTES];
} fv_join_transcript;

/* Derives the key for join proofs. */
fv_status fv_join_key(const fv_key *fleet, fv_key *out);

fv_status fv_join_prove(const fv_key *join, fv_join_kind kind, const fv_join_transcript *said,
                        uint8_t proof[FV_MAC_BYTES]);

/* Returns whether `proof` is the proof of this kind for `said`. */
bool fv_join_verify(const fv_key *join, fv_join_kind kind, const fv_join_transcript *said,
                    const void *proof, size_t n);

#endif
