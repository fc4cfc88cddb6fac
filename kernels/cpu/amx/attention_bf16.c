/* The products of attention in bf16 with AMX (amx/tiles.h).
 *
 *     scores   A: keys in place, 16 rows of a block; B: 16 query vectors in pairs, packed once.
 *              Sums are [keys, vectors], and are transposed
 *     values   A: p, 16 vectors and 64 rows; B: v in pairs of rows, packed once a block
 *
 * A block's 64 keys are four tiles of sums, and so are 64 columns of v. Partial tiles, and KV that is
 * not bf16, go through a copy. */
#include "kernels/cpu/amx/products.h"
#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

enum { WORDS = TILE_BYTES / 4, HALF = FV_KV_BLOCK / 2 };

/* Query vectors of an item, which share the values packed in pairs. */
enum { AMX_VECTORS = 96 };

/* Columns of a tile of scores: a tile for few vectors is narrow, which makes its transpose cheap. */
static int score_cols(const attn_item *t) {
    return t->R == 1 ? 1 : t->R <= 4 ? 4 : t->R <= 8 ? 8 : TILE_ROWS;
}

static bool is_few(const attn_item *t) { return t->R <= TILE_ROWS; }

/* Opens tiles for an item of up to 16 vectors, without rows for vectors that it lacks:
 *
 *     0, 1  sums of scores   [16 keys, cols]
 *     2, 3  keys as A, values as B: 16 rows of 64 bytes
 *     4     vectors as B     [16 pairs, cols]
 *     5     p as A           [R, 32]
 *     6, 7  o                [R, 16] */
static void open_few(int R, int cols) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes_row[16];
        uint8_t rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        bool of_scores = i < 2 || i == 4;
        c.rows[i] = (uint8_t)(i < 5 ? TILE_ROWS : R);
        c.bytes_row[i] = (uint16_t)(of_scores ? 4 * cols : 64);
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* GCC assumes that only 8 bytes of c are read */
    _tile_loadconfig(&c);
}

/* Packs t->q as tiles, [16 vectors][step of D], and opens the tile registers for this item. */
static void copy_queries_amx(attn_item *t) {
    size_t steps = t->Dp / BF16_STEP;
    int cols = score_cols(t);
    if (is_few(t))
        open_few(t->R, cols);
    else
        tiles_open(TILE_ROWS);
    for (int32_t v0 = 0; v0 < t->R; v0 += TILE_ROWS) {
        const float *rows[TILE_ROWS] = {NULL};
        for (int i = 0; i < TILE_ROWS && v0 + i < t->R; i++) rows[i] = attn_query(t, v0 + i);
        for (size_t s = 0; s < steps; s++)
            pairs_tile(rows, s * BF16_STEP, t->D, cols,
                       (uint32_t *)t->q + ((size_t)v0 / TILE_ROWS * steps + s) * WORDS);
    }
}

/* Memory to prefetch, a few lines of 64 bytes between products: prefetching all of it at once would
 * delay the loads of the current operands. */
typedef struct ahead {
    const char *at;
    size_t lines; /* at a time */
    bool near;    /* for L1, which has room for blocks of 8 KiB; otherwise for L2 */
} ahead;

static ALWAYS_INLINE void fetch(ahead *a) {
    for (size_t i = 0; i < a->lines; i++, a->at += 64) {
        if (a->near)
            _mm_prefetch(a->at, _MM_HINT_T0);
        else
            _mm_prefetch(a->at, _MM_HINT_T1);
    }
}

/* Cache lines of n rows of a block. */
static size_t lines_of(const attn_item *t, int32_t n) {
    return (size_t)n * t->D * fv_dtype_bytes(t->a->kv_dtype) / 64;
}

/* Prefetches `lines` at a time of the rows at `at`, from byte `from` on; nothing if `at` is NULL. */
static ahead ahead_of(const attn_item *t, const void *at, size_t from, size_t lines) {
    return (ahead){.at = at ? (const char *)at + from : NULL,
                   .lines = at ? lines : 0,
                   .near = lines_of(t, FV_KV_BLOCK) <= 8192 / 64};
}

