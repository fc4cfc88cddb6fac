/* Attention in rank space on tensor cores: factors in bf16 or as codes, sums in f32. A packed layer
 * has one latent head, which all query heads read: they are the 16 rows of the tiles' left side.
 *
 *     latent   t = q_a B_k^T: a block of threads per KV head and FV_CUDA_LATENTS queries (anchor
 *              blocks times rows times heads), rounded to bf16 and stored as operands
 *     attend   per FV_CUDA_PACKED_SPLIT rows of the block: each warp copies GRANULE rows of both
 *              factors asynchronously (cp.async, STAGES of them), scores them, and adds them to its
 *              own z; the warps' (m, l, z) are merged in order
 *     output   per query row and head: merges the splits in order, then o = z B_v / l
 *
 * Splits are counted from the block's first row and all sums have one order, so a row's bits do not
 * depend on what else is in the call. Each factor is read once per 32 query vectors; each basis
 * once per KV head, and B_v once per query head.
 *
 * CODES. A code c is never decoded. With c' = c - middle, lo' = lo + middle step:
 *     keys     s_j = sum_r (t_r step_r) c'_jr + sum_r t_r lo'_r           one constant per tier
 *     values   z_r = column_r (sum_j (p_j step_j) c'_jr + sum_j p_j lo'_j)
 *     bases    alike, with the pair of row r of the KV head
 * c' is exact in bf16; the factors in front of it are rounded as p and t are.
 *
 * ODD. Lanes load 8 neighbouring columns at once if ranks are multiples of 8. A rank chosen by a share of
 * energy may be any; then columns are gathered one by one, with zeros past the line's end. */
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/tiles.cuh"

enum {
    WARPS = 4,
    THREADS = WARPS * FV_WARP,
    GRANULE = FV_CUDA_GRANULE,
    STAGES = 2,
    TILE = 16,
    M_TILES = 2
};

/* Scratch of a call. */
struct tiled_scratch {
    uint16_t *t;      /* latent queries as operands: per 16 vectors [ldk / 16][32 lanes][8] */
    float *constant;  /* [vectors][2] sum_r t_r lo'_r, per tier */
    float *z;         /* [parts][ldz] */
    float4 *state;    /* [parts] m (in log2), l, sum_j p_j lo'_j of both tiers */
    int32_t ldk, ldz; /* ranks, up to whole tiles */
};

/* Index of an operand (vector v of a tile, column r) among the tile's numbers. */
static __device__ __forceinline__ int32_t operand_at(int32_t v, int32_t r) {
    int32_t lane = v % 8 * 4 + r % 4, x = r % 16 / 4;
    return r / 16 * (FV_WARP * 8) + lane * 8 + (x < 2 ? 0 : 4) + (v < 8 ? 0 : 2) + x % 2;
}

/* ---- latent queries -------------------------------------------------------------------- */

/* Query number m of KV head g: anchor block, row of the sequence, head. */
struct latent_query {
    int32_t anchor, row, h;
};

static __device__ __forceinline__ latent_query latent_of(const fv_cuda_packed &a,
                                                         const fv_cuda_packed_seq &s, int32_t g,
                                                         int32_t m) {
    int32_t group = a.n_head / a.n_kv, per_anchor = s.n_rows * group, i = m % per_anchor;
    latent_query q;
    q.anchor = m / per_anchor;
    q.row = i / group;
    q.h = g * group + i % group;
    return q;
}

static size_t latent_room(int32_t D, int32_t ldk, int bits) {
    return (size_t)FV_CUDA_LATENTS * (size_t)(D + 8) * 2 +
           (size_t)D * (size_t)ldk * (size_t)bits / 8 +
           (size_t)FV_CUDA_LATENTS * (size_t)(ldk + 1) * sizeof(float);
}

/* Loads rotated queries as bf16, padded with zeros, to x [FV_CUDA_LATENTS, D + 8]. */
static __device__ void latent_queries(const fv_cuda_packed &a, const fv_cuda_packed_seq &s,
                                      int32_t g, int32_t m0, int32_t n, uint16_t *x) {
    int32_t D = a.d_head;
    for (int32_t i = (int32_t)threadIdx.x; i < FV_CUDA_LATENTS * D; i += THREADS) {
        int32_t m = i / D, d = i % D;
        float f = 0.0f;
        if (m < n) {
            latent_query q = latent_of(a, s, g, m0 + m);
            f = packed_rotated(s, a.q + (int64_t)(s.row0 + q.row) * a.ldq + q.h * D, D, q.anchor,
                               d);
        }
        x[m * (D + 8) + d] = bf16_of_f32(f);
    }
}

