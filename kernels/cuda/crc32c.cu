/* CRC32C of chunks, a thread for each, four bytes at a time (slicing by 4): the effect of each byte on
 * the remainder is looked up in tables that each block makes for itself. The host joins the chunks'
 * sums (common/crc32c_join.h). */
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/nccl.h"

enum { THREADS = 256, SLICES = 4 };

static __global__ void __launch_bounds__(THREADS)
    crc32c_sums(const unsigned char *data, uint64_t bytes, uint32_t *sums) {
    FV_SHARED(uint32_t, table); /* [SLICES, 256]: row s is for a byte followed by s bytes */
    uint32_t i = threadIdx.x, r = i;
    for (int bit = 0; bit < 8; bit++) r = r & 1 ? r >> 1 ^ 0x82f63b78u : r >> 1;
    table[i] = r;
    __syncthreads();
    for (int s = 1; s < SLICES; s++) {
        r = r >> 8 ^ table[r & 255];
        table[256 * s + i] = r;
    }
    __syncthreads();
    uint64_t chunk = (uint64_t)blockIdx.x * THREADS + i, begin = chunk * FV_CRC_CHUNK;
    if (begin >= bytes) return;
    uint64_t n = bytes - begin < FV_CRC_CHUNK ? bytes - begin : (uint64_t)FV_CRC_CHUNK, at = 0;
    const unsigned char *p = data + begin;
    uint32_t crc = ~0u;
    for (; at + 4 <= n; at += 4) {
        crc ^= *reinterpret_cast<const uint32_t *>(p + at);
        crc = table[768 + (crc & 255)] ^ table[512 + (crc >> 8 & 255)] ^
              table[256 + (crc >> 16 & 255)] ^ table[crc >> 24];
    }
    for (; at < n; at++) crc = crc >> 8 ^ table[(crc ^ p[at]) & 255];
    sums[chunk] = ~crc;
}

extern "C" fv_status fv_cuda_crc32c_sums(const void *data, size_t bytes, uint32_t *sums,
                                         cudaStream_t stream) {
    if (bytes == 0) return FV_OK;
    FV_LAUNCH(crc32c_sums, dim3(fv_cuda_blocks((int64_t)fv_crc_chunks(bytes), THREADS)),
              dim3(THREADS), SLICES * 256 * sizeof(uint32_t), stream,
              static_cast<const unsigned char *>(data), (uint64_t)bytes, sums);
    return fv_cuda_launched("crc32c");
}
