/* Canonical products of attention with AVX-512 BF16, for few vectors. Keys and values are read once, in
 * place and in memory order, and become words (avx512bf16/words.h) in registers:
 *
 *     scores   8 keys a register, a word of even and one of odd numbers of each: four numbers of a key stay
 *              together. One vector takes 8 keys at a time, whose cache lines are read whole; more take 16
 *     values   16 columns a register, a word of rows j and j + 2 in each
 *
 * The next keys or values are prefetched meanwhile, line after line: memory is read fastest so. */
#include <string.h>

#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/avx512bf16/eight_rows.h"
#include "kernels/cpu/avx512bf16/products.h"
#include "kernels/cpu/avx512bf16/sixteen_rows.h"

enum {
    FEW = 8,    /* vectors of an item */
    COLUMNS = 8 /* registers of columns, at most */
};

static bool takes(const attn_item *t) {
    return t->R <= FEW && t->a->kv_dtype == FV_BF16 && t->D % WORDS_STEP == 0;
}

/* ---- prefetching ----------------------------------------------------------------------- */

typedef struct ahead {
    const char *at, *end;
} ahead;

static ahead ahead_of(const attn_item *t, const void *at, int32_t n) {
    size_t bytes = at ? (size_t)n * t->D * sizeof(uint16_t) : 0;
    return (ahead){at, (const char *)at + bytes};
}

static ALWAYS_INLINE void fetch(ahead *a, const int lines) {
    if (a->end - a->at >= 64 * (ptrdiff_t)lines) {
        UNROLL for (int i = 0; i < lines; i++) _mm_prefetch(a->at + 64 * i, _MM_HINT_T1);
        a->at += 64 * (ptrdiff_t)lines;
        return;
    }
    for (; a->at < a->end; a->at += 64) _mm_prefetch(a->at, _MM_HINT_T1);
}

/* ---- words ----------------------------------------------------------------------------- */

static void copy_queries(attn_item *t) {
    uint32_t *to = (uint32_t *)t->q;
    for (int32_t v = 0; v < t->R; v++) {
        const float *q = attn_query(t, v);
        for (size_t d = 0; d < t->D; d += WORDS_STEP, to += STEP_WORDS)
            _mm512_storeu_si512(to, alternating_words(q + d));
    }
}

/* ---- scores ---------------------------------------------------------------------------- */

/* Scores of 16 keys and mr vectors; mr and `whole`, whether all keys exist, are constants after inlining. */
static ALWAYS_INLINE void score_keys(const rows_in_place *k, const bool whole, const uint32_t *q,
                                     size_t words, const int mr, float *s, ahead *next) {
    __m512 acc[PASS_VECTORS];
    UNROLL for (int i = 0; i < mr; i++) acc[i] = _mm512_setzero_ps();
    for (size_t w = 0; w < words; w += STEP_WORDS) {
        fetch(next, SIXTEEN_ROWS);
        sixteen_rows_step(k, whole, 4 * w, q + w, words, mr, acc);
    }
    UNROLL for (int i = 0; i < mr; i++) _mm512_storeu_ps(s + i * FV_KV_BLOCK, acc[i]);
}

/* Scores of eight keys and one vector. */
static ALWAYS_INLINE void score_eight(const rows_in_place *k, const bool whole, const uint32_t *q,
                                      size_t words, float *s, ahead *next) {
    __m512 sums = _mm512_setzero_ps();
    for (size_t w = 0; w < words; w += STEP_WORDS) {
        __m512i rows[EIGHT], of[EIGHT];
        UNROLL for (int i = 0; i < EIGHT; i++) {
            rows[i] = _mm512_loadu_si512(row_in_place(k, i, whole) + 4 * w);
        }
        fetch(next, EIGHT);
        UNROLL for (int i = 0; i < EIGHT; i += 2) eight_rows_merge(&rows[i], &rows[i + 1]);
        eight_rows_transpose_merged(rows, of);
        eight_rows_step(of, q + w, words, 1, &sums);
    }
    _mm256_storeu_ps(s, eight_rows_once(sums));
}