/* Scores of 64 keys and 16 vectors. */
static NEVER_INLINE void scores_tile(const uint16_t *const k[4], const size_t stride[4],
                                     const uint32_t *q, size_t steps, float *out) {
    sums_zero();
    for (size_t s = 0; s < steps; s++, q += WORDS) {
        _tile_loadd(6, q, 64);
        _tile_loadd(4, k[0] + s * BF16_STEP, stride[0]);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, k[1] + s * BF16_STEP, stride[1]);
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(4, k[2] + s * BF16_STEP, stride[2]);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(5, k[3] + s * BF16_STEP, stride[3]);
        _tile_dpbf16ps(3, 5, 6);
    }
    sums_store(out, TILE_ROWS);
}

/* ---- scores of few vectors ----------------------------------------------------------------- */

/* Scores of 32 keys and the item's vectors, [32, cols]. */
static NEVER_INLINE void scores_few_tiles(const uint16_t *k0, const uint16_t *k1, size_t stride,
                                          const uint32_t *q, size_t steps, int cols, ahead next,
                                          float *out) {
    size_t ld = (size_t)cols * sizeof *out;
    _tile_zero(0);
    _tile_zero(1);
    for (size_t s = 0; s < steps; s++, q += WORDS) {
        _tile_loadd(4, q, ld);
        _tile_loadd(2, k0 + s * BF16_STEP, stride);
        _tile_dpbf16ps(0, 2, 4);
        _tile_loadd(3, k1 + s * BF16_STEP, stride);
        _tile_dpbf16ps(1, 3, 4);
        fetch(&next);
    }
    _tile_stored(0, out, ld);
    _tile_stored(1, out + TILE_ROWS * cols, ld);
}

/* Transposes scores [16 keys, 4 vectors] into rows of FV_KV_BLOCK. */
static ALWAYS_INLINE void lay_4(const float *in, float *to) {
    const __m512i first =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(2));
    __m512 r[4], a[2], b[2];
    UNROLL for (int i = 0; i < 4; i++) r[i] = _mm512_loadu_ps(in + (size_t)i * 16);
    UNROLL for (int i = 0; i < 2; i++) {
        a[i] = _mm512_permutex2var_ps(r[2 * i], first, r[2 * i + 1]);
        b[i] = _mm512_permutex2var_ps(r[2 * i], last, r[2 * i + 1]);
    }
    _mm512_storeu_ps(to, _mm512_shuffle_f32x4(a[0], a[1], 0x44));
    _mm512_storeu_ps(to + FV_KV_BLOCK, _mm512_shuffle_f32x4(a[0], a[1], 0xee));
    _mm512_storeu_ps(to + 2 * FV_KV_BLOCK, _mm512_shuffle_f32x4(b[0], b[1], 0x44));
    _mm512_storeu_ps(to + 3 * FV_KV_BLOCK, _mm512_shuffle_f32x4(b[0], b[1], 0xee));
}

/* Transposes scores [16 keys, 8 vectors] into rows of FV_KV_BLOCK. */
static ALWAYS_INLINE void lay_8(const float *in, float *to) {
    const __m512i first =
        _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(4));
    __m512 r[8];
    UNROLL for (int i = 0; i < 8; i++) r[i] = _mm512_loadu_ps(in + (size_t)i * 16);
    UNROLL for (int half = 0; half < 2; half++, to += 4 * FV_KV_BLOCK) {
        __m512 x[4], t[4];
        UNROLL for (int i = 0; i < 4; i++) {
            x[i] = _mm512_permutex2var_ps(r[2 * i], half ? last : first, r[2 * i + 1]);
        }
        UNROLL for (int i = 0; i < 2; i++) {
            t[i] = _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0x88);
            t[2 + i] = _mm512_shuffle_f32x4(x[2 * i], x[2 * i + 1], 0xdd);
        }
        _mm512_storeu_ps(to, _mm512_shuffle_f32x4(t[0], t[1], 0x88));
        _mm512_storeu_ps(to + FV_KV_BLOCK, _mm512_shuffle_f32x4(t[2], t[3], 0x88));
        _mm512_storeu_ps(to + 2 * FV_KV_BLOCK, _mm512_shuffle_f32x4(t[0], t[1], 0xdd));
        _mm512_storeu_ps(to + 3 * FV_KV_BLOCK, _mm512_shuffle_f32x4(t[2], t[3], 0xdd));
    }
}

