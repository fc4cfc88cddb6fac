#ifndef FOVEA_SERVING_CALLER_H
#define FOVEA_SERVING_CALLER_H

/* CALLERS: who may call a worker; all its services ask here. Without TLS a caller needs a call token of
 * the fleet's router (auth/call_token.h). With TLS the server has already admitted the caller by the role in
 * its certificate (serving/peer.h), and every check here succeeds.
 *
 *     fv_caller who;
 *     FV_TRY(fv_caller_identify(callers, call, &who));           before anything of the call is read
 *     FV_TRY(fv_caller_check_request(&who, request_id, address));   when its message has arrived
 *
 * Loop thread. */
#include "auth/call_token.h"
#include "auth/role.h"
#include "rpc/call.h"

typedef struct fv_callers fv_callers; /* opaque: keys and nonces to check callers with */

/* A caller that has proved who it is: the router, or another worker on its orders. */
typedef struct fv_caller {
    bool certified;                           /* by certificate: may ask for any request */
    char request_id[FV_CALL_REQUEST_MAX + 1]; /* the request that it may ask for */
    char address[FV_ADDRESS_MAX + 1];         /* and the address */
} fv_caller;

/* For a worker of the fleet with this key; NULL: certificates identify callers. Draws the worker's
 * incarnation, and starts its clock. */
fv_status fv_callers_open(const fv_key *fleet, fv_callers **out);
void fv_callers_close(fv_callers *x); /* NULL is fine */

/* Sets the worker's name in the fleet; without a name, no token is valid. Copied. */
void fv_callers_set_name(fv_callers *x, const char *name);

const uint8_t *fv_callers_incarnation(const fv_callers *x); /* [FV_INCARNATION_BYTES] */
uint64_t fv_callers_clock_ms(const fv_callers *x);          /* since open; monotonic */

/* Identifies a caller. FV_EAUTH: it has no token, or one that is not valid for this call, out of date, or
 * already used. */
fv_status fv_caller_identify(fv_callers *x, const fv_rpc_call *call, fv_caller *out);

/* Checks that the token was made for this request and address (NULL: ""). FV_EAUTH: for something else. */
fv_status fv_caller_check_request(const fv_caller *who, const char *request_id,
                                  const char *address);

#endif