/* Scores of n keys and vector v. */
static ALWAYS_INLINE void score_eights(const attn_item *t, const char *k, const size_t stride,
                                       int32_t n, int32_t v, ahead *next) {
    const size_t words = stride / sizeof(uint32_t);
    const uint32_t *q = (const uint32_t *)t->q + (size_t)v * words;
    float *s = t->s + (size_t)v * FV_KV_BLOCK;
    for (int32_t j = 0; j < n; j += EIGHT) {
        rows_in_place keys = {k + (size_t)j * stride, stride, n - j};
        if (n - j >= EIGHT)
            score_eight(&keys, true, q, words, s + j, next);
        else
            score_eight(&keys, false, q, words, s + j, next);
    }
}

/* Scores of n keys and mr vectors from v0 on. */
static ALWAYS_INLINE void score_rows(const attn_item *t, const char *k, const size_t stride,
                                     int32_t n, int32_t v0, const int mr, ahead *next) {
    const size_t words = stride / sizeof(uint32_t);
    const uint32_t *q = (const uint32_t *)t->q + (size_t)v0 * words;
    float *s = t->s + (size_t)v0 * FV_KV_BLOCK;
    for (int32_t j = 0; j < n; j += SIXTEEN_ROWS) {
        rows_in_place keys = {k + (size_t)j * stride, stride, n - j};
        if (n - j >= SIXTEEN_ROWS)
            score_keys(&keys, true, q, words, mr, s + j, next);
        else
            score_keys(&keys, false, q, words, mr, s + j, next);
    }
}

/* Not inlined, like value_vectors: the compiler must not move its arithmetic across the caller's changes of MXCSR. */
static NEVER_INLINE void score_vectors(const attn_item *t, const char *k, int32_t n, ahead next) {
    const size_t stride = t->D * sizeof(uint16_t);
    for (int32_t v = 0; v < t->R; v += PASS_VECTORS) {
        switch (t->R - v) {
        case 1:
            if (stride == 256)
                score_eights(t, k, 256, n, v, &next);
            else
                score_eights(t, k, stride, n, v, &next);
            break;
        case 2: score_rows(t, k, stride, n, v, 2, &next); break;
        case 3: score_rows(t, k, stride, n, v, 3, &next); break;
        default: score_rows(t, k, stride, n, v, PASS_VECTORS, &next);
        }
    }
}

static void scores(attn_item *t, const void *k, const void *next, int32_t n) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    score_vectors(t, k, n, ahead_of(t, next, n));
    _mm_setcsr(before);
}

/* ---- values ---------------------------------------------------------------------------- */

/* Packs a vector's p as words, [64 / 2], in the order of alternating_words(). */
static void share_words(const float *p, int32_t n, uint32_t *to) {
    for (int32_t j = 0; j < n; j += WORDS_STEP, to += STEP_WORDS)
        _mm512_storeu_si512(to, alternating_words(p + j));
}

/* Adds rows j to j + 3 of v, of which the first `rows` exist. */
static ALWAYS_INLINE void add_rows(const uint16_t *v, size_t D, const int rows, const uint32_t *p,
                                   const int mr, const int nv, __m512 *even, __m512 *odd) {
    enum { WORDS = FV_KV_BLOCK / 2 };
    const __m512i zero = _mm512_setzero_si512();
    const __m512i lower =
        _mm512_set_epi16(15, 47, 14, 46, 13, 45, 12, 44, 11, 43, 10, 42, 9, 41, 8, 40, 7, 39, 6, 38,
                         5, 37, 4, 36, 3, 35, 2, 34, 1, 33, 0, 32);
    const __m512i upper = _mm512_add_epi16(lower, _mm512_set1_epi16(16));
    UNROLL for (int x = 0; x < nv; x += 2) {
        __m512i row[4];
        UNROLL for (int i = 0; i < 4; i++) {
            row[i] = i < rows ? _mm512_loadu_si512(v + (size_t)i * D + x * 16) : zero;
        }
        __m512i e0 = _mm512_permutex2var_epi16(row[0], lower, row[2]);
        __m512i e1 = _mm512_permutex2var_epi16(row[0], upper, row[2]);
        __m512i o0 = _mm512_permutex2var_epi16(row[1], lower, row[3]);
        __m512i o1 = _mm512_permutex2var_epi16(row[1], upper, row[3]);
        UNROLL for (int i = 0; i < mr; i++) {
            __m512i pe = _mm512_set1_epi32((int)p[i * WORDS]);
            __m512i po = _mm512_set1_epi32((int)p[i * WORDS + 1]);
            even[i * nv + x] = dot_words(even[i * nv + x], pe, e0);
            even[i * nv + x + 1] = dot_words(even[i * nv + x + 1], pe, e1);
            odd[i * nv + x] = dot_words(odd[i * nv + x], po, o0);
            odd[i * nv + x + 1] = dot_words(odd[i * nv + x + 1], po, o1);
        }
    }
}

