/* Attention on tensor cores: keys and values in bf16, heads of 64 or 128 columns; queries and
 * probabilities are rounded to bf16, sums are f32.
 *
 * Keys are processed in parts of FV_CUDA_SPLIT rows, counted from each segment's start; each part
 * starts from zero, and the parts are combined in order. Sequences with many query rows do
 * that in one thread block, which shares prefetched KV blocks (attention_rows);
 * those with few have a warp per part, which reads keys directly, and a second kernel that
 * combines the parts (attention_parts, attention_join). Both compute the same numbers in the
 * same order: a row's bits depend neither on other rows nor on how a prompt is cut.
 *
 * A warp has 16 query vectors: rows times the heads that share a KV head, so either can fill a
 * tile. Rows that no query attends to are not read. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tiles.cuh"

enum { WARPS = 4, THREADS = WARPS * FV_WARP, TILE = 16, VECTORS = WARPS * TILE, STAGES = 2 };

/* Strides of rows in shared memory, so that a warp's 16-byte reads have no bank conflicts:
 * adjacent in k for queries and keys, 2 rows apart for values. */
template <int D> struct strides {
    enum { K = 2 * D + 64, V = 2 * D + 16 };
};

/* The softmax state and output of 16 vectors; a lane has rows i and i + 8, and until a part ends l of
 * its own columns alone. Column 8 n + x of each 64 is column n of tile x. */
template <int D> struct softmax_tile {
    float m[2], l[2]; /* m in units of log2 */
    float o[D / 8][4];
};

template <int D> static __device__ __forceinline__ void tile_clear(softmax_tile<D> &w) {
#pragma unroll
    for (int h = 0; h < 2; h++) w.m[h] = -INFINITY, w.l[h] = 0.0f;
#pragma unroll
    for (int x = 0; x < D / 8; x++)
#pragma unroll
        for (int e = 0; e < 4; e++) w.o[x][e] = 0.0f;
}

/* Adds a part: all = all 2^(m - m') + part 2^(m_part - m'), for one row. A part without visible keys
 * changes nothing. */
struct joined {
    float m, l, c, c_part;
};

static __device__ __forceinline__ joined join(float m, float l, float m_part, float l_part) {
    joined j;
    j.m = fmaxf(m, m_part);
    j.c = exp2f(m - j.m);
    j.c_part = exp2f(m_part - j.m);
    j.l = fmaf(l_part, j.c_part, l * j.c);
    return j;
}

/* ---- queries ------------------------------------------------------------------------------ */

/* The two vectors of a lane; -1: missing. */
struct lane_rows {
    int32_t row[2], head[2];
    uint8_t share[2];
};

/* Vectors v0 + i and v0 + i + 8 of n; vector v is row row0 + v / group, head v % group of the KV
 * head. */
static __device__ __forceinline__ lane_rows lane_rows_of(const attn_view &view,
                                                         const fv_cuda_attn_seq &q, int32_t row0,
                                                         int32_t v0, int32_t n, int32_t group) {
    lane_rows r;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int32_t v = v0 + lane_group() + 8 * h;
        r.row[h] = v < n ? row0 + v / group : -1;
        r.head[h] = v % group;
        r.share[h] = v < n ? share_of(view, q, r.row[h]) : (uint8_t)FV_SHARE_KEPT;
    }
    return r;
}

/* How many rows of a KV block a lane's vectors see, and how many of these are dropped. */
struct block_view {
    int32_t seen[2], dropped[2];
};

static __device__ __forceinline__ block_view block_view_of(const attn_view &view,
                                                           const fv_cuda_attn_seq &q, int32_t g,
                                                           int32_t s, int32_t j0,
                                                           const lane_rows &r) {
    block_view b;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        b.seen[h] = r.row[h] < 0 ? 0 : visible(view, q, g, s, r.row[h]) - j0;
        b.dropped[h] = s == 0 && r.share[h] == FV_SHARE_WITHOUT_FIRST ? q.n_first - j0 : 0;
    }
    return b;
}

