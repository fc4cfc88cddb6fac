#ifndef FOVEA_ROUTER_ACCOUNTS_H
#define FOVEA_ROUTER_ACCOUNTS_H

/* SHARERS: the tenants or client addresses that share the queue and the workers' slots.
 *
 *   with --tenants      a tenant, by its weight
 *   without             a client's address (common/client_address.h), each by weight 1
 *
 * An address has a share but owns nothing: a caller from another address may abort a request with its token or
 * continue a conversation with its name, because without tenants nothing else shows who a caller
 * is. For workers an address is called "address 192.0.2.7".
 *
 * The table remembers an address while it has requests, and afterwards as long as there is space:
 * FV_SHARERS_MAX at a time. If all of these have requests, a new address shares with the one that was used
 * last. Loop thread. */
#include "common/client_address.h"
#include "router/tenancy.h"

enum { FV_SHARERS_MAX = 4096, FV_SHARER_NAME_MAX = 127 };

typedef struct fv_account {
    struct fv_account *next; /* of all, most recently used first */
    char name[FV_SHARER_NAME_MAX + 1];
    double weight;
    int32_t index;     /* 0, 1, ...: its place in fv_fleet.share */
    uint64_t number;   /* unique: tells it from earlier sharers with this index */
    int32_t n_request; /* present requests */
    int32_t n_queued;  /* queued ones; with bytes_queued kept by router/request.c */
    size_t bytes_queued;
} fv_account;

typedef struct fv_accounts fv_accounts; /* opaque */

/* trusted: proxies whose x-forwarded-for is believed; NULL: none. Borrowed. */
fv_status fv_accounts_open(const fv_trusted *trusted, fv_accounts **out);
void fv_accounts_close(fv_accounts *s); /* no request is left; NULL is fine */

/* Finds the sharer of a new request; give it back with fv_account_give. FV_ENOMEM. */
fv_status fv_accounts_take(fv_accounts *s, const fv_tenant_use *tenant, fv_rpc_call *call,
                           fv_account **out);
void fv_account_give(fv_account *x);

#endif
