#ifndef FOVEA_ROUTER_TOKENIZE_H
#define FOVEA_ROUTER_TOKENIZE_H

/* TOKENIZE, DETOKENIZE: the router has no tokenizer, and passes such a call on to a prefill worker. They count against a
 * rate of their own, which is as high as that of requests, so that neither takes the other's; and there is a limit for
 * those that are here, of the tenant (router/tenancy.h) and of all. Loop thread. */
#include "router/registry.h"
#include "router/tenancy.h"

enum {
    FV_TOKENIZE_BYTES_MAX = 4 << 20,  /* of a request */
    FV_TOKENIZE_ALL_MAX = 64,         /* calls at a time */
    FV_TOKENIZE_BYTES_ALL = 64 << 20, /* of all their requests */
};

typedef struct fv_tokenize_desk {
    const fv_registry *members; /* borrowed, as the next */
    fv_tenancy *tenancy;
    int32_t n;    /* calls whose request is here */
    size_t bytes; /* of those requests */
} fv_tokenize_desk;

/* Would a call of this tenant be let in now? Takes nothing. FV_EBUSY: no; the call has the hint. */
fv_status fv_tokenize_check(const fv_tokenize_desk *desk, fv_rpc_call *c, fv_tenant_use *tenant);

/* The events of both methods. */
fv_status fv_tokenize_on_start(fv_rpc_call *c, fv_tokenize_desk *desk);
fv_status fv_tokenize(fv_rpc_call *c, grpc_byte_buffer *message);
fv_status fv_detokenize(fv_rpc_call *c, grpc_byte_buffer *message);
void fv_tokenize_on_end(fv_rpc_call *c, const fv_rpc_end *end);

#endif
