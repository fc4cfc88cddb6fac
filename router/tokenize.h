#ifndef FOVEA_ROUTER_TOKENIZE_H
#define FOVEA_ROUTER_TOKENIZE_H

/* TOKENIZE, DETOKENIZE: the router has no tokenizer, and passes such a call on to a prefill worker.
 * Loop thread. */
#include "router/registry.h"

enum { FV_TOKENIZE_BYTES_MAX = 4 << 20 };

fv_status fv_tokenize(fv_rpc_call *c, grpc_byte_buffer *message, const fv_registry *members);
fv_status fv_detokenize(fv_rpc_call *c, grpc_byte_buffer *message, const fv_registry *members);

/* The on_end of both. */
void fv_tokenize_on_end(fv_rpc_call *c, const fv_rpc_end *end);

#endif
