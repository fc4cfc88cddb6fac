#ifndef FOVEA_DECODE_WORKER_SERVICE_PAIR_H
#define FOVEA_DECODE_WORKER_SERVICE_PAIR_H

/* PEER LINKS, the receiving side: frames from prefill workers' devices arrive in slots, and
 * wait there until the stream of their hand-off (handoff.c) takes them. For the loop thread. */
#include "common/peer.h"
#include "rpc/server.h"
#include "transport/link_thread.h"

struct fv_decode_worker;
typedef struct fv_link_in fv_link_in; /* opaque: one link */

/* A slot in memory of this worker's device, and the frame that arrives in it. */
typedef struct fv_link_slot {
    fv_link_thread_move move; /* data, bytes and crc, once the frame has arrived */
    /* private */
    fv_link_in *pair;
    uint64_t turn;
    bool used, arrived, forgotten, reused;
} fv_link_slot;

/* All links of a worker. */
typedef struct fv_links_in {
    const fv_peer_ops *ops; /* NULL: the worker offers none */
    fv_device *device;
    int32_t most;
    fv_link_in *first;
    uint32_t n_now;
    uint64_t n_failed;
    void (*arrived)(struct fv_decode_worker *w);   /* called when a frame has arrived */
    void (*none_left)(struct fv_decode_worker *w); /* called when the last link is gone */
} fv_links_in;

/* Returns frame number `turn` of link `number`, or NULL if it has not arrived. The frame stays until
 * fv_link_free_slot frees its slot. */
fv_link_slot *fv_link_frame(fv_links_in *all, uint64_t number, uint64_t turn);
void fv_link_free_slot(fv_link_slot *place);

/* Ends all links without an error. */
void fv_peers_end(fv_links_in *p);

/* Handlers of Handoff.Pair. */
fv_status fv_peer_on_start(fv_rpc_call *c);
fv_status fv_peer_on_message(fv_rpc_call *c, grpc_byte_buffer *message);
fv_status fv_peer_on_half_close(fv_rpc_call *c);
void fv_peer_on_end(fv_rpc_call *c, const fv_rpc_end *end);

#endif
