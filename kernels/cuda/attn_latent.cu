/* Attention on coefficients (kernels/ops.h, packed/latent.h), in the order of the CPU, whose bits
 * it gives.
 *
 *     score    per KV head and 64 rows of a sequence: their keys are rebuilt from levels as integer
 *              sums, STEP directions at a time, in shared memory; own directions are added; then
 *              they are rotated, and multiplied by all queries of the sequence that read this head
 *     sum      per KV head and FV_CUDA_LATENT_TILE query vectors of a sequence: softmax over the
 *              scores, coefficients summed under it, a thread per direction, and in the end
 *              expanded to values
 *
 * A key is rebuilt once per sequence, layer and call, however many queries read it. Most of the memory
 * read is the directions, which all requests share: a KV head has n_dir numbers for each of its columns,
 * whereas coefficients are a few bits. Only the softmax's sum has a tree, so every other number has a
 * thread of its own, which goes through directions or rows in order. */
#include "kernels/cuda/latent.h"
#include "kernels/cuda/packed.cuh"

enum { THREADS = 128, TILE = FV_CUDA_LATENT_TILE, STEP = 32, QUADS = STEP / 4, SIDE = 4 };

template <typename T>
static __device__ __forceinline__ const T *latent_array(const fv_cuda_latent &a, uint32_t at) {
    return reinterpret_cast<const T *>(a.table + at);
}

/* Finds this thread block's item of the `n` at offset `at`; false: the grid is larger. */
static __device__ __forceinline__ bool latent_item(const fv_cuda_latent &a, int32_t n, uint32_t at,
                                                   const fv_cuda_latent_seq **seq, int32_t *x) {
    if ((int32_t)blockIdx.x >= n) return false;
    const fv_cuda_latent_table *t = latent_array<fv_cuda_latent_table>(a, 0);
    const fv_cuda_latent_item item = latent_array<fv_cuda_latent_item>(a, at)[blockIdx.x];
    *seq = latent_array<fv_cuda_latent_seq>(a, t->seq) + item.seq;
    *x = item.x;
    return true;
}

/* Row and query head of vector v of KV head g. */
struct latent_vector {
    int32_t row, h;
};

static __device__ __forceinline__ latent_vector vector_of(const fv_cuda_latent &a, int32_t g,
                                                          int32_t v) {
    int32_t group = a.n_head / a.n_kv;
    return {v / group, g * group + v % group};
}

static __device__ __forceinline__ float *held_scores(const fv_cuda_latent &a,
                                                     const fv_cuda_latent_seq &s, latent_vector v) {
    return a.held + s.held + ((int64_t)v.h * s.n_rows + v.row) * s.ld;
}

/* The caller's line for the vector's scores, or NULL. */
static __device__ __forceinline__ float *wanted_scores(const fv_cuda_latent_seq &s,
                                                       latent_vector v) {
    int32_t i = v.row - s.score_from;
    if (!s.score || i < 0) return nullptr;
    return s.score + ((int64_t)v.h * s.score_rows + i) * s.score_ld;
}

/* ---- coefficients and directions --------------------------------------------------------- */

/* Reads the n coefficients of a row: 1, those on n_dir of the checkpoint's directions, those on the
 * request's own, of 8 bits, and that on the exact token, if there is one. */
struct latent_reader {
    const uint16_t *plane, *bits;
    const float *deviation;
    const int8_t *level;
    int32_t planes, n_dir, own, n; /* own: the first plane of own directions */
    int32_t n_coded, exact;        /* coefficients without the exact token's; its row, or -1 */
};

static __device__ __forceinline__ int32_t exact_row(const fv_cuda_latent_seq &s) {
    return s.exact ? *s.exact : -1;
}

/* Number of coefficients of a row. */
static __device__ __forceinline__ int32_t numbers_of(const fv_cuda_latent_seq &s) {
    return 1 + s.n_dir + s.n_own + (s.exact ? 1 : 0);
}

static __device__ latent_reader reader_of(const fv_cuda_latent &a, const fv_cuda_latent_seq &s) {
    return {s.plane,
            latent_array<uint16_t>(a, s.bits),
            latent_array<float>(a, s.deviation),
            latent_array<int8_t>(a, s.level),
            s.planes,
            s.n_dir,
            s.planes - FV_LATENT_BITS * s.n_own,
            numbers_of(s),
            1 + s.n_dir + s.n_own,
            exact_row(s)};
}