/* o = o + p v for mr vectors and nv registers of columns. */
static ALWAYS_INLINE void value_columns(const uint16_t *v, size_t D, int32_t n, const uint32_t *p,
                                        const int mr, const int nv, float *o, size_t ldo,
                                        ahead *next) {
    for (int32_t j = 0; j < n;) {
        const int32_t end = n < j + WORDS_STEP ? n : j + WORDS_STEP;
        __m512 even[COLUMNS], odd[COLUMNS];
        UNROLL for (int i = 0; i < mr * nv; i++) even[i] = odd[i] = _mm512_setzero_ps();
        for (; j + 4 <= end; j += 4, v += 4 * D, p += 2) {
            fetch(next, 2 * nv);
            add_rows(v, D, 4, p, mr, nv, even, odd);
        }
        switch (end - j) {
        case 1: add_rows(v, D, 1, p, mr, nv, even, odd); break;
        case 2: add_rows(v, D, 2, p, mr, nv, even, odd); break;
        case 3: add_rows(v, D, 3, p, mr, nv, even, odd); break;
        default: break;
        }
        j = end;
        UNROLL for (int i = 0; i < mr; i++) {
            UNROLL for (int x = 0; x < nv; x++) {
                float *to = o + (size_t)i * ldo + x * 16;
                __m512 sum = _mm512_add_ps(even[i * nv + x], odd[i * nv + x]);
                _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sum));
            }
        }
    }
}

static ALWAYS_INLINE void value_rows_of(const attn_item *t, const uint16_t *v, int32_t n,
                                        int32_t v0, const uint32_t *p, const int mr, const int nv,
                                        ahead *next) {
    for (size_t d = 0; d < t->D; d += (size_t)nv * 16)
        value_columns(v + d, t->D, n, p, mr, nv, t->o + (size_t)v0 * t->Dp + d, t->Dp, next);
}

static NEVER_INLINE void value_vectors(const attn_item *t, const uint16_t *v, int32_t n, int32_t v0,
                                       int32_t count, const uint32_t *p, ahead next) {
    for (int32_t i = 0; i < count; i += PASS_VECTORS, p += PASS_VECTORS * FV_KV_BLOCK / 2) {
        switch (count - i) {
        case 1:
            if (t->D % 128 == 0)
                value_rows_of(t, v, n, v0 + i, p, 1, 8, &next);
            else
                value_rows_of(t, v, n, v0 + i, p, 1, 2, &next);
            break;
        case 2:
            if (t->D % 64 == 0)
                value_rows_of(t, v, n, v0 + i, p, 2, 4, &next);
            else
                value_rows_of(t, v, n, v0 + i, p, 2, 2, &next);
            break;
        case 3: value_rows_of(t, v, n, v0 + i, p, 3, 2, &next); break;
        default: value_rows_of(t, v, n, v0 + i, p, PASS_VECTORS, 2, &next);
        }
    }
}

/* o = o + p v of `count` vectors from v0 on, rows j < n. */
static void add_values(attn_item *t, const void *v, int32_t n, int32_t v0, int32_t count) {
    uint32_t p[FEW * FV_KV_BLOCK / 2];
    for (int32_t i = 0; i < count; i++)
        share_words(t->s + (size_t)(v0 + i) * FV_KV_BLOCK, n, p + i * FV_KV_BLOCK / 2);
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040); /* FTZ, DAZ */
    value_vectors(t, v, n, v0, count, p, ahead_of(t, t->after ? t->after->k : NULL, t->n_after));
    _mm_setcsr(before);
}

static void values(attn_item *t, const void *block, int32_t n) {
    attn_shrink(t);
    if (attn_rows_shared(t, block, n)) {
        add_values(t, block, attn_most_seen(t), 0, t->R);
        return;
    }
    for (int32_t v = 0; v < t->R; v++) add_values(t, block, t->n_seen[v], v, 1);
}

const attn_products fv_avx512bf16_attention_decode = {
    .bf16 = true, .takes = takes, .copy_queries = copy_queries, .scores = scores, .values = values};
