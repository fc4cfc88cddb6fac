/* Sums of attention scores, in the order of kernels/ops.h: the bits of the CPU, given the same lse.
 *
 * A block of threads has one KV block of one sum and one query head (with head_max, all of them). It
 * alone adds to those columns, and it takes the rows in order, so the sums do not depend on how the
 * grid runs. Per ROWS rows:
 *
 *     shares   half a warp per (row, key): p = exp(scale * dot - lse'); with head_max the largest so far
 *     sums     a thread per key adds the rows, one after the other */
#include "kernels/cuda/attention.cuh"

enum { ROWS = 8, THREADS = 256, HALVES = THREADS / FV_LANES };

struct sum_item {
    attn_view view;
    fv_cuda_attn_seq q;
    const fv_cuda_score_sum *sum;
    int32_t seg, j0, first; /* first: the sum's first row of the sequence */
    int32_t D, Dp;
    float *x, *p; /* [ROWS, Dp] queries, [ROWS, FV_KV_BLOCK] */
};

static size_t sum_room(int32_t d_head) {
    size_t Dp = ((size_t)d_head + FV_LANES - 1) / FV_LANES * FV_LANES;
    return ROWS * (Dp + FV_KV_BLOCK) * sizeof(float);
}

/* Whether row i sees key j of the item in KV head g. */
static __device__ __forceinline__ bool sees(const sum_item &t, int32_t g, int32_t i, int32_t j) {
    return j < FV_KV_BLOCK && t.j0 + j < visible(t.view, t.q, g, t.seg, i) &&
           in_window(t.view, t.q, g, t.seg, i, t.j0 + j);
}

static __device__ void take_queries(const sum_item &t, const fv_cuda_attn &a, int32_t h,
                                    int32_t row0, int32_t n) {
    for (int32_t i = (int32_t)threadIdx.x; i < n * t.Dp; i += THREADS) {
        const float *q = a.q + (int64_t)(t.q.row0 + row0 + i / t.Dp) * a.ldq + h * t.D;
        t.x[i] = i % t.Dp < t.D ? q[i % t.Dp] : 0.0f;
    }
}

/* p[i][j] = the probability of key j for row row0 + i of head h, if visible; with `raise`, the maximum of
 * that and the old value. */
static __device__ void score_rows(const sum_item &t, const fv_cuda_attn &a, int32_t h, int32_t row0,
                                  int32_t n, bool raise) {
    half_warp w = half_warp_of();
    int32_t g = h / (a.n_head / a.n_kv);
    size_t bytes_row = (size_t)t.D * bytes_of(a.kv_dtype);
    for (int32_t i = w.number; i < n * FV_KV_BLOCK; i += HALVES) {
        int32_t row = row0 + i / FV_KV_BLOCK, j = i % FV_KV_BLOCK;
        if (!sees(t, g, row, j)) continue;
        const fv_kv_block *block =
            t.view.blocks + run_of(t.view, t.q, g, t.seg)->block + t.j0 / FV_KV_BLOCK;
        const void *key = static_cast<const char *>(block->k) + (size_t)j * bytes_row;
        float s = half_dot(w, t.x + i / FV_KV_BLOCK * t.Dp, key, a.kv_dtype, t.D);
        if (w.lane) continue;
        float lse = lse_with(a.lse[(int64_t)(t.q.row0 + row) * a.ldl + h], t.sum->n);
        float p = exp_f32(a.scale * s - lse);
        t.p[i] = !raise || p > t.p[i] ? p : t.p[i];
    }
}

/* The probability of each key that row i of KV head g sees if all were equally likely. */
static __device__ float even_share(const sum_item &t, int32_t g, int32_t i) {
    int32_t n = 0;
    for (int32_t s = 0; s < t.q.n_seg; s++)
        n += n_in_window(t.view, t.q, g, s, i, 0, visible(t.view, t.q, g, s, i));
    return 1.0f / (float)n;
}