/* The code of row j in `bits` planes from `begin` on. */
static __device__ __forceinline__ int32_t code_of(const latent_reader &x, int32_t j, int32_t begin,
                                                  int32_t bits) {
    const uint16_t *p = x.plane + (int64_t)(j / FV_PACKED_TILE) * x.planes + begin;
    int32_t code = 0;
    for (int32_t b = 0; b < bits; b++) code |= (p[b] >> j % FV_PACKED_TILE & 1) << b;
    return code;
}

/* L_j[r]. */
static __device__ int32_t level_of(const latent_reader &x, int32_t j, int32_t r) {
    int32_t bits = x.bits[r + 1] - x.bits[r];
    if (j == x.exact || bits == 0) return 0;
    return x.level[(1 << bits) - 2 + code_of(x, j, x.bits[r], bits)];
}

/* z_j[r]. */
static __device__ float coefficient(const latent_reader &x, int32_t j, int32_t r) {
    if (j == x.exact || r >= x.n_coded) return j == x.exact && r >= x.n_coded ? 1.0f : 0.0f;
    if (r-- == 0) return 1.0f;
    if (r < x.n_dir) return (float)level_of(x, j, r) * (x.deviation[r] * FV_LATENT_UNIT);
    int32_t begin = x.own + FV_LATENT_BITS * (r - x.n_dir);
    return (float)(code_of(x, j, begin, FV_LATENT_BITS) - 128);
}

/* Element c of the request's own direction i; the exact token is the last. */
static __device__ float own_number(const fv_cuda_latent_seq &s, const fv_cuda_latent_part &part,
                                   int32_t i, int32_t c) {
    if (i == s.n_own) return widened(part.exact, (fv_dtype)s.type, (size_t)c);
    float scale = reinterpret_cast<const float *>(part.own)[i];
    const uint8_t *code = reinterpret_cast<const uint8_t *>(part.own) + s.n_own * sizeof scale +
                          (int64_t)i * s.own_line;
    return scale * (float)(2 * (code[c / 2] >> c % 2 * 4 & 15) - 15);
}

static __device__ __forceinline__ float value_direction(const fv_cuda_latent &a,
                                                        const fv_cuda_latent_seq &s, int32_t g,
                                                        int32_t r, int32_t d) {
    if (r > s.n_dir) return own_number(s, s.v, r - s.n_dir - 1, g * a.d_head + d);
    return s.value[((int64_t)g * (s.n_all + 1) + r) * a.d_head + d];
}

/* Sets `reads` to the number of coefficients of rows [j0, j0 + FV_KV_BLOCK), 0 where not valid; returns
 * the largest. */
static __device__ int32_t find_valid(const fv_cuda_latent_seq &s, const fv_cuda_latent_part &part,
                                     int32_t j0, int32_t *reads) {
    int32_t i = (int32_t)threadIdx.x, j = j0 + i, most = 0, exact = exact_row(s);
    if (i < FV_KV_BLOCK)
        reads[i] = j < s.n && packed_is_valid(s, j)
                       ? (packed_is_low(s, j) && j != exact ? 1 + part.n_low : numbers_of(s))
                       : 0;
    __syncthreads();
    for (i = 0; i < FV_KV_BLOCK; i++) most = max(most, reads[i]);
    return most;
}

/* ---- scores ------------------------------------------------------------------------------ */

struct score_room {
    int32_t *z;     /* [QUADS, FV_KV_BLOCK] levels, four directions in each */
    int32_t *basis; /* [QUADS, Dp] directions of the KV head, likewise */
    float *k;       /* [Dp, FV_KV_BLOCK] int32_t sums, then keys */
    int32_t *reads; /* [FV_KV_BLOCK] */
    int32_t Dp;     /* D, up to whole SIDEs */
};

static __host__ __device__ __forceinline__ int32_t sides(int32_t D) {
    return (D + SIDE - 1) / SIDE * SIDE;
}

static size_t score_bytes(int32_t D) {
    size_t Dp = (size_t)sides(D);
    return (QUADS * (FV_KV_BLOCK + Dp) + Dp * FV_KV_BLOCK) * sizeof(float) +
           FV_KV_BLOCK * sizeof(int32_t);
}

