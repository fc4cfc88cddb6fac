/* The products of attention in bf16 with AMX (amx.h).
 *
 *     scores   A: keys as they lie, 16 rows of a block; B: 16 query vectors in pairs, packed once.
 *              Sums are [keys, vectors], and are transposed
 *     values   A: p, 16 vectors and 64 rows; B: v in pairs of rows, which is laid so once a block
 *
 * A block's 64 keys are four tiles of sums, and so are 64 columns of v. What is not whole, and KV of
 * another type, goes through a copy. */
#include "kernels/cpu/amx.h"
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/linear_parts_lanes.h"

enum { WORDS = TILE_BYTES / 4 };

static void open_tiles(void) { tiles_open(TILE_ROWS); }

/* t->q: [16 vectors][step of D], tiles. */
static void copy_queries_amx(attn_item *t) {
    size_t steps = t->Dp / BF16_STEP;
    for (int32_t v0 = 0; v0 < t->R; v0 += TILE_ROWS) {
        const float *rows[TILE_ROWS] = {NULL};
        for (int i = 0; i < TILE_ROWS && v0 + i < t->R; i++) {
            int32_t v = v0 + i;
            rows[i] = row_f32(&t->a->q, (int64_t)t->seq->row0 + t->row0 + v / t->group) +
                      (size_t)(t->head0 + v % t->group) * t->D;
        }
        for (size_t s = 0; s < steps; s++)
            pairs_tile(rows, s * BF16_STEP, t->D, TILE_ROWS,
                       (uint32_t *)t->q + ((size_t)v0 / TILE_ROWS * steps + s) * WORDS);
    }
}

/* Asks for what is read next: n rows of a block. */
static void fetch(const attn_item *t, const void *rows, int32_t n) {
    size_t bytes = (size_t)n * t->D * fv_dtype_bytes(t->a->kv_dtype);
    for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)rows + i, _MM_HINT_T0);
}

/* 64 keys times 16 vectors. */
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

static void scores_amx(attn_item *t, const void *block, const void *v, int32_t n) {
    fv_tensor keys = fv_tensor_of((void *)(uintptr_t)block, t->a->kv_dtype, n, (int32_t)t->D);
    bool lie = keys.dtype == FV_BF16 && t->D == t->Dp;
    const uint16_t *k[4];
    size_t stride[4], steps = t->Dp / BF16_STEP;
    fetch(t, v, n);
    for (int g = 0; g < 4; g++) {
        int32_t left = n - g * TILE_ROWS;
        uint16_t *copy = (uint16_t *)t->k + (size_t)g * TILE_ROWS * t->Dp;
        stride[g] = t->Dp * sizeof **k;
        k[g] = left <= 0 ? k[0] : copy; /* nobody reads these scores */
        if (lie && left >= TILE_ROWS)
            k[g] = (const uint16_t *)block + (size_t)g * TILE_ROWS * t->D;
        else if (left > 0)
            bf16_rows(&keys, g * TILE_ROWS, left, 0, t->D, t->Dp, t->Dp, copy);
    }
    for (int32_t v0 = 0; v0 < t->R; v0 += TILE_ROWS) {
        _Alignas(64) float out[4 * WORDS];
        scores_tile(k, stride, (const uint32_t *)t->q + (size_t)v0 / TILE_ROWS * steps * WORDS,
                    steps, out);
        for (int g = 0; g < 4; g++) {
            __m512i r[TILE_ROWS];
            for (int i = 0; i < TILE_ROWS; i++)
                r[i] = _mm512_load_si512(out + g * WORDS + i * TILE_ROWS);
            i32x16_transpose(r);
            for (int i = 0; i < TILE_ROWS; i++)
                _mm512_storeu_si512(t->s + (size_t)(v0 + i) * FV_KV_BLOCK + (size_t)(g * TILE_ROWS),
                                    r[i]);
        }
    }
}

/* Row j of v from column d on, of n rows that are there. */
static NEVER_INLINE __m512i odd_row(const attn_item *t, const void *block, int32_t j, int32_t n,
                                    size_t d) {
    uint16_t tail[BF16_STEP] = {0};
    for (size_t x = 0; j < n && x < BF16_STEP && d + x < t->D; x++)
        tail[x] = bf16_of_f32(widened(block, t->a->kv_dtype, (size_t)j * t->D + d + x));
    return _mm512_loadu_si512(tail);
}