/* Loads the queries [16, D] of a warp as bf16, zeros for missing vectors. */
template <int D>
static __device__ void take_queries(const fv_cuda_attn &a, const fv_cuda_attn_seq &q, int32_t row0,
                                    int32_t head0, int32_t v0, int32_t n, char *to) {
    int32_t group = a.n_head / a.n_kv;
    for (int32_t i = (int32_t)threadIdx.x % FV_WARP; i < TILE * D / 2; i += FV_WARP) {
        int32_t v = v0 + i / (D / 2), d = i % (D / 2) * 2;
        uint32_t pair = 0;
        if (v < n) {
            const float *x =
                a.q + (int64_t)(q.row0 + row0 + v / group) * a.ldq + (head0 + v % group) * D + d;
            pair = fv_pack_bf16(x[0], x[1]);
        }
        *reinterpret_cast<uint32_t *>(to + i / (D / 2) * strides<D>::K + d * 2) = pair;
    }
}

/* ---- one KV block ------------------------------------------------------------------------ */

/* The first n rows of a KV block, with strides in bytes. */
struct kv_rows {
    const char *k, *v;
    int32_t k_row, v_row, n;
};

static __device__ __forceinline__ eight row_chunk(const char *p, int32_t row, int32_t bytes_row,
                                                  int32_t n, int32_t column) {
    return row < n ? load_eight<16>(p + row * bytes_row + column * 2) : eight_zeros();
}

/* s[x]: scores of keys 8 x + n. A lane loads 8 neighbouring columns of its rows, the operands of two
 * products. */