static __device__ score_room score_room_of(float *base, int32_t D) {
    score_room x;
    x.Dp = sides(D);
    x.z = reinterpret_cast<int32_t *>(base);
    x.basis = x.z + QUADS * FV_KV_BLOCK;
    x.k = reinterpret_cast<float *>(x.basis + QUADS * x.Dp);
    x.reads = reinterpret_cast<int32_t *>(x.k + x.Dp * FV_KV_BLOCK);
    return x;
}

/* Loads directions [r0, r0 + STEP) and the levels on them; zeros where a row is read without. */
static __device__ void take_step(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                                 const latent_reader &from, const score_room &x, int32_t g,
                                 int32_t j0, int32_t r0) {
    for (int32_t i = (int32_t)threadIdx.x; i < QUADS * FV_KV_BLOCK; i += THREADS) {
        int32_t r = r0 + i / FV_KV_BLOCK * 4, j = i % FV_KV_BLOCK;
        uint32_t four = 0;
        for (int32_t b = 0; b < 4; b++)
            if (r + b < s.n_dir && 1 + r + b < x.reads[j])
                four |= (uint32_t)(uint8_t)level_of(from, j0 + j, r + b) << 8 * b;
        x.z[i] = (int32_t)four;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < QUADS * x.Dp; i += THREADS) {
        int32_t q = i % QUADS, d = i / QUADS;
        bool is = r0 + 4 * q < s.n_dir && d < a.d_head; /* lines end in zeros */
        const int8_t *line = s.key + ((int64_t)g * a.d_head + d) * s.line + r0 + 4 * q;
        x.basis[q * x.Dp + d] = is ? *reinterpret_cast<const int32_t *>(line) : 0;
    }
    __syncthreads();
}

/* Adds `quads` quads to each sum; a thread has SIDE columns of SIDE rows. */
static __device__ void add_step(const score_room &x, int32_t quads) {
    int32_t *sums = reinterpret_cast<int32_t *>(x.k);
    for (int32_t t = (int32_t)threadIdx.x; t < FV_KV_BLOCK / SIDE * (x.Dp / SIDE); t += THREADS) {
        int32_t j = t % (FV_KV_BLOCK / SIDE) * SIDE, d = t / (FV_KV_BLOCK / SIDE) * SIDE;
        int32_t k[SIDE][SIDE], z[SIDE], b[SIDE];
#pragma unroll
        for (int32_t i = 0; i < SIDE * SIDE; i++)
            k[i / SIDE][i % SIDE] = sums[(d + i / SIDE) * FV_KV_BLOCK + j + i % SIDE];
        for (int32_t q = 0; q < quads; q++) {
#pragma unroll
            for (int32_t i = 0; i < SIDE; i++) {
                z[i] = x.z[q * FV_KV_BLOCK + j + i];
                b[i] = x.basis[q * x.Dp + d + i];
            }
#pragma unroll
            for (int32_t i = 0; i < SIDE * SIDE; i++)
                k[i / SIDE][i % SIDE] = __dp4a(z[i % SIDE], b[i / SIDE], k[i / SIDE][i % SIDE]);
        }
#pragma unroll
        for (int32_t i = 0; i < SIDE * SIDE; i++)
            sums[(d + i / SIDE) * FV_KV_BLOCK + j + i % SIDE] = k[i / SIDE][i % SIDE];
    }
    __syncthreads();
}

static __device__ __forceinline__ float rebuilt_key(const fv_cuda_latent_seq &s, int32_t c,
                                                    int32_t sum) {
    return fmaf(s.affine[2 * c + 1], (float)sum, s.affine[2 * c]);
}

/* The codes of the tile of row j: [D, 16], then scales. */
static __device__ __forceinline__ uint8_t *coded_tile(const fv_cuda_latent_seq &s, int32_t g,
                                                      int32_t j) {
    int64_t tiles = (s.n + FV_PACKED_TILE - 1) / FV_PACKED_TILE;
    return s.codes + (g * tiles + j / FV_PACKED_TILE) * s.coded_tile;
}

