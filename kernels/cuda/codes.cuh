#ifndef FOVEA_KERNELS_CUDA_CODES_CUH
#define FOVEA_KERNELS_CUDA_CODES_CUH

/* Attention on codes (attn_quantized.cu) and on directions that two layers share (attn_merged.cu), in the
 * order of the CPU, with its bits.
 *
 * A block of threads has one query row and the query heads of one KV head, up to HEADS at a time.
 * 64 rows are decoded once, into shared memory, and used by all of the heads: first the keys, with
 * outliers and rotated by their anchors, then the values. Only the softmax's sum has a tree, so every
 * other number has a thread of its own: a score its chain over the head's columns, an element of o
 * its chain over the rows.
 *
 * FORM decodes rows: `id` and `name`; begin(), which a thread per valid row calls before the row is
 * decoded; element<KEY>(), one number; end(), which the same thread calls after the row. */
#include <assert.h>

#include "kernels/cuda/packed.cuh"
#include "packed/codes.h"

enum { THREADS = 128, HEADS = 16 };

struct codes_part {
    const char *data;
    const char *code; /* codes or directions: here, or in the part that owns them */
    fv_packed_shape s;
    fv_codes_layout l;
    int32_t line;  /* bytes from column to column of a tile of keys */
    int32_t norms; /* with directions: norms from head to head */
    int32_t n_outlier;
};

struct codes_seq {
    codes_part k, v;
    const int32_t *first, *valid;
    const float *cos, *sin;
    int32_t row0, n, n_anchor;
};

struct codes_item {
    int32_t seq, row; /* row of the call */
};

struct codes_call {
    const codes_seq *seqs; /* both on the device */
    const codes_item *items;
    const float *q;
    float *o, *lse; /* lse or NULL */
    int32_t ldq, ldo, ldl, n_head, n_kv, d_head;
    float scale;
};

/* ---- rows ------------------------------------------------------------------------------- */

/* Row j's outliers from head g's first on are [the result, *end), including those of later heads. A head
 * has `places` channels. */
static __device__ uint32_t outliers_of(const codes_part &p, int32_t g, int32_t j, int32_t places,
                                       uint32_t *end) {
    *end = 0;
    if (p.n_outlier == 0) return 0;
    const uint32_t *first = reinterpret_cast<const uint32_t *>(p.data + p.l.first);
    const uint16_t *channel = reinterpret_cast<const uint16_t *>(p.data + p.l.channel);
    uint32_t i = first[j], top = first[j + 1];
    for (*end = top; i < top;) {
        uint32_t mid = i + (top - i) / 2;
        if (channel[mid] < g * places)
            i = mid + 1;
        else
            top = mid;
    }
    return i;
}

/* The line with element d of head g of row j, a column of a tile of keys or a row of values; *i: the
 * element's index in it. */
template <bool KEY>
static __device__ __forceinline__ const char *line_of(const codes_part &p, int32_t g, int32_t j,
                                                      int32_t d, int32_t *i) {
    const char *head = p.code + (size_t)g * p.l.head;
    *i = KEY ? j % FV_PACKED_TILE : d;
    if (!KEY) return head + (size_t)j * p.l.stride;
    return head + (size_t)(j / FV_PACKED_TILE) * p.l.stride + (size_t)d * (size_t)p.line;
}

/* ---- 64 rows in shared memory ------------------------------------------------------------- */

struct codes_scratch {
    float *panel; /* [FV_KV_BLOCK, ld] keys, then values */
    float *q, *o; /* [HEADS, D] */
    float *p;     /* [HEADS, FV_KV_BLOCK] */
    softmax_state *at;
    int32_t *kept;  /* [FV_KV_BLOCK] with directions: indices of exact vectors, or -1 */
    uint8_t *lives; /* [FV_KV_BLOCK] */
    int32_t ld;     /* odd, so that a column's rows are in different banks */
};

static __host__ __device__ __forceinline__ int32_t panel_ld(int32_t D) { return D | 1; }

