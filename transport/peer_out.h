#ifndef FOVEA_TRANSPORT_PEER_OUT_H
#define FOVEA_TRANSPORT_PEER_OUT_H

/* PEER LINKS, the sending side: fovea.handoff.v1.Handoff.Pair. A worker has at most one link with each
 * other worker, made when it is first wanted and kept for later hand-offs.
 *
 *               want                  both sides are ready
 *      APART --------> JOINING --------------------------> JOINED
 *        ^                | refused, failed, too late         | failed, too late, idle, or ended to
 *        |                v                                   v make room for another
 *        '------------ PARTING <------------------------------'
 *           the call has ended and the link is closed: pending buffers belong to their senders again
 *
 * After a failure a route is not tried again for a while, longer each time. There are never more than
 * `most` links, because each takes memory on both devices; a new one replaces the one idle for longest.
 *
 * The sender numbers turns when they are requested and sends them in that order, as far as the other
 * side has free slots. A turn that is forgotten before it is sent is left out.
 *
 * Functions and callbacks run on the loop thread. */
#include "rpc/client.h"
#include "transport/link_thread.h"

typedef struct fv_peers fv_peers;           /* opaque; all links of a worker */
typedef struct fv_peer_route fv_peer_route; /* opaque; the link to one other worker, if any */

typedef struct fv_peers_options {
    fv_bridge *bridge;
    const fv_peer_ops *ops; /* borrowed, as is the device */
    fv_device *device;
    int32_t most;   /* links at a time; 0: 8 */
    double join_s;  /* timeout for joining; 0: 20 */
    double late_s;  /* timeout from sending a turn until it is taken; 0: 10 */
    double idle_s;  /* a link without turns is ended after this time; 0: 300 */
    double retry_s; /* pause after the first failure; 0: 1 */
    bool wait;      /* hand-offs wait until a link has joined or failed */
} fv_peers_options;

typedef struct fv_peers_counters {
    uint64_t n_failed; /* including links that never joined, without refused ones */
    uint32_t n_now;
} fv_peers_counters;

fv_status fv_peers_open(const fv_peers_options *opt, fv_peers **out);
/* Frees p, whose routes are all closed. `closed` runs later, or at once if p is NULL. */
void fv_peers_close(fv_peers *p, void (*closed)(void *user), void *user);
const fv_peer_ops *fv_peers_ops(const fv_peers *p);
fv_peers_counters fv_peers_count(const fv_peers *p);

/* Opens a route. Borrows the channel; `target` names the other side in the log. */
fv_status fv_peer_route_open(fv_peers *p, fv_rpc_channel *channel, const char *target,
                             fv_peer_route **out);
/* Closes a route; `closed` runs when nothing is pending: later, or at once. */
void fv_peer_route_close(fv_peer_route *w, void (*closed)(void *user), void *user);

/* A waiter for a link that is joining; embedded in its owner's structure. */
typedef struct fv_peer_wait {
    void (*known)(struct fv_peer_wait *wait); /* once */
    void *owner;
    struct fv_peer_wait *next; /* private */
} fv_peer_wait;

/* The router's token, which authorizes one link to the other side. */
typedef struct fv_peer_permit {
    const char *token; /* NULL or "": the other side needs none */
    bool used;
} fv_peer_permit;

/* Call it when a hand-off begins: starts a link if there is none, one is allowed, and the permit is unused.
 * True: no need to wait. False: `known` will be called. */
bool fv_peer_route_want(fv_peer_route *w, fv_peer_permit *permit,
                        fv_peer_wait *wait); /* NULL: does not wait */
void fv_peer_route_unwait(fv_peer_route *w, fv_peer_wait *wait);
bool fv_peer_route_joined(const fv_peer_route *w);

/* A buffer being sent. Embedded in its owner's structure. */
typedef struct fv_peer_turn {
    fv_link_thread_move move; /* data, bytes */
    uint64_t pair, number;
    /* The turn is over, and the memory belongs to the owner again. Not taken: the link has ended, and it
     * is unknown whether the data arrived. */
    void (*over)(struct fv_peer_turn *t, bool taken);
    void *owner;
    /* private */
    struct fv_peer_turn *next;
    double sent_s; /* 0: not yet */
    bool left_out, sent_whole, taken;
} fv_peer_turn;

/* Queues a turn on a joined link. Sets pair and number. `over` does not run before this returns. */
void fv_peer_route_send(fv_peer_route *w, fv_peer_turn *t);
/* Cancels the transfer: skips it, or if it is being sent, tells the receiver to discard it; `over` follows. */
void fv_peer_route_forget(fv_peer_route *w, fv_peer_turn *t);

#endif
