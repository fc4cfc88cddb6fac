#ifndef FOVEA_KERNELS_CUDA_ATTENTION_TILES_CUH
#define FOVEA_KERNELS_CUDA_ATTENTION_TILES_CUH

/* A warp's part of attention on tensor cores: 16 query vectors against one KV block (attention_tiled.cu). */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/tiles.cuh"

enum { WARPS = 4, THREADS = WARPS * FV_WARP, TILE = 16, VECTORS = WARPS * TILE };

/* How a head is held: COLUMNS columns of queries and keys, and values in spans of at most 128, each of which has a
 * thread block of its own, because a lane has no registers for more. FULL: the head has just so many columns;
 * otherwise it has fewer, a multiple of 8, and those that are missing are zero in queries and are never read. TYPE is that
 * of keys and values, to which queries and probabilities are rounded.
 *
 * Strides of rows in shared memory are such that a warp's 16-byte reads have no bank conflicts: adjacent in k for
 * queries and keys, 2 rows apart for values. */
template <int COLUMNS, bool FULL, fv_dtype TYPE> struct head_of {
    enum {
        K = COLUMNS,
        SPAN = COLUMNS > 64 ? 128 : 64,
        SPANS = COLUMNS > 128 ? COLUMNS / 128 : 1,
        HELD = COLUMNS > 128 ? 128 : COLUMNS, /* columns of a span in shared memory */
        STAGES = COLUMNS > 128 ? 1 : 2,       /* KV blocks in shared memory */
        K_ROW = 2 * COLUMNS + (COLUMNS % 64 ? 0 : 64),
        V_ROW = (2 * HELD + 47) / 64 * 64 + 16,
        STAGE = FV_KV_BLOCK * (K_ROW + V_ROW)
    };
    static const fv_dtype type = TYPE;

    /* Columns of the head, and whether it has column c. */
    static __device__ __forceinline__ int32_t columns(const fv_cuda_attn &a) {
        return FULL ? COLUMNS : a.d_head;
    }
    static __device__ __forceinline__ bool has(int32_t c, int32_t columns) {
        return FULL || c < columns;
    }
};

/* The softmax state and output of 16 vectors; a lane has rows i and i + 8, and until a part ends l of
 * its own columns alone. Column 8 n + x of each 64 of the span is
 * column n of tile x. */
template <class HEAD> struct softmax_tile {
    float m[2], l[2]; /* m in units of log2 */
    float o[HEAD::SPAN / 8][4];
};

template <class HEAD> static __device__ __forceinline__ void tile_clear(softmax_tile<HEAD> &w) {
#pragma unroll
    for (int h = 0; h < 2; h++) w.m[h] = -INFINITY, w.l[h] = 0.0f;
#pragma unroll
    for (int x = 0; x < HEAD::SPAN / 8; x++)
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

/* How many rows of a KV block a lane's vectors see, how many of these are dropped, and their windows: the rows' positions,
 * NULL without windows, and the first position that is in the window. */
struct block_view {
    int32_t seen[2], dropped[2], from[2];
    const int32_t *position;

    __device__ __forceinline__ bool sees(int h, int32_t j) const {
        return j < seen[h] && (!position || position[j] >= from[h]);
    }
};

static __device__ __forceinline__ block_view block_view_of(const attn_view &view,
                                                           const fv_cuda_attn_seq &q, int32_t g,
                                                           int32_t s, int32_t j0,
                                                           const lane_rows &r) {
    block_view b;
    bool window = q.window_from >= 0;
    b.position = window ? view.position + run_of(view, q, g, s)->position + j0 : nullptr;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        b.from[h] = window && r.row[h] >= 0 ? view.window_from[q.window_from + r.row[h]] : 0;
        b.seen[h] = r.row[h] < 0 ? 0 : visible(view, q, g, s, r.row[h]) - j0;
        b.dropped[h] = s == 0 && r.share[h] == FV_SHARE_WITHOUT_FIRST ? q.n_first - j0 : 0;
    }
    return b;
}

/* Two numbers in the type of keys and values, in one word; the range of f16 ends at 65504. */
template <fv_dtype TYPE> static __device__ __forceinline__ uint32_t pack_two(float lo, float hi) {
    if (TYPE == FV_BF16) return fv_pack_bf16(lo, hi);
    const float most = 65504.0f;
    lo = lo > most ? most : lo < -most ? -most : lo;
    hi = hi > most ? most : hi < -most ? -most : hi;
    return (uint32_t)f16_of_f32(lo) | (uint32_t)f16_of_f32(hi) << 16;
}

/* Loads the queries [16, K] of a warp, zeros for missing vectors and columns. */
template <class HEAD>
static __device__ void take_queries(const fv_cuda_attn &a, const fv_cuda_attn_seq &q, int32_t row0,
                                    int32_t head0, int32_t v0, int32_t n, char *to) {
    enum { PAIRS = HEAD::K / 2 };
    int32_t group = a.n_head / a.n_kv, D = HEAD::columns(a);
    for (int32_t i = (int32_t)threadIdx.x % FV_WARP; i < TILE * PAIRS; i += FV_WARP) {
        int32_t v = v0 + i / PAIRS, d = i % PAIRS * 2;
        uint32_t pair = 0;
        if (v < n && HEAD::has(d, D)) {
            const float *x =
                a.q + (int64_t)(q.row0 + row0 + v / group) * a.ldq + (head0 + v % group) * D + d;
            pair = pack_two<HEAD::type>(x[0], x[1]);
        }
        *reinterpret_cast<uint32_t *>(to + i / PAIRS * HEAD::K_ROW + d * 2) = pair;
    }
}