/* Decodes the warp's 16 products with column r, and writes them to scratch. */
template <int BITS>
static __device__ void latent_write(const fv_cuda_packed &a, const fv_cuda_packed_seq &s, int32_t g,
                                    int32_t m0, int32_t n, const uint16_t *x, float *t,
                                    const tiled_scratch &scratch) {
    int32_t lane = (int32_t)threadIdx.x % FV_WARP, R = s.k.s.lowrank.rank, ld = scratch.ldk + 1;
    const char *basis_pair = s.k.data + s.k.l.basis_pair + (size_t)g * (size_t)R * 4;
    const float *pair = reinterpret_cast<const float *>(s.k.data + s.k.l.pair);
    if (BITS != 16 && lane < TILE) {
        float sum = 0.0f, constant[2] = {0.0f, 0.0f};
        for (int32_t d = 0; d < a.d_head; d++) sum += f32_of_bf16(x[lane * (a.d_head + 8) + d]);
        for (int32_t r = 0; r < R; r++) {
            float lo, step, *to = &t[lane * ld + r];
            packed_pair(basis_pair + (size_t)r * 4, &lo, &step);
            *to = fmaf(step, *to, fmaf((float)codes_of<BITS>::MIDDLE, step, lo) * sum);
            float middle = fmaf((float)codes_of<BITS>::MIDDLE, pair[2 * r + 1], pair[2 * r]);
            constant[r >= s.k.s.lowrank.rank2] += *to * middle;
            *to *= pair[2 * r + 1];
        }
        if (lane < n) {
            latent_query q = latent_of(a, s, g, m0 + lane);
            int64_t v = s.latent + (int64_t)q.anchor * s.vectors + q.row * a.n_head + q.h;
            scratch.constant[2 * v] = constant[0];
            scratch.constant[2 * v + 1] = constant[1];
        }
    }
    __syncwarp();
    for (int32_t i = lane; i < n * scratch.ldk; i += FV_WARP) {
        int32_t m = i / scratch.ldk, r = i % scratch.ldk;
        latent_query q = latent_of(a, s, g, m0 + m);
        int32_t v = q.row * a.n_head + q.h;
        int64_t tile = s.latent + (int64_t)q.anchor * s.vectors + v / TILE * TILE;
        scratch.t[tile * scratch.ldk + operand_at(v % TILE, r)] =
            r < R ? bf16_of_f32(t[m * ld + r]) : (uint16_t)0;
    }
}

/* Loads numbers r to r + 7 of a line of the keys' basis, which has R; padded with zeros. */
template <int BITS, bool ODD>
static __device__ __forceinline__ eight basis_line(const char *line, int32_t r, int32_t R) {
    if (ODD) return gather_eight<BITS>(line, r, R);
    return r < R ? load_eight<BITS>(line + r * BITS / 8) : eight_zeros();
}

/* Grid: (items of latent queries, KV heads). GROUPS times 64 columns of the factor. */
template <int BITS, int GROUPS, bool ODD>
static __global__ void __launch_bounds__(THREADS)
    packed_latent(fv_cuda_packed a, tiled_scratch scratch) {
    FV_SHARED(char, shared);
    const fv_cuda_packed_seq *seq;
    int32_t item, g = (int32_t)blockIdx.y, D = a.d_head;
    if (!packed_item(a, FV_WORK_LATENT, blockIdx.x, &seq, &item)) return;
    const fv_cuda_packed_seq &s = *seq;
    int32_t m0 = item * FV_CUDA_LATENTS, n = s.n_latent * s.n_rows * (a.n_head / a.n_kv) - m0;
    if (n > FV_CUDA_LATENTS) n = FV_CUDA_LATENTS;
    uint16_t *x = reinterpret_cast<uint16_t *>(shared);
    char *basis = shared + FV_CUDA_LATENTS * (D + 8) * 2;
    int32_t stride = (int32_t)s.k.l.basis_stride;
    float *t = reinterpret_cast<float *>(basis + (int64_t)D * scratch.ldk * BITS / 8);
    for (int32_t i = (int32_t)threadIdx.x * 16; i < D * stride; i += THREADS * 16)
        fv_cp_async16(basis + i, packed_basis(s.k, g, 0) + i, 16);
    fv_cp_commit();
    latent_queries(a, s, g, m0, n, x);
    fv_cp_wait<0>();
    __syncthreads();
    int32_t warp = (int32_t)threadIdx.x / FV_WARP, i = lane_group(), p = lane_place();
    float acc[GROUPS * 8][4] = {};
    for (int32_t d = 0; d < D; d += TILE) {
        const uint16_t *row = x + (warp * TILE + i) * (D + 8) + d + 2 * p;
        const uint32_t *lo = reinterpret_cast<const uint32_t *>(row);
        const uint32_t *hi = reinterpret_cast<const uint32_t *>(row + 8 * (D + 8));
        uint32_t left[4] = {lo[0], hi[0], lo[4], hi[4]};
#pragma unroll
        for (int c = 0; c < GROUPS; c++) {
            int32_t r = c * 64 + 8 * i, R = s.k.s.lowrank.rank;
            const char *at = basis + (int64_t)(d + 2 * p) * stride;
            mma_eight(acc + c * 8, left, basis_line<BITS, ODD>(at, r, R),
                      basis_line<BITS, ODD>(at + stride, r, R),
                      basis_line<BITS, ODD>(at + 8 * stride, r, R),
                      basis_line<BITS, ODD>(at + 9 * stride, r, R));
        }
    }
    t += warp * TILE * (scratch.ldk + 1);
#pragma unroll
    for (int c = 0; c < GROUPS * 8; c++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int32_t r = c / 8 * 64 + 8 * (2 * p + e % 2) + c % 8;
            if (r < scratch.ldk) t[(i + e / 2 * 8) * (scratch.ldk + 1) + r] = acc[c][e];
        }
    __syncwarp();
    n -= warp * TILE;
    if (n > TILE) n = TILE;
    latent_write<BITS>(a, s, g, m0 + warp * TILE, n < 0 ? 0 : n, x + warp * TILE * (D + 8), t,
                       scratch);
}

