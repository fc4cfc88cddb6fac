#ifndef FOVEA_KERNELS_CUDA_TILES_CUH
#define FOVEA_KERNELS_CUDA_TILES_CUH

/* Shared by the tensor core kernels: operands of mma m16n8k16 (fv_mma_bf16) without a transpose.
 *
 * The right side of a product consists of pairs that are adjacent along the summed dimension k, but
 * rows in memory are contiguous along the other one, n. The assignment of k and n to a lane's operands
 * is free as long as both sides of the product and its result agree. So a lane loads 8 adjacent
 * elements along n of 4 rows k, 16 bytes each, and uses them as its operands of 8 tiles: tile x has
 * element 8 i + x of n in place of i. Two words of two rows make two operands, one of the low halves
 * and one of the high halves. */
#include "kernels/cuda/gpu.h"

/* Index of the lane's group of 4, and the lane's index in it. */
static __device__ __forceinline__ int lane_group() { return (int)(threadIdx.x % FV_WARP / 4); }
static __device__ __forceinline__ int lane_place() { return (int)(threadIdx.x % 4); }

/* Packs the low halves of two words, or the high halves, into one. */
static __device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) {
    return (a & 0xffffu) | b << 16;
}
static __device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) {
    return a >> 16 | (b & 0xffff0000u);
}

/* Numbers in bf16, two to a word. */
struct eight {
    uint32_t w[4];
};
struct four {
    uint32_t w[2];
};

/* The middle of 8- and 4-bit codes: the distance from it is exact in bf16. */
template <int BITS> struct codes_of {
    enum { MIDDLE = BITS == 16 ? 0 : BITS == 8 ? 128 : 8 };
};

/* Packs two small integers as bf16. */
static __device__ __forceinline__ uint32_t pack_integers(int lo, int hi) {
    return bits_of_f32((float)lo) >> 16 | (bits_of_f32((float)hi) & 0xffff0000u);
}

template <int BITS> static __device__ __forceinline__ int code_at(uint32_t word, int i) {
    return (int)(word >> i * BITS & ((1u << BITS) - 1)) - (int)codes_of<BITS>::MIDDLE;
}

/* Loads 8 adjacent elements, aligned to their size. */
template <int BITS> static __device__ __forceinline__ eight load_eight(const char *p) {
    eight x;
    if (BITS == 16) {
        uint4 u = *reinterpret_cast<const uint4 *>(p);
        x.w[0] = u.x, x.w[1] = u.y, x.w[2] = u.z, x.w[3] = u.w;
    } else if (BITS == 8) {
        uint2 u = *reinterpret_cast<const uint2 *>(p);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            x.w[i] = pack_integers(code_at<8>(u.x, 2 * i), code_at<8>(u.x, 2 * i + 1));
            x.w[i + 2] = pack_integers(code_at<8>(u.y, 2 * i), code_at<8>(u.y, 2 * i + 1));
        }
    } else {
        uint32_t u = *reinterpret_cast<const uint32_t *>(p);
#pragma unroll
        for (int i = 0; i < 4; i++)
            x.w[i] = pack_integers(code_at<4>(u, 2 * i), code_at<4>(u, 2 * i + 1));
    }
    return x;
}

/* Loads elements r to r + 7 of a line of n with any alignment; those outside the line are 0. */
template <int BITS>
static __device__ __forceinline__ eight gather_eight(const char *line, int32_t r, int32_t n) {
    eight x = {{0, 0, 0, 0}};
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int32_t at = r + i;
        if (at < 0 || at >= n) continue;
        uint32_t half;
        if (BITS == 16) {
            half = reinterpret_cast<const uint16_t *>(line)[at];
        } else {
            uint32_t byte = reinterpret_cast<const uint8_t *>(line)[at * BITS / 8];
            half = bits_of_f32((float)code_at<BITS>(byte, BITS == 4 ? at % 2 : 0)) >> 16;
        }
        x.w[i / 2] |= half << i % 2 * 16;
    }
    return x;
}

/* Loads 4 adjacent elements. */
template <int BITS> static __device__ __forceinline__ four load_four(const char *p) {
    four x;
    if (BITS == 16) {
        uint2 u = *reinterpret_cast<const uint2 *>(p);
        x.w[0] = u.x, x.w[1] = u.y;
    } else {
        uint32_t u = BITS == 8 ? *reinterpret_cast<const uint32_t *>(p)
                               : *reinterpret_cast<const uint16_t *>(p);
#pragma unroll
        for (int i = 0; i < 2; i++)
            x.w[i] = pack_integers(code_at<BITS>(u, 2 * i), code_at<BITS>(u, 2 * i + 1));
    }
    return x;
}

static __device__ __forceinline__ eight eight_zeros() {
    eight x = {{0, 0, 0, 0}};
    return x;
}

/* d += a b, in the type of the operands. */
template <fv_dtype TYPE>
static __device__ __forceinline__ void mma(float d[4], const uint32_t a[4], const uint32_t b[2]) {
    if (TYPE == FV_BF16)
        fv_mma_bf16(d, a, b);
    else
        fv_mma_f16(d, a, b);
}

/* acc[8] += a times the 8 tiles whose operands are in rows x0..x3. */
template <fv_dtype TYPE = FV_BF16>
static __device__ __forceinline__ void mma_eight(float acc[8][4], const uint32_t a[4], eight x0,
                                                 eight x1, eight x2, eight x3) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t lo[2] = {low_halves(x0.w[i], x1.w[i]), low_halves(x2.w[i], x3.w[i])};
        uint32_t hi[2] = {high_halves(x0.w[i], x1.w[i]), high_halves(x2.w[i], x3.w[i])};
        mma<TYPE>(acc[2 * i], a, lo);
        mma<TYPE>(acc[2 * i + 1], a, hi);
    }
}

/* The sum, or the largest, over the four lanes of a group. */
static __device__ __forceinline__ float group_sum(float x) {
    x += __shfl_xor_sync(FV_ALL_LANES, x, 1);
    return x + __shfl_xor_sync(FV_ALL_LANES, x, 2);
}
static __device__ __forceinline__ float group_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(FV_ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(FV_ALL_LANES, x, 2));
}

/* Softmax is computed in powers of 2. */
#define FV_LOG2E 1.4426950408889634f
#define FV_LN2 0.6931471805599453f

#endif
