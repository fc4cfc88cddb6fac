#ifndef FOVEA_KERNELS_CUDA_ATTENTION_TILED_CUH
#define FOVEA_KERNELS_CUDA_ATTENTION_TILED_CUH

/* Attention on tensor cores: keys and values in bf16 or f16, heads of up to 256 columns (bf16: 512), a multiple of 8; queries and
 * probabilities are rounded to the type of keys and values, sums are f32. Rows outside of a sliding window are skipped by blocks.
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
#include "kernels/cuda/attention_tiles.cuh"

enum { MOST_COLUMNS = 512 };

/* ---- many rows ---------------------------------------------------------------------------- */

template <class HEAD> static size_t rows_scratch() {
    return (size_t)VECTORS * HEAD::K_ROW + (size_t)HEAD::STAGES * HEAD::STAGE;
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

/* The columns of values that a thread block computes. */
struct span {
    int32_t first, n;
};

template <class HEAD>
static __device__ __forceinline__ span span_of(const fv_cuda_attn &a, int32_t number) {
    span s = {number * HEAD::SPAN, HEAD::columns(a) - number * HEAD::SPAN};
    return s;
}

/* Loads `columns` columns of a block's keys, or of its values from `from` on, into rows of HELD columns at `to`; rows
 * from n on are zero. */
template <class HEAD, int HELD, int ROW>
static __device__ __forceinline__ void fetch_rows(const char *from, int32_t bytes_row, int32_t n,
                                                  int32_t columns, char *to) {
    for (int32_t i = (int32_t)threadIdx.x; i < FV_KV_BLOCK * HELD / 8; i += THREADS) {
        int32_t row = i / (HELD / 8), c = i % (HELD / 8) * 8, take = row < n ? 16 : 0;
        if (!HEAD::has(c, columns)) continue;
        fv_cp_async16(to + row * ROW + c * 2, from + (take ? (int64_t)row * bytes_row + c * 2 : 0),
                      take);
    }
}

/* Loads keys, and a span of values, of a block into a stage, n rows padded with zeros. */
template <class HEAD>
static __device__ __forceinline__ void fetch_block(const fv_kv_block &block, int32_t n,
                                                   int32_t columns, const span &values, char *to) {
    fetch_rows<HEAD, HEAD::K, HEAD::K_ROW>(static_cast<const char *>(block.k), 2 * columns, n,
                                           columns, to);
    fetch_rows<HEAD, HEAD::HELD, HEAD::V_ROW>(static_cast<const char *>(block.v) + 2 * values.first,
                                              2 * columns, n, values.n,
                                              to + FV_KV_BLOCK * HEAD::K_ROW);
}

/* Ends a part: adds it to those before. */
template <class HEAD>
static __device__ __forceinline__ void join_part(softmax_tile<HEAD> &all,
                                                 softmax_tile<HEAD> &part) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = group_sum(part.l[h]);
        if (part.m[h] == -INFINITY) continue;
        joined j = join(all.m[h], all.l[h], part.m[h], l);
        all.m[h] = j.m;
        all.l[h] = j.l;
#pragma unroll
        for (int x = 0; x < HEAD::SPAN / 8; x++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++)
                all.o[x][e] = fmaf(part.o[x][e], j.c_part, all.o[x][e] * j.c);
    }
    tile_clear(part);
}

/* The span's column that o[x][e] holds. */
static __device__ __forceinline__ int32_t column_of(int x, int e) {
    return x / 8 * 64 + 8 * (2 * lane_place() + e % 2) + x % 8;
}

/* Whether a query row sees any row of segment 0. */
static __device__ __forceinline__ bool sees_first(const attn_view &view, const fv_cuda_attn_seq &q,
                                                  int32_t g, int32_t row) {
    int32_t n = visible(view, q, g, 0, row);
    return n > 0 && n_in_window(view, q, g, 0, row, 0, n) > 0;
}

/* Applies changed shares to o after segment 0. */
template <class HEAD>
static __device__ void edit_tile(const attn_view &view, const fv_cuda_attn_seq &q, int32_t g,
                                 const lane_rows &r, const span &values, softmax_tile<HEAD> &all) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (has_values(r.share[h]) || !sees_first(view, q, g, r.row[h])) continue;
        const void *v = view.blocks[run_of(view, q, g, 0)->block].v;
        bool first = r.share[h] == FV_SHARE_ON_FIRST;
