#ifndef FOVEA_GATEWAY_CALLER_H
#define FOVEA_GATEWAY_CALLER_H

/* CALLER: checks a caller's credential before the body is read. The gateway holds no keys: it asks
 * the router with the headers alone, and caches the answer for as long as the router says, ten
 * seconds at most. A refused credential is cached for one second. The cache has a fixed number of
 * entries, found by a keyed hash of the header. A router without CheckCaller counts as admitting
 * everybody: it checks the request itself. Loop thread. */
#include "auth/mac.h"
#include "auth/tenants.h"
#include "rpc/client.h"

typedef struct fv_gateway fv_gateway;
typedef struct fv_known_callers fv_known_callers;     /* opaque */
typedef struct fv_caller_question fv_caller_question; /* opaque */

fv_status fv_known_callers_open(fv_known_callers **out);
void fv_known_callers_close(fv_known_callers *c); /* NULL is fine */

/* end->status is FV_OK: the caller is admitted, and tenant is its name, "" if it has none. Both are
 * valid during the call. */
typedef void (*fv_caller_known)(void *user, const fv_rpc_end *end, const char *tenant);

/* Asks whether the caller may call `method` of the service, such as "Generate". client: the
 * caller's address, for the router's log. FV_OK with *out NULL: admitted, as `tenant`. FV_OK
 * otherwise: calls `known` once, later, unless the question is freed before. Fails with a cached
 * refusal, or where the question cannot be sent. */
fv_status fv_caller_ask(fv_gateway *g, const char *method, const char *client,
                        const fv_rpc_metadata *caller, int32_t n_caller, fv_caller_known known,
                        void *user, char tenant[FV_TENANT_NAME_MAX + 1], fv_caller_question **out);

/* May be called in `known`. NULL is fine. */
void fv_caller_question_free(fv_caller_question *q);

#endif
