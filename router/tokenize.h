#ifndef FOVEA_ROUTER_TOKENIZE_H
#define FOVEA_ROUTER_TOKENIZE_H

/* TOKENIZE, DETOKENIZE, GET TOKENIZER: the router has no tokenizer and forwards these calls to a prefill worker. They count
 * against a rate of their own, as high as that of requests, so that neither uses up the other's. The number of
 * open calls is limited per tenant (router/tenancy.h) and in total. Loop thread. */
#include "router/registry.h"
#include "router/tenancy.h"

enum {
    FV_TOKENIZE_BYTES_MAX = 4 << 20,  /* of one request */
    FV_TOKENIZE_ALL_MAX = 64,         /* calls at a time */
    FV_TOKENIZE_BYTES_ALL = 64 << 20, /* of the requests of all calls */
};

typedef struct fv_tokenize_calls {
    const fv_registry *members; /* borrowed */
    fv_tenancy *tenancy;        /* borrowed */
    int32_t n;                  /* calls whose request has arrived */
    size_t bytes;               /* of their requests */
} fv_tokenize_calls;

/* Checks whether a call of this tenant would be admitted now; counts nothing. FV_EBUSY: no; the call gets a
 * retry hint. */
fv_status fv_tokenize_check(const fv_tokenize_calls *calls, fv_rpc_call *c, fv_tenant_use *tenant);

/* Event handlers of the methods. */
fv_status fv_tokenize_on_start(fv_rpc_call *c, fv_tokenize_calls *calls);
fv_status fv_tokenize(fv_rpc_call *c, grpc_byte_buffer *message);
fv_status fv_detokenize(fv_rpc_call *c, grpc_byte_buffer *message);
fv_status fv_get_tokenizer(fv_rpc_call *c, grpc_byte_buffer *message);
void fv_tokenize_on_end(fv_rpc_call *c, const fv_rpc_end *end);

#endif
