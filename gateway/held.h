#ifndef FOVEA_GATEWAY_HELD_H
#define FOVEA_GATEWAY_HELD_H

/* HELD: the memory of a request, with its images and videos as they were decoded. It is read by the calls that send it,
 * without a copy, and by the threads that decode its videos: whoever is last frees it. Any thread. */
#include "gateway/api/request.h"
#include "rpc/message.h"

/* The loop thread's, as long as it makes the request. Its number of users is in held.c. */
typedef struct fv_held {
    fv_arena arena;
    fv_api_bytes *bytes;
} fv_held;

fv_status fv_held_open(fv_held **out); /* with one user */
void fv_held_ref(fv_held *h);
void fv_held_unref(void *held); /* NULL is fine */

/* Takes data (free). On failure it is not taken. */
fv_status fv_held_own(fv_held *h, uint8_t *data);

/* A message of this memory, packed. Gives *out, and is a user of `h` until gRPC has sent it. */
fv_status fv_held_pack(fv_held *h, const Fovea__Inference__V1__GenerateRequest *m,
                       grpc_byte_buffer **out);

#endif
