#ifndef FOVEA_KERNELS_CUDA_PACKED_CUH
#define FOVEA_KERNELS_CUDA_PACKED_CUH

/* Access to the table of a call on packed rows and to its sequences, for kernels. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/packed.h"

/* Element i of a line of codes. */
static __device__ __forceinline__ int32_t packed_code(const char *line, int bits, int32_t i) {
    const uint8_t *p = reinterpret_cast<const uint8_t *>(line);
    return bits == 8 ? p[i] : p[i / 2] >> i % 2 * 4 & 15;
}

static __device__ __forceinline__ void packed_pair(const char *p, float *lo, float *step) {
    const uint16_t *pair = reinterpret_cast<const uint16_t *>(p);
    *lo = f32_of_f16(pair[0]);
    *step = f32_of_f16(pair[1]);
}

/* Line x of KV head g's basis. */
static __device__ __forceinline__ const char *packed_basis(const fv_cuda_packed_part &p, int32_t g,
                                                           int32_t x) {
    return p.data + p.l.basis + (size_t)g * p.l.basis_head + (size_t)x * p.l.basis_stride;
}

/* Element d of a query rotated by -a (kernels/ops.h). */
static __device__ __forceinline__ float packed_rotated(const fv_cuda_packed_seq &s, const float *q,
                                                       int32_t D, int32_t anchor, int32_t d) {
    if (!s.cos) return q[d];
    int32_t half = D / 2, i = d < half ? d : d - half;
    float c = s.cos[(int64_t)anchor * half + i], n = s.sin[(int64_t)anchor * half + i];
    return d < half ? fmaf(q[d], c, q[d + half] * n) : fmaf(q[d], c, -(q[i] * n));
}

/* Finds item `i` of a kind of work; false: the grid is larger. */
static __device__ __forceinline__ bool packed_item(const fv_cuda_packed &a, fv_cuda_work work,
                                                   unsigned i, const fv_cuda_packed_seq **seq,
                                                   int32_t *x) {
    const fv_cuda_packed_table *t = reinterpret_cast<const fv_cuda_packed_table *>(a.table);
    if ((int32_t)i >= t->n_item[work]) return false;
    const fv_cuda_packed_item item =
        reinterpret_cast<const fv_cuda_packed_item *>(a.table + t->item[work])[i];
    *seq = reinterpret_cast<const fv_cuda_packed_seq *>(a.table + t->seq) + item.seq;
    *x = item.x;
    return true;
}

/* The anchor block of row j: the last that begins at or before it, by binary search, as blocks may be as
 * small as a row. first [n_anchor + 1]. */
static __device__ __forceinline__ int32_t packed_anchor(const int32_t *first, int32_t n_anchor,
                                                        int32_t j) {
    int32_t lo = 0, hi = n_anchor;
    while (hi - lo > 1) {
        int32_t mid = (lo + hi) / 2;
        if (first[mid] <= j)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* Whether row j counts. */
template <class SEQ>
static __device__ __forceinline__ bool packed_is_valid(const SEQ &s, int32_t j) {
    if (!s.valid) return true;
    int32_t a = packed_anchor(s.first, s.n_anchor, j);
    return j - s.first[a] < s.valid[a];
}

/* The end of the anchor block's valid rows. */
static __device__ __forceinline__ int32_t packed_alive_end(const fv_cuda_packed_seq &s,
                                                           int32_t anchor) {
    return s.valid ? s.first[anchor] + s.valid[anchor] : s.first[anchor + 1];
}

template <class SEQ> static __device__ __forceinline__ bool packed_is_low(const SEQ &s, int32_t j) {
    return s.group && s.group[j];
}

/* The caller's line for the scores of vector (row, h), or NULL. */
static __device__ __forceinline__ float *packed_score_line(const fv_cuda_packed_seq &s, int32_t row,
                                                           int32_t h) {
    int32_t i = row - (s.n_rows - s.score_rows);
    if (!s.score || i < 0) return nullptr;
    return s.score + ((int64_t)h * s.score_rows + i) * s.score_ld;
}

#endif