/* Transposes scores [16 keys, 16 vectors] into rows of FV_KV_BLOCK. */
static ALWAYS_INLINE void lay_16(const float *in, float *to) {
    __m512i r[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++) r[i] = _mm512_load_si512(in + (size_t)i * TILE_ROWS);
    i32x16_transpose(r);
    for (int i = 0; i < TILE_ROWS; i++) _mm512_storeu_si512(to + (size_t)i * FV_KV_BLOCK, r[i]);
}

static void lay_scores(const float *in, int cols, float *to) {
    switch (cols) {
    case 1: memcpy(to, in, TILE_ROWS * sizeof *to); break;
    case 4: lay_4(in, to); break;
    case 8: lay_8(in, to); break;
    default: lay_16(in, to);
    }
}

static void scores_few(attn_item *t, const uint16_t *const k[4], size_t stride, const void *next,
                       int32_t n) {
    _Alignas(64) float out[4 * WORDS];
    size_t steps = t->Dp / BF16_STEP, half = lines_of(t, HALF);
    int cols = score_cols(t);
    for (int g = 0; g < 4 && g * TILE_ROWS < n; g += 2)
        scores_few_tiles(k[g], k[g + 1], stride, (const uint32_t *)t->q, steps, cols,
                         ahead_of(t, next, half * 64, g ? half / steps : 0),
                         out + (size_t)(g * TILE_ROWS * cols));
    for (int g = 0; g < 4 && g * TILE_ROWS < n; g++)
        lay_scores(out + (size_t)(g * TILE_ROWS * cols), cols, t->s + (size_t)(g * TILE_ROWS));
}

static void scores_amx(attn_item *t, const void *block, const void *next, int32_t n) {
    fv_tensor keys = fv_tensor_of((void *)(uintptr_t)block, t->a->kv_dtype, n, (int32_t)t->D);
    bool lie = keys.dtype == FV_BF16 && t->D == t->Dp;
    const uint16_t *k[4];
    size_t stride[4], steps = t->Dp / BF16_STEP;
    if (!is_few(t)) {
        ahead values = ahead_of(t, next, 0, lines_of(t, n));
        fetch(&values);
    }
    for (int g = 0; g < 4; g++) {
        int32_t left = n - g * TILE_ROWS;
        uint16_t *copy = (uint16_t *)t->k + (size_t)g * TILE_ROWS * t->Dp;
        stride[g] = t->Dp * sizeof **k;
        k[g] = left <= 0 ? k[0] : copy; /* these scores are not read */
        if (lie && left >= TILE_ROWS)
            k[g] = (const uint16_t *)block + (size_t)g * TILE_ROWS * t->D;
        else if (left > 0)
            bf16_rows(&keys, g * TILE_ROWS, left, 0, t->D, t->Dp, t->Dp, copy);
    }
    if (is_few(t)) {
        scores_few(t, k, stride[0], next, n);
        return;
    }
    for (int32_t v0 = 0; v0 < t->R; v0 += TILE_ROWS) {
        _Alignas(64) float out[4 * WORDS];
        scores_tile(k, stride, (const uint32_t *)t->q + (size_t)v0 / TILE_ROWS * steps * WORDS,
                    steps, out);
        for (int g = 0; g < 4; g++)
            lay_16(out + g * WORDS, t->s + (size_t)v0 * FV_KV_BLOCK + (size_t)(g * TILE_ROWS));
    }
}

