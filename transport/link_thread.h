#ifndef FOVEA_TRANSPORT_LINK_THREAD_H
#define FOVEA_TRANSPORT_LINK_THREAD_H

/* LINK THREAD: one end of a peer link (common/peer.h) with a thread of its own, for a loop that
 * must not block.
 *
 *   [loop thread]  fv_link_thread_open, fv_link_thread_move -->  [the link's thread]  starts, polls
 *        ^                                                                 |
 *        '---- joined, over (per move), failed ----------------------------'
 *
 * Each link has its own thread, so that a call into the library that hangs delays no other link.
 * Moves start and complete in order. There are no timeouts here: the caller closes the link after its
 * own timeout. Functions and callbacks run on the loop thread. */
#include "common/jobs.h"
#include "common/peer.h"
#include "rpc/bridge.h"

typedef struct fv_link_thread fv_link_thread; /* opaque */

/* Memory to send (rank 0) or to receive into (rank 1). Embedded in its owner's structure. */
typedef struct fv_link_thread_move {
    void *data; /* on the device; belongs to the link until `over` or `closed` */
    size_t bytes;
    uint32_t crc; /* of the received bytes, at `over` */
    void *owner;  /* borrowed; for `over` */
    /* private */
    fv_link_thread *line;
    fv_job there;
    fv_rpc_op back;
    struct fv_link_thread_move *next;
} fv_link_thread_move;

typedef struct fv_link_thread_options {
    fv_bridge *bridge;
    const fv_peer_ops *ops; /* borrowed, as is the device */
    fv_device *device;
    uint8_t id[FV_PEER_ID_BYTES];
    int rank;
    size_t buffer_bytes;
    void *user;
    void (*joined)(void *user);
    void (*over)(void *user, fv_link_thread_move *m);
    /* Reports the first failure; only `closed` follows. Moves that are not over belong to the link until
     * then. */
    void (*failed)(void *user, const char *text);
    /* Called after fv_link_thread_close: moves that were not over belong to their owners again. */
    void (*closed)(void *user);
} fv_link_thread_options;

/* Starts the thread, which begins to join. */
fv_status fv_link_thread_open(const fv_link_thread_options *opt, fv_link_thread **out);
char *fv_link_thread_buffer(
    const fv_link_thread *l); /* after `joined`; [buffer_bytes] of memory on the device */
void fv_link_thread_begin(fv_link_thread *l, fv_link_thread_move *m); /* after `joined` */
/* Ends the link, without waiting for the other side. Only `closed` is called afterwards. */
void fv_link_thread_close(fv_link_thread *l);

#endif
