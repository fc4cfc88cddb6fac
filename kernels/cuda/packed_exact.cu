/* Attention in rank space in the order of summation of kernels/ops.h: the bits of the CPU, for
 * every type, rank and number of bits. The reference for the tensor cores' version, and the fallback
 * where that one does not apply.
 *
 * A block of threads has one query row and head. All five steps are chains without trees, so each
 * number has a thread of its own: t[r] and z[r] one per column of the factor, scores one per row of
 * the block, o[d] one per column of the head. */
#include "kernels/cuda/packed.cuh"

enum { THREADS = 128 };

/* ---- decoding, as in packed/read.h --------------------------------------------- */

/* Bytes of a line of n elements. */
static __device__ __forceinline__ size_t packed_line(const fv_packed_shape &s, int32_t n) {
    return s.lowrank.bits == 4   ? (size_t)(n + 1) / 2
           : s.lowrank.bits == 8 ? (size_t)n
                                 : (size_t)n * bytes_of(s.dtype);
}

/* Element r of row j of keys' U. */
static __device__ float packed_k_number(const fv_cuda_packed_part &p, int32_t j, int32_t r) {
    int tier = r >= p.s.lowrank.rank2;
    int32_t at = tier ? r - p.s.lowrank.rank2 : r, i = j % FV_PACKED_TILE;
    const char *line = p.data + p.l.tier[tier] + (size_t)(j / FV_PACKED_TILE) * p.l.stride[tier] +
                       (size_t)at * packed_line(p.s, FV_PACKED_TILE);
    if (p.s.lowrank.bits == 16) return widened(line, p.s.dtype, (size_t)i);
    const float *pair = reinterpret_cast<const float *>(p.data + p.l.pair) + 2 * r;
    return fmaf(pair[1], (float)packed_code(line, p.s.lowrank.bits, i), pair[0]);
}

/* Element r of row j of values' U. */
static __device__ float packed_v_number(const fv_cuda_packed_part &p, int32_t j, int32_t r) {
    int tier = r >= p.s.lowrank.rank2;
    int32_t at = tier ? r - p.s.lowrank.rank2 : r;
    const char *row = p.data + p.l.tier[tier] + (size_t)j * p.l.stride[tier];
    if (p.s.lowrank.bits == 16) return widened(row, p.s.dtype, (size_t)at);
    float lo, step;
    packed_pair(p.data + p.l.pair + (size_t)j * 4, &lo, &step);
    float column = reinterpret_cast<const float *>(p.data + p.l.column)[r];
    return fmaf(step, (float)packed_code(row, p.s.lowrank.bits, at), lo) * column;
}

/* Element d of row j of KV head g, of values that are rows. */
static __device__ float packed_row_number(const fv_cuda_packed_part &p, int32_t g, int32_t j,
                                          int32_t d) {
    size_t at = ((size_t)g * (size_t)p.s.n + (size_t)j) * (size_t)p.s.d_head + (size_t)d;
    return widened(p.data + p.l.rows, p.s.dtype, at);
}

/* B[r, g, d]. */
static __device__ float packed_basis_number(const fv_cuda_packed_part &p, int32_t g, int32_t r,
                                            int32_t d) {
    bool key = p.s.kind == FV_PACKED_K;
    const char *line = packed_basis(p, g, key ? d : r);
    if (p.s.lowrank.bits == 16) return widened(line, p.s.dtype, (size_t)(key ? r : d));
    float lo, step;
    packed_pair(p.data + p.l.basis_pair + ((size_t)g * (size_t)p.s.lowrank.rank + (size_t)r) * 4,
                &lo, &step);
    return fmaf(step, (float)packed_code(line, p.s.lowrank.bits, key ? r : d), lo);
}

/* ---- one query --------------------------------------------------------------------------- */

