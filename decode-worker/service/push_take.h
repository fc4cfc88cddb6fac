#ifndef FOVEA_DECODE_WORKER_SERVICE_PUSH_TAKE_H
#define FOVEA_DECODE_WORKER_SERVICE_PUSH_TAKE_H

/* A stream of frames (Handoff.Push), message by message, into a receiver: what it has come to, and
 * what each message does to its hand-off. The order in which messages are given is that of the
 * stream, a sign of life aside. The pool's thread. */
#include "handoff/transport.h"
#include "transport/frame.h"

typedef struct fv_push_state {
    fv_ticket ticket; /* of the first frame, and so of all */
    bool known;       /* there was one */
    bool over;        /* committed, refused or given up: what still comes is not looked at */
    uint64_t bytes;   /* of data that was taken */
} fv_push_state;      /* {0} at first */

/* The bytes of a frame that goes beside the stream, where they have arrived: on the sink's device.
 */
typedef struct fv_push_came {
    const void *data;
    size_t bytes;
    uint32_t crc;
} fv_push_came;

/* One message, borrowed; `came`: of a frame beside the stream, or NULL. *committed: above 0, the
 * number of frames of a stream that is complete and was right. A refusal ends the hand-off. */
fv_status fv_push_take(fv_sink *sink, fv_push_state *p, grpc_byte_buffer *message,
                       const fv_push_came *came, uint64_t *committed);

/* The stream ends; `broken`: the peer is gone. A hand-off that is not committed is refused
 * (TRUNCATED) or given up; after a broken stream a committed one is given up too, because its
 * sender has not been told. */
fv_status fv_push_end(fv_sink *sink, fv_push_state *p, bool broken);

#endif