/* ---- scores and values ------------------------------------------------------------------ */

/* A warp's softmax state and sums. */
template <int GROUPS> struct tiled_warp {
    int32_t v0, tiles;                  /* first vector, number of tiles of vectors */
    float m[M_TILES][2], l[M_TILES][2]; /* of rows i and i + 8; l of this lane's columns */
    float low[M_TILES][2][2];           /* sum_j p_j lo'_j of this lane's columns, per tier */
    float z[M_TILES][GROUPS * 8][4];
};

/* A granule's rows. */
struct granule {
    int32_t j0;
    int32_t anchor;       /* of the row with the lane's index */
    uint32_t valid, half; /* masks of valid rows, and of rows read at the lower rank */
    const char *shared;   /* K tier 0, K tier 1, V tier 0, V tier 1 */
};

/* Bytes of GRANULE rows of a tier. */
static __host__ __device__ __forceinline__ int32_t granule_bytes(const fv_cuda_packed_part &p,
                                                                 int tier) {
    return (int32_t)p.l.stride[tier] *
           (p.s.kind == FV_PACKED_K ? GRANULE / FV_PACKED_TILE : GRANULE);
}

static __host__ __device__ __forceinline__ int32_t stage_bytes(const fv_cuda_packed_seq &s) {
    return granule_bytes(s.k, 0) + granule_bytes(s.k, 1) + granule_bytes(s.v, 0) +
           granule_bytes(s.v, 1);
}

/* Copies one tier of the rows from j0 on to shared memory, padded with zeros past the block's last row.
 * Returns the end of the copy. */
static __device__ char *fetch_plane(const fv_cuda_packed_part &p, int tier, int32_t j0, char *to) {
    int32_t n = p.s.n - j0, bytes = granule_bytes(p, tier), lane = (int32_t)threadIdx.x % FV_WARP;
    bool key = p.s.kind == FV_PACKED_K;
    int32_t units = key ? (n + FV_PACKED_TILE - 1) / FV_PACKED_TILE : n;
    int64_t left = (int64_t)units * (int64_t)p.l.stride[tier];
    const char *from =
        p.data + p.l.tier[tier] + (size_t)(key ? j0 / FV_PACKED_TILE : j0) * p.l.stride[tier];
    for (int32_t i = lane * 16; i < bytes; i += FV_WARP * 16) {
        int64_t more = left - i;
        int32_t take = more < 0 ? 0 : more < 16 ? (int32_t)more : 16;
        fv_cp_async16(to + i, take ? from + i : from, take);
    }
    return to + bytes;
}

static __device__ void fetch_granule(const fv_cuda_packed_seq &s, int32_t j0, char *to) {
    to = fetch_plane(s.k, 0, j0, to);
    to = fetch_plane(s.k, 1, j0, to);
    to = fetch_plane(s.v, 0, j0, to);
    fetch_plane(s.v, 1, j0, to);
}

static __device__ granule granule_of(const fv_cuda_packed_seq &s, int32_t j0, const char *shared) {
    granule g;
    int32_t j = j0 + (int32_t)threadIdx.x % FV_WARP;
    bool in = j < s.n;
    g.j0 = j0;
    g.shared = shared;
    g.anchor = in && (s.cos || s.valid) ? packed_anchor(s.first, s.n_anchor, j) : 0;
    g.valid = __ballot_sync(FV_ALL_LANES, in && (!s.valid || j < packed_alive_end(s, g.anchor)));
    g.half = __ballot_sync(FV_ALL_LANES, in && packed_is_low(s, j));
    if (!s.cos) g.anchor = 0;
    return g;
}