/* A query's state; its arrays are in dynamic shared memory. */
struct exact_query {
    float *t, *z; /* [rank of keys], [exact_sums] */
    float *p;     /* [FV_KV_BLOCK] */
    softmax_state at;
    int32_t held; /* the anchor of the latent query in t; -1: none */
};

static __device__ void exact_latent(const fv_cuda_packed &a, const fv_cuda_packed_seq &s,
                                    const float *q, int32_t g, int32_t anchor, float *t) {
    for (int32_t r = (int32_t)threadIdx.x; r < s.k.s.lowrank.rank; r += THREADS) {
        float sum = 0.0f;
        for (int32_t d = 0; d < a.d_head; d++)
            sum = fmaf(packed_rotated(s, q, a.d_head, anchor, d), packed_basis_number(s.k, g, r, d),
                       sum);
        t[r] = sum;
    }
}

static __device__ float exact_score(const fv_cuda_packed_seq &s, const float *t, int32_t j) {
    int32_t rank = packed_is_low(s, j) ? s.k.s.lowrank.rank2 : s.k.s.lowrank.rank;
    float sum = 0.0f;
    for (int32_t r = 0; r < s.k.s.lowrank.rank; r++)
        sum = fmaf(t[r], r < rank ? packed_k_number(s.k, j, r) : 0.0f, sum);
    return sum;
}

/* Scores rows [j0, end), -inf for those that are not valid, and notes which are in `valid`; returns whether
 * any is. *anchor: in, the anchor block of row j0 or an earlier one; advances. */
static __device__ bool exact_scores(const fv_cuda_packed &a, const fv_cuda_packed_seq &s,
                                    exact_query &x, const float *q, int32_t g, int32_t j0,
                                    int32_t end, int32_t *anchor, bool *valid) {
    bool any = false;
    int32_t mine = j0 + (int32_t)threadIdx.x;
    *valid = false;
    for (int32_t j = j0; j < end;) {
        while (j >= s.first[*anchor + 1]) ++*anchor;
        int32_t next = s.first[*anchor + 1] < end ? s.first[*anchor + 1] : end;
        int32_t lives = packed_alive_end(s, *anchor);
        if (j < lives && x.held != (s.cos ? *anchor : 0)) {
            __syncthreads(); /* the previous latent query has been used */
            x.held = s.cos ? *anchor : 0;
            exact_latent(a, s, q, g, x.held, x.t);
            __syncthreads();
        }
        if (mine >= j && mine < next) {
            *valid = mine < lives;
            x.p[mine - j0] = *valid ? a.scale * exact_score(s, x.t, mine) : -INFINITY;
        }
        any = any || j < lives;
        j = next;
    }
    return any;
}

/* Number of sums of a query: one per column of the values' factor, or of the head where values are rows. */
static __device__ __forceinline__ int32_t exact_sums(const fv_cuda_packed_seq &s) {
    return s.v.s.lowrank.rank ? s.v.s.lowrank.rank : s.v.s.d_head;
}

/* z = z c + sum_j p_j w_j over the rows of [j0, end) that are valid. */
static __device__ void exact_values(const fv_cuda_packed_seq &s, const exact_query &x, int32_t g,
                                    int32_t j0, int32_t end, const uint8_t *valid) {
    for (int32_t r = (int32_t)threadIdx.x; r < exact_sums(s); r += THREADS) {
        float z = x.z[r] * x.at.c;
        for (int32_t j = j0; j < end; j++) {
            int32_t rank = packed_is_low(s, j) ? s.v.s.lowrank.rank2 : s.v.s.lowrank.rank;
            if (!valid[j - j0]) continue;
            if (s.v.s.lowrank.rank == 0)
                z = fmaf(x.p[j - j0], packed_row_number(s.v, g, j, r), z);
            else if (r < rank)
                z = fmaf(x.p[j - j0], packed_v_number(s.v, j, r), z);
        }
        x.z[r] = z;
    }
}

