#ifndef FOVEA_WIRE_RPC_FRAME_H
#define FOVEA_WIRE_RPC_FRAME_H

/* FRAME: fovea.handoff.v1.Frame, written and read by hand so that its data is not copied: sent
 * from where it lies, read where it came to lie. */
#include "wire/grant.h"
#include "wire/rpc_message.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes of a message beside its data, at most: Push takes FV_FRAME_MAX + this. */
enum { FV_RPC_FRAME_HEAD = 64 };

/* Frame `seq`: n pieces, which are lent as in fv_rpc_lend. */
fv_status fv_rpc_frame_lend(const fv_ticket *ticket, uint64_t seq, const fv_piece *piece, int32_t n,
                            void (*release)(void *user), void *user, grpc_byte_buffer **out);

/* The message behind the last frame: n_frame came before it, and that is all. */
fv_status fv_rpc_frame_commit(const fv_ticket *ticket, uint64_t n_frame, grpc_byte_buffer **out);

/* A message without data that says that the sender is there, and will send. */
fv_status fv_rpc_frame_alive(const fv_ticket *ticket, grpc_byte_buffer **out);

typedef struct fv_rpc_frame {
    fv_ticket ticket;
    uint64_t seq;
    uint64_t commit; /* above 0: the end, and no data */
    bool alive;      /* a sign of life, and no data */
    size_t bytes;    /* of data */
    int32_t n_piece;
    fv_piece piece[FV_FRAME_PIECES]; /* the data; borrowed from the message */
} fv_rpc_frame;

/* FV_REFUSED_MALFORMED: this is no frame, or its data is not the last field; FV_REFUSED_FRAME_SIZE:
 * not exactly one of data, commit and sign of life, or more pieces than FV_FRAME_PIECES. */
fv_refusal fv_rpc_frame_read(grpc_byte_buffer *message, fv_rpc_frame *out);

#ifdef __cplusplus
}
#endif
#endif
