/* Attention in the order of summation of kernels/ops.h: the bits of the CPU, for every type and
 * shape. The reference for the tensor cores' version, and the fallback where that one does not
 * apply: in exact mode, on f32 and f16 keys, on heads of other than 64 and 128 columns.
 *
 * A block of threads takes up to VECTORS query vectors (rows times heads that share a KV head)
 * through the KV blocks of all segments:
 *
 *     scores   half a warp per dot product: its lanes are the canonical ones
 *     softmax  half a warp per vector
 *     values   a thread per element of o: one chain over j
 *
 * Rows that no query sees are not read. */
#include "kernels/cuda/attention.cuh"

enum { VECTORS = 8, THREADS = 256, HALVES = THREADS / FV_LANES };

/* A thread block's item. */
struct exact_item {
    attn_view view;
    fv_cuda_attn_seq q;
    int32_t g, head0, n_head; /* KV head; query heads */
    int32_t row0, R, D, Dp;   /* first row; vectors: v is row v / n_head, head v % n_head */
    float *x, *o, *p;         /* [R, Dp] queries, [R, D], [R, FV_KV_BLOCK] */
    softmax_state *at;        /* [R] */
    int32_t *n_seen, *begun;  /* [R] visible keys of the current block; whether one was before */
};

static size_t exact_scratch(int32_t d_head) {
    size_t D = (size_t)d_head, Dp = (D + FV_LANES - 1) / FV_LANES * FV_LANES;
    return VECTORS *
           ((Dp + D + FV_KV_BLOCK) * sizeof(float) + sizeof(softmax_state) + 2 * sizeof(int32_t));
}

static __device__ void exact_lay(exact_item &t, float *scratch) {
    t.x = scratch;
    t.o = t.x + VECTORS * t.Dp;
    t.p = t.o + VECTORS * t.D;
    t.at = reinterpret_cast<softmax_state *>(t.p + VECTORS * FV_KV_BLOCK);
    t.n_seen = reinterpret_cast<int32_t *>(t.at + VECTORS);
    t.begun = t.n_seen + VECTORS;
}

static __device__ __forceinline__ int32_t row_of(const exact_item &t, int32_t v) {
    return t.row0 + v / t.n_head;
}

static __device__ __forceinline__ int32_t head_of(const exact_item &t, int32_t v) {
    return t.head0 + v % t.n_head;
}

static __device__ void exact_begin(const exact_item &t, const fv_cuda_attn &a) {
    for (int32_t i = (int32_t)threadIdx.x; i < t.R * t.Dp; i += THREADS) {
        int32_t v = i / t.Dp, d = i % t.Dp;
        const float *q = a.q + (int64_t)(t.q.row0 + row_of(t, v)) * a.ldq + head_of(t, v) * t.D;
        t.x[i] = d < t.D ? q[d] : 0.0f;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < t.R * t.D; i += THREADS) t.o[i] = 0.0f;
    int32_t v = (int32_t)threadIdx.x;
    if (v < t.R) {
        t.at[v].m = log_f32(t.q.n);
        t.at[v].l = t.q.n > 0.0f ? 1.0f : 0.0f;
        t.begun[v] = t.q.n > 0.0f;
    }
}

/* p[v][j] = scale * dot(q_v, k_j) for the rows that each vector sees. */
static __device__ void exact_scores(const exact_item &t, const fv_cuda_attn &a, const void *k,
                                    int32_t s, int32_t j0) {
    half_warp h = half_warp_of();
    size_t bytes_row = (size_t)t.D * bytes_of(a.kv_dtype);
    for (int32_t i = h.number; i < t.R * FV_KV_BLOCK; i += HALVES) {
        int32_t v = i / FV_KV_BLOCK, j = i % FV_KV_BLOCK;
        if (j >= t.n_seen[v]) continue;
        const void *row = static_cast<const char *>(k) + (size_t)j * bytes_row;
        float dot = half_dot(h, t.x + v * t.Dp, row, a.kv_dtype, t.D);
        if (h.lane) continue;
        t.p[i] = in_window(t.view, t.q, t.g, s, row_of(t, v), j0 + j) ? a.scale * dot : -INFINITY;
    }
}

static __device__ void exact_softmax(const exact_item &t) {
    half_warp h = half_warp_of();
    if (h.number >= t.R || t.n_seen[h.number] == 0) return;
    int32_t v = h.number;
    softmax_state to = half_softmax(h, t.p + v * FV_KV_BLOCK, t.n_seen[v], t.at[v], !t.begun[v]);
    __syncwarp(h.mask); /* all lanes have read t.at[v], which lane 0 now changes */
    if (h.lane == 0) {
        t.at[v] = to;
        t.begun[v] = 1;
    }
}

/* o = o c + sum_j p_j v_j; in segment 0, p_j = 0 for rows that are dropped. */
static __device__ void exact_values(const exact_item &t, const fv_cuda_attn &a, const void *value,
                                    int32_t s, int32_t j0) {
    size_t bytes_row = (size_t)t.D * bytes_of(a.kv_dtype);
    for (int32_t i = (int32_t)threadIdx.x; i < t.R * t.D; i += THREADS) {
        int32_t v = i / t.D, d = i % t.D, dropped = 0;
        uint8_t share = share_of(t.view, t.q, row_of(t, v));
        if (t.n_seen[v] == 0 || (s == 0 && !has_values(share))) continue;
        if (s == 0 && share == FV_SHARE_WITHOUT_FIRST) dropped = t.q.n_first - j0;
        const char *row = static_cast<const char *>(value);
        const float *p = t.p + v * FV_KV_BLOCK;
        float o = t.o[i] * t.at[v].c;
        for (int32_t j = 0; j < t.n_seen[v]; j++, row += bytes_row)
            o = fmaf(j < dropped ? 0.0f : p[j], widened(row, a.kv_dtype, (size_t)d), o);
        t.o[i] = o;
    }
}

