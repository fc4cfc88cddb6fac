#ifndef FOVEA_GATEWAY_HELD_H
#define FOVEA_GATEWAY_HELD_H

/* HELD: the reference-counted memory of a request, with its images and videos after base64. Calls
 * send it without a copy, and threads decode its videos: the last user frees it. Any thread. */
#include "gateway/api/request.h"
#include "rpc/message.h"

/* The members are the loop thread's, while it builds the request. held.c keeps the reference
 * count. */
typedef struct fv_request_memory {
    fv_arena arena;
    fv_api_bytes *bytes;
} fv_request_memory;

fv_status fv_request_memory_open(fv_request_memory **out); /* with one user */
void fv_request_memory_ref(fv_request_memory *h);
void fv_request_memory_unref(void *held); /* NULL is fine */

/* Takes data, to be freed with free(). On failure, does not take it. */
fv_status fv_request_memory_own(fv_request_memory *h, uint8_t *data);

/* Packs a message whose images `h` may own. Gives *out, which holds a reference to `h` until gRPC
 * has sent it. */
fv_status fv_request_memory_pack(fv_request_memory *h,
                                 const Fovea__Inference__V1__GenerateRequest *m,
                                 grpc_byte_buffer **out);

#endif
