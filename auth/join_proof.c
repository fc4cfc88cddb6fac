#include "auth/join_proof.h"

#include <string.h>

fv_status fv_join_key(const fv_key *fleet, fv_key *out) {
    return fv_key_derive(fleet, "join", out);
}

static fv_mac_field text(const char *s) { return (fv_mac_field){s, s ? strlen(s) : 0}; }

static void put(uint64_t x, uint8_t out[8]) {
    for (int b = 0; b < 8; b++) out[b] = (uint8_t)(x >> (8 * b) & 0xff);
}

fv_status fv_join_prove(const fv_key *join, fv_join_kind kind, const fv_join_transcript *said,
                        uint8_t proof[FV_MAC_BYTES]) {
    static const char *const labels[] = {
        [FV_JOIN_ROUTER] = "router", [FV_JOIN_WORKER] = "worker", [FV_JOIN_WELCOME] = "welcome"};
    uint8_t role[8], hash[8];
    put(said->role, role);
    put(said->compat_hash, hash);
    fv_mac_field fields[] = {text(labels[kind]),
                             {said->nonce_worker, sizeof said->nonce_worker},
                             {said->nonce_router, sizeof said->nonce_router},
                             {role, sizeof role},
                             text(said->name),
                             text(said->address),
                             {hash, sizeof hash},
                             text(said->compat),
                             {said->incarnation, sizeof said->incarnation}};
    return fv_mac(join, fields, sizeof fields / sizeof fields[0], proof);
}

bool fv_join_verify(const fv_key *join, fv_join_kind kind, const fv_join_transcript *said,
                    const void *proof, size_t n) {
    uint8_t right[FV_MAC_BYTES];
    return n == sizeof right && fv_join_prove(join, kind, said, right) == FV_OK &&
           fv_mac_equal(right, proof, n);
}
