#ifndef FOVEA_GATEWAY_CALLER_H
#define FOVEA_GATEWAY_CALLER_H

/* CALLER: may this caller ask, before anything of its request's body is read? The gateway holds no keys: it asks the router
 * with the headers alone, and remembers the answer for as long as that says, ten seconds at most. A refusal of the
 * credential is remembered for a second. What is remembered has a fixed number of places, found by a keyed hash of the
 * header. A router that does not know the question lets everybody in, as it will say itself. Loop thread. */
#include "auth/mac.h"
#include "rpc/client.h"

typedef struct fv_gateway fv_gateway;
typedef struct fv_known_callers fv_known_callers;     /* opaque */
typedef struct fv_caller_question fv_caller_question; /* opaque */

fv_status fv_known_callers_open(fv_known_callers **out);
void fv_known_callers_close(fv_known_callers *c); /* NULL is fine */

/* end->status FV_OK: it may. Valid during the call. */
typedef void (*fv_caller_known)(void *user, const fv_rpc_end *end);

/* method: of the service, "Generate". client: its address, for the router's log. FV_OK with *out NULL: it may. FV_OK otherwise: calls `known` once, later, unless the
 * question is freed before. A failure is a refusal that is remembered, or of this process. */
fv_status fv_caller_ask(fv_gateway *g, const char *method, const char *client,
                        const fv_rpc_metadata *caller, int32_t n_caller, fv_caller_known known,
                        void *user, fv_caller_question **out);

/* In `known`, too. NULL is fine. */
void fv_caller_question_free(fv_caller_question *q);

#endif