template <int D>
static __device__ __forceinline__ void score_block(const char *q, const kv_rows &kv,
                                                   float s[FV_KV_BLOCK / 8][4]) {
    int32_t i = lane_group(), p = lane_place();
#pragma unroll
    for (int x = 0; x < FV_KV_BLOCK / 8; x++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[x][e] = 0.0f;
#pragma unroll
    for (int c = 0; c < D; c += 32) {
        eight lo = load_eight<16>(q + i * strides<D>::K + (c + 8 * p) * 2);
        eight hi = load_eight<16>(q + (i + 8) * strides<D>::K + (c + 8 * p) * 2);
        uint32_t left[2][4] = {{lo.w[0], hi.w[0], lo.w[1], hi.w[1]},
                               {lo.w[2], hi.w[2], lo.w[3], hi.w[3]}};
#pragma unroll
        for (int x = 0; x < FV_KV_BLOCK / 8; x++) {
            eight k = row_chunk(kv.k, 8 * x + i, kv.k_row, kv.n, c + 8 * p);
            fv_mma_bf16(s[x], left[0], k.w);
            fv_mma_bf16(s[x], left[1], k.w + 2);
        }
    }
}

/* Does a step of softmax in powers of 2: replaces scores by p, 0 for rows that are dropped. */
template <int D>
static __device__ __forceinline__ void softmax_block(softmax_tile<D> &w, const block_view &b,
                                                     float scale, float s[FV_KV_BLOCK / 8][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = w.m[h], sum = 0.0f;
#pragma unroll
        for (int x = 0; x < FV_KV_BLOCK / 8; x++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float *at = &s[x][2 * h + e];
                *at = 8 * x + 2 * lane_place() + e < b.seen[h] ? *at * scale : -INFINITY;
                top = fmaxf(top, *at);
            }
        top = group_max(top);
        float base = top == -INFINITY ? 0.0f : top, c = exp2f(w.m[h] - base);
#pragma unroll
        for (int x = 0; x < FV_KV_BLOCK / 8; x++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float p = exp2f(s[x][2 * h + e] - base);
                sum += p;
                s[x][2 * h + e] = 8 * x + 2 * lane_place() + e < b.dropped[h] ? 0.0f : p;
            }
        w.m[h] = top;
        w.l[h] = fmaf(w.l[h], c, sum);
#pragma unroll
        for (int x = 0; x < D / 8; x++) {
            w.o[x][2 * h] *= c;
            w.o[x][2 * h + 1] *= c;
        }
    }
}

template <int D>
static __device__ __forceinline__ void mix_block(softmax_tile<D> &w, const kv_rows &kv,
                                                 const float p[FV_KV_BLOCK / 8][4]) {
#pragma unroll
    for (int x = 0; x < FV_KV_BLOCK / 8; x += 2) {
        uint32_t left[4] = {fv_pack_bf16(p[x][0], p[x][1]), fv_pack_bf16(p[x][2], p[x][3]),
                            fv_pack_bf16(p[x + 1][0], p[x + 1][1]),
                            fv_pack_bf16(p[x + 1][2], p[x + 1][3])};
        int32_t j = 8 * x + 2 * lane_place();
#pragma unroll
        for (int c = 0; c < D / 64; c++) {
            int32_t d = 64 * c + 8 * lane_group();
            mma_eight(w.o + 8 * c, left, row_chunk(kv.v, j, kv.v_row, kv.n, d),
                      row_chunk(kv.v, j + 1, kv.v_row, kv.n, d),
                      row_chunk(kv.v, j + 8, kv.v_row, kv.n, d),
                      row_chunk(kv.v, j + 9, kv.v_row, kv.n, d));
        }
    }
}

template <int D>
static __device__ __forceinline__ void attend_block(softmax_tile<D> &w, const char *q,
                                                    const kv_rows &kv, const block_view &b,
                                                    float scale) {
    float s[FV_KV_BLOCK / 8][4];
    score_block<D>(q, kv, s);
    softmax_block<D>(w, b, scale, s);
    mix_block<D>(w, kv, s);
}

/* ---- many rows ---------------------------------------------------------------------------- */

template <int D> static size_t rows_scratch() {
    return (size_t)VECTORS * strides<D>::K +
           (size_t)STAGES * FV_KV_BLOCK * (strides<D>::K + strides<D>::V);
}

/* A position in the KV blocks of all segments. */
struct cursor {
    int32_t s, j0;
};

static __device__ __forceinline__ void to_block(cursor &at, const int32_t *longest, int32_t n_seg) {
    while (at.s < n_seg && at.j0 >= longest[at.s]) {
        at.s++;
        at.j0 = 0;
    }
}

/* Loads keys and values of a block into a stage, n rows padded with zeros. */
template <int D> static __device__ void fetch_block(const fv_kv_block &block, int32_t n, char *to) {
    char *v = to + FV_KV_BLOCK * strides<D>::K;
    for (int32_t i = (int32_t)threadIdx.x; i < FV_KV_BLOCK * D / 8; i += THREADS) {
        int32_t row = i / (D / 8), at = i % (D / 8) * 16, take = row < n ? 16 : 0;
        int64_t from = take ? (int64_t)row * D * 2 + at : 0;
        fv_cp_async16(to + row * strides<D>::K + at, static_cast<const char *>(block.k) + from,
                      take);
        fv_cp_async16(v + row * strides<D>::V + at, static_cast<const char *>(block.v) + from,
                      take);
    }
}

/* Ends a part: adds it to those before. */
template <int D>
static __device__ __forceinline__ void join_part(softmax_tile<D> &all, softmax_tile<D> &part) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = group_sum(part.l[h]);
        if (part.m[h] == -INFINITY) continue;
        joined j = join(all.m[h], all.l[h], part.m[h], l);
        all.m[h] = j.m;
        all.l[h] = j.l;
#pragma unroll
        for (int x = 0; x < D / 8; x++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++)
                all.o[x][e] = fmaf(part.o[x][e], j.c_part, all.o[x][e] * j.c);
    }
    tile_clear(part);
}

/* The head's column that o[x][e] holds. */
static __device__ __forceinline__ int32_t column_of(int x, int e) {
    return x / 8 * 64 + 8 * (2 * lane_place() + e % 2) + x % 8;
}

/* Applies changed shares to o after segment 0. */
template <int D>
static __device__ void edit_tile(const attn_view &view, const fv_cuda_attn_seq &q, int32_t g,
                                 const lane_rows &r, softmax_tile<D> &all) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (has_values(r.share[h]) || visible(view, q, g, 0, r.row[h]) == 0) continue;
        const void *v = view.blocks[run_of(view, q, g, 0)->block].v;
        bool first = r.share[h] == FV_SHARE_ON_FIRST;
#pragma unroll
        for (int x = 0; x < D / 8; x++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++)
                all.o[x][e] =
                    first ? all.l[h] * widened(v, FV_BF16, (size_t)column_of(x, e)) : 0.0f;
    }
}