static __host__ __device__ __forceinline__ size_t scratch_bytes(int32_t D, int32_t heads) {
    size_t floats =
        (size_t)FV_KV_BLOCK * (size_t)panel_ld(D) + (size_t)heads * (2 * (size_t)D + FV_KV_BLOCK);
    return floats * sizeof(float) + (size_t)heads * sizeof(softmax_state) +
           FV_KV_BLOCK * (sizeof(int32_t) + 1);
}

static __device__ codes_scratch scratch_of(float *base, int32_t D, int32_t heads) {
    codes_scratch r;
    r.ld = panel_ld(D);
    r.panel = base;
    r.q = r.panel + FV_KV_BLOCK * r.ld;
    r.o = r.q + heads * D;
    r.p = r.o + heads * D;
    r.at = reinterpret_cast<softmax_state *>(r.p + heads * FV_KV_BLOCK);
    r.kept = reinterpret_cast<int32_t *>(r.at + heads);
    r.lives = reinterpret_cast<uint8_t *>(r.kept + FV_KV_BLOCK);
    return r;
}

/* Notes which of the rows [j0, j0 + n) are valid; returns whether any is. */
static __device__ bool find_alive(const codes_seq &s, const codes_scratch &r, int32_t j0,
                                  int32_t n) {
    bool any = false;
    if (threadIdx.x < FV_KV_BLOCK)
        r.lives[threadIdx.x] =
            (int32_t)threadIdx.x < n && packed_is_valid(s, j0 + (int32_t)threadIdx.x);
    __syncthreads();
    for (int32_t i = 0; i < n; i++) any = any || r.lives[i];
    return any;
}

/* Decodes the valid rows; neighbouring threads read neighbours of a line. */
template <class FORM, bool KEY>
static __device__ void take(const codes_part &p, const codes_scratch &r, int32_t g, int32_t D,
                            int32_t j0) {
    int32_t mine = (int32_t)threadIdx.x;
    bool has_row = mine < FV_KV_BLOCK && r.lives[mine];
    if (has_row) FORM::begin(p, g, j0 + mine, &r.kept[mine]);
    __syncthreads();
    for (int32_t x = mine; x < FV_KV_BLOCK * D; x += THREADS) {
        int32_t i = KEY ? x % FV_KV_BLOCK : x / D, d = KEY ? x / FV_KV_BLOCK : x % D;
        if (!r.lives[i]) continue;
        r.panel[i * r.ld + d] = FORM::template element<KEY>(p, g, j0 + i, d, r.kept[i]);
    }
    __syncthreads();
    if (has_row) FORM::end(p, g, j0 + mine, r.panel + mine * r.ld);
    __syncthreads();
}

/* Rotates keys by their anchors. */
static __device__ void rotate_keys(const codes_seq &s, const codes_scratch &r, int32_t D,
                                   int32_t j0) {
    int32_t half = D / 2;
    for (int32_t x = (int32_t)threadIdx.x; s.cos && x < FV_KV_BLOCK * half; x += THREADS) {
        int32_t i = x % FV_KV_BLOCK, d = x / FV_KV_BLOCK, j = j0 + i;
        if (!r.lives[i]) continue;
        size_t at = ((size_t)(j / FV_PACKED_TILE) * (size_t)half + (size_t)d) * FV_PACKED_TILE +
                    (size_t)(j % FV_PACKED_TILE);
        float *k = r.panel + i * r.ld + d, a = k[0], b = k[half], c = s.cos[at], n = s.sin[at];
        k[0] = fmaf(a, c, -(b * n));
        k[half] = fmaf(b, c, a * n);
    }
    __syncthreads();
}

/* ---- one query row ------------------------------------------------------------------------ */

/* Computes scores, -inf for rows that are not valid. */
static __device__ void score_rows(const codes_scratch &r, int32_t D, int32_t heads, float scale) {
    for (int32_t x = (int32_t)threadIdx.x; x < heads * FV_KV_BLOCK; x += THREADS) {
        int32_t i = x % FV_KV_BLOCK;
        const float *q = r.q + x / FV_KV_BLOCK * D, *k = r.panel + i * r.ld;
        float s = 0.0f;
        for (int32_t d = 0; r.lives[i] && d < D; d++) s = fmaf(q[d], k[d], s);
        r.p[x] = r.lives[i] ? scale * s : -INFINITY;
    }
    __syncthreads();
}

