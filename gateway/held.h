#ifndef FOVEA_GATEWAY_HELD_H
#define FOVEA_GATEWAY_HELD_H

/* HELD: the reference-counted memory of a request, with its images and videos after base64. Calls
 * send it without a copy, and threads decode its videos: the last user frees it. Any thread. */
#include "gateway/api/request.h"
#include "rpc/message.h"

/* The members are the loop thread's, while it builds the request. held.c keeps the reference
 * count. */
typedef struct fv_held {
    fv_arena arena;
    fv_api_bytes *bytes;
} fv_held;

fv_status fv_held_open(fv_held **out); /* with one user */
void fv_held_ref(fv_held *h);
void fv_held_unref(void *held); /* NULL is fine */

/* Takes data, to be freed with free(). On failure, does not take it. */
fv_status fv_held_own(fv_held *h, uint8_t *data);

/* Packs a message whose images `h` may own. Gives *out, which holds a reference to `h` until gRPC
 * has sent it. */
fv_status fv_held_pack(fv_held *h, const Fovea__Inference__V1__GenerateRequest *m,
                       grpc_byte_buffer **out);

#endif