/* Interleaves two rows of 32 numbers as pairs. */
static ALWAYS_INLINE void pair(__m512i a, __m512i b, uint32_t *lo, uint32_t *hi) {
    static const uint16_t first[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                       37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                       11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    __m512i at = _mm512_loadu_si512(first);
    _mm512_storeu_si512(lo, _mm512_permutex2var_epi16(a, at, b));
    at = _mm512_add_epi16(at, _mm512_set1_epi16(TILE_ROWS));
    _mm512_storeu_si512(hi, _mm512_permutex2var_epi16(a, at, b));
}

/* Loads row j of v from column d on, rounded; zeros past D and from row n on. */
static NEVER_INLINE __m512i odd_row(const attn_item *t, const void *block, int32_t j, int32_t n,
                                    size_t d) {
    uint16_t tail[BF16_STEP] = {0};
    for (size_t x = 0; j < n && x < BF16_STEP && d + x < t->D; x++)
        tail[x] = bf16_of_f32(widened(block, t->a->kv_dtype, (size_t)j * t->D + d + x));
    return _mm512_loadu_si512(tail);
}

/* Packs rows j and j + 1 of v from column d on as pairs; rows from n on are zeros. */
static void pair_rows(const attn_item *t, const void *block, int32_t j, int32_t n, size_t d,
                      uint32_t *lo, uint32_t *hi) {
    __m512i row[2];
    const uint16_t *v = (const uint16_t *)block + (size_t)j * t->D + d;
    bool whole = t->a->kv_dtype == FV_BF16 && d + BF16_STEP <= t->D;
    row[0] = whole && j < n ? _mm512_loadu_si512(v) : odd_row(t, block, j, n, d);
    row[1] = whole && j + 1 < n ? _mm512_loadu_si512(v + t->D) : odd_row(t, block, j + 1, n, d);
    pair(row[0], row[1], lo, hi);
}

/* Packs v as tiles, [16 columns][step of 32 rows], into t->v. next: keys to prefetch, or NULL. */
static void pack_values(attn_item *t, const void *block, int32_t n, const void *next) {
    uint32_t *to = (uint32_t *)t->v;
    const uint16_t *v = block;
    const size_t D = t->D;
    bool whole = t->a->kv_dtype == FV_BF16 && D == t->Dp;
    ahead keys = ahead_of(t, next, 0, lines_of(t, 2));
    for (int32_t j = 0; j < FV_KV_BLOCK; j += 2, v += 2 * D, to += TILE_ROWS) {
        fetch(&keys);
        if (!whole || j + 1 >= n) {
            for (size_t d = 0; d < t->Dp; d += BF16_STEP)
                pair_rows(t, block, j, n, d, to + d / 8 * WORDS, to + d / 8 * WORDS + 2 * WORDS);
            continue;
        }
        for (size_t d = 0; d < D; d += BF16_STEP)
            pair(_mm512_loadu_si512(v + d), _mm512_loadu_si512(v + D + d), to + d / 8 * WORDS,
                 to + d / 8 * WORDS + 2 * WORDS);
    }
}

/* o = o + p v for 16 vectors and four tiles of columns, or two. */
static NEVER_INLINE void values_tile(const uint16_t *p, const uint32_t *v, float *o, size_t ldo,
                                     bool four) {
    const size_t ldp = FV_KV_BLOCK * sizeof(float);
    _tile_loadd(0, o, ldo);
    _tile_loadd(1, o + 16, ldo);
    if (four) {
        _tile_loadd(2, o + 32, ldo);
        _tile_loadd(3, o + 48, ldo);
    }
    for (int s = 0; s < FV_KV_BLOCK / BF16_STEP; s++, v += WORDS) {
        _tile_loadd(4, p + s * BF16_STEP, ldp);
        _tile_loadd(6, v, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, v + 2 * WORDS, 64);
        _tile_dpbf16ps(1, 4, 7);
        if (!four) continue;
        _tile_loadd(6, v + 4 * WORDS, 64);
        _tile_dpbf16ps(2, 4, 6);
        _tile_loadd(7, v + 6 * WORDS, 64);
        _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, o, ldo);
    _tile_stored(1, o + 16, ldo);
    if (four) {
        _tile_stored(2, o + 32, ldo);
        _tile_stored(3, o + 48, ldo);
    }
}

/* o = o + p v for two tiles of columns of an item of up to 16 vectors. */
static NEVER_INLINE void values_few_tile(const uint16_t *p, const uint32_t *v, float *o, size_t ldo,
                                         ahead *next) {
    const size_t ldp = FV_KV_BLOCK * sizeof(float);
    _tile_loadd(6, o, ldo);
    _tile_loadd(7, o + 16, ldo);
    for (int s = 0; s < FV_KV_BLOCK / BF16_STEP; s++, v += WORDS) {
        _tile_loadd(5, p + s * BF16_STEP, ldp);
        _tile_loadd(2, v, 64);
        _tile_dpbf16ps(6, 5, 2);
        _tile_loadd(3, v + 2 * WORDS, 64);
        _tile_dpbf16ps(7, 5, 3);
        fetch(next);
    }
    _tile_stored(6, o, ldo);
    _tile_stored(7, o + 16, ldo);
}

/* o = o + p v for the vectors [v0, v0 + 16): the item has memory for all 16, also where it has fewer
 * vectors. next: the block to prefetch, or NULL. */
static void add_values(attn_item *t, int32_t v0, const fv_kv_block *next) {
    const uint16_t *p = (const uint16_t *)(t->s + (size_t)v0 * FV_KV_BLOCK);
    const uint32_t *v = (const uint32_t *)t->v;
    float *o = t->o + (size_t)v0 * t->Dp;
    if (is_few(t)) {
        size_t half = lines_of(t, HALF); /* scores prefetches the rest */
        ahead then = ahead_of(t, next ? next->v : NULL, 0, half / (t->Dp / TILE_ROWS));
        for (size_t d = 0; d < t->Dp; d += 32)
            values_few_tile(p, v + d / 16 * 2 * WORDS, o + d, t->Dp * sizeof *o, &then);
        return;
    }
    for (size_t d = 0; d < t->Dp; d += 64)
        values_tile(p, v + d / 16 * 2 * WORDS, o + d, t->Dp * sizeof *o, d + 64 <= t->Dp);
}

/* ---- values of one vector ------------------------------------------------------------------ */

/* o = o + p v over one step of 32 rows, for 32 nv columns; rows have D numbers, and nv is a constant
 * after inlining. Lanes are columns; even and odd columns are in separate registers. */
static ALWAYS_INLINE void values_one_step(const float *p, const uint16_t *v, size_t D, float *o,
                                          const int nv, ahead *keys, ahead *values) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    const __m512i low =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(1));
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i last = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    __m512 even[8], odd[8];
    UNROLL for (int x = 0; x < 2 * nv; x++) even[x] = odd[x] = _mm512_setzero_ps();
    for (int j = 0; j < BF16_STEP; j += 2, v += 2 * D) {
        const __m512 p0 = _mm512_set1_ps(p[j]), p1 = _mm512_set1_ps(p[j + 1]);
        fetch(keys);
        fetch(values);
        UNROLL for (int x = 0; x < nv; x++) {
            __m512i w = _mm512_loadu_si512(v + (size_t)x * 32);
            __m512i w1 = _mm512_loadu_si512(v + D + (size_t)x * 32);
            __m512 lo = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
            __m512 hi = _mm512_castsi512_ps(_mm512_and_si512(w, upper));
            __m512 lo1 = _mm512_castsi512_ps(_mm512_slli_epi32(w1, 16));
            __m512 hi1 = _mm512_castsi512_ps(_mm512_and_si512(w1, upper));
            even[2 * x] = _mm512_fmadd_ps(p0, lo, even[2 * x]);
            even[2 * x + 1] = _mm512_fmadd_ps(p0, hi, even[2 * x + 1]);
            odd[2 * x] = _mm512_fmadd_ps(p1, lo1, odd[2 * x]);
            odd[2 * x + 1] = _mm512_fmadd_ps(p1, hi1, odd[2 * x + 1]);
        }
    }
    UNROLL for (int x = 0; x < nv; x++) {
        float *to = o + (size_t)x * 32;
        __m512 a = _mm512_loadu_ps(to), b = _mm512_loadu_ps(to + 16);
        __m512 lo = _mm512_permutex2var_ps(a, low, b), hi = _mm512_permutex2var_ps(a, high, b);
        lo = _mm512_add_ps(lo, _mm512_add_ps(even[2 * x], odd[2 * x]));
        hi = _mm512_add_ps(hi, _mm512_add_ps(even[2 * x + 1], odd[2 * x + 1]));
        _mm512_storeu_ps(to, _mm512_permutex2var_ps(lo, first, hi));
        _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(lo, last, hi));
    }
}