#pragma unroll
        for (int x = 0; x < HEAD::SPAN / 8; x++)
#pragma unroll
            for (int e = 2 * h; e < 2 * h + 2; e++)
                all.o[x][e] = first && HEAD::has(column_of(x, e), values.n)
                                  ? all.l[h] * widened(v, HEAD::type,
                                                       (size_t)(values.first + column_of(x, e)))
                                  : 0.0f;
    }
}

static __device__ __forceinline__ float lse_of_sum(float m, float l) {
    return l == 0.0f ? -INFINITY : fmaf(m, FV_LN2, log_f32(l));
}

template <class HEAD>
static __device__ void finish_tile(const fv_cuda_attn &a, const fv_cuda_attn_seq &q, int32_t head0,
                                   const lane_rows &r, const span &values,
                                   const softmax_tile<HEAD> &all) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (r.row[h] < 0) continue;
        int64_t row = q.row0 + r.row[h];
        float l = all.l[h],
              *o = a.o + row * a.ldo + (head0 + r.head[h]) * HEAD::columns(a) + values.first;
#pragma unroll
        for (int x = 0; x < HEAD::SPAN / 8; x++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (HEAD::has(column_of(x, e), values.n))
                    o[column_of(x, e)] = l == 0.0f ? 0.0f : all.o[x][2 * h + e] / l;
        if (a.lse && lane_place() == 0 && values.first == 0)
            a.lse[row * a.ldl + head0 + r.head[h]] = lse_of_sum(all.m[h], l);
    }
}