/* Loads rows 4 i to 4 i + 3 of line r of the keys; 0 beyond the lower rank of rows read at it. */
template <int BITS>
static __device__ __forceinline__ four key_line(const fv_cuda_packed_seq &s, const granule &g,
                                                int32_t r) {
    four x = {{0, 0}};
    if (r >= s.k.s.lowrank.rank) return x;
    int32_t i = lane_group(), second = r >= s.k.s.lowrank.rank2;
    const char *p = g.shared + (second ? granule_bytes(s.k, 0) : 0) +
                    (int64_t)(i / 4) * (int64_t)s.k.l.stride[second] +
                    (r - (second ? s.k.s.lowrank.rank2 : 0)) * (TILE * BITS / 8) +
                    i % 4 * (4 * BITS / 8);
    x = load_four<BITS>(p);
    uint32_t half = second ? g.half >> 4 * i : 0;
#pragma unroll
    for (int w = 0; w < 2; w++) {
        if (half >> 2 * w & 1) x.w[w] &= 0xffff0000u;
        if (half >> (2 * w + 1) & 1) x.w[w] &= 0x0000ffffu;
    }
    return x;
}

/* s[tile of vectors][x][..]: scores of rows 4 n + x against the latent queries of one anchor. */
template <int BITS, int GROUPS>
static __device__ void score_anchor(const fv_cuda_packed_seq &s, const granule &g,
                                    const tiled_scratch &scratch, const tiled_warp<GROUPS> &w,
                                    int32_t anchor, float out[M_TILES][4][4]) {
    int32_t lane = (int32_t)threadIdx.x % FV_WARP, p = lane_place();
    int64_t v = s.latent + (int64_t)anchor * s.vectors + w.v0;
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int x = 0; x < 4; x++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int64_t at = v + m * TILE + lane_group() + e / 2 * 8;
                int32_t j = 4 * (2 * p + e % 2) + x;
                out[m][x][e] = 0.0f;
                if (BITS != 16 && m < w.tiles)
                    out[m][x][e] = scratch.constant[2 * at] +
                                   (g.half >> j & 1 ? 0.0f : scratch.constant[2 * at + 1]);
            }
    for (int32_t r = 0; r < s.k.s.lowrank.rank; r += TILE) {
        four line[4];
#pragma unroll
        for (int x = 0; x < 4; x++) line[x] = key_line<BITS>(s, g, r + 4 * x + p);
#pragma unroll
        for (int m = 0; m < M_TILES; m++) {
            if (m >= w.tiles) continue;
            const uint4 t =
                *reinterpret_cast<const uint4 *>(scratch.t + (v + m * TILE) * scratch.ldk +
                                                 (int64_t)(r / TILE * FV_WARP + lane) * 8);
            uint32_t left[4] = {t.x, t.y, t.z, t.w};
#pragma unroll
            for (int x = 0; x < 2; x++) {
                uint32_t lo[2] = {low_halves(line[0].w[x], line[1].w[x]),
                                  low_halves(line[2].w[x], line[3].w[x])};
                uint32_t hi[2] = {high_halves(line[0].w[x], line[1].w[x]),
                                  high_halves(line[2].w[x], line[3].w[x])};
                fv_mma_bf16(out[m][2 * x], left, lo);
                fv_mma_bf16(out[m][2 * x + 1], left, hi);
            }
        }
    }
}

/* Scores each row against its own anchor's latent queries. */
template <int BITS, int GROUPS>
static __device__ void score_granule(const fv_cuda_packed_seq &s, const granule &g,
                                     const tiled_scratch &scratch, const tiled_warp<GROUPS> &w,
                                     float out[M_TILES][4][4]) {
    uint32_t left = g.valid;
    while (left) {
        int32_t anchor = __shfl_sync(FV_ALL_LANES, g.anchor, __ffs((int)left) - 1);
        uint32_t mine = __ballot_sync(FV_ALL_LANES, g.anchor == anchor);
        if ((left & ~mine) == 0 && left == g.valid) { /* all rows have the same anchor */
            score_anchor<BITS>(s, g, scratch, w, anchor, out);
            return;
        }
        float some[M_TILES][4][4];
        score_anchor<BITS>(s, g, scratch, w, anchor, some);
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
            for (int x = 0; x < 4; x++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int32_t j = 4 * (2 * lane_place() + e % 2) + x;
                    if (mine >> j & 1) out[m][x][e] = some[m][x][e];
                }
        left &= ~mine;
    }
}

/* Writes the scores that the caller wants; then multiplies all by log2 e, and sets those of rows that are
 * not valid to -inf. */