/* o = o + p v for one vector and a whole block, without packing v in pairs for it alone. Not inlined:
 * the compiler must not move its arithmetic across the caller's changes of MXCSR. */
static NEVER_INLINE void add_values_of_one(attn_item *t, const uint16_t *v, ahead keys,
                                           ahead values) {
    for (int s = 0; s < FV_KV_BLOCK; s += BF16_STEP, v += BF16_STEP * t->D) {
        size_t d = 0;
        for (; d + 128 <= t->D; d += 128)
            values_one_step(t->s + s, v + d, t->D, t->o + d, 4, &keys, &values);
        for (; d < t->D; d += 32)
            values_one_step(t->s + s, v + d, t->D, t->o + d, 1, &keys, &values);
    }
}

static bool is_whole_and_one(const attn_item *t) {
    return t->R == 1 && t->n_seen[0] == FV_KV_BLOCK && t->a->kv_dtype == FV_BF16 && t->D == t->Dp;
}

static void values_of_one(attn_item *t, const void *block, const fv_kv_block *next) {
    unsigned before = _mm_getcsr();
    /* Calls of fetch(): 32 for each 128 columns, and for each 32 of the rest; scores prefetches what is left. */
    size_t times = BF16_STEP * (t->D / 128 + t->D % 128 / 32);
    ahead keys = ahead_of(t, next ? next->k : NULL, 0, lines_of(t, FV_KV_BLOCK) / times);
    ahead values = ahead_of(t, next ? next->v : NULL, 0, lines_of(t, HALF) / times);
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    add_values_of_one(t, block, keys, values);
    _mm_setcsr(before);
}

