#ifndef FOVEA_ROUTER_TENANCY_H
#define FOVEA_ROUTER_TENANCY_H

/* TENANCY: which tenant makes a call, and whether it may do so now. The file (auth/tenants.h) is read
 * again when it changes; if it is wrong, that is logged and the previous contents stay.
 *
 * A caller shows its credential as metadata, "authorization: Bearer KEY-OR-JWT". Without a file all
 * callers are one tenant without a name and without limits. Loop thread. */
#include "auth/tenants.h"
#include "policy/policy.h"
#include "rpc/call.h"
#include "serving/audit.h"

typedef struct fv_tenancy fv_tenancy; /* opaque */

/* The kinds of calls that are counted. A tenant may begin as many calls of Tokenize and Detokenize per second as
 * requests, in addition to its requests, and have FV_TOKENIZE_TENANT_MAX at a time. */
typedef enum fv_tenant_call {
    FV_TENANT_REQUEST = 0,
    FV_TENANT_TOKENIZE,
    FV_N_TENANT_CALL,
} fv_tenant_call;
enum { FV_TOKENIZE_TENANT_MAX = 16 };

/* A tenant's calls of a kind, with their token bucket: `credit` calls may begin, as of the time credit_s. */
typedef struct fv_tenant_calls {
    double credit, credit_s;
    int32_t n; /* present ones */
} fv_tenant_calls;

/* A tenant's use of this router; lasts as long as the tenancy. */
typedef struct fv_tenant_use {
    struct fv_tenant_use *next;
    char name[FV_TENANT_NAME_MAX + 1];
    const fv_tenant *limits; /* from the current file; NULL: the tenant is not in it any more */
    fv_tenant_calls calls[FV_N_TENANT_CALL];
    double pixels, pixels_s; /* pixels it may send, as of pixels_s; below 0: it has sent too many */
} fv_tenant_use;

/* Reads the file; `path` NULL: no tenants. FV_EINVAL: the file is wrong. */
fv_status fv_tenancy_open(const char *path, fv_tenancy **out);
void fv_tenancy_close(fv_tenancy *t); /* no request is left. NULL is fine */

/* Identifies the caller. FV_EAUTH: no credential, or an unknown one. FV_EDENIED: an unknown
 * tenant. Failures are logged. */
fv_status fv_tenancy_caller(fv_tenancy *t, fv_rpc_call *call, fv_tenant_use **out);
/* The same; *valid_s: for how many seconds the credential is valid, infinite for a key. */
fv_status fv_tenancy_caller_until(fv_tenancy *t, fv_rpc_call *call, fv_tenant_use **out,
                                  double *valid_s);

/* Counts a call from begin to end. FV_EBUSY: the tenant's rate or number is used up; the call gets a retry
 * hint. */
fv_status fv_tenancy_begin(fv_tenant_use *u, fv_tenant_call kind, fv_rpc_call *call);
void fv_tenancy_end(fv_tenant_use *u, fv_tenant_call kind);
/* Checks whether a call could begin now; counts nothing. */
fv_status fv_tenancy_check(fv_tenant_use *u, fv_tenant_call kind, fv_rpc_call *call);

/* Charges the pixels of a request's images. FV_EBUSY: earlier images have used up the tenant's rate; the call
 * gets a retry hint. A request that is admitted may have more pixels than are left; later ones then wait
 * until the rate has made up for that. */
fv_status fv_tenancy_take_pixels(fv_tenant_use *u, uint64_t pixels, fv_rpc_call *call);

/* The KV that the tenant's requests and conversations may hold on one decode worker; 0: no limit. */
uint64_t fv_tenancy_kv_bytes(const fv_tenant_use *u);

/* FV_EDENIED: the tenant's requests may not use this policy. */
fv_status fv_tenancy_policy(const fv_tenant_use *u, const fv_policy *policy);

#endif
