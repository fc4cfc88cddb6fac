#ifndef FOVEA_DECODE_WORKER_SERVICE_PUSH_TAKE_H
#define FOVEA_DECODE_WORKER_SERVICE_PUSH_TAKE_H

/* Passes a stream of frames (Handoff.Push) to a receiver, message by message, and keeps the stream's
 * state. Messages are given in the stream's order, except signs of life. On the thread that owns the KV
 * pool. */
#include "handoff/transport.h"
#include "transport/frame.h"

typedef struct fv_push_state {
    fv_ticket ticket; /* from the first message; all others must have the same */
    bool known;       /* `ticket` is set */
    bool over;        /* committed, refused or aborted: later messages are ignored */
    uint64_t bytes;   /* bytes of data taken */
} fv_push_state;      /* {0} at first */

/* The bytes of an out-of-band frame, on the sink's device. */
typedef struct fv_push_came {
    const void *data;
    size_t bytes;
    uint32_t crc;
} fv_push_came;

/* Takes one message, borrowed; `came`: the bytes of an out-of-band frame, or NULL. *committed: the number
 * of frames if this was the commit and it succeeded, otherwise 0. A refusal ends the hand-off. */
fv_status fv_push_take(fv_sink *sink, fv_push_state *p, grpc_byte_buffer *message,
                       const fv_push_came *came, uint64_t *committed);

/* Ends the stream; `broken`: the peer is gone. A hand-off that is not committed is refused with TRUNCATED,
 * or aborted if the stream is broken; then a committed one is aborted too, because its sender may not
 * have heard of the commit. */
fv_status fv_push_end(fv_sink *sink, fv_push_state *p, bool broken);

#endif
