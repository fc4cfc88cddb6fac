#ifndef FOVEA_ROUTER_TENANCY_H
#define FOVEA_ROUTER_TENANCY_H

/* TENANCY: whose call it is, and whether that tenant may make it now (auth/tenants.h has the file,
 * which is read again when it changes; one that is wrong is logged, and the previous one stays).
 *
 * A caller shows its credential as metadata, "authorization: Bearer KEY-OR-JWT". Without a file all
 * callers are one tenant without a name and without limits. Loop thread. */
#include "auth/tenants.h"
#include "policy/policy.h"
#include "rpc/call.h"
#include "serving/audit.h"

typedef struct fv_tenancy fv_tenancy; /* opaque */

/* Calls of a kind that a tenant may begin, as of then. */
typedef struct fv_tenant_bucket {
    double credit, credit_s;
} fv_tenant_bucket;

/* What a tenant uses of this router; lasts as long as the tenancy. */
typedef struct fv_tenant_use {
    struct fv_tenant_use *next;
    char name[FV_TENANT_NAME_MAX + 1];
    const fv_tenant *limits; /* of the present file; NULL: it is not in there any more */
    fv_tenant_bucket requests, tokenizing;
    double pixels, pixels_s; /* of images that it may bring, as of then; below 0: it brought more */
    int32_t n_request;       /* that are here */
    int32_t n_tokenizing;    /* calls of Tokenize and Detokenize that are here */
} fv_tenant_use;

/* `path` NULL: no tenants. FV_EINVAL: the file is wrong, and why. */
fv_status fv_tenancy_open(const char *path, fv_tenancy **out);
void fv_tenancy_close(fv_tenancy *t); /* no request is left. NULL is fine */

/* Who calls? FV_EAUTH: it has shown no credential, or an unknown one. FV_EDENIED: a tenant that is
 * not known here. The log has a line about it. */
fv_status fv_tenancy_caller(fv_tenancy *t, fv_rpc_call *call, fv_tenant_use **out);
/* The same; *valid_s: for how many seconds its credential is good, infinity for a key. */
fv_status fv_tenancy_caller_until(fv_tenancy *t, fv_rpc_call *call, fv_tenant_use **out,
                                  double *valid_s);

/* A request begins; fv_tenancy_end it. FV_EBUSY: the tenant's rate or number is used up; the call
 * has the hint when to come again. */
fv_status fv_tenancy_begin(fv_tenant_use *u, fv_rpc_call *call);
void fv_tenancy_end(fv_tenant_use *u);
/* Would one begin now? Takes nothing. */
fv_status fv_tenancy_check(fv_tenant_use *u, fv_rpc_call *call);

/* The same of a call of Tokenize or Detokenize. A tenant may begin as many of them per second as requests, beside its
 * requests, and have FV_TOKENIZE_TENANT_MAX at a time. */
enum { FV_TOKENIZE_TENANT_MAX = 16 };
fv_status fv_tenancy_begin_tokenizing(fv_tenant_use *u, fv_rpc_call *call);
void fv_tenancy_end_tokenizing(fv_tenant_use *u);
fv_status fv_tenancy_check_tokenizing(fv_tenant_use *u, fv_rpc_call *call);

/* A request brings images of so many pixels. FV_EBUSY: its tenant's rate is used up by those before, and the call
 * has the hint when to come again. One that may begin may bring more than there is left; others then wait
 * until that is made up for. */
fv_status fv_tenancy_take_pixels(fv_tenant_use *u, uint64_t pixels, fv_rpc_call *call);

/* KV that its requests and conversations may have on a decode worker; 0: no limit. */
uint64_t fv_tenancy_kv_bytes(const fv_tenant_use *u);

/* FV_EDENIED: its requests may not have this policy. */
fv_status fv_tenancy_policy(const fv_tenant_use *u, const fv_policy *policy);

#endif