/* Adds rows [row0, row0 + n) of p to the sums of key j; h is 0 with head_max. */
static __device__ void add_rows(const sum_item &t, int32_t g, int32_t h, int32_t row0, int32_t n,
                                int32_t j) {
    const fv_cuda_score_sum *to = t.sum;
    int32_t column = to->column[t.seg] + t.j0 + j;
    for (int32_t i = 0; i < n; i++) {
        int32_t row = row0 + i;
        if (!sees(t, g, row, j)) continue;
        int32_t kind = to->kind >= 0 ? t.view.bytes[to->kind + row - t.first] : 0;
        float p = t.p[i * FV_KV_BLOCK + j];
        if (to->low) p = p < even_share(t, g, row) ? 1.0f : 0.0f;
        if (to->weight) p = to->weight[(int64_t)(row - t.first) * to->ld + column] * p;
        to->sum[(int64_t)(h * to->n_kind + kind) * to->ld + column] += p;
    }
}

/* Clears sums that start from zero. Grid: (sums, query heads); with head_max the first head's blocks have all. */
static __global__ void __launch_bounds__(THREADS) clear_sums(fv_cuda_attn a) {
    attn_view view = attn_view_of(a.table);
    const fv_cuda_score_sum *sum =
        reinterpret_cast<const fv_cuda_score_sum *>(a.table + view.table->sum) + blockIdx.x;
    if (!sum->fresh || (sum->head_max && blockIdx.y > 0)) return;
    int64_t n = (int64_t)sum->n_kind * sum->ld;
    for (int64_t i = threadIdx.x; i < n; i += THREADS) sum->sum[blockIdx.y * n + i] = 0.0f;
}

/* Grid: (items, query heads); with head_max the first head's blocks take all heads. */
static __global__ void __launch_bounds__(THREADS) score_sums(fv_cuda_attn a) {
    FV_SHARED(float, room);
    sum_item t;
    t.view = attn_view_of(a.table);
    if ((int32_t)blockIdx.x >= t.view.table->n_item) return;
    const fv_cuda_sum_item item =
        reinterpret_cast<const fv_cuda_sum_item *>(a.table + t.view.table->item)[blockIdx.x];
    t.sum = reinterpret_cast<const fv_cuda_score_sum *>(a.table + t.view.table->sum) + item.sum;
    t.q = t.view.seqs[t.sum->seq];
    t.seg = item.seg;
    t.j0 = item.j0;
    t.first = t.q.n_rows - t.sum->n_row;
    t.D = a.d_head;
    t.Dp = (t.D + FV_LANES - 1) / FV_LANES * FV_LANES;
    t.x = room;
    t.p = t.x + ROWS * t.Dp;
    int32_t h0 = (int32_t)blockIdx.y, end = t.sum->head_max ? a.n_head : h0 + 1;
    if (t.sum->head_max && h0 > 0) return;
    for (int32_t row0 = t.first; row0 < t.q.n_rows; row0 += ROWS) {
        int32_t n = t.q.n_rows - row0 < ROWS ? t.q.n_rows - row0 : ROWS;
        for (int32_t i = (int32_t)threadIdx.x; i < n * FV_KV_BLOCK; i += THREADS) t.p[i] = 0.0f;
        for (int32_t h = h0; h < end; h++) {
            __syncthreads(); /* the previous head has used x */
            take_queries(t, a, h, row0, n);
            __syncthreads();
            score_rows(t, a, h, row0, n, t.sum->head_max != 0);
        }
        __syncthreads();
        if (threadIdx.x < FV_KV_BLOCK)
            add_rows(t, h0 / (a.n_head / a.n_kv), h0, row0, n, (int32_t)threadIdx.x);
        __syncthreads();
    }
}

fv_status fv_cuda_score_sums(fv_backend *be, const fv_score_sums_args *a) {
    fv_cuda *c = fv_cuda_of(be);
    fv_cuda_attn_cut cut = {};
    cut.rows = 1;
    cut.sums = a;
    fv_cuda_attn call;
    fv_cuda_attn_size size;
    FV_TRY(fv_cuda_attn_send(c, a->attn, &cut, &call, &size));
    bool fresh = false;
    for (int32_t i = 0; i < a->n_sum; i++) fresh |= a->sums[i].fresh;
    if (fresh)
        FV_LAUNCH(clear_sums, dim3((unsigned)a->n_sum, (unsigned)a->attn->n_head), THREADS, 0,
                  c->stream, call);
    if (size.n_item == 0) return fv_cuda_launched("score_sums");
    size_t room = sum_room(a->attn->d_head);
    FV_TRY(shared_memory(c, score_sums, room));
    FV_LAUNCH(score_sums, dim3((unsigned)size.n_item, (unsigned)a->attn->n_head), THREADS, room,
              c->stream, call);
    return fv_cuda_launched("score_sums");
}
