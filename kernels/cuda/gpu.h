#ifndef FOVEA_KERNELS_CUDA_GPU_H
#define FOVEA_KERNELS_CUDA_GPU_H

/* The common base of kernels; included by .cu files.
 *
 * A kernel's source is compiled twice: by nvcc for GPUs, and by a C++ compiler for tests, where a
 * block's threads take turns on the CPU (tests/support/cuda_host/README.md). Only this file knows
 * the difference: launches, dynamic shared memory, asynchronous copies, and the tensor cores.
 *
 * nvcc compiles with -fmad=false: multiply and add are fused where the source says fmaf, as on the
 * CPU. With the same functions (kernels/mathf.h, convert.h) in the same order a kernel
 * gives the bits of the CPU. */
#include <cuda_runtime.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <utility>

#define FV_ANYWHERE __host__ __device__
#include "common/convert.h"
#include "kernels/cuda/cuda.h"
#include "kernels/mathf.h"
#include "kernels/ops.h"

enum { FV_WARP = 32, FV_LANES = 16 };
#define FV_ALL_LANES 0xffffffffu

/* FV_LAUNCH(kernel, grid, block, bytes of dynamic shared memory, stream, arguments...). Arguments
 * are evaluated now. Every pointer among them, also inside structs, is to memory of the device or
 * pinned. Check the result: return fv_cuda_launched("name").
 *
 * FV_SHARED(type, name): the block's dynamic shared memory, aligned to 16 bytes, once a kernel. */
#define FV_LAUNCH(kernel, grid, block, bytes_shared, stream, ...)                                  \
    fv_launch(#kernel, (kernel), (grid), (block), (bytes_shared), (stream), __VA_ARGS__)
#ifdef __CUDACC__
#define FV_SHARED(type, name)                                                                      \
    extern __shared__ __align__(16) unsigned char fv_shared_memory[];                              \
    type *name = reinterpret_cast<type *>(fv_shared_memory)
#else
#define FV_SHARED(type, name) type *name = static_cast<type *>(fv_emu::here.shared)
#endif

/* Copies the arguments in the kernel's types, with padding bytes cleared, so that equal launches have
 * equal bytes. */
template <typename... P, typename... A>
static void fv_launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                      cudaStream_t stream, A &&...a) {
    static_assert(sizeof...(P) == sizeof...(A), "a kernel is given all its arguments");
    std::tuple<std::decay_t<P>...> values(std::forward<A>(a)...);
#ifndef __CUDACC__
    fv_emu::know(name, kernel);
#endif
    std::apply(
        [&](auto &...v) {
            (__builtin_clear_padding(&v), ...);
            void *arg[] = {&v...};
            const uint32_t size[] = {(uint32_t)sizeof v...};
            fv_cuda_launch l = {};
            l.name = name;
            l.kernel = reinterpret_cast<const void *>(kernel);
            l.grid[0] = grid.x, l.grid[1] = grid.y, l.grid[2] = grid.z;
            l.block[0] = block.x, l.block[1] = block.y, l.block[2] = block.z;
            l.shared = shared;
            l.stream = stream;
            l.n_arg = sizeof...(P);
            l.arg = arg;
            l.size = size;
            fv_cuda_issue(&l);
        },
        values);
}

/* ---- sums over lanes ------------------------------------------------------------------- */

/* The tree of the canonical dot product over 16 neighbouring lanes, each with its acc[i]; only the first
 * lane gets the result. All lanes of the mask call it: a whole warp, or half of it. */
static __device__ __forceinline__ float fv_lanes_tree(float acc, unsigned mask = FV_ALL_LANES) {
#ifdef __CUDACC__
#pragma unroll
    for (int s = FV_LANES / 2; s > 0; s /= 2) {
        float other = __shfl_down_sync(mask, acc, (unsigned)s, FV_LANES);
        acc += other; /* lanes beyond s hold sums that are not used */
    }
    return acc;
#else
    const char *rooms = static_cast<const char *>(fv_emu::exchange(mask, &acc, sizeof acc));
    int first = (int)fv_emu::self->lane / FV_LANES * FV_LANES;
    float lane[FV_LANES];
    for (int i = 0; i < FV_LANES; i++) memcpy(&lane[i], rooms + (first + i) * fv_emu::ROOM, 4);
    for (int s = FV_LANES / 2; s > 0; s /= 2)
        for (int i = 0; i < s; i++) lane[i] += lane[i + s];
    return (int)fv_emu::self->lane == first ? lane[0] : NAN; /* not used */
#endif
}

