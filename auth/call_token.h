#ifndef FOVEA_AUTH_CALL_TOKEN_H
#define FOVEA_AUTH_CALL_TOKEN_H

/* CALL TOKENS let a worker verify that a call comes from its router, or was ordered by it. The
 * router makes one for each call, which carries it as metadata:
 *
 *     fovea-call-token: 1 NONCE MADE VALID REQUEST ADDRESS MAC
 *
 * NONCE (32 hexadecimal digits) is drawn for the token. MADE and VALID are milliseconds: the time
 * on the called worker's own clock, and the duration from then on for which the token is valid.
 * REQUEST and ADDRESS are the request and address that the call must name, and may be empty. MAC
 * (64 hexadecimal digits) covers all of this, the method, and the called worker with its
 * incarnation. So a token is valid for one method of one process, for one request, for a limited
 * time; serving/caller.h makes sure that it is used once.
 *
 * The clock is the worker's monotonic clock (common/clock.h), which the router learns from the
 * worker's reports, so the machines' wall clocks may differ. The delay of a report makes a token
 * appear slightly older than it is. */
#include "auth/fleet_name.h"
#include "auth/join_proof.h"

#define FV_CALL_TOKEN_KEY "fovea-call-token"
enum {
    FV_CALL_TOKEN_MAX = 640, /* characters and a NUL */
    FV_CALL_NONCE_BYTES = 16,
    FV_CALL_REQUEST_MAX = 192, /* characters of a request id */
    FV_CALL_VALID_MS = 30000,  /* validity of a token for an immediate call */
    FV_CALL_AHEAD_MS = 5000,   /* how far the router's estimate of the clock may be ahead */
};

typedef struct fv_call_token {
    uint8_t nonce[FV_CALL_NONCE_BYTES];
    uint64_t made_ms;
    uint32_t valid_ms;
    char request_id[FV_CALL_REQUEST_MAX + 1]; /* printable ASCII without spaces */
    char address[FV_ADDRESS_MAX + 1];
    uint8_t mac[FV_MAC_BYTES];
} fv_call_token;

/* The call that a token is for. Borrowed. */
typedef struct fv_call_to {
    const char *method;         /* "/fovea.handoff.v1.Prefill/Prefill" */
    const char *worker;         /* the worker's name */
    const uint8_t *incarnation; /* [FV_INCARNATION_BYTES] */
} fv_call_to;

/* Derives the key for call tokens. */
fv_status fv_call_key(const fv_key *fleet, fv_key *out);

/* Draws the nonce, computes the MAC, and writes the token as text. FV_EINVAL: the request id or
 * address is invalid. */
fv_status fv_call_token_write(const fv_key *key, const fv_call_to *to, fv_call_token *t,
                              char out[FV_CALL_TOKEN_MAX]);

/* Parses n characters. FV_EAUTH: they are no token. Parsing does not check the MAC. */
fv_status fv_call_token_read(const char *text, size_t n, fv_call_token *out);

/* Returns whether the token's MAC is right for this call. */
bool fv_call_token_verify(const fv_key *key, const fv_call_to *to, const fv_call_token *t);

#endif
