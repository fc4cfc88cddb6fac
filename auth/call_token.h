#ifndef FOVEA_AUTH_CALL_TOKEN_H
#define FOVEA_AUTH_CALL_TOKEN_H

/* CALL TOKENS: by which a worker knows that a call comes from its router, or was ordered by it. The
 * router makes one for each call; it goes along as metadata:
 *
 *     fovea-call-token: 1 NONCE MADE VALID REQUEST ADDRESS MAC
 *
 * NONCE (32 hexadecimal digits) is drawn for the token. MADE and VALID are milliseconds: the time
 * on the called worker's own clock, and how long from then on the token is good. REQUEST and
 * ADDRESS are what the call must be about, and may be empty. MAC (64 hexadecimal digits) covers all
 * of this, the method, and which worker is called, in which incarnation. So a token is good for one
 * method of one process, for one request, for a while; serving/caller.h sees that it is good once.
 *
 * The clock is the worker's, and steady (common/clock.h): the router learns it from the worker's
 * reports. Machines whose clocks on the wall differ do not matter. What a report takes on its way
 * makes a token a little older than it is. */
#include "auth/fleet_name.h"
#include "auth/join_proof.h"

#define FV_CALL_TOKEN_KEY "fovea-call-token"
enum {
    FV_CALL_TOKEN_MAX = 640, /* characters, and a NUL */
    FV_CALL_NONCE_BYTES = 16,
    FV_CALL_REQUEST_MAX = 192, /* characters of a request id */
    FV_CALL_VALID_MS = 30000,  /* for a call that is made at once */
    FV_CALL_AHEAD_MS = 5000,   /* so much may the router's idea of the clock be ahead */
};

typedef struct fv_call_token {
    uint8_t nonce[FV_CALL_NONCE_BYTES];
    uint64_t made_ms;
    uint32_t valid_ms;
    char request_id[FV_CALL_REQUEST_MAX + 1]; /* printable ASCII without spaces */
    char address[FV_ADDRESS_MAX + 1];
    uint8_t mac[FV_MAC_BYTES];
} fv_call_token;

/* Whom a token is for. Borrowed. */
typedef struct fv_call_to {
    const char *method;         /* "/fovea.handoff.v1.Prefill/Prefill" */
    const char *worker;         /* its name */
    const uint8_t *incarnation; /* [FV_INCARNATION_BYTES] */
} fv_call_to;

/* The key that tokens are made with. */
fv_status fv_call_key(const fv_key *fleet, fv_key *out);

/* Draws the nonce, makes the MAC, and writes the token as text. FV_EINVAL: request or address are
 * none that fit. */
fv_status fv_call_token_write(const fv_key *key, const fv_call_to *to, fv_call_token *t,
                              char out[FV_CALL_TOKEN_MAX]);

/* Reads n characters. FV_EAUTH: they are no token. That it is well-formed says nothing of its MAC.
 */
fv_status fv_call_token_read(const char *text, size_t n, fv_call_token *out);

/* Is its MAC right for this call? */
bool fv_call_token_holds(const fv_key *key, const fv_call_to *to, const fv_call_token *t);

#endif
