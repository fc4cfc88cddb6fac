#ifndef FOVEA_PREFILL_WORKER_EXPORT_OUT_OF_BAND_H
#define FOVEA_PREFILL_WORKER_EXPORT_OUT_OF_BAND_H

/* OUT OF BAND: gathers rows on a device into frames that go to the other side's device
 * (handoff/transport.h, push_oob), with their checksum. For the thread that computes on the device. */
#include "common/peer.h"
#include "handoff/kv_packet.h"

typedef struct fv_oob {
    fv_buf *buf; /* [n] owned, on the device; sent ones are empty */
    int32_t n;
    uint64_t bytes;
    uint32_t crc; /* of all buffers */
} fv_oob;         /* {0} is empty */

/* Copies n pieces of device memory into buffers of at most `most` bytes. FV_ENOMEM: no memory for
 * copies. */
fv_status fv_oob_gather(const fv_peer_ops *ops, fv_device *dev, const fv_piece *piece, int32_t n,
                        size_t most, fv_oob *out);
void fv_oob_free(fv_oob *b);

#endif
