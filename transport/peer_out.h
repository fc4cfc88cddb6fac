#ifndef FOVEA_TRANSPORT_PEER_OUT_H
#define FOVEA_TRANSPORT_PEER_OUT_H

/* PAIRS, the sending side: fovea.handoff.v1.Handoff.Pair. The pairs that a worker has with others,
 * at most one with each, made when they are first wanted and kept for whatever goes there next.
 *
 *               want                  both sides are ready
 *      APART --------> JOINING --------------------------> JOINED
 *        ^                | refused, failed, too late         | failed, too late, idle, or its
 * place |                v                                   v is wanted for another
 *        '------------ PARTING <------------------------------'
 *           the call is over, and the line closed: what was under way is its sender's again
 *
 * A way that has failed is not tried again for a while, longer each time. There are never more than
 * `most` pairs: each has memory on both devices; the one that was idle for longest makes place.
 *
 * Turns are numbered by the sender when they are asked for and sent in that order, as far as the
 * other side has places free. A turn that is given up before it is sent is left out.
 *
 * Loop thread. */
#include "rpc/client.h"
#include "transport/link_thread.h"

typedef struct fv_peers fv_peers;           /* opaque; all of a worker */
typedef struct fv_peer_route fv_peer_route; /* opaque; to one other worker */

typedef struct fv_peers_options {
    fv_bridge *bridge;
    const fv_peer_ops *ops; /* borrowed, as is the device */
    fv_device *device;
    int32_t most;   /* pairs at a time; 0: 8 */
    double join_s;  /* to become ready, 0: 20 */
    double late_s;  /* from sending until it is taken; 0: 10 */
    double idle_s;  /* without a turn, until it is ended; 0: 300 */
    double retry_s; /* after the first failure; 0: 1 */
    bool wait;      /* hand-offs wait until it is known whether there is a pair */
} fv_peers_options;

typedef struct fv_peers_counters {
    uint64_t n_failed; /* also those that never joined, but not those refused */
    uint32_t n_now;
} fv_peers_counters;

fv_status fv_peers_open(const fv_peers_options *opt, fv_peers **out);
/* Its ways are closed. `closed` runs later; NULL is fine, then it runs at once. */
void fv_peers_close(fv_peers *p, void (*closed)(void *user), void *user);
const fv_peer_ops *fv_peers_ops(const fv_peers *p);
fv_peers_counters fv_peers_count(const fv_peers *p);

/* Borrows the channel; `target` names the other side in the log. */
fv_status fv_peer_route_open(fv_peers *p, fv_rpc_channel *channel, const char *target,
                             fv_peer_route **out);
/* `closed` runs when nothing of it is under way any more: later, or at once. */
void fv_peer_route_close(fv_peer_route *w, void (*closed)(void *user), void *user);

/* Who waits to know whether there is a pair; embedded. */
typedef struct fv_peer_wait {
    void (*known)(struct fv_peer_wait *wait); /* once */
    void *owner;
    struct fv_peer_wait *next; /* private */
} fv_peer_wait;

/* By which the other side lets a pair be made: the router's token, good for one. */
typedef struct fv_peer_permit {
    const char *token; /* NULL or "": the other side wants none */
    bool used;
} fv_peer_permit;

/* A hand-off is about to begin: makes the pair, if there is none and there may be one, with a
 * permit that is not used yet. True: nothing is to be waited for. False: `known` will be called. */
bool fv_peer_route_want(fv_peer_route *w, fv_peer_permit *permit,
                        fv_peer_wait *wait); /* NULL: it does not wait */
void fv_peer_route_unwait(fv_peer_route *w, fv_peer_wait *wait);
bool fv_peer_route_joined(const fv_peer_route *w);

/* One buffer being sent. Embedded in its owner's structure. */
typedef struct fv_peer_turn {
    fv_link_thread_move move; /* data, bytes */
    uint64_t pair, number;
    /* It is over, and the memory belongs to the owner again. Not taken: the link has ended, and it
     * is unknown whether the data arrived. */
    void (*over)(struct fv_peer_turn *t, bool taken);
    void *owner;
    /* private */
    struct fv_peer_turn *next;
    double sent_s; /* 0: not yet */
    bool left_out, sent_whole, taken;
} fv_peer_turn;

/* While it is joined. Sets pair and number. `over` does not come before this returns. */
void fv_peer_route_send(fv_peer_route *w, fv_peer_turn *t);
/* Its receiver wants it no more: sent as far as it must be; `over` comes, later. */
void fv_peer_route_forget(fv_peer_route *w, fv_peer_turn *t);

#endif