template <int GROUPS>
static __device__ void scale_granule(const fv_cuda_packed &a, const fv_cuda_packed_seq &s,
                                     const granule &g, const tiled_warp<GROUPS> &w,
                                     float out[M_TILES][4][4]) {
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int32_t v = w.v0 + m * TILE + lane_group() + e / 2 * 8;
            float *line = nullptr;
            if (s.score && v < s.n_rows * a.n_head)
                line = packed_score_line(s, v / a.n_head, v % a.n_head);
#pragma unroll
            for (int x = 0; x < 4; x++) {
                int32_t j = 4 * (2 * lane_place() + e % 2) + x;
                float score = g.valid >> j & 1 ? out[m][x][e] * a.scale : -INFINITY;
                if (line && g.j0 + j < s.n) line[g.j0 + j] = score;
                out[m][x][e] = score * FV_LOG2E;
            }
        }
}

/* Does a step of softmax: replaces scores by p, and scales z, l and low. */
template <int GROUPS>
static __device__ void softmax_granule(tiled_warp<GROUPS> &w, float p[M_TILES][4][4]) {
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = w.m[m][half], sum = 0.0f;
#pragma unroll
            for (int x = 0; x < 4; x++)
                top = fmaxf(top, fmaxf(p[m][x][2 * half], p[m][x][2 * half + 1]));
            top = group_max(top);
            float base = top == -INFINITY ? 0.0f : top, c = exp2f(w.m[m][half] - base);
#pragma unroll
            for (int x = 0; x < 4; x++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    p[m][x][e] = exp2f(p[m][x][e] - base);
                    sum += p[m][x][e];
                }
            w.m[m][half] = top;
            w.l[m][half] = fmaf(w.l[m][half], c, sum);
            w.low[m][half][0] *= c;
            w.low[m][half][1] *= c;
#pragma unroll
            for (int t = 0; t < GROUPS * 8; t++) {
                w.z[m][t][2 * half] *= c;
                w.z[m][t][2 * half + 1] *= c;
            }
        }
}

/* Codes of values have a pair per row: turns p into p step, and sums p lo'. */
template <int BITS, int GROUPS>
static __device__ void scale_values(const fv_cuda_packed_seq &s, const granule &g,
                                    tiled_warp<GROUPS> &w, float p[M_TILES][4][4]) {
#pragma unroll
    for (int x = 0; x < 4; x++)
#pragma unroll
        for (int e = 0; e < 2; e++) {
            int32_t j = 4 * (2 * lane_place() + e) + x;
            float lo = 0.0f, step = 0.0f;
            if (g.valid >> j & 1)
                packed_pair(s.v.data + s.v.l.pair + (size_t)(g.j0 + j) * 4, &lo, &step);
            lo = fmaf((float)codes_of<BITS>::MIDDLE, step, lo);
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float *to = &p[m][x][2 * half + e], add = *to * lo;
                    w.low[m][half][0] += add;
                    if (!(g.half >> j & 1)) w.low[m][half][1] += add;
                    *to *= step;
                }
        }
}

/* Row j of a tier of the values. */
static __device__ __forceinline__ const char *value_line(const fv_cuda_packed_seq &s,
                                                         const granule &g, int tier, int32_t j) {
    return g.shared + granule_bytes(s.k, 0) + granule_bytes(s.k, 1) +
           (tier ? granule_bytes(s.v, 0) : 0) + (int64_t)j * (int64_t)s.v.l.stride[tier];
}

/* Loads columns [r, r + 8) of row j of the values, 0 where they do not count. ODD: they may be in two
 * tiers. */
template <int BITS, bool ODD>
static __device__ __forceinline__ eight value_row(const fv_cuda_packed_seq &s, const granule &g,
                                                  int32_t j, int32_t r) {
    int32_t R = s.v.s.lowrank.rank, R2 = s.v.s.lowrank.rank2;
    if (r >= R || !(g.valid >> j & 1)) return eight_zeros();
    if (ODD) {
        eight x = gather_eight<BITS>(value_line(s, g, 0, j), r, R2);
        if (r + 8 <= R2 || (g.half >> j & 1)) return x;
        eight y = gather_eight<BITS>(value_line(s, g, 1, j), r - R2, R - R2);
#pragma unroll
        for (int i = 0; i < 4; i++) x.w[i] |= y.w[i];
        return x;
    }
    int second = r >= R2;
    if (second && (g.half >> j & 1)) return eight_zeros();
    return load_eight<BITS>(value_line(s, g, second, j) + (r - (second ? R2 : 0)) * BITS / 8);
}