static __device__ __forceinline__ uint16_t *coded_scales(const fv_cuda_latent &a, uint8_t *tile) {
    return reinterpret_cast<uint16_t *>(tile + a.d_head * FV_PACKED_TILE / 2);
}

static __device__ __forceinline__ float
coded_key(const fv_cuda_latent &a, const fv_cuda_latent_seq &s, int32_t g, int32_t j, int32_t d) {
    uint8_t *tile = coded_tile(s, g, j);
    int32_t c = g * a.d_head + d, at = j % FV_PACKED_TILE;
    int32_t code = tile[d * FV_PACKED_TILE / 2 + at / 2] >> at % 2 * 4 & 15;
    float scale = f32_of_f16(coded_scales(a, tile)[at]);
    return fmaf(s.sigma[c], fmaf(scale, (float)code, -7.5f * scale), s.affine[2 * c]);
}

/* Turns sums into keys by mean and scale, or decodes keys from codes; then adds the request's own
 * directions. */
static __device__ void finish_keys(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                                   const latent_reader &from, const score_room &x, int32_t g,
                                   int32_t j0) {
    const int32_t *sums = reinterpret_cast<const int32_t *>(x.k);
    for (int32_t i = (int32_t)threadIdx.x; i < a.d_head * FV_KV_BLOCK; i += THREADS) {
        int32_t c = g * a.d_head + i / FV_KV_BLOCK, j = i % FV_KV_BLOCK;
        float k = 0.0f;
        if (!x.reads[j]) continue;
        if (j0 + j != from.exact)
            k = s.codes ? coded_key(a, s, g, j0 + j, i / FV_KV_BLOCK) : rebuilt_key(s, c, sums[i]);
        for (int32_t r = 1 + s.n_dir; r < x.reads[j]; r++)
            k = fmaf(coefficient(from, j0 + j, r), own_number(s, s.k, r - s.n_dir - 1, c), k);
        x.k[i] = k;
    }
    __syncthreads();
}

/* Computes the sums of a block's keys; n: the most coefficients of a row. */
static __device__ void sum_levels(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                                  const latent_reader &from, const score_room &x, int32_t g,
                                  int32_t j0, int32_t n) {
    int32_t shared = min(n - 1, s.n_dir);
    for (int32_t i = (int32_t)threadIdx.x; i < x.Dp * FV_KV_BLOCK; i += THREADS)
        reinterpret_cast<int32_t *>(x.k)[i] = 0;
    __syncthreads();
    for (int32_t r0 = 0; r0 < shared; r0 += STEP) {
        take_step(a, s, from, x, g, j0, r0);
        add_step(x, (min(STEP, shared - r0) + 3) / 4);
    }
}

/* Rotates keys to the position of their token. */
static __device__ void rotate(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                              const score_room &x, int32_t j0) {
    int32_t half = a.d_head / 2;
    for (int32_t i = (int32_t)threadIdx.x; s.cos && i < half * FV_KV_BLOCK; i += THREADS) {
        int32_t d = i / FV_KV_BLOCK, j = j0 + i % FV_KV_BLOCK;
        if (!x.reads[i % FV_KV_BLOCK]) continue;
        int64_t at =
            ((int64_t)(j / FV_PACKED_TILE) * half + d) * FV_PACKED_TILE + j % FV_PACKED_TILE;
        float u = x.k[i], v = x.k[i + half * FV_KV_BLOCK], c = s.cos[at], n = s.sin[at];
        x.k[i] = fmaf(u, c, -(v * n));
        x.k[i + half * FV_KV_BLOCK] = fmaf(v, c, u * n);
    }
    __syncthreads();
}

/* Computes the scores of all query vectors of the KV head; -inf for rows that are not valid. */
static __device__ void multiply(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                                const score_room &x, int32_t g, int32_t j0) {
    int32_t n = s.n_rows * (a.n_head / a.n_kv) * FV_KV_BLOCK;
    for (int32_t i = (int32_t)threadIdx.x; i < n; i += THREADS) {
        int32_t j = i % FV_KV_BLOCK, D = x.reads[j] ? a.d_head : 0;
        latent_vector v = vector_of(a, g, i / FV_KV_BLOCK);
        const float *q = a.q + (int64_t)(s.row0 + v.row) * a.ldq + v.h * a.d_head;
        float sum = 0.0f, *wanted = wanted_scores(s, v);
        for (int32_t d = 0; d < D; d++) sum = fmaf(q[d], x.k[d * FV_KV_BLOCK + j], sum);
        sum = D ? a.scale * sum : -INFINITY;
        held_scores(a, s, v)[j0 + j] = sum;
        if (wanted && j0 + j < s.score_ld) wanted[j0 + j] = sum;
    }
}