static void values_amx(attn_item *t, const void *block, int32_t n) {
    const fv_kv_block *next = t->after;
    attn_shrink(t);
    if (is_whole_and_one(t)) {
        values_of_one(t, block, next);
        return;
    }
    for (int32_t v = 0; v < t->R; v++) { /* narrows p, already rounded, to bf16 in place */
        float *p = t->s + (size_t)v * FV_KV_BLOCK;
        for (int j = 0; j < FV_KV_BLOCK; j += LANES)
            _mm256_storeu_si256(
                (void *)((uint16_t *)p + j),
                _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_loadu_si512(p + j), 16)));
    }
    if (attn_rows_shared(t, block, n)) {
        pack_values(t, block, attn_most_seen(t), next ? next->k : NULL);
        for (int32_t v0 = 0; v0 < t->R; v0 += TILE_ROWS) add_values(t, v0, next);
        return;
    }
    for (int32_t v = 0; v < t->R; v++) { /* saves the tile's other rows, and restores them */
        size_t others = (TILE_ROWS - 1) * t->Dp;
        float *after = t->o + (size_t)(v + 1) * t->Dp, *kept = t->k;
        memcpy(kept, after, others * sizeof *kept);
        pack_values(t, block, t->n_seen[v], NULL);
        add_values(t, v, NULL);
        memcpy(after, kept, others * sizeof *kept);
    }
}

const attn_products fv_amx_attention = {.bf16 = true,
                                        .item_vectors = AMX_VECTORS,
                                        .pad = BF16_STEP,
                                        .zero = 0.0f,
                                        .close = tiles_close,
                                        .copy_queries = copy_queries_amx,
                                        .scores = scores_amx,
                                        .values = values_amx};