/* Applies changed shares to o after segment 0. */
static __device__ void exact_edit(const exact_item &t, const fv_cuda_attn &a) {
    for (int32_t i = (int32_t)threadIdx.x; i < t.R * t.D; i += THREADS) {
        int32_t v = i / t.D, row = row_of(t, v);
        uint8_t share = share_of(t.view, t.q, row);
        int32_t n = visible(t.view, t.q, t.g, 0, row);
        if (has_values(share) || n_in_window(t.view, t.q, t.g, 0, row, 0, n) == 0) continue;
        const void *first = t.view.blocks[run_of(t.view, t.q, t.g, 0)->block].v;
        t.o[i] = share == FV_SHARE_ON_FIRST
                     ? t.at[v].l * widened(first, a.kv_dtype, (size_t)(i % t.D))
                     : 0.0f;
    }
}

static __device__ void exact_segment(const exact_item &t, const fv_cuda_attn &a, int32_t s) {
    const fv_cuda_table run = *run_of(t.view, t.q, t.g, s);
    int32_t longest = 0;
    for (int32_t i = row_of(t, 0); i <= row_of(t, t.R - 1); i++) {
        int32_t n = visible(t.view, t.q, t.g, s, i);
        longest = n > longest ? n : longest;
    }
    for (int32_t j0 = 0; j0 < longest; j0 += FV_KV_BLOCK) {
        const fv_kv_block block = t.view.blocks[run.block + j0 / FV_KV_BLOCK];
        int32_t v = (int32_t)threadIdx.x;
        if (v < t.R) {
            int32_t n = visible(t.view, t.q, t.g, s, row_of(t, v)) - j0;
            n = n < 0 ? 0 : n < FV_KV_BLOCK ? n : FV_KV_BLOCK;
            t.n_seen[v] = n_in_window(t.view, t.q, t.g, s, row_of(t, v), j0, n) ? n : 0;
        }
        __syncthreads();
        exact_scores(t, a, block.k, s, j0);
        __syncthreads();
        exact_softmax(t);
        __syncthreads();
        exact_values(t, a, block.v, s, j0);
        __syncthreads();
    }
    if (s == 0 && t.q.share >= 0) {
        exact_edit(t, a);
        __syncthreads();
    }
}

static __device__ void exact_finish(const exact_item &t, const fv_cuda_attn &a) {
    for (int32_t i = (int32_t)threadIdx.x; i < t.R * t.D; i += THREADS) {
        int32_t v = i / t.D;
        int64_t row = t.q.row0 + row_of(t, v);
        a.o[row * a.ldo + head_of(t, v) * t.D + i % t.D] = t.begun[v] ? t.o[i] / t.at[v].l : 0.0f;
    }
    int32_t v = (int32_t)threadIdx.x;
    if (a.lse && v < t.R) {
        int64_t row = t.q.row0 + row_of(t, v);
        a.lse[row * a.ldl + head_of(t, v)] =
            t.begun[v] ? t.at[v].m + log_f32(t.at[v].l) : -INFINITY;
    }
}

/* Query heads of a KV head are taken VECTORS at a time. */
static __host__ __device__ __forceinline__ int32_t head_parts(int32_t group) {
    return (group + VECTORS - 1) / VECTORS;
}

/* Grid: (items of rows, KV heads times head_parts). */
static __global__ void __launch_bounds__(THREADS) attention_exact(fv_cuda_attn a) {
    FV_SHARED(float, scratch);
    exact_item t;
    t.view = attn_view_of(a.table);
    if ((int32_t)blockIdx.x >= t.view.table->n_rows) return;
    const fv_cuda_attn_rows item =
        reinterpret_cast<const fv_cuda_attn_rows *>(a.table + t.view.table->rows)[blockIdx.x];
    int32_t group = a.n_head / a.n_kv, parts = head_parts(group),
            part = (int32_t)blockIdx.y % parts;
    t.q = t.view.seqs[item.seq];
    t.g = (int32_t)blockIdx.y / parts;
    t.head0 = t.g * group + part * VECTORS;
    t.n_head = group - part * VECTORS < VECTORS ? group - part * VECTORS : VECTORS;
    t.row0 = item.row0;
    t.R = item.n_row * t.n_head;
    t.D = a.d_head;
    t.Dp = (t.D + FV_LANES - 1) / FV_LANES * FV_LANES;
    exact_lay(t, scratch);
    exact_begin(t, a);
    __syncthreads();
    for (int32_t s = 0; s < t.q.n_seg; s++) exact_segment(t, a, s);
    exact_finish(t, a);
}

fv_status fv_cuda_attention_exact(fv_cuda *c, const fv_attn_args *a) {
    int32_t group = a->n_head / a->n_kv;
    fv_cuda_attn_cut cut = {};
    cut.rows = group < VECTORS ? VECTORS / group : 1;
    fv_cuda_attn call;
    fv_cuda_attn_size size;
    FV_TRY(fv_cuda_attn_send(c, a, &cut, &call, &size));
    if (size.n_rows == 0) return FV_OK;
    size_t scratch = exact_scratch(a->d_head);
    FV_TRY(shared_memory(c, attention_exact, scratch));
    FV_LAUNCH(attention_exact, dim3((unsigned)size.n_rows, (unsigned)(a->n_kv * head_parts(group))),
              THREADS, scratch, c->stream, call);
    return fv_cuda_launched("attention");
}