static __device__ __forceinline__ float lse_of_sum(float m, float l) {
    return l == 0.0f ? -INFINITY : fmaf(m, FV_LN2, log_f32(l));
}

template <int D>
static __device__ void finish_tile(const fv_cuda_attn &a, const fv_cuda_attn_seq &q, int32_t head0,
                                   const lane_rows &r, const softmax_tile<D> &all) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (r.row[h] < 0) continue;
        int64_t row = q.row0 + r.row[h];
        float l = all.l[h], *o = a.o + row * a.ldo + (head0 + r.head[h]) * D;
#pragma unroll
        for (int x = 0; x < D / 8; x++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                o[column_of(x, e)] = l == 0.0f ? 0.0f : all.o[x][2 * h + e] / l;
        if (a.lse && lane_place() == 0)
            a.lse[row * a.ldl + head0 + r.head[h]] = lse_of_sum(all.m[h], l);
    }
}

/* Grid: (items of rows, KV heads times thread blocks per item). */
template <int D>
static __global__ void __launch_bounds__(THREADS) attention_rows(fv_cuda_attn a, int32_t fills) {
    FV_SHARED(char, shared);
    __shared__ int32_t longest[FV_ATTN_MAX_SEG];
    attn_view view = attn_view_of(a.table);
    if ((int32_t)blockIdx.x >= view.table->n_rows) return;
    const fv_cuda_attn_rows item =
        reinterpret_cast<const fv_cuda_attn_rows *>(a.table + view.table->rows)[blockIdx.x];
    const fv_cuda_attn_seq &q = view.seqs[item.seq];
    int32_t group = a.n_head / a.n_kv, g = (int32_t)blockIdx.y / fills, n = item.n_row * group;
    int32_t warp = (int32_t)threadIdx.x / FV_WARP;
    int32_t v0 = (int32_t)blockIdx.y % fills * VECTORS + warp * TILE;
    if (v0 - warp * TILE >= n) return;
    if (threadIdx.x < (unsigned)q.n_seg) {
        int32_t most = 0;
        for (int32_t i = item.row0; i < item.row0 + item.n_row; i++)
            most = max(most, visible(view, q, g, (int32_t)threadIdx.x, i));
        longest[threadIdx.x] = most;
    }
    char *mine = shared + warp * TILE * strides<D>::K, *stages = shared + VECTORS * strides<D>::K;
    const int32_t bytes = FV_KV_BLOCK * (strides<D>::K + strides<D>::V);
    take_queries<D>(a, q, item.row0, g * group, v0, n, mine);
    lane_rows r = lane_rows_of(view, q, item.row0, v0, n, group);
    softmax_tile<D> all, part;
    tile_clear(all);
    tile_clear(part);
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (q.n > 0.0f) all.m[h] = log_f32(q.n) * FV_LOG2E, all.l[h] = 1.0f;
    __syncthreads();
    cursor at = {0, 0};
    to_block(at, longest, q.n_seg);
    if (at.s < q.n_seg)
        fetch_block<D>(view.blocks[run_of(view, q, g, at.s)->block + at.j0 / FV_KV_BLOCK],
                       longest[at.s] - at.j0, stages);
    fv_cp_commit();
    for (int stage = 0; at.s < q.n_seg; stage = 1 - stage) {
        cursor next = {at.s, at.j0 + FV_KV_BLOCK};
        to_block(next, longest, q.n_seg);
        if (next.s < q.n_seg)
            fetch_block<D>(view.blocks[run_of(view, q, g, next.s)->block + next.j0 / FV_KV_BLOCK],
                           longest[next.s] - next.j0, stages + (1 - stage) * bytes);
        fv_cp_commit();
        fv_cp_wait<1>();
        __syncthreads();
        kv_rows kv = {stages + stage * bytes, stages + stage * bytes + FV_KV_BLOCK * strides<D>::K,
                      strides<D>::K, strides<D>::V, FV_KV_BLOCK};
        attend_block<D>(part, mine, kv, block_view_of(view, q, g, at.s, at.j0, r),
                        a.scale * FV_LOG2E);
        if (next.s != at.s || next.j0 % FV_CUDA_SPLIT == 0) join_part(all, part);
        if (next.s != at.s && at.s == 0) edit_tile<D>(view, q, g, r, all);
        __syncthreads(); /* the stage has been read */
        at = next;
    }
    fv_cp_wait<0>();
    finish_tile<D>(a, q, g * group, r, all);
}

