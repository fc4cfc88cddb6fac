#ifndef FOVEA_ROUTER_SHARERS_H
#define FOVEA_ROUTER_SHARERS_H

/* SHARERS: who shares the queue and the workers' slots with whom.
 *
 *   with --tenants      a tenant, by its weight
 *   without             a client's address (common/client_address.h), each by weight 1
 *
 * An address shares and owns nothing: whoever calls from another address may abort a request with its token or
 * continue a conversation with its name, because without tenants there is nothing else to show who
 * somebody is. Its name for workers is "address 192.0.2.7".
 *
 * Addresses are known while they have requests, and as long afterwards as there is space for them:
 * FV_SHARERS_MAX at a time. More than that have requests only where each of them has few; those share
 * as one. Loop thread. */
#include "common/client_address.h"
#include "router/tenancy.h"

enum { FV_SHARERS_MAX = 4096, FV_SHARER_NAME_MAX = 127 };

typedef struct fv_sharer {
    struct fv_sharer *next; /* of all, the one that was used last first */
    char name[FV_SHARER_NAME_MAX + 1];
    double weight;
    int32_t index;     /* 0, 1, ...: in fv_fleet_part */
    uint64_t number;   /* unlike that of whoever had the index before */
    int32_t n_request; /* that are here */
    int32_t n_queued;  /* of them, and their bytes: theirs to keep (router/relay.c) */
    size_t bytes_queued;
} fv_sharer;

typedef struct fv_sharers fv_sharers; /* opaque */

/* trusted: proxies that say for whom they call, or NULL: none. Borrowed. */
fv_status fv_sharers_open(const fv_trusted *trusted, fv_sharers **out);
void fv_sharers_close(fv_sharers *s); /* no request is left; NULL is fine */

/* A request of this call begins; fv_sharer_give it. FV_ENOMEM. */
fv_status fv_sharers_take(fv_sharers *s, const fv_tenant_use *tenant, fv_rpc_call *call,
                          fv_sharer **out);
void fv_sharer_give(fv_sharer *x);

#endif