static __device__ void softmax_rows(const codes_scratch &r, int32_t heads) {
    half_warp w = half_warp_of();
    for (int32_t v = w.number; v < heads; v += THREADS / FV_LANES) {
        softmax_state to = half_softmax(w, r.p + v * FV_KV_BLOCK, FV_KV_BLOCK, r.at[v], false);
        __syncwarp(w.mask); /* all lanes have read r.at[v] */
        if (w.lane == 0) r.at[v] = to;
    }
    __syncthreads();
}

static __device__ void sum_values(const codes_scratch &r, int32_t D, int32_t heads) {
    for (int32_t x = (int32_t)threadIdx.x; x < heads * D; x += THREADS) {
        int32_t v = x / D;
        const float *p = r.p + v * FV_KV_BLOCK, *w = r.panel + x % D;
        float o = r.o[x] * r.at[v].c;
        for (int32_t i = 0; i < FV_KV_BLOCK; i++)
            if (r.lives[i]) o = fmaf(p[i], w[i * r.ld], o);
        r.o[x] = o;
    }
    __syncthreads();
}

static __device__ void begin_heads(const codes_call &a, const codes_scratch &r, int32_t row,
                                   int32_t h, int32_t heads) {
    const float *q = a.q + (int64_t)row * a.ldq + h * a.d_head;
    for (int32_t x = (int32_t)threadIdx.x; x < heads * a.d_head; x += THREADS) {
        r.q[x] = q[x];
        r.o[x] = 0.0f;
    }
    for (int32_t v = (int32_t)threadIdx.x; v < heads; v += THREADS) {
        r.at[v].m = -INFINITY;
        r.at[v].l = r.at[v].c = 0.0f;
    }
    __syncthreads();
}

static __device__ void end_heads(const codes_call &a, const codes_scratch &r, int32_t row,
                                 int32_t h, int32_t heads) {
    float *o = a.o + (int64_t)row * a.ldo + h * a.d_head;
    for (int32_t x = (int32_t)threadIdx.x; x < heads * a.d_head; x += THREADS) {
        float l = r.at[x / a.d_head].l;
        o[x] = l == 0.0f ? 0.0f : r.o[x] / l;
    }
    for (int32_t v = (int32_t)threadIdx.x; a.lse && v < heads; v += THREADS) {
        float l = r.at[v].l;
        a.lse[(int64_t)row * a.ldl + h + v] = l == 0.0f ? -INFINITY : r.at[v].m + log_f32(l);
    }
    __syncthreads();
}

/* Grid: (query rows of all sequences, KV heads). */
template <class FORM>
static __global__ void __launch_bounds__(THREADS) codes_kernel(codes_call a, int32_t most) {
    FV_SHARED(float, base);
    const codes_item item = a.items[blockIdx.x];
    const codes_seq &s = a.seqs[item.seq];
    const codes_scratch r = scratch_of(base, a.d_head, most);
    int32_t g = (int32_t)blockIdx.y, group = a.n_head / a.n_kv, D = a.d_head;
    for (int32_t h0 = 0; h0 < group; h0 += most) {
        int32_t heads = group - h0 < most ? group - h0 : most;
        begin_heads(a, r, item.row, g * group + h0, heads);
        for (int32_t j0 = 0; j0 < s.n; j0 += FV_KV_BLOCK) {
            if (find_alive(s, r, j0, min(FV_KV_BLOCK, s.n - j0))) {
                take<FORM, true>(s.k, r, g, D, j0);
                rotate_keys(s, r, D, j0);
                score_rows(r, D, heads, a.scale);
                softmax_rows(r, heads);
                take<FORM, false>(s.v, r, g, D, j0);
                sum_values(r, D, heads);
            }
            __syncthreads(); /* r.lives has been read */
        }
        end_heads(a, r, item.row, g * group + h0, heads);
    }
}