/* Grid: (blocks of all sequences, KV heads). */
static __global__ void __launch_bounds__(THREADS) latent_score(fv_cuda_latent a) {
    FV_SHARED(float, base);
    const fv_cuda_latent_table *t = latent_array<fv_cuda_latent_table>(a, 0);
    const fv_cuda_latent_seq *s;
    int32_t block, g = (int32_t)blockIdx.y;
    if (!latent_item(a, t->n_block, t->block, &s, &block)) return;
    const score_room x = score_room_of(base, a.d_head);
    int32_t j0 = block * FV_KV_BLOCK, n = find_valid(*s, s->k, j0, x.reads);
    if (n > 0) {
        const latent_reader from = reader_of(a, *s);
        if (!s->codes) sum_levels(a, *s, from, x, g, j0, n);
        finish_keys(a, *s, from, x, g, j0);
        rotate(a, *s, x, j0);
    }
    multiply(a, *s, x, g, j0);
}

/* ---- codes ------------------------------------------------------------------------------- */

/* A key's distance from the mean in units of its column's sigma. */
static __device__ __forceinline__ float relative(const fv_cuda_latent_seq &s, int32_t c,
                                                 int32_t sum) {
    float by = s.sigma[c] > 0 ? s.affine[2 * c + 1] / s.sigma[c] : 0;
    return by * (float)sum;
}

/* code_of of scales.h for 4 bits, from -7.5 to 7.5 steps. */
static __device__ int32_t nearest_code(float x, float step) {
    float c = step > 0 ? (x - -7.5f * step) / step + 0.5f : 0;
    return !(c > 0) ? 0 : c > 15.0f ? 15 : (int32_t)c;
}

/* Writes the scale of token j. */
static __device__ void put_scale(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                                 const int32_t *sums, int32_t g, int32_t j) {
    float most = 0;
    for (int32_t d = 0; d < a.d_head && j < s.n; d++)
        most = fmaxf(most, fabsf(relative(s, g * a.d_head + d, sums[d * FV_KV_BLOCK])));
    coded_scales(a, coded_tile(s, g, j))[j % FV_PACKED_TILE] = f16_of_f32(most / 7.5f);
}

/* Writes the codes of two tokens of a column. */
static __device__ void put_pair(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                                const int32_t *sums, int32_t g, int32_t j, int32_t d) {
    uint8_t *tile = coded_tile(s, g, j);
    int32_t code[2] = {0, 0}, at = j % FV_PACKED_TILE;
    for (int32_t b = 0; b < 2; b++)
        if (j + b < s.n)
            code[b] = nearest_code(relative(s, g * a.d_head + d, sums[d * FV_KV_BLOCK + b]),
                                   f32_of_f16(coded_scales(a, tile)[at + b]));
    tile[d * FV_PACKED_TILE / 2 + at / 2] = (uint8_t)(code[0] | code[1] << 4);
}

static __device__ void put_codes(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                                 const score_room &x, int32_t g, int32_t j0) {
    const int32_t *sums = reinterpret_cast<const int32_t *>(x.k);
    int32_t end = (s.n + FV_PACKED_TILE - 1) / FV_PACKED_TILE * FV_PACKED_TILE;
    for (int32_t j = (int32_t)threadIdx.x; j < FV_KV_BLOCK && j0 + j < end; j += THREADS)
        put_scale(a, s, sums + j, g, j0 + j);
    __syncthreads();
    for (int32_t i = (int32_t)threadIdx.x; i < a.d_head * FV_KV_BLOCK / 2; i += THREADS) {
        int32_t d = i / (FV_KV_BLOCK / 2), j = i % (FV_KV_BLOCK / 2) * 2;
        if (j0 + j < end) put_pair(a, s, sums + j, g, j0 + j, d);
    }
}

