#ifndef FOVEA_COMMON_PEER_H
#define FOVEA_COMMON_PEER_H

/* PAIRS: two processes whose devices are joined, so that memory goes from one to the other without
 * the host's. A plugin brings the table (NCCL: kernels/cuda/nccl.c); who knows this header can use
 * it without knowing the plugin.
 *
 *   one side    new_id -> the other hears of it by other means; open(rank 0)   send, send, ...
 *   the other                                                   open(rank 1)   recv, recv, ...
 *
 * Nothing waits. Joining, and each operation, is begun by a call and over when poll says so; who
 * waits for it sets the deadline, and closes the pair when that has passed: a pair is over with the
 * first failure. Operations of the two sides meet in their order, and have the same bytes.
 *
 * A pair belongs to one thread, which need not be the one that computes on the device. */
#include <stdbool.h>
#include <stdint.h>

#include "common/buf.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FV_PEER_ID_BYTES = 128,
    FV_PEER_DEVICE_BYTES = 16,
    FV_PEER_BYTES_MAX = 1 << 20, /* of one operation */
    FV_PEER_DEPTH = 8,           /* operations under way */
};

typedef struct fv_peer fv_peer; /* private to the plugin */

typedef struct fv_peer_news {
    bool joined;  /* both sides are there */
    bool done;    /* the oldest operation under way is over */
    uint32_t crc; /* CRC32C of what it received, when it did */
} fv_peer_news;

typedef struct fv_peer_ops {
    const char *name; /* "nccl" */
    /* Any thread. Whether it can be used here; FV_EUNSUPPORTED says what is missing. */
    fv_status (*check)(void);
    /* Any thread. Which device it is, of all machines: a device makes no pair with itself. */
    void (*identity)(fv_device *dev, uint8_t out[FV_PEER_DEVICE_BYTES]);
    fv_status (*new_id)(uint8_t id[FV_PEER_ID_BYTES]);
    /* Begins to join, rank 0 or 1. `dev` is borrowed and stays open longer; room_bytes of its
     * memory come with the pair, to receive into. */
    fv_status (*open)(fv_device *dev, const uint8_t id[FV_PEER_ID_BYTES], int rank,
                      size_t room_bytes, fv_peer **out);
    void *(*room)(const fv_peer *p); /* [room_bytes] of the device; NULL when it has none */
    /* 1..FV_PEER_BYTES_MAX bytes of device memory, which is the operation's until it is over; its
     * contents are there already. FV_EBUSY: not now, poll first. */
    fv_status (*send)(fv_peer *p, const void *data, size_t bytes);
    fv_status (*recv)(fv_peer *p, void *data, size_t bytes);
    /* What has happened since: at most one operation is over at a time. */
    fv_status (*poll)(fv_peer *p, fv_peer_news *out);
    void (*close)(fv_peer *p); /* ends what is under way, without the other side; NULL is fine */
    /* On the thread that computes on `dev`, behind what it has issued; waits for the result. */
    fv_status (*crc32c)(fv_device *dev, const void *data, size_t bytes, uint32_t *out);
} fv_peer_ops;

#ifdef __cplusplus
}
#endif
#endif
