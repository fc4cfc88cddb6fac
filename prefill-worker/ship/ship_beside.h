#ifndef FOVEA_PREFILL_WORKER_SHIP_SHIP_BESIDE_H
#define FOVEA_PREFILL_WORKER_SHIP_SHIP_BESIDE_H

/* Rows on a device, gathered there into frames that go to the other side's device
 * (handoff/transport.h, push_beside), and their checksum. The thread that computes on the device.
 */
#include "common/pair.h"
#include "handoff/kv_packet.h"

typedef struct fv_beside {
    fv_buf *buf; /* [n] owned, on the device; those that were sent are empty */
    int32_t n;
    uint64_t bytes;
    uint32_t crc; /* of all */
} fv_beside;      /* {0} is empty */

/* Copies n pieces of the device into buffers of at most `most` bytes. FV_ENOMEM: it has no room for
 * copies. */
fv_status fv_beside_gather(const fv_pair_ops *ops, fv_device *dev, const fv_piece *piece, int32_t n,
                           size_t most, fv_beside *out);
void fv_beside_free(fv_beside *b);

#endif