/* z += P W: the columns of P of tile x are rows 4 n + x, and multiply these. */
template <int BITS, bool ODD, int GROUPS>
static __device__ void mix_granule(const fv_cuda_packed_seq &s, const granule &g,
                                   tiled_warp<GROUPS> &w, const float p[M_TILES][4][4]) {
#pragma unroll
    for (int x = 0; x < 4; x += 2) {
        uint32_t left[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                left[m][half] = fv_pack_bf16(p[m][x][2 * half], p[m][x][2 * half + 1]);
                left[m][half + 2] = fv_pack_bf16(p[m][x + 1][2 * half], p[m][x + 1][2 * half + 1]);
            }
        int32_t j = 8 * lane_place() + x;
#pragma unroll
        for (int c = 0; c < GROUPS; c++) {
            int32_t r = c * 64 + 8 * lane_group();
            eight x0 = value_row<BITS, ODD>(s, g, j, r), x1 = value_row<BITS, ODD>(s, g, j + 4, r);
            eight x2 = value_row<BITS, ODD>(s, g, j + 1, r);
            eight x3 = value_row<BITS, ODD>(s, g, j + 5, r);
#pragma unroll
            for (int m = 0; m < M_TILES; m++)
                if (m < w.tiles) mma_eight(w.z[m] + c * 8, left[m], x0, x1, x2, x3);
        }
    }
}

/* ---- a split's result -------------------------------------------------------------------- */

enum { VECTORS = M_TILES * TILE };

/* Shared memory to merge warps: m, l, low[2] and z [ldz] per warp and vector. */
static size_t merge_room(int32_t ldz) {
    return (size_t)WARPS * VECTORS * (sizeof(float4) + (size_t)ldz * sizeof(float));
}

template <int GROUPS>
static __device__ void leave_warp(tiled_warp<GROUPS> &w, int32_t ldz, float4 *state, float *z) {
    int32_t warp = (int32_t)threadIdx.x / FV_WARP, p = lane_place();
#pragma unroll
    for (int m = 0; m < M_TILES; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int32_t v = warp * VECTORS + m * TILE + lane_group() + half * 8;
            float l = group_sum(w.l[m][half]);
            float low0 = group_sum(w.low[m][half][0]), low1 = group_sum(w.low[m][half][1]);
            if (p == 0) state[v] = make_float4(w.m[m][half], l, low0, low1);
#pragma unroll
            for (int t = 0; t < GROUPS * 8; t++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    int32_t r = t / 8 * 64 + 8 * (2 * p + e) + t % 8;
                    if (r < ldz) z[(int64_t)v * ldz + r] = w.z[m][t][2 * half + e];
                }
        }
}

/* Merges n states of one softmax, `step` apart, in order: the factor of each is 2^(m - the largest m). */
static __device__ __forceinline__ float4 merge_states(const float4 *state, int32_t n,
                                                      int64_t step) {
    float4 all = make_float4(-INFINITY, 0.0f, 0.0f, 0.0f);
    for (int32_t i = 0; i < n; i++) all.x = fmaxf(all.x, state[i * step].x);
    for (int32_t i = 0; i < n; i++) {
        const float4 one = state[i * step];
        if (one.x == -INFINITY) continue;
        float c = exp2f(one.x - all.x);
        all.y = fmaf(c, one.y, all.y);
        all.z = fmaf(c, one.z, all.z);
        all.w = fmaf(c, one.w, all.w);
    }
    return all;
}

static __device__ __forceinline__ float merge_column(const float4 *state, const float *z, float m,
                                                     int32_t n, int64_t step, int32_t ldz) {
    float sum = 0.0f;
    for (int32_t i = 0; i < n; i++)
        if (state[i * step].x != -INFINITY)
            sum = fmaf(exp2f(state[i * step].x - m), z[i * step * ldz], sum);
    return sum;
}

/* Merges the warps, in order, and stores the result as split `split` of the sequence. */
static __device__ void leave_split(const fv_cuda_packed_seq &s, const tiled_scratch &scratch,
                                   int32_t v0, int32_t split, const float4 *state, const float *z) {
    int64_t part = s.part + (int64_t)split * s.vectors + v0;
    for (int32_t i = (int32_t)threadIdx.x; i < VECTORS * scratch.ldz; i += THREADS) {
        int32_t v = i / scratch.ldz, r = i % scratch.ldz;
        if (v0 + v >= s.vectors) break;
        float4 all = merge_states(state + v, WARPS, VECTORS);
        scratch.z[(part + v) * scratch.ldz + r] = merge_column(
            state + v, z + (int64_t)v * scratch.ldz + r, all.x, WARPS, VECTORS, scratch.ldz);
        if (r == 0) scratch.state[part + v] = all;
    }
}

