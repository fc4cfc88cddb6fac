#ifndef FOVEA_KERNELS_CUDA_NCCL_H
#define FOVEA_KERNELS_CUDA_NCCL_H

/* Pairs of GPUs (common/peer.h) by NCCL, and checksums on the GPU that go with them. */
#include <cuda_runtime.h>

#include "common/peer.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const fv_peer_ops fv_cuda_peers; /* nccl.c */

/* crc32c.cu: sums[i] is the CRC32C of the i-th FV_CRC_CHUNK bytes of data; data and sums [chunks]
 * on the device, data aligned to 4 bytes. Issued on the stream. */
enum { FV_CRC_CHUNK = 256 };
fv_status fv_cuda_crc32c_sums(const void *data, size_t bytes, uint32_t *sums, cudaStream_t stream);

static inline size_t fv_crc_chunks(size_t bytes) {
    return (bytes + FV_CRC_CHUNK - 1) / FV_CRC_CHUNK;
}

#ifdef __cplusplus
}
#endif
#endif
