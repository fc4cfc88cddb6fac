#ifndef FOVEA_TRANSPORT_FRAME_H
#define FOVEA_TRANSPORT_FRAME_H

/* FRAME: fovea.handoff.v1.Frame, serialized and parsed by hand so that its data is not copied. */
#include "handoff/grant.h"
#include "rpc/message.h"

/* The most bytes of a message besides its data: Push takes FV_FRAME_MAX + this. */
enum { FV_RPC_FRAME_HEAD = 80 };

/* The most messages that may follow a frame that is sent out of band and not taken yet, not counting those
 * that fall back to the stream. */
enum { FV_RPC_FRAME_AHEAD = 32 };

/* Makes frame `seq` of n pieces, borrowed as in fv_rpc_wrap. */
fv_status fv_rpc_frame_lend(const fv_ticket *ticket, uint64_t seq, const fv_piece *piece, int32_t n,
                            void (*release)(void *user), void *user, grpc_byte_buffer **out);

/* Makes the message after the last frame, with the number of frames. */
fv_status fv_rpc_frame_commit(const fv_ticket *ticket, uint64_t n_frame, grpc_byte_buffer **out);

/* Makes a keep-alive: a message without data. */
fv_status fv_rpc_frame_alive(const fv_ticket *ticket, grpc_byte_buffer **out);

/* Makes the announcement of frame `seq`, which is sent out of band, as this turn of this pair. */
fv_status fv_rpc_frame_oob(const fv_ticket *ticket, uint64_t seq, uint64_t pair, uint64_t turn,
                           grpc_byte_buffer **out);

/* Makes a frame that falls back to the stream, with borrowed bytes; pair = 0: it was not announced as out of
 * band before. */
fv_status fv_rpc_frame_fallback(const fv_ticket *ticket, uint64_t seq, uint64_t pair,
                                fv_piece bytes, void (*release)(void *user), void *user,
                                grpc_byte_buffer **out);

typedef struct fv_rpc_frame {
    fv_ticket ticket;
    uint64_t seq;
    uint64_t commit; /* above 0: the end, and no data */
    bool alive;      /* a keep-alive, and no data */
    uint64_t pair;   /* above 0: sent out of band if there is no data; otherwise a fallback */
    uint64_t turn;   /* of a frame sent out of band */
    size_t bytes;    /* of data */
    int32_t n_piece;
    fv_piece piece[FV_FRAME_PIECES]; /* the data; borrowed from the message */
} fv_rpc_frame;

/* FV_REFUSED_MALFORMED: not a frame, or its data is not the last field; FV_REFUSED_FRAME_SIZE: not exactly one
 * of data, commit, keep-alive and out-of-band announcement, or more pieces than FV_FRAME_PIECES. */
fv_status fv_rpc_frame_read(grpc_byte_buffer *message, fv_rpc_frame *out);

#endif