/* Grid: (items of rows, KV heads times thread blocks per item times spans). */
template <class HEAD>
static __global__ void __launch_bounds__(THREADS) attention_rows(fv_cuda_attn a, int32_t fills) {
    FV_SHARED(char, shared);
    __shared__ int32_t longest[FV_ATTN_MAX_SEG];
    attn_view view = attn_view_of(a.table);
    if ((int32_t)blockIdx.x >= view.table->n_rows) return;
    const fv_cuda_attn_rows item =
        reinterpret_cast<const fv_cuda_attn_rows *>(a.table + view.table->rows)[blockIdx.x];
    const fv_cuda_attn_seq &q = view.seqs[item.seq];
    const span values = span_of<HEAD>(a, (int32_t)blockIdx.y % HEAD::SPANS);
    int32_t group = a.n_head / a.n_kv, y = (int32_t)blockIdx.y / HEAD::SPANS, g = y / fills,
            n = item.n_row * group, D = HEAD::columns(a);
    int32_t warp = (int32_t)threadIdx.x / FV_WARP;
    int32_t v0 = y % fills * VECTORS + warp * TILE;
    if (v0 - warp * TILE >= n) return;
    if (threadIdx.x < (unsigned)q.n_seg) {
        int32_t most = 0;
        for (int32_t i = item.row0; i < item.row0 + item.n_row; i++)
            most = max(most, visible(view, q, g, (int32_t)threadIdx.x, i));
        longest[threadIdx.x] = most;
    }
    char *mine = shared + warp * TILE * HEAD::K_ROW, *stages = shared + VECTORS * HEAD::K_ROW;
    take_queries<HEAD>(a, q, item.row0, g * group, v0, n, mine);
    lane_rows r = lane_rows_of(view, q, item.row0, v0, n, group);
    softmax_tile<HEAD> all, part;
    tile_clear(all);
    tile_clear(part);
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (q.n > 0.0f) all.m[h] = log_f32(q.n) * FV_LOG2E, all.l[h] = 1.0f;
    __syncthreads();
    auto fetch = [&](const cursor &at, int stage) {
        if (at.s < q.n_seg)
            fetch_block<HEAD>(view.blocks[run_of(view, q, g, at.s)->block + at.j0 / FV_KV_BLOCK],
                              longest[at.s] - at.j0, D, values, stages + stage * HEAD::STAGE);
        fv_cp_commit();
    };
    cursor at = {0, 0};
    to_block(at, longest, q.n_seg);
    fetch(at, 0);
    for (int stage = 0; at.s < q.n_seg; stage = (stage + 1) % HEAD::STAGES) {
        cursor next = {at.s, at.j0 + FV_KV_BLOCK};
        to_block(next, longest, q.n_seg);
        if (HEAD::STAGES > 1) fetch(next, 1 - stage);
        fv_cp_wait<HEAD::STAGES - 1>();
        __syncthreads();
        const char *k = stages + stage * HEAD::STAGE;
        kv_rows kv = {
            k, k + FV_KV_BLOCK * HEAD::K_ROW, HEAD::K_ROW, HEAD::V_ROW, FV_KV_BLOCK, D, values.n};
        attend_block<HEAD>(part, mine, kv, block_view_of(view, q, g, at.s, at.j0, r),
                           a.scale * FV_LOG2E);
        if (next.s != at.s || next.j0 % FV_CUDA_SPLIT == 0) join_part(all, part);
        if (next.s != at.s && at.s == 0) edit_tile<HEAD>(view, q, g, r, values, all);
        __syncthreads(); /* the stage has been read */
        if (HEAD::STAGES == 1) fetch(next, 0);
        at = next;
    }
    fv_cp_wait<0>();
    finish_tile<HEAD>(a, q, g * group, r, values, all);
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

/* Grid: (splits by WARPS, KV heads times tiles of an item's vectors times spans). A warp per split, tile and span. */
template <class HEAD>
static __global__ void __launch_bounds__(THREADS)
    attention_parts(fv_cuda_attn a, parts_scratch scratch, int32_t tiles) {
    FV_SHARED(char, shared);
    attn_view view = attn_view_of(a.table);
    int32_t warp = (int32_t)threadIdx.x / FV_WARP, i = (int32_t)blockIdx.x * WARPS + warp;
    if (i >= view.table->n_split) return;
    const fv_cuda_attn_split item =
        reinterpret_cast<const fv_cuda_attn_split *>(a.table + view.table->split)[i];
    const fv_cuda_attn_seq &q = view.seqs[item.seq];
    const span values = span_of<HEAD>(a, (int32_t)blockIdx.y % HEAD::SPANS);
    int32_t group = a.n_head / a.n_kv, y = (int32_t)blockIdx.y / HEAD::SPANS, g = y / tiles,
            n = q.n_rows * group, D = HEAD::columns(a);
    int32_t v0 = y % tiles * TILE;
    if (v0 >= n) return;
    char *mine = shared + warp * TILE * HEAD::K_ROW;
    take_queries<HEAD>(a, q, 0, g * group, v0, n, mine);
    lane_rows r = lane_rows_of(view, q, 0, v0, n, group);
    __syncwarp();
    int32_t longest = 0;
    for (int32_t x = 0; x < q.n_rows; x++) longest = max(longest, visible(view, q, g, item.seg, x));
    const fv_kv_block *block = view.blocks + run_of(view, q, g, item.seg)->block;
    int32_t end = min(longest, item.j0 + FV_CUDA_SPLIT);
    softmax_tile<HEAD> part;
    tile_clear(part);
    for (int32_t j0 = item.j0; j0 < end; j0 += FV_KV_BLOCK) {
        const fv_kv_block at = block[j0 / FV_KV_BLOCK];
        kv_rows kv = {static_cast<const char *>(at.k),
                      static_cast<const char *>(at.v) + 2 * values.first,
                      2 * D,
                      2 * D,
                      end - j0,
                      D,
                      values.n};
        attend_block<HEAD>(part, mine, kv, block_view_of(view, q, g, item.seg, j0, r),
                           a.scale * FV_LOG2E);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float l = group_sum(part.l[h]);
        if (r.row[h] < 0) continue;
        int64_t to = part_of(a, q, item.split, r.row[h], g * group + r.head[h]);
        if (lane_place() == 0 && values.first == 0) scratch.state[to] = make_float2(part.m[h], l);
#pragma unroll
        for (int x = 0; x < HEAD::SPAN / 8; x++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                if (HEAD::has(column_of(x, e), values.n))
                    scratch.o[to * D + values.first + column_of(x, e)] = part.o[x][2 * h + e];
    }
}

/* Grid: (sequences with few rows, query heads). A thread per column of the head. */
static __global__ void __launch_bounds__(MOST_COLUMNS)
    attention_join(fv_cuda_attn a, parts_scratch scratch) {
    attn_view view = attn_view_of(a.table);
    if ((int32_t)blockIdx.x >= view.table->n_few) return;
    const int32_t *few = reinterpret_cast<const int32_t *>(a.table + view.table->few);
    const fv_cuda_attn_seq &q = view.seqs[few[blockIdx.x]];
    const fv_cuda_attn_split *splits =
        reinterpret_cast<const fv_cuda_attn_split *>(a.table + view.table->split) + q.split;
    int32_t h = (int32_t)blockIdx.y, g = h / (a.n_head / a.n_kv), d = (int32_t)threadIdx.x,
            D = a.d_head;
    for (int32_t row = 0; row < q.n_rows; row++) {
        uint8_t share = share_of(view, q, row);
        bool edits = !has_values(share) && sees_first(view, q, g, row);
        float m = q.n > 0.0f ? log_f32(q.n) * FV_LOG2E : -INFINITY, l = q.n > 0.0f, o = 0.0f;
        for (int32_t s = 0; s <= q.n_split; s++) {
            bool after = s == q.n_split || splits[s].seg > 0;
            if (edits && after && (s == 0 || splits[s - 1].seg == 0)) {
                const void *v = view.blocks[run_of(view, q, g, 0)->block].v;
                o = share == FV_SHARE_ON_FIRST ? l * widened(v, a.kv_dtype, (size_t)d) : 0.0f;
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

template <class HEAD>
static fv_status launch_few(fv_cuda *c, const fv_cuda_attn &call, const fv_cuda_attn_size &size) {
    int32_t tiles = fv_div_up(FEW_ROWS * (call.n_head / call.n_kv), TILE);
    size_t state = ((size_t)size.n_part * sizeof(float2) + 255) / 256 * 256,
           o = (size_t)size.n_part * (size_t)call.d_head * sizeof(float);
    void *p;
    FV_TRY(fv_cuda_scratch(c, state + o, &p));
    parts_scratch scratch;
    scratch.state = static_cast<float2 *>(p);
    scratch.o = reinterpret_cast<float *>(static_cast<char *>(p) + state);
    const size_t shared = (size_t)VECTORS * HEAD::K_ROW;
    FV_TRY(shared_memory(c, attention_parts<HEAD>, shared));
    if (size.n_split)
        FV_LAUNCH(
            attention_parts<HEAD>,
            dim3(fv_cuda_blocks(size.n_split, WARPS), (unsigned)(call.n_kv * tiles * HEAD::SPANS)),
            THREADS, shared, c->stream, call, scratch, tiles);
    FV_LAUNCH(attention_join, dim3((unsigned)size.n_few, (unsigned)call.n_head),
              (unsigned)call.d_head, 0, c->stream, call, scratch);
    return fv_cuda_launched("attention of few rows");
}

template <class HEAD> static fv_status launch(fv_cuda *c, const fv_attn_args *a) {
    int32_t group = a->n_head / a->n_kv;
    fv_cuda_attn_cut cut = {};
    cut.rows = group < VECTORS ? VECTORS / group : 1;
    cut.few = FEW_ROWS;
    fv_cuda_attn call;
    fv_cuda_attn_size size;
    FV_TRY(fv_cuda_attn_send(c, a, &cut, &call, &size));
    if (size.n_few) FV_TRY(launch_few<HEAD>(c, call, size));
    if (size.n_rows == 0) return FV_OK;
    int32_t fills = fv_div_up(cut.rows * group, VECTORS);
    FV_TRY(shared_memory(c, attention_rows<HEAD>, rows_scratch<HEAD>()));
    FV_LAUNCH(attention_rows<HEAD>,
              dim3((unsigned)size.n_rows, (unsigned)(a->n_kv * fills * HEAD::SPANS)), THREADS,
              rows_scratch<HEAD>(), c->stream, call, fills);
    return fv_cuda_launched("attention");
}

/* Takes a call to the form of its heads. Sources instantiate one type each, because a compiler needs minutes for all. */
template <fv_dtype TYPE> static fv_status launch_columns(fv_cuda *c, const fv_attn_args *a) {
    const int32_t D = a->d_head;
    if (D == 64) return launch<head_of<64, true, TYPE>>(c, a);
    if (D < 64) return launch<head_of<64, false, TYPE>>(c, a);
    if (D <= 96) return launch<head_of<96, false, TYPE>>(c, a);
    if (D == 128) return launch<head_of<128, true, TYPE>>(c, a);
    return launch<head_of<256, false, TYPE>>(c, a);
}

#endif