/* ---- a call --------------------------------------------------------------------------------- */

static codes_part part_of(const fv_packed_part *p, fv_packed_form form) {
    const fv_packed_shape *s = &p->shape;
    codes_part to = {
        static_cast<const char *>(p->data), nullptr, *s, fv_codes_layout_of(s), 0, 0, 0};
    assert(s->form == form && s->borrows == (p->base != nullptr));
    (void)form;
    to.code = (p->base ? static_cast<const char *>(p->base) : to.data) + to.l.code;
    to.line = (int32_t)fv_packed_row_bytes(s, FV_PACKED_TILE);
    to.norms = (int32_t)fv_packed_tiles((size_t)s->n) * FV_PACKED_TILE;
    to.n_outlier = fv_codes_n_outlier(s);
    return to;
}

static codes_seq seq_of(const fv_packed_seq *q, fv_packed_form form) {
    const fv_packed_rows *rows = q->rows;
    assert(!q->score && q->k->shape.n == rows->n && q->v->shape.n == rows->n);
    codes_seq s = {part_of(q->k, form), part_of(q->v, form), rows->first, rows->valid,
                   rows->cos,           rows->sin,           q->row0,     rows->n,
                   rows->n_anchor};
    return s;
}

/* Places sequences, and items of one query row each; returns their bytes. */
static size_t lay(const fv_attn_packed_args *a, fv_packed_form form, char *base, uint32_t *items,
                  int32_t *n) {
    fv_placement l = {base, 0};
    uint32_t at;
    codes_seq *seqs = static_cast<codes_seq *>(fv_place(&l, (size_t)a->n_seq, sizeof *seqs, &at));
    *n = 0;
    for (int32_t i = 0; i < a->n_seq; i++) *n += a->seqs[i].n_rows;
    codes_item *item = static_cast<codes_item *>(fv_place(&l, (size_t)*n, sizeof *item, items));
    for (int32_t i = 0; seqs && i < a->n_seq; i++) {
        seqs[i] = seq_of(&a->seqs[i], form);
        for (int32_t r = 0; r < a->seqs[i].n_rows; r++) {
            item->seq = i;
            item++->row = a->seqs[i].row0 + r;
        }
    }
    return l.bytes;
}

template <class FORM> static fv_status codes_attend(fv_cuda *c, const fv_attn_packed_args *a) {
    const fv_packed_form form = FORM::id;
    void *host, *device;
    uint32_t items;
    int32_t n, group = a->n_head / a->n_kv, heads = group < HEADS ? group : HEADS;
    assert(a->n_kv > 0 && a->n_head % a->n_kv == 0 && a->d_head > 0 && a->scale > 0);
    size_t bytes = lay(a, form, NULL, &items, &n), scratch = scratch_bytes(a->d_head, heads);
    if (n == 0) return FV_OK;
    FV_TRY(shared_memory(c, codes_kernel<FORM>, scratch));
    FV_TRY(fv_cuda_stage(c, bytes, &host, &device));
    (void)lay(a, form, static_cast<char *>(host), &items, &n);
    FV_TRY(fv_cuda_stage_send(c, host, device, bytes));
    codes_call call = {static_cast<const codes_seq *>(device),
                       reinterpret_cast<const codes_item *>(static_cast<char *>(device) + items),
                       static_cast<const float *>(a->q.data),
                       static_cast<float *>(a->o.data),
                       static_cast<float *>(a->lse.data),
                       a->q.ld,
                       a->o.ld,
                       a->lse.ld,
                       a->n_head,
                       a->n_kv,
                       a->d_head,
                       a->scale};
    fv_launch(FORM::name(), codes_kernel<FORM>, dim3((unsigned)n, (unsigned)a->n_kv), dim3(THREADS),
              scratch, c->stream, call, heads);
    return fv_cuda_launched(FORM::name());
}

#endif