static __device__ void exact_output(const fv_cuda_packed &a, const fv_cuda_packed_seq &s,
                                    const exact_query &x, int32_t row, int32_t h, int32_t g) {
    float *o = a.o + (int64_t)(s.row0 + row) * a.ldo + h * a.d_head;
    float l = x.at.l;
    for (int32_t d = (int32_t)threadIdx.x; d < a.d_head; d += THREADS) {
        float sum = s.v.s.lowrank.rank ? 0.0f : x.z[d];
        for (int32_t r = 0; l != 0.0f && r < s.v.s.lowrank.rank; r++)
            sum = fmaf(x.z[r], packed_basis_number(s.v, g, r, d), sum);
        o[d] = l == 0.0f ? 0.0f : sum / l;
    }
    if (a.lse && threadIdx.x == 0)
        a.lse[(int64_t)(s.row0 + row) * a.ldl + h] = l == 0.0f ? -INFINITY : x.at.m + log_f32(l);
}

/* Grid: (query rows of all sequences, query heads). */
static __global__ void __launch_bounds__(THREADS) packed_exact(fv_cuda_packed a, int32_t rank_k) {
    FV_SHARED(float, scratch);
    __shared__ uint8_t lives[FV_KV_BLOCK];
    __shared__ softmax_state state;
    const fv_cuda_packed_seq *seq;
    int32_t row;
    if (!packed_item(a, FV_WORK_ROW, blockIdx.x, &seq, &row)) return;
    const fv_cuda_packed_seq &s = *seq;
    int32_t h = (int32_t)blockIdx.y, g = h / (a.n_head / a.n_kv), anchor = 0;
    const float *q = a.q + (int64_t)(s.row0 + row) * a.ldq + h * a.d_head;
    float *capture = packed_score_line(s, row, h);
    exact_query x;
    x.p = scratch;
    x.t = x.p + FV_KV_BLOCK;
    x.z = x.t + rank_k;
    x.held = -1;
    x.at.m = -INFINITY;
    x.at.l = x.at.c = 0.0f;
    for (int32_t r = (int32_t)threadIdx.x; r < exact_sums(s); r += THREADS) x.z[r] = 0.0f;
    for (int32_t j = (int32_t)threadIdx.x; capture && j < s.score_ld; j += THREADS)
        if (j >= s.n) capture[j] = -INFINITY;
    for (int32_t j0 = 0; j0 < s.n; j0 += FV_KV_BLOCK) {
        int32_t end = s.n - j0 < FV_KV_BLOCK ? s.n : j0 + FV_KV_BLOCK;
        int32_t i = (int32_t)threadIdx.x;
        bool valid, any = exact_scores(a, s, x, q, g, j0, end, &anchor, &valid);
        if (i < FV_KV_BLOCK) lives[i] = valid;
        if (capture && j0 + i < end && i < FV_KV_BLOCK) capture[j0 + i] = x.p[i];
        __syncthreads();
        if (!any) continue;
        if (threadIdx.x < FV_LANES) {
            half_warp w = half_warp_of();
            softmax_state to = half_softmax(w, x.p, end - j0, x.at, false);
            if (w.lane == 0) state = to;
        }
        __syncthreads();
        x.at = state;
        exact_values(s, x, g, j0, end, lives);
        __syncthreads();
    }
    exact_output(a, s, x, row, h, g);
}

fv_status fv_cuda_packed_exact(fv_cuda *c, const fv_cuda_packed *call,
                               const fv_cuda_packed_size *size) {
    size_t sums = (size_t)(size->rank_v > call->d_head ? size->rank_v : call->d_head);
    size_t scratch = (FV_KV_BLOCK + (size_t)size->rank_k + sums) * sizeof(float);
    FV_TRY(shared_memory(c, packed_exact, scratch));
    FV_LAUNCH(packed_exact, dim3((unsigned)size->n_item[FV_WORK_ROW], (unsigned)call->n_head),
              THREADS, scratch, c->stream, *call, size->rank_k);
    return fv_cuda_launched("attn_lowrank");
}
