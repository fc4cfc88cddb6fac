#ifndef FOVEA_KERNELS_CUDA_ATTENTION_CUH
#define FOVEA_KERNELS_CUDA_ATTENTION_CUH

/* Shared by attention's kernels: access to the call's table, and one block of softmax in the order of
 * kernels/ops.h. */
#include "kernels/cuda/attention.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/placement.h"

/* Allows launches of a kernel with `bytes` of dynamic shared memory. The limit applies when a launch is
 * issued, and launches may be deferred (issue.h). So it is set once per kernel, to all that the device
 * has beside the kernel's static shared memory, and never lowered: a smaller launch of the same kernel
 * must not lower the limit of a deferred one. */
template <typename K> static fv_status shared_memory(fv_cuda *c, K *kernel, size_t bytes) {
    const void *at = reinterpret_cast<const void *>(kernel);
    if (bytes > c->shared_max)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "attention on the GPU: a block needs %zu bytes of shared memory, it has %zu",
                       bytes, c->shared_max);
    if (bytes <= (size_t)48 << 10) return FV_OK;
    for (int32_t i = 0; i < c->n_raised; i++)
        if (c->raised[i] == at) return FV_OK;
    cudaFuncAttributes has;
    FV_CUDA(cudaFuncGetAttributes(&has, kernel));
    FV_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 (int)(c->shared_max - has.sharedSizeBytes)));
    if (c->n_raised < FV_CUDA_RAISED) c->raised[c->n_raised++] = at;
    return FV_OK;
}

static __host__ __device__ __forceinline__ size_t bytes_of(fv_dtype t) {
    return t == FV_F32 ? 4 : 2;
}

/* The table's arrays. */
struct attn_view {
    const fv_cuda_attn_table *table;
    const fv_cuda_attn_seq *seqs;
    const fv_cuda_table *tables;
    const fv_kv_block *blocks;
    const int32_t *masked_tail, *window_from, *position;
    const uint8_t *bytes;
};

static __device__ __forceinline__ attn_view attn_view_of(const char *table) {
    const fv_cuda_attn_table *t = reinterpret_cast<const fv_cuda_attn_table *>(table);
    attn_view v;
    v.table = t;
    v.seqs = reinterpret_cast<const fv_cuda_attn_seq *>(table + t->seq);
    v.tables = reinterpret_cast<const fv_cuda_table *>(table + t->run);
    v.blocks = reinterpret_cast<const fv_kv_block *>(table + t->block);
    v.masked_tail = reinterpret_cast<const int32_t *>(table + t->masked_tail);
    v.window_from = reinterpret_cast<const int32_t *>(table + t->window_from);
    v.position = reinterpret_cast<const int32_t *>(table + t->position);
    v.bytes = reinterpret_cast<const uint8_t *>(table + t->bytes);
    return v;
}

static __device__ __forceinline__ const fv_cuda_table *
run_of(const attn_view &v, const fv_cuda_attn_seq &q, int32_t g, int32_t s) {
    return v.tables + q.run + g * q.n_seg + s;
}

/* How many rows of segment s and KV head g the sequence's query row i sees. */
static __device__ __forceinline__ int32_t visible(const attn_view &v, const fv_cuda_attn_seq &q,
                                                  int32_t g, int32_t s, int32_t i) {
    int32_t n = run_of(v, q, g, s)->len;
    if (q.masked_tail >= 0) n -= v.masked_tail[q.masked_tail + s * q.n_rows + i];
    return n < 0 ? 0 : n;
}

/* Whether row j of segment s and KV head g is in the window of the sequence's query row i. */
static __device__ __forceinline__ bool in_window(const attn_view &v, const fv_cuda_attn_seq &q,
                                                 int32_t g, int32_t s, int32_t i, int32_t j) {
    return q.window_from < 0 ||
           v.position[run_of(v, q, g, s)->position + j] >= v.window_from[q.window_from + i];
}

/* How many of the n rows from j0 on are in the window of query row i. */
static __device__ __forceinline__ int32_t n_in_window(const attn_view &v, const fv_cuda_attn_seq &q,
                                                      int32_t g, int32_t s, int32_t i, int32_t j0,
                                                      int32_t n) {
    int32_t count = 0;
    if (q.window_from < 0) return n;
    for (int32_t j = j0; j < j0 + n; j++) count += in_window(v, q, g, s, i, j);
    return count;
}

static __device__ __forceinline__ uint8_t share_of(const attn_view &v, const fv_cuda_attn_seq &q,
                                                   int32_t i) {
    return q.share >= 0 ? v.bytes[q.share + i] : (uint8_t)FV_SHARE_KEPT;
}

/* Whether the values of segment 0 are summed; otherwise the sum is replaced after the segment. */
static __device__ __forceinline__ bool has_values(uint8_t share) {
    return share == FV_SHARE_KEPT || share == FV_SHARE_WITHOUT_FIRST;
}

/* Half a warp: its lanes are those of the canonical sums. */
struct half_warp {
    int32_t lane, number; /* 0..15; index of the half warp in the block */
    unsigned mask;
};

static __device__ __forceinline__ half_warp half_warp_of() {
    half_warp h;
    h.lane = (int32_t)(threadIdx.x % FV_LANES);
    h.number = (int32_t)(threadIdx.x / FV_LANES);
    h.mask = 0xffffu << (threadIdx.x & FV_LANES);
    return h;
}

/* dot(q, row), q padded with zeros to a multiple of 16; only the first lane gets the result. */
static __device__ __forceinline__ float half_dot(const half_warp &h, const float *q,
                                                 const void *row, fv_dtype t, int32_t D) {
    float acc = 0.0f;
    for (int32_t d = h.lane; d < (D + FV_LANES - 1) / FV_LANES * FV_LANES; d += FV_LANES)
        acc = fmaf(q[d], d < D ? widened(row, t, (size_t)d) : 0.0f, acc);
    return fv_lanes_tree(acc, h.mask);
}

/* The running state of one softmax. */
struct softmax_state {
    float m, l, c; /* c: the factor of o */
};

/* Does a block of softmax by half a warp: replaces n scores in p [FV_KV_BLOCK] by exp(s - m'), 0
 * from n on. first: no block was before. All lanes get the result. */
static __device__ __forceinline__ softmax_state half_softmax(const half_warp &h, float *p,
                                                             int32_t n, softmax_state at,
                                                             bool first) {
    float m = at.m, sum = 0.0f;
#pragma unroll
    for (int32_t j = 0; j < FV_KV_BLOCK; j += FV_LANES)
        if (j + h.lane < n) m = p[j + h.lane] > m ? p[j + h.lane] : m;
#pragma unroll
    for (int s = FV_LANES / 2; s > 0; s /= 2) {
        float other = __shfl_xor_sync(h.mask, m, s, FV_LANES);
        m = other > m ? other : m;
    }
#pragma unroll
    for (int32_t j = 0; j < FV_KV_BLOCK; j += FV_LANES) {
        float e = j + h.lane < n ? exp_f32(p[j + h.lane] - m) : 0.0f;
        p[j + h.lane] = e;
        sum += e;
    }
    sum = __shfl_sync(h.mask, fv_lanes_tree(sum, h.mask), 0, FV_LANES);
    softmax_state to;
    to.c = first ? 0.0f : exp_f32(at.m - m);
    to.l = fmaf(at.l, to.c, sum);
    to.m = m;
    return to;
}

#endif
