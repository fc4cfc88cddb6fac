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

/* Token bucket of a kind of call: `credit` calls may begin, as of the time credit_s. */
typedef struct fv_tenant_bucket {
    double credit, credit_s;
} fv_tenant_bucket;

/* A tenant's use of this router; lasts as long as the tenancy. */
typedef struct fv_tenant_use {
    struct fv_tenant_use *next;
    char name[FV_TENANT_NAME_MAX + 1];
    const fv_tenant *limits; /* from the current file; NULL: the tenant is not in it any more */
    fv_tenant_bucket requests, tokenizing;
    double pixels, pixels_s; /* pixels it may send, as of pixels_s; below 0: it has sent too many */
    int32_t n_request;       /* present requests */
    int32_t n_tokenizing;    /* present calls of Tokenize and Detokenize */
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

/* Counts a request from begin to end. FV_EBUSY: the tenant's rate or number is used up; the call
 * gets a retry hint. */
fv_status fv_tenancy_begin(fv_tenant_use *u, fv_rpc_call *call);
void fv_tenancy_end(fv_tenant_use *u);
/* Checks whether a request could begin now; counts nothing. */
fv_status fv_tenancy_check(fv_tenant_use *u, fv_rpc_call *call);

/* The same for a call of Tokenize or Detokenize. A tenant may begin as many of them per second as requests, in
 * addition to its requests, and have FV_TOKENIZE_TENANT_MAX at a time. */
enum { FV_TOKENIZE_TENANT_MAX = 16 };
fv_status fv_tenancy_begin_tokenizing(fv_tenant_use *u, fv_rpc_call *call);
void fv_tenancy_end_tokenizing(fv_tenant_use *u);
fv_status fv_tenancy_check_tokenizing(fv_tenant_use *u, fv_rpc_call *call);

/* Charges the pixels of a request's images. FV_EBUSY: earlier images have used up the tenant's rate; the call
 * gets a retry hint. A request that is admitted may have more pixels than are left; later ones then wait
 * until the rate has made up for that. */
fv_status fv_tenancy_take_pixels(fv_tenant_use *u, uint64_t pixels, fv_rpc_call *call);

/* The KV that the tenant's requests and conversations may hold on one decode worker; 0: no limit. */
uint64_t fv_tenancy_kv_bytes(const fv_tenant_use *u);

/* FV_EDENIED: the tenant's requests may not use this policy. */
fv_status fv_tenancy_policy(const fv_tenant_use *u, const fv_policy *policy);

#endif