/* Rows j and j + 1 of v from column d on, as pairs; rows from n on are zeros. */
static void pair_rows(const attn_item *t, const void *block, int32_t j, int32_t n, size_t d,
                      uint32_t *lo, uint32_t *hi) {
    static const uint16_t first[32] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                       37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                       11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    __m512i at = _mm512_loadu_si512(first), row[2];
    const uint16_t *v = (const uint16_t *)block + (size_t)j * t->D + d;
    bool whole = t->a->kv_dtype == FV_BF16 && d + BF16_STEP <= t->D;
    row[0] = whole && j < n ? _mm512_loadu_si512(v) : odd_row(t, block, j, n, d);
    row[1] = whole && j + 1 < n ? _mm512_loadu_si512(v + t->D) : odd_row(t, block, j + 1, n, d);
    _mm512_storeu_si512(lo, _mm512_permutex2var_epi16(row[0], at, row[1]));
    at = _mm512_add_epi16(at, _mm512_set1_epi16(TILE_ROWS));
    _mm512_storeu_si512(hi, _mm512_permutex2var_epi16(row[0], at, row[1]));
}

/* t->v: [16 columns][step of 32 rows], tiles. */
static void pack_values(attn_item *t, const void *block, int32_t n) {
    uint32_t *to = (uint32_t *)t->v;
    for (size_t d = 0; d < t->Dp; d += BF16_STEP, to += 4 * WORDS)
        for (int32_t j = 0; j < FV_KV_BLOCK; j += 2) {
            uint32_t *lo = to + j / 2 * TILE_ROWS;
            pair_rows(t, block, j, n, d, lo, lo + 2 * WORDS);
        }
}

/* Four tiles, or two, of 16 vectors: o goes on by p v. */
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

/* For the vectors [v0, v0 + 16), of which the item has room for all. */
static void add_values(attn_item *t, int32_t v0) {
    const uint16_t *p = (const uint16_t *)(t->s + (size_t)v0 * FV_KV_BLOCK);
    const uint32_t *v = (const uint32_t *)t->v;
    float *o = t->o + (size_t)v0 * t->Dp;
    for (size_t d = 0; d < t->Dp; d += 64)
        values_tile(p, v + d / 16 * 2 * WORDS, o + d, t->Dp * sizeof *o, d + 64 <= t->Dp);
}

static void values_amx(attn_item *t, const void *block, int32_t n, const void *next) {
    if (next) fetch(t, next, FV_KV_BLOCK);
    attn_shrink(t);
    for (int32_t v = 0; v < t->R; v++) { /* p as bf16, where it lies */
        float *p = t->s + (size_t)v * FV_KV_BLOCK;
        for (int j = 0; j < FV_KV_BLOCK; j += LANES)
            _mm256_storeu_si256((void *)((uint16_t *)p + j), bf16_of(f32x16_load(p + j)));
    }
    if (attn_rows_shared(t, block, n)) {
        pack_values(t, block, attn_most_seen(t));
        for (int32_t v0 = 0; v0 < t->R; v0 += TILE_ROWS) add_values(t, v0);
        return;
    }
    for (int32_t v = 0; v < t->R; v++) { /* the other rows of its tile are as they were */
        size_t others = (TILE_ROWS - 1) * t->Dp;
        float *after = t->o + (size_t)(v + 1) * t->Dp, *kept = t->k;
        memcpy(kept, after, others * sizeof *kept);
        pack_values(t, block, t->n_seen[v]);
        add_values(t, v);
        memcpy(after, kept, others * sizeof *kept);
    }
}

const attn_products fv_amx_attn_products = {.bf16 = true,
                                            .pad = BF16_STEP,
                                            .zero = 0.0f,
                                            .open = open_tiles,
                                            .close = tiles_close,
                                            .copy_queries = copy_queries_amx,
                                            .scores = scores_amx,
                                            .values = values_amx};
