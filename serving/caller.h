#ifndef FOVEA_SERVING_CALLER_H
#define FOVEA_SERVING_CALLER_H

/* WHO CALLS a worker: the one place where its services ask. Without TLS a call token of the fleet's
 * router answers (auth/call_token.h). With TLS the server has admitted the caller by the role in its
 * certificate (serving/peer.h), and every answer here is yes.
 *
 *     fv_caller who;
 *     FV_TRY(fv_caller_of(callers, call, &who));           before anything of the call is read
 *     FV_TRY(fv_caller_asks(&who, request_id, address));   when its message is there
 *
 * Loop thread. */
#include "auth/call_token.h"
#include "auth/role.h"
#include "rpc/call.h"

typedef struct fv_callers fv_callers; /* opaque: what a worker checks its callers with */

/* A caller that has proved who it is: the router, or another worker on its orders. */
typedef struct fv_caller {
    bool certified;                           /* by its certificate, for any request */
    char request_id[FV_CALL_REQUEST_MAX + 1]; /* what it may ask for */
    char address[FV_ADDRESS_MAX + 1];
} fv_caller;

/* Of a worker of the fleet with this key; NULL: certificates identify callers. Draws its
 * incarnation, and starts its clock. */
fv_status fv_callers_open(const fv_key *fleet, fv_callers **out);
void fv_callers_close(fv_callers *x); /* NULL is fine */

/* The name by which the router knows it; without a name, no token is valid. Copied. */
void fv_callers_set_name(fv_callers *x, const char *name);

const uint8_t *fv_callers_incarnation(const fv_callers *x); /* [FV_INCARNATION_BYTES] */
uint64_t fv_callers_clock_ms(const fv_callers *x);          /* since it was opened, only forward */

/* FV_EAUTH: the caller has shown no token, or none that is good for this call, now, and for the
 * first time. */
fv_status fv_caller_of(fv_callers *x, const fv_rpc_call *call, fv_caller *out);

/* Was the token made for this? FV_EAUTH: for something else. NULL: "". */
fv_status fv_caller_asks(const fv_caller *who, const char *request_id, const char *address);

#endif