/* ---- few rows ----------------------------------------------------------------------------- */

/* Scratch: the result of each (split, row, head). */
struct parts_scratch {
    float *o;      /* [parts, D] */
    float2 *state; /* [parts] m (in log2), l */
};

/* Index of a part: by split, then by row, then by head. */
static __device__ __forceinline__ int64_t part_of(const fv_cuda_attn &a, const fv_cuda_attn_seq &q,
                                                  int32_t split, int32_t row, int32_t h) {
    return q.part + ((int64_t)split * q.n_rows + row) * a.n_head + h;
}

/* Grid: (splits by WARPS, KV heads times tiles of an item's vectors). A warp per split and tile. */
template <int D>
static __global__ void __launch_bounds__(THREADS)
    attention_parts(fv_cuda_attn a, parts_scratch scratch, int32_t tiles) {
    FV_SHARED(char, shared);
    attn_view view = attn_view_of(a.table);
    int32_t warp = (int32_t)threadIdx.x / FV_WARP, i = (int32_t)blockIdx.x * WARPS + warp;
    if (i >= view.table->n_split) return;
    const fv_cuda_attn_split item =
        reinterpret_cast<const fv_cuda_attn_split *>(a.table + view.table->split)[i];
    const fv_cuda_attn_seq &q = view.seqs[item.seq];
    int32_t group = a.n_head / a.n_kv, g = (int32_t)blockIdx.y / tiles, n = q.n_rows * group;
    int32_t v0 = (int32_t)blockIdx.y % tiles * TILE;
    if (v0 >= n) return;
    char *mine = shared + warp * TILE * strides<D>::K;
    take_queries<D>(a, q, 0, g * group, v0, n, mine);
    lane_rows r = lane_rows_of(view, q, 0, v0, n, group);
    __syncwarp();
    int32_t longest = 0;
    for (int32_t x = 0; x < q.n_rows; x++) longest = max(longest, visible(view, q, g, item.seg, x));
    const fv_kv_block *block = view.blocks + run_of(view, q, g, item.seg)->block;
    int32_t end = min(longest, item.j0 + FV_CUDA_SPLIT);
    softmax_tile<D> part;
    tile_clear(part);
    for (int32_t j0 = item.j0; j0 < end; j0 += FV_KV_BLOCK) {
        const fv_kv_block at = block[j0 / FV_KV_BLOCK];
        kv_rows kv = {static_cast<const char *>(at.k), static_cast<const char *>(at.v), 2 * D,
                      2 * D, end - j0};
        attend_block<D>(part, mine, kv, block_view_of(view, q, g, item.seg, j0, r),
                        a.scale * FV_LOG2E);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = group_sum(part.l[h]);
        if (r.row[h] < 0) continue;
        int64_t to = part_of(a, q, item.split, r.row[h], g * group + r.head[h]);
        if (lane_place() == 0) scratch.state[to] = make_float2(part.m[h], l);
#pragma unroll
        for (int x = 0; x < D / 8; x++)
#pragma unroll
            for (int e = 0; e < 2; e++) scratch.o[to * D + column_of(x, e)] = part.o[x][2 * h + e];
    }
}