/* Grid: (splits of all sequences, query vectors by 32). */
template <int BITS, int GROUPS, bool ODD>
static __global__ void __launch_bounds__(THREADS)
    packed_attend(fv_cuda_packed a, tiled_scratch scratch) {
    FV_SHARED(char, shared);
    const fv_cuda_packed_seq *seq;
    int32_t split, warp = (int32_t)threadIdx.x / FV_WARP;
    if (!packed_item(a, FV_WORK_SPLIT, blockIdx.x, &seq, &split)) return;
    const fv_cuda_packed_seq &s = *seq;
    tiled_warp<GROUPS> w = {};
    w.v0 = (int32_t)blockIdx.y * VECTORS;
    if (w.v0 >= s.vectors) return;
    w.tiles = s.vectors - w.v0 > TILE ? M_TILES : 1;
#pragma unroll
    for (int m = 0; m < M_TILES; m++) w.m[m][0] = w.m[m][1] = -INFINITY;
    int32_t begin = split * FV_CUDA_PACKED_SPLIT, end = begin + FV_CUDA_PACKED_SPLIT;
    if (end > s.n) end = s.n;
    int32_t bytes = stage_bytes(s), stage = 0;
    char *mine = shared + (int64_t)warp * STAGES * bytes;
    int32_t j0 = begin + warp * GRANULE;
    if (j0 < end) fetch_granule(s, j0, mine);
    fv_cp_commit();
    for (; j0 < end; j0 += WARPS * GRANULE, stage = 1 - stage) {
        int32_t next = j0 + WARPS * GRANULE;
        if (next < end) fetch_granule(s, next, mine + (1 - stage) * bytes);
        fv_cp_commit();
        fv_cp_wait<1>();
        __syncwarp();
        granule g = granule_of(s, j0, mine + stage * bytes);
        float p[M_TILES][4][4] = {};
        score_granule<BITS>(s, g, scratch, w, p);
        scale_granule(a, s, g, w, p);
        if (g.valid) {
            softmax_granule(w, p);
            if (BITS != 16) scale_values<BITS>(s, g, w, p);
            mix_granule<BITS, ODD>(s, g, w, p);
        }
        __syncwarp(); /* the stage has been read */
    }
    fv_cp_wait<0>();
    __syncthreads(); /* all stages have been read: their memory is reused */
    float4 *state = reinterpret_cast<float4 *>(shared);
    float *z = reinterpret_cast<float *>(state + WARPS * VECTORS);
    leave_warp(w, scratch.ldz, state, z);
    __syncthreads();
    leave_split(s, scratch, w.v0, split, state, z);
}

/* ---- output ------------------------------------------------------------------------------ */

static size_t output_room(int32_t ldz) {
    return ((size_t)ldz + (size_t)THREADS * 8) * sizeof(float);
}

/* Merges the splits into z [R], in units of the values' U. Returns m and l. */
template <int BITS>
static __device__ float4 output_merge(const fv_cuda_packed_seq &s, const tiled_scratch &scratch,
                                      int32_t v, float *z) {
    const float4 *state = scratch.state + s.part + v;
    const float *part = scratch.z + (int64_t)(s.part + v) * scratch.ldz;
    float4 all = merge_states(state, s.n_split, s.vectors);
    const float *column = reinterpret_cast<const float *>(s.v.data + s.v.l.column);
    for (int32_t r = (int32_t)threadIdx.x; r < s.v.s.lowrank.rank; r += THREADS) {
        z[r] = merge_column(state, part + r, all.x, s.n_split, s.vectors, scratch.ldz);
        if (BITS != 16) z[r] = column[r] * (z[r] + (r >= s.v.s.lowrank.rank2 ? all.w : all.z));
    }
    return all;
}

/* Grid: (query rows of all sequences, query heads). A thread has 8 columns of the head and every
 * `parts`-th row of the basis. */
