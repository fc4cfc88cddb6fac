#ifndef FOVEA_COMMON_PEER_H
#define FOVEA_COMMON_PEER_H

/* PEER LINKS: two processes whose devices are connected, so that memory is copied from one to the
 * other without the host's. A plugin provides the table (NCCL: kernels/cuda/nccl.c); callers
 * include only this header.
 *
 *   one side    new_id -> sent to the other by other means; open(rank 0)   send, send, ...
 *   the other                                               open(rank 1)   recv, recv, ...
 *
 * Nothing blocks. Connecting and each operation start with a call and are over when poll says so.
 * The caller sets deadlines and closes the link when one passes; the first failure ends a
 * link. Operations of the two sides match in order and in size.
 *
 * A link belongs to one thread, which need not be the one that computes on the device. */
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
    /* Begins to join, rank 0 or 1. `dev` is borrowed and stays open longer; buffer_bytes of its
     * memory come with the pair, to receive into. */
    fv_status (*open)(fv_device *dev, const uint8_t id[FV_PEER_ID_BYTES], int rank,
                      size_t buffer_bytes, fv_peer **out);
    void *(*buffer)(const fv_peer *p); /* [buffer_bytes] of the device; NULL when it has none */
    /* 1..FV_PEER_BYTES_MAX bytes of device memory, which is the operation's until it is over; its
     * contents are there already. FV_EBUSY: not now, poll first. */
    fv_status (*send)(fv_peer *p, const void *data, size_t bytes);
    fv_status (*recv)(fv_peer *p, void *data, size_t bytes);
    /* What has happened since: at most one operation is over at a time. */
    fv_status (*poll)(fv_peer *p, fv_peer_news *out);
    void (*close)(fv_peer *p); /* ends what is under way, without the other side; NULL is fine */
    /* On the thread that computes on `dev`, after the work issued so far; waits for the result. */
    fv_status (*crc32c)(fv_device *dev, const void *data, size_t bytes, uint32_t *out);
} fv_peer_ops;

#ifdef __cplusplus
}
#endif
#endif