/* Grid: (sequences with few rows, query heads). A thread per column of the head. */
template <int D>
static __global__ void __launch_bounds__(D) attention_join(fv_cuda_attn a, parts_scratch scratch) {
    attn_view view = attn_view_of(a.table);
    if ((int32_t)blockIdx.x >= view.table->n_few) return;
    const int32_t *few = reinterpret_cast<const int32_t *>(a.table + view.table->few);
    const fv_cuda_attn_seq &q = view.seqs[few[blockIdx.x]];
    const fv_cuda_attn_split *splits =
        reinterpret_cast<const fv_cuda_attn_split *>(a.table + view.table->split) + q.split;
    int32_t h = (int32_t)blockIdx.y, g = h / (a.n_head / a.n_kv), d = (int32_t)threadIdx.x;
    for (int32_t row = 0; row < q.n_rows; row++) {
        uint8_t share = share_of(view, q, row);
        bool edits = !has_values(share) && visible(view, q, g, 0, row) > 0;
        float m = q.n > 0.0f ? log_f32(q.n) * FV_LOG2E : -INFINITY, l = q.n > 0.0f, o = 0.0f;
        for (int32_t s = 0; s <= q.n_split; s++) {
            bool after = s == q.n_split || splits[s].seg > 0;
            if (edits && after && (s == 0 || splits[s - 1].seg == 0)) {
                const void *v = view.blocks[run_of(view, q, g, 0)->block].v;
                o = share == FV_SHARE_ON_FIRST ? l * widened(v, FV_BF16, (size_t)d) : 0.0f;
            }
            if (s == q.n_split) break;
            int64_t from = part_of(a, q, s, row, h);
            const float2 part = scratch.state[from];
            if (part.x == -INFINITY) continue;
            joined j = join(m, l, part.x, part.y);
            m = j.m;
            l = j.l;
            o = fmaf(scratch.o[from * D + d], j.c_part, o * j.c);
        }
        a.o[(int64_t)(q.row0 + row) * a.ldo + h * D + d] = l == 0.0f ? 0.0f : o / l;
        if (a.lse && d == 0) a.lse[(int64_t)(q.row0 + row) * a.ldl + h] = lse_of_sum(m, l);
    }
}

/* ---- launches ----------------------------------------------------------------------------- */

/* Sequences of at most FEW_ROWS rows are split along their keys. */
enum { FEW_ROWS = 4 };

template <int D>
static fv_status launch_few(fv_cuda *c, const fv_cuda_attn &call, const fv_cuda_attn_size &size) {
    int32_t tiles = fv_div_up(FEW_ROWS * (call.n_head / call.n_kv), TILE);
    size_t state = ((size_t)size.n_part * sizeof(float2) + 255) / 256 * 256;
    void *p;
    FV_TRY(fv_cuda_scratch(c, state + (size_t)size.n_part * D * sizeof(float), &p));
    parts_scratch scratch;
    scratch.state = static_cast<float2 *>(p);
    scratch.o = reinterpret_cast<float *>(static_cast<char *>(p) + state);
    if (size.n_split)
        FV_LAUNCH(attention_parts<D>,
                  dim3(fv_cuda_blocks(size.n_split, WARPS), (unsigned)(call.n_kv * tiles)), THREADS,
                  (size_t)VECTORS * strides<D>::K, c->stream, call, scratch, tiles);
    FV_LAUNCH(attention_join<D>, dim3((unsigned)size.n_few, (unsigned)call.n_head), D, 0, c->stream,
              call, scratch);
    return fv_cuda_launched("attention of few rows");
}

template <int D> static fv_status launch(fv_cuda *c, const fv_attn_args *a) {
    int32_t group = a->n_head / a->n_kv;
    fv_cuda_attn_cut cut = {};
    cut.rows = group < VECTORS ? VECTORS / group : 1;
    cut.few = FEW_ROWS;
    fv_cuda_attn call;
    fv_cuda_attn_size size;
    FV_TRY(fv_cuda_attn_send(c, a, &cut, &call, &size));
    if (size.n_few) FV_TRY(launch_few<D>(c, call, size));
    if (size.n_rows == 0) return FV_OK;
    int32_t fills = fv_div_up(cut.rows * group, VECTORS);
    FV_TRY(shared_memory(c, attention_rows<D>, rows_scratch<D>()));
    FV_LAUNCH(attention_rows<D>, dim3((unsigned)size.n_rows, (unsigned)(a->n_kv * fills)), THREADS,
              rows_scratch<D>(), c->stream, call, fills);
    return fv_cuda_launched("attention");
}

fv_status fv_cuda_attention_tiled(fv_cuda *c, const fv_attn_args *a) {
    return a->d_head == 64 ? launch<64>(c, a) : launch<128>(c, a);
}