/* ---- one KV block ------------------------------------------------------------------------ */

/* The first n rows of a KV block, with strides in bytes; columns of keys, and of values from `v` on. */
struct kv_rows {
    const char *k, *v;
    int32_t k_row, v_row, n;
    int32_t k_columns, v_columns;
};

template <class HEAD>
static __device__ __forceinline__ eight row_chunk(const char *p, int32_t row, int32_t bytes_row,
                                                  int32_t n, int32_t column, int32_t columns) {
    return row < n && HEAD::has(column, columns) ? load_eight<16>(p + row * bytes_row + column * 2)
                                                 : eight_zeros();
}

/* s[x]: scores of keys 8 x + n. A lane loads 8 neighbouring columns of its rows, the operands of two
 * products. */
template <class HEAD>
static __device__ __forceinline__ void score_block(const char *q, const kv_rows &kv,
                                                   float s[FV_KV_BLOCK / 8][4]) {
    int32_t i = lane_group(), p = lane_place();
#pragma unroll
    for (int x = 0; x < FV_KV_BLOCK / 8; x++)
#pragma unroll
        for (int e = 0; e < 4; e++) s[x][e] = 0.0f;
#pragma unroll
    for (int c = 0; c < HEAD::K; c += 32) {
        eight lo = load_eight<16>(q + i * HEAD::K_ROW + (c + 8 * p) * 2);
        eight hi = load_eight<16>(q + (i + 8) * HEAD::K_ROW + (c + 8 * p) * 2);
        uint32_t left[2][4] = {{lo.w[0], hi.w[0], lo.w[1], hi.w[1]},
                               {lo.w[2], hi.w[2], lo.w[3], hi.w[3]}};
#pragma unroll
        for (int x = 0; x < FV_KV_BLOCK / 8; x++) {
            eight k = row_chunk<HEAD>(kv.k, 8 * x + i, kv.k_row, kv.n, c + 8 * p, kv.k_columns);
            mma<HEAD::type>(s[x], left[0], k.w);
            mma<HEAD::type>(s[x], left[1], k.w + 2);
        }
    }
}

/* Does a step of softmax in powers of 2: replaces scores by p, 0 for rows that are dropped. */
template <class HEAD>
static __device__ __forceinline__ void softmax_block(softmax_tile<HEAD> &w, const block_view &b,
                                                     float scale, float s[FV_KV_BLOCK / 8][4]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float top = w.m[h], sum = 0.0f;
#pragma unroll
        for (int x = 0; x < FV_KV_BLOCK / 8; x++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float *at = &s[x][2 * h + e];
                *at = b.sees(h, 8 * x + 2 * lane_place() + e) ? *at * scale : -INFINITY;
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
        for (int x = 0; x < HEAD::SPAN / 8; x++) {
            w.o[x][2 * h] *= c;
            w.o[x][2 * h + 1] *= c;
        }
    }
}

template <class HEAD>
static __device__ __forceinline__ void mix_block(softmax_tile<HEAD> &w, const kv_rows &kv,
                                                 const float p[FV_KV_BLOCK / 8][4]) {
#pragma unroll
    for (int x = 0; x < FV_KV_BLOCK / 8; x += 2) {
        uint32_t left[4] = {pack_two<HEAD::type>(p[x][0], p[x][1]),
                            pack_two<HEAD::type>(p[x][2], p[x][3]),
                            pack_two<HEAD::type>(p[x + 1][0], p[x + 1][1]),
                            pack_two<HEAD::type>(p[x + 1][2], p[x + 1][3])};
        int32_t j = 8 * x + 2 * lane_place();
#pragma unroll
        for (int c = 0; c < HEAD::SPAN / 64; c++) {
            int32_t d = 64 * c + 8 * lane_group();
            mma_eight<HEAD::type>(w.o + 8 * c, left,
                                  row_chunk<HEAD>(kv.v, j, kv.v_row, kv.n, d, kv.v_columns),
                                  row_chunk<HEAD>(kv.v, j + 1, kv.v_row, kv.n, d, kv.v_columns),
                                  row_chunk<HEAD>(kv.v, j + 8, kv.v_row, kv.n, d, kv.v_columns),
                                  row_chunk<HEAD>(kv.v, j + 9, kv.v_row, kv.n, d, kv.v_columns));
        }
    }
}

/* Whether a vector of the warp sees a row of the block. */
static __device__ __forceinline__ bool any_in_window(const block_view &b) {
    bool any = false;
    for (int32_t j = lane_place(); j < FV_KV_BLOCK; j += 4) any |= b.sees(0, j) || b.sees(1, j);
    return __any_sync(FV_ALL_LANES, any);
}

template <class HEAD>
static __device__ __forceinline__ void attend_block(softmax_tile<HEAD> &w, const char *q,
                                                    const kv_rows &kv, const block_view &b,
                                                    float scale) {
    float s[FV_KV_BLOCK / 8][4];
    if (b.position && !any_in_window(b)) return; /* it would change nothing */
    score_block<HEAD>(q, kv, s);
    softmax_block<HEAD>(w, b, scale, s);
    mix_block<HEAD>(w, kv, s);
}

#endif
