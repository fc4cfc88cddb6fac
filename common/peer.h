#ifndef FOVEA_COMMON_PEER_H
#define FOVEA_COMMON_PEER_H

/* PEER LINKS: two processes whose devices are connected, so that memory is copied between them
 * without passing through host memory. A plugin provides the table (NCCL: kernels/cuda/nccl.c);
 * callers include only this header.
 *
 *   one side    new_id -> sent to the other by other means; open(rank 0)   send, send, ...
 *   the other                                               open(rank 1)   recv, recv, ...
 *
 * No call blocks. Connecting and each operation start with a call and end when poll reports it.
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
    FV_PEER_BYTES_MAX = 1 << 20, /* per operation */
    FV_PEER_DEPTH = 8,           /* operations in progress */
};

typedef struct fv_peer fv_peer; /* private to the plugin */

typedef struct fv_peer_news {
    bool joined;  /* both sides are connected */
    bool done;    /* the oldest operation in progress is done */
    uint32_t crc; /* CRC32C of the bytes it received, if it received any */
} fv_peer_news;

typedef struct fv_peer_ops {
    const char *name; /* "nccl" */
    /* Checks whether the plugin can be used here; FV_EUNSUPPORTED says what is missing. Any
     * thread. */
    fv_status (*check)(void);
    /* Identifies the device among all machines: a device cannot be linked to itself. Any thread. */
    void (*identity)(fv_device *dev, uint8_t out[FV_PEER_DEVICE_BYTES]);
    fv_status (*new_id)(uint8_t id[FV_PEER_ID_BYTES]);
    /* Begins to connect as rank 0 or 1. `dev` is borrowed and must stay open longer. The link
     * allocates buffer_bytes of its memory to receive into. */
    fv_status (*open)(fv_device *dev, const uint8_t id[FV_PEER_ID_BYTES], int rank,
                      size_t buffer_bytes, fv_peer **out);
    void *(*buffer)(const fv_peer *p); /* [buffer_bytes] on the device; NULL if it has none */
    /* 1..FV_PEER_BYTES_MAX bytes of device memory, which the operation uses until it is done; the
     * data must be there already. FV_EBUSY: call poll first. */
    fv_status (*send)(fv_peer *p, const void *data, size_t bytes);
    fv_status (*recv)(fv_peer *p, void *data, size_t bytes);
    /* Reports progress since the last call: at most one operation ends per call. */
    fv_status (*poll)(fv_peer *p, fv_peer_news *out);
    void (*close)(fv_peer *p); /* aborts operations without the other side; NULL is fine */
    /* Computes a checksum after the work issued so far, and waits for it. On the thread that
     * computes on `dev`. */
    fv_status (*crc32c)(fv_device *dev, const void *data, size_t bytes, uint32_t *out);
} fv_peer_ops;

#ifdef __cplusplus
}
#endif
#endif
