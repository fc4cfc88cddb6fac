#ifndef FOVEA_TESTS_SUPPORT_CUDA_HOST_KERNEL_H
#define FOVEA_TESTS_SUPPORT_CUDA_HOST_KERNEL_H

/* The language of kernels, in plain C++: a block's threads are fibers of one CPU thread, and switch
 * where they wait for each other. C++17; included by cuda_runtime.h. */
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static /* one block runs at a time */
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __grid_constant__
#define __ldg(p) (*(p))

/* ---- vector types ---------------------------------------------------------------------- */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
    unsigned x, y, z;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

/* ---- threads --------------------------------------------------------------------------- */

namespace fv_emu {

struct fiber {
    uint3 index; /* threadIdx */
    unsigned flat, lane;
    unsigned turn; /* of the two buffers for values that lanes exchange */
};
struct place {
    uint3 block;
    dim3 grid_dim, block_dim;
    void *shared; /* dynamic shared memory */
};
extern fiber *self;
extern place here;

void sync_block();
void sync_warp(unsigned mask);
/* Every lane of `mask` writes 16 bytes and waits for the others; the 32 buffers are then
 * readable. */
const void *exchange(unsigned mask, const void *mine, size_t bytes);
enum { ROOM = 64 }; /* bytes that a lane may write */

/* cp.async: copied when waited for, not before. */
void async_copy(void *dst, const void *src, unsigned bytes, unsigned bytes_src);
void async_commit();
void async_wait(unsigned pending);

/* A launch ready to run, and the device addresses among its arguments. */
struct bound {
    std::function<void()> thread;
    std::vector<const void *> addresses;
};

void check_argument(const char *kernel, const void *value, size_t bytes,
                    std::vector<const void *> *addresses);

/* Arguments of a launch, without their types: padding inside a struct has been cleared. */
template <typename... P, size_t... I>
bound bind(const char *name, void (*kernel)(P...), void **args, std::index_sequence<I...>) {
    std::tuple<std::decay_t<P>...> values{*static_cast<std::decay_t<P> *>(args[I])...};
    bound b;
    (check_argument(name, args[I], sizeof(P), &b.addresses), ...);
    b.thread = [=] { std::apply(kernel, values); };
    return b;
}

/* Kernels by their address. */
struct known_kernel {
    const char *name;
    std::function<bound(void **args)> bind;
};
std::map<const void *, known_kernel> &known_kernels();

template <typename... P> void know(const char *name, void (*kernel)(P...)) {
    const void *at = reinterpret_cast<const void *>(kernel);
    if (known_kernels().count(at)) return;
    known_kernels()[at] = {name, [=](void **args) {
                               return bind(name, kernel, args, std::index_sequence_for<P...>());
                           }};
}

template <typename T> T shuffle(unsigned mask, T v, int from) {
    static_assert(sizeof(T) <= ROOM && std::is_trivially_copyable<T>::value, "");
    const char *rooms = static_cast<const char *>(exchange(mask, &v, sizeof v));
    std::memcpy(static_cast<void *>(&v), rooms + from * ROOM, sizeof v);
    return v;
}

} // namespace fv_emu

#define threadIdx (fv_emu::self->index)
#define blockIdx (fv_emu::here.block)
#define blockDim (fv_emu::here.block_dim)
#define gridDim (fv_emu::here.grid_dim)
static const int warpSize = 32;

inline void __syncthreads() { fv_emu::sync_block(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { fv_emu::sync_warp(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}

template <typename T> T __shfl_sync(unsigned mask, T v, int lane, int width = 32) {
    int base = (int)fv_emu::self->lane & ~(width - 1);
    return fv_emu::shuffle(mask, v, base + (lane & (width - 1)));
}
template <typename T> T __shfl_xor_sync(unsigned mask, T v, int x, int width = 32) {
    int lane = (int)fv_emu::self->lane, from = lane ^ x;
    return fv_emu::shuffle(mask, v, (from & ~(width - 1)) > (lane & ~(width - 1)) ? lane : from);
}
template <typename T> T __shfl_down_sync(unsigned mask, T v, unsigned d, int width = 32) {
    int lane = (int)fv_emu::self->lane, in = lane & (width - 1);
    return fv_emu::shuffle(mask, v, in + (int)d < width ? lane + (int)d : lane);
}
template <typename T> T __shfl_up_sync(unsigned mask, T v, unsigned d, int width = 32) {
    int lane = (int)fv_emu::self->lane, in = lane & (width - 1);
    return fv_emu::shuffle(mask, v, in >= (int)d ? lane - (int)d : lane);
}
inline unsigned __ballot_sync(unsigned mask, int yes) {
    const char *rooms = static_cast<const char *>(fv_emu::exchange(mask, &yes, sizeof yes));
    unsigned bits = 0;
    for (int i = 0; i < 32; i++) {
        std::memcpy(&yes, rooms + i * fv_emu::ROOM, sizeof yes);
        if (mask >> i & 1 && yes) bits |= 1u << i;
    }
    return bits;
}
inline int __any_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) != 0; }
inline int __all_sync(unsigned mask, int yes) { return __ballot_sync(mask, yes) == mask; }

/* ---- numbers --------------------------------------------------------------------------- */

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __expf(float a) { return expf(a); }
inline float __logf(float a) { return logf(a); }
inline float rsqrtf(float a) { return 1.0f / sqrtf(a); }
inline unsigned __float_as_uint(float f) {
    unsigned u;
    std::memcpy(&u, &f, 4);
    return u;
}
inline float __uint_as_float(unsigned u) {
    float f;
    std::memcpy(&f, &u, 4);
    return f;
}
inline int __float_as_int(float f) { return (int)__float_as_uint(f); }
inline float __int_as_float(int i) { return __uint_as_float((unsigned)i); }
inline int __dp4a(int a, int b, int c) { /* of four signed bytes each */
    for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
    return c;
}
inline int __popc(unsigned u) { return __builtin_popcount(u); }
inline int __ffs(int i) { return __builtin_ffs(i); }

/* Plain addition is atomic here, as only one fiber runs at a time. */
template <typename T> T atomicAdd(T *p, T v) {
    T old = *p;
    *p = old + v;
    return old;
}
inline int atomicMax(int *p, int v) {
    int old = *p;
    if (v > old) *p = v;
    return old;
}
inline unsigned atomicMax(unsigned *p, unsigned v) {
    unsigned old = *p;
    if (v > old) *p = v;
    return old;
}
template <typename T> T atomicExch(T *p, T v) {
    T old = *p;
    *p = v;
    return old;
}
template <typename T> T atomicCAS(T *p, T want, T v) {
    T old = *p;
    if (old == want) *p = v;
    return old;
}

namespace fv_emu {
cudaError_t get_attributes(cudaFuncAttributes *out, const void *kernel);
cudaError_t set_attribute(const void *kernel, cudaFuncAttribute which, int value);
} // namespace fv_emu
template <typename T> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *out, T *kernel) {
    return fv_emu::get_attributes(out, reinterpret_cast<const void *>(kernel));
}
template <typename T>
cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute which, int value) {
    return fv_emu::set_attribute(reinterpret_cast<const void *>(kernel), which, value);
}
#endif
