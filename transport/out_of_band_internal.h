#ifndef FOVEA_TRANSPORT_OUT_OF_BAND_INTERNAL_H
#define FOVEA_TRANSPORT_OUT_OF_BAND_INTERNAL_H

/* OUT-OF-BAND FRAMES of one outgoing hand-off: those that go from device to device over a peer link
 * (transport/peer_out.h). Part of transport/grpc_loop.c.
 *
 *   [computing thread]  new: a buffer with its position in the stream
 *   [loop thread]       put, when it is next in the stream:
 *                          with a link          a message that names it is sent in the stream, the
 *                                               bytes out of band; kept until they are taken
 *                          without              copied to the host and sent in the stream
 *                       the link ends           frames that were not taken are copied to the host
 *                                               and sent in the stream, with their number
 *
 * Copying to the host and freeing buffers is done by the computing thread, which owns the
 * device. */
#include <stdatomic.h>

#include "common/jobs.h"
#include "handoff/grant.h"
#include "handoff/transport.h"
#include "transport/peer_out.h"

typedef struct fv_oob_frame fv_oob_frame; /* opaque */

/* The out-of-band frames of one hand-off, embedded in it. */
typedef struct fv_oob_set {
    fv_peer_route *way; /* borrowed; NULL: no out-of-band frames */
    fv_bridge *bridge;
    fv_jobs *jobs;
    void *user;
    /* Loop thread. Takes a message, to be sent on the stream at once; `in_turn`: it is the frame that was
     * put last, and was copied to the host first. */
    void (*send)(void *user, grpc_byte_buffer *message, bool in_turn);
    void (*changed)(void *user); /* the stream may be able to continue */
    void (*failed)(void *user);  /* a frame is lost: fv_last_error */
    /* read by both threads */
    atomic_bool usable;
    atomic_ullong bytes, n_fallback;
    /* private; loop thread */
    fv_oob_frame *frames; /* announced in the stream and not taken, or being copied to the host */
    uint64_t n_message;
} fv_oob_set;

/* Makes a frame. Takes the buffer even if it fails. Computing thread. */
fv_status fv_oob_frame_new(fv_oob_set *s, const fv_ticket *ticket, uint64_t seq, fv_buf buf,
                           fv_oob_frame **out);

/* The functions below belong to the loop thread. Puts the frame that is next on the stream: *message is to be
 * sent now; NULL: `send` gets it later. Takes the frame. */
fv_status fv_oob_put(fv_oob_set *s, fv_oob_frame *f, grpc_byte_buffer **message);
void fv_oob_frame_free(fv_oob_set *s, fv_oob_frame *f); /* for a frame that was not put */

/* Whether frames were put and have not arrived, so that the hand-off must not be committed yet. */
bool fv_oob_pending(const fv_oob_set *s);
/* Whether one more message may be sent on the stream now; fv_oob_sent notes that it was sent. */
bool fv_oob_may_send(const fv_oob_set *s);
void fv_oob_sent(fv_oob_set *s);

/* Ends the set with its hand-off: no callback is called afterwards. */
void fv_oob_drop(fv_oob_set *s);

#endif