template <int BITS>
static __global__ void __launch_bounds__(THREADS)
    packed_output(fv_cuda_packed a, tiled_scratch scratch) {
    FV_SHARED(float, z);
    const fv_cuda_packed_seq *seq;
    int32_t row, h = (int32_t)blockIdx.y, g = h / (a.n_head / a.n_kv), D = a.d_head;
    if (!packed_item(a, FV_WORK_ROW, blockIdx.x, &seq, &row)) return;
    const fv_cuda_packed_seq &s = *seq;
    float *capture = packed_score_line(s, row, h);
    for (int32_t j = s.n + (int32_t)threadIdx.x; capture && j < s.score_ld; j += THREADS)
        capture[j] = -INFINITY;
    float4 all = output_merge<BITS>(s, scratch, row * a.n_head + h, z);
    float *sum = z + scratch.ldz;
    __syncthreads();
    int32_t chunks = D / 8, parts = THREADS / chunks, part = (int32_t)threadIdx.x / chunks;
    int32_t d = (int32_t)threadIdx.x % chunks * 8;
    float acc[8] = {};
    for (int32_t r = part; part < parts && r < s.v.s.lowrank.rank; r += parts) {
        eight b = load_eight<BITS>(packed_basis(s.v, g, r) + d * BITS / 8);
        float lo = 0.0f, step = 1.0f;
        if (BITS != 16) {
            packed_pair(s.v.data + s.v.l.basis_pair +
                            ((size_t)g * (size_t)s.v.s.lowrank.rank + (size_t)r) * 4,
                        &lo, &step);
            lo = fmaf((float)codes_of<BITS>::MIDDLE, step, lo);
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float c = f32_of_bits(i % 2 ? b.w[i / 2] & 0xffff0000u : b.w[i / 2] << 16);
            acc[i] = fmaf(z[r], BITS == 16 ? c : fmaf(step, c, lo), acc[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        if (part < parts) sum[part * D + d + i] = acc[i];
    __syncthreads();
    float *o = a.o + (int64_t)(s.row0 + row) * a.ldo + h * D;
    for (int32_t i = (int32_t)threadIdx.x; i < D; i += THREADS) {
        float x = 0.0f;
        for (int32_t k = 0; k < parts; k++) x += sum[k * D + i];
        o[i] = all.y == 0.0f ? 0.0f : x / all.y;
    }
    if (a.lse && threadIdx.x == 0)
        a.lse[(int64_t)(s.row0 + row) * a.ldl + h] =
            all.y == 0.0f ? -INFINITY : fmaf(all.x, FV_LN2, log_f32(all.y));
}

/* ---- launches ---------------------------------------------------------------------------- */

static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

static fv_status take_room(fv_cuda *c, const fv_cuda_packed_size *size, tiled_scratch *scratch) {
    scratch->ldk = (size->rank_k + TILE - 1) / TILE * TILE;
    scratch->ldz = size->rank_v;
    size_t latents = (size_t)size->n_latent, parts = (size_t)size->n_part;
    size_t t = aligned(latents * (size_t)scratch->ldk * 2), constant = aligned(latents * 8);
    size_t z = aligned(parts * (size_t)scratch->ldz * 4), state = aligned(parts * sizeof(float4));
    void *p;
    FV_TRY(fv_cuda_scratch(c, t + constant + z + state, &p));
    char *at = static_cast<char *>(p);
    scratch->t = reinterpret_cast<uint16_t *>(at);
    scratch->constant = reinterpret_cast<float *>(at += t);
    scratch->z = reinterpret_cast<float *>(at += constant);
    scratch->state = reinterpret_cast<float4 *>(at + z);
    return FV_OK;
}

template <int BITS, int GROUPS, bool ODD>
static fv_status launch(fv_cuda *c, const fv_cuda_packed *call, const fv_cuda_packed_size *size) {
    tiled_scratch scratch;
    FV_TRY(take_room(c, size, &scratch));
    size_t latent = latent_room(call->d_head, scratch.ldk, BITS), merge = merge_room(scratch.ldz);
    size_t attend = (size_t)WARPS * STAGES * (size_t)size->bytes;
    if (attend < merge) attend = merge;
    FV_TRY(shared_memory(c, packed_latent<BITS, GROUPS, ODD>, latent));
    FV_TRY(shared_memory(c, packed_attend<BITS, GROUPS, ODD>, attend));
    const int32_t *n = size->n_item;
    if (n[FV_WORK_SPLIT]) {
        FV_LAUNCH((packed_latent<BITS, GROUPS, ODD>),
                  dim3((unsigned)n[FV_WORK_LATENT], (unsigned)call->n_kv), THREADS, latent,
                  c->stream, *call, scratch);
        FV_LAUNCH((packed_attend<BITS, GROUPS, ODD>),
                  dim3((unsigned)n[FV_WORK_SPLIT], fv_cuda_blocks(size->vectors, VECTORS)), THREADS,
                  attend, c->stream, *call, scratch);
    }
    FV_LAUNCH(packed_output<BITS>, dim3((unsigned)n[FV_WORK_ROW], (unsigned)call->n_head), THREADS,
              output_room(scratch.ldz), c->stream, *call, scratch);
    return fv_cuda_launched("attn_lowrank");
}

template <int BITS, bool ODD>
static fv_status launch_bits(fv_cuda *c, const fv_cuda_packed *call,
                             const fv_cuda_packed_size *size) {
    bool narrow = size->rank_k <= 64 && size->rank_v <= 64;
    return narrow ? launch<BITS, 1, ODD>(c, call, size) : launch<BITS, 2, ODD>(c, call, size);
}

fv_status fv_cuda_packed_tiled(fv_cuda *c, const fv_cuda_packed *call,
                               const fv_cuda_packed_size *size, fv_cuda_packed_form form) {
    switch (form) {
    case FV_FORM_BF16: return launch_bits<16, false>(c, call, size);
    case FV_FORM_8: return launch_bits<8, false>(c, call, size);
    case FV_FORM_4: return launch_bits<4, false>(c, call, size);
    case FV_FORM_BF16_ODD: return launch_bits<16, true>(c, call, size);
    case FV_FORM_8_ODD: return launch_bits<8, true>(c, call, size);
    default: return launch_bits<4, true>(c, call, size);
    }
}