/* Grid: (blocks of the sequence, KV heads). */
static __global__ void __launch_bounds__(THREADS) latent_code(fv_cuda_latent a) {
    FV_SHARED(float, base);
    const fv_cuda_latent_table *t = latent_array<fv_cuda_latent_table>(a, 0);
    const fv_cuda_latent_seq *s;
    int32_t block, g = (int32_t)blockIdx.y;
    if (!latent_item(a, t->n_block, t->block, &s, &block)) return;
    const score_room x = score_room_of(base, a.d_head);
    int32_t j0 = block * FV_KV_BLOCK, i = (int32_t)threadIdx.x;
    if (i < FV_KV_BLOCK) x.reads[i] = j0 + i < s->n ? 1 + s->n_dir : 0;
    __syncthreads();
    sum_levels(a, *s, reader_of(a, *s), x, g, j0, 1 + s->n_dir);
    put_codes(a, *s, x, g, j0);
}

/* ---- sums -------------------------------------------------------------------------------- */

struct sum_room {
    float *p; /* [TILE, FV_KV_BLOCK] scores, then their weights */
    float *y; /* [TILE, ld] */
    softmax_state *at;
    int32_t *reads; /* [FV_KV_BLOCK] */
    int32_t ld;
};

static size_t sum_bytes(int32_t ld) {
    size_t vector = (FV_KV_BLOCK + (size_t)ld) * sizeof(float) + sizeof(softmax_state);
    return TILE * vector + FV_KV_BLOCK * sizeof(int32_t);
}

static __device__ sum_room sum_room_of(float *base, int32_t ld) {
    sum_room x;
    x.ld = ld;
    x.p = base;
    x.y = x.p + TILE * FV_KV_BLOCK;
    x.at = reinterpret_cast<softmax_state *>(x.y + TILE * ld);
    x.reads = reinterpret_cast<int32_t *>(x.at + TILE);
    return x;
}

/* The query vectors [v0, v0 + n) of KV head g. */
struct latent_tile {
    int32_t g, v0, n;
};

static __device__ void begin_vectors(const sum_room &x) {
    for (int32_t i = (int32_t)threadIdx.x; i < TILE * x.ld; i += THREADS) x.y[i] = 0.0f;
    if (threadIdx.x < TILE) {
        x.at[threadIdx.x].m = -INFINITY;
        x.at[threadIdx.x].l = x.at[threadIdx.x].c = 0.0f;
    }
    __syncthreads();
}

static __device__ void soften(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                              const sum_room &x, const latent_tile &tile, int32_t j0) {
    half_warp w = half_warp_of();
    for (int32_t i = (int32_t)threadIdx.x; i < tile.n * FV_KV_BLOCK; i += THREADS)
        x.p[i] = held_scores(a, s,
                             vector_of(a, tile.g, tile.v0 + i / FV_KV_BLOCK))[j0 + i % FV_KV_BLOCK];
    __syncthreads();
    for (int32_t v = w.number; v < tile.n; v += THREADS / FV_LANES) {
        softmax_state to = half_softmax(w, x.p + v * FV_KV_BLOCK, FV_KV_BLOCK, x.at[v], false);
        __syncwarp(w.mask); /* all lanes have read x.at[v] */
        if (w.lane == 0) x.at[v] = to;
    }
    __syncthreads();
}

/* Adds the block's rows to every vector's sums; a thread has a direction. */
static __device__ void add_rows(const latent_reader &from, const sum_room &x, int32_t n,
                                int32_t j0) {
    for (int32_t r = (int32_t)threadIdx.x; r < from.n; r += THREADS) {
        float y[TILE];
#pragma unroll
        for (int32_t v = 0; v < TILE; v++) y[v] = v < n ? x.y[v * x.ld + r] * x.at[v].c : 0.0f;
        for (int32_t j = 0; j < FV_KV_BLOCK; j++) {
            if (r >= x.reads[j]) continue;
            float z = coefficient(from, j0 + j, r);
#pragma unroll
            for (int32_t v = 0; v < TILE; v++)
                if (v < n) y[v] = fmaf(x.p[v * FV_KV_BLOCK + j], z, y[v]);
        }
#pragma unroll
        for (int32_t v = 0; v < TILE; v++)
            if (v < n) x.y[v * x.ld + r] = y[v];
    }
    __syncthreads();
}