/* ---- asynchronous copies: cp.async ------------------------------------------------------ */

/* Copies 16 bytes from global to shared memory, both aligned to 16; bytes_src of them are read and
 * the rest is zero. Visible to the thread itself after fv_cp_wait, to others after a later
 * barrier. */
static __device__ __forceinline__ void fv_cp_async16(void *shared, const void *global,
                                                     int bytes_src) {
#ifdef __CUDACC__
    uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(global),
                 "r"(bytes_src)
                 : "memory");
#else
    fv_emu::async_copy(shared, global, 16, (unsigned)bytes_src);
#endif
}

/* Ends a group of this thread's copies. */
static __device__ __forceinline__ void fv_cp_commit() {
#ifdef __CUDACC__
    asm volatile("cp.async.commit_group;\n" ::: "memory");
#else
    fv_emu::async_commit();
#endif
}

/* Waits until at most PENDING of this thread's groups are pending. */
template <int PENDING> static __device__ __forceinline__ void fv_cp_wait() {
#ifdef __CUDACC__
    asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING) : "memory");
#else
    fv_emu::async_wait(PENDING);
#endif
}

/* ---- tensor cores ---------------------------------------------------------------------- */

#ifndef __CUDACC__
template <typename W>
static void fv_emulate_mma(float d[4], const uint32_t a[4], const uint32_t b[2], W widen) {
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
    const char *rooms =
        static_cast<const char *>(fv_emu::exchange(FV_ALL_LANES, mine, sizeof mine));
    auto half = [&](int lane, int word, int high) {
        uint32_t u;
        memcpy(&u, rooms + lane * fv_emu::ROOM + word * 4, 4);
        return widen((uint16_t)(high ? u >> 16 : u));
    };
    int group = (int)fv_emu::self->lane / 4, t = (int)fv_emu::self->lane % 4;
    for (int i = 0; i < 4; i++) {
        int row = i / 2, col = 2 * t + i % 2; /* row: group, or group + 8 */
        for (int k = 0; k < 16; k++) {
            float x = half(group * 4 + k % 8 / 2, row + k / 8 * 2, k % 2);
            float y = half(col * 4 + k % 8 / 2, 4 + k / 8, k % 2);
            d[i] = fmaf(x, y, d[i]);
        }
    }
}
#endif

/* d[16, 8] += a[16, 16] b[16, 8] by one warp, a and b bf16, d f32 (mma.sync m16n8k16). With
 * group = lane / 4, t = lane % 4, a lane holds two elements per word, the lower column (of b: the
 * lower row) in the low half:
 *     a[0] = A[group][2t, 2t + 1]      a[1] = A[group + 8][2t, 2t + 1]
 *     a[2] = A[group][2t + 8, 2t + 9]  a[3] = A[group + 8][2t + 8, 2t + 9]
 *     b[0] = B[2t, 2t + 1][group]      b[1] = B[2t + 8, 2t + 9][group]
 *     d[0], d[1] = D[group][2t, 2t + 1]    d[2], d[3] = D[group + 8][2t, 2t + 1]
 * The hardware sums the 16 products in an order of its own; the emulation in the order k = 0, 1, ... */
static __device__ __forceinline__ void fv_mma_bf16(float d[4], const uint32_t a[4],
                                                   const uint32_t b[2]) {
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    fv_emulate_mma(d, a, b, [](uint16_t half) { return f32_of_bf16(half); });
#endif
}

/* The same in f16. */
static __device__ __forceinline__ void fv_mma_f16(float d[4], const uint32_t a[4],
                                                  const uint32_t b[2]) {
#ifdef __CUDACC__
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    fv_emulate_mma(d, a, b, [](uint16_t half) { return f32_of_f16(half); });
#endif
}

/* Two numbers as bf16, rounded to nearest, in one word: `lo` in the low half. */
static __device__ __forceinline__ uint32_t fv_pack_bf16(float lo, float hi) {
    return (uint32_t)bf16_of_f32(lo) | (uint32_t)bf16_of_f32(hi) << 16;
}

#endif