static __device__ void expand(const fv_cuda_latent &a, const fv_cuda_latent_seq &s,
                              const sum_room &x, const latent_tile &tile, int32_t n_sum) {
    for (int32_t i = (int32_t)threadIdx.x; i < tile.n * a.d_head; i += THREADS) {
        int32_t d = i % a.d_head;
        latent_vector v = vector_of(a, tile.g, tile.v0 + i / a.d_head);
        float l = x.at[i / a.d_head].l, o = 0.0f;
        for (int32_t r = 0; l != 0.0f && r < n_sum; r++)
            o = fmaf(x.y[i / a.d_head * x.ld + r], value_direction(a, s, tile.g, r, d), o);
        a.o[(int64_t)(s.row0 + v.row) * a.ldo + v.h * a.d_head + d] = l == 0.0f ? 0.0f : o / l;
    }
    for (int32_t i = (int32_t)threadIdx.x; i < tile.n; i += THREADS) {
        latent_vector v = vector_of(a, tile.g, tile.v0 + i);
        float l = x.at[i].l, *wanted = wanted_scores(s, v);
        if (a.lse)
            a.lse[(int64_t)(s.row0 + v.row) * a.ldl + v.h] =
                l == 0.0f ? -INFINITY : x.at[i].m + log_f32(l);
        for (int32_t j = s.ld; wanted && j < s.score_ld; j++) wanted[j] = -INFINITY;
    }
}

/* Grid: (tiles of all sequences, KV heads). */
static __global__ void __launch_bounds__(THREADS) latent_sum(fv_cuda_latent a, int32_t ld) {
    FV_SHARED(float, base);
    const fv_cuda_latent_table *t = latent_array<fv_cuda_latent_table>(a, 0);
    const fv_cuda_latent_seq *s;
    int32_t number;
    if (!latent_item(a, t->n_tile, t->tile, &s, &number)) return;
    const sum_room x = sum_room_of(base, ld);
    const latent_reader from = reader_of(a, *s);
    int32_t v0 = number * TILE, n = s->n_rows * (a.n_head / a.n_kv) - v0;
    const latent_tile tile = {(int32_t)blockIdx.y, v0, n < TILE ? n : TILE};
    begin_vectors(x);
    for (int32_t j0 = 0; j0 < s->n; j0 += FV_KV_BLOCK) {
        if (find_valid(*s, s->v, j0, x.reads) > 0) {
            soften(a, *s, x, tile, j0);
            add_rows(from, x, tile.n, j0);
        }
        __syncthreads(); /* x.reads has been read */
    }
    expand(a, *s, x, tile, from.n);
}

/* ---- launches ---------------------------------------------------------------------------- */

fv_status fv_cuda_latent_attend(fv_cuda *c, fv_cuda_latent *call, const fv_cuda_latent_size *size) {
    size_t score = score_bytes(call->d_head), sum = sum_bytes(size->n_sum);
    unsigned n_kv = (unsigned)call->n_kv;
    void *p;
    if (size->n_tile == 0) return FV_OK;
    FV_TRY(shared_memory(c, latent_score, score));
    FV_TRY(shared_memory(c, latent_sum, sum));
    FV_TRY(fv_cuda_scratch(c, (size_t)fv_cuda_round(size->n_score) * sizeof(float), &p));
    call->held = static_cast<float *>(p);
    if (size->n_block)
        FV_LAUNCH(latent_score, dim3((unsigned)fv_cuda_round(size->n_block), n_kv), dim3(THREADS),
                  score, c->stream, *call);
    FV_LAUNCH(latent_sum, dim3((unsigned)size->n_tile, n_kv), dim3(THREADS), sum, c->stream, *call,
              size->n_sum);
    return fv_cuda_launched("attn_latent");
}

fv_status fv_cuda_latent_code(fv_cuda *c, const fv_cuda_latent *call,
                              const fv_cuda_latent_size *size) {
    size_t room = score_bytes(call->d_head);
    if (size->n_block == 0) return FV_OK;
    FV_TRY(shared_memory(c, latent_code, room));
    FV_LAUNCH(latent_code, dim3((unsigned)size->n_block, (unsigned)call->n_kv), dim3(THREADS), room,
              c->stream, *call);
    return fv_cuda_launched("latent_codes");
}
