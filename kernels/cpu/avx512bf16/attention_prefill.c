/* Attention in bf16 with AVX-512 BF16 (avx512bf16/words.h) for many vectors. A lane is a vector from the scores to o, so
 * the softmax and the factor c run in lanes as well, and neither scores nor p are transposed. 16 vectors are a group,
 * three groups a band; a band goes through a block from scores to o before the next band does:
 *
 *     k, v   words along a row for keys, of rows j and j + 2 of a column for values: one shuffle for 32 numbers,
 *            once for all bands
 *     q      words [bands, Dp / 2, BAND], once an item
 *     s, p   [64, BAND], words [32, BAND]
 *     o      [bands, D, BAND]; transposed to rows after the last block
 *
 * Groups skip runs of four keys that none of their vectors sees. */
#include "kernels/cpu/attention_rows.h"
#include "kernels/cpu/avx512bf16/products.h"
#include "kernels/cpu/avx512bf16/softmax.h"
#include "kernels/cpu/avx512bf16/vector_lanes.h"

enum { GROUP = 16, BAND = VECTOR_BAND, KEYS = 16 /* the softmax takes keys by 16 */ };

static bool takes(const attn_item *t) {
    return t->R <= 2 * FV_KV_BLOCK && t->a->kv_dtype == FV_BF16 && t->D % VECTOR_ROWS == 0 &&
           !t->seq->share;
}

static int n_group(const attn_item *t) { return (t->R + GROUP - 1) / GROUP; }
static int n_band(const attn_item *t) { return (t->R + BAND - 1) / BAND; }

/* Enables FTZ and DAZ; returns the old MXCSR. */
static unsigned flush_subnormal(void) {
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    return before;
}

static int groups_of(const attn_item *t, int band) {
    const int left = n_group(t) - band * VECTOR_GROUPS;
    return left < VECTOR_GROUPS ? left : VECTOR_GROUPS;
}

static uint32_t *band_queries(const attn_item *t, int band) {
    return (uint32_t *)t->q + (size_t)band * BAND * t->Dp / 2;
}

static float *band_o(const attn_item *t, int band) { return t->o + (size_t)band * BAND * t->D; }

/* Mask of the first n of 32 numbers. */
static __mmask32 first_of(size_t n) { return n < WORDS_STEP ? (1u << n) - 1 : ~0u; }

/* ---- prefetching ----------------------------------------------------------------------- */

/* Memory to prefetch, a few lines between products: the next block's keys and values, then rows of q of the next
 * item and of o of this one, which are far from each other. */
typedef struct ahead {
    attn_item *t;      /* NULL: no rows of q and o */
    const char *at[2]; /* keys, values */
    size_t bytes;      /* left of each */
} ahead;

enum { LINES = 8 };

static ahead ahead_of(attn_item *t) {
    ahead a = {.t = t};
    if (t->after) {
        a.at[0] = t->after->k;
        a.at[1] = t->after->v;
        a.bytes = (size_t)t->n_after * t->D * sizeof(uint16_t);
    }
    return a;
}

static void fetch_row(attn_item *t) {
    const int32_t n = t->following ? t->following->R : 0, i = t->fetched++;
    if (i >= n + t->R) return;
    const float *row = i < n ? attn_query(t->following, i) : attn_output(t, i - n);
    for (size_t d = 0; d < t->D; d += 64 / sizeof *row)
        _mm_prefetch((const void *)(row + d), _MM_HINT_T1);
}

static void fetch(ahead *a) {
    if (a->bytes == 0 && a->t) fetch_row(a->t);
    for (int i = 0; i < LINES && a->bytes > 0; i++) {
        _mm_prefetch(a->at[0], _MM_HINT_T1);
        _mm_prefetch(a->at[1], _MM_HINT_T1);
        a->at[0] += 64;
        a->at[1] += 64;
        a->bytes = a->bytes > 64 ? a->bytes - 64 : 0;
    }
}

/* ---- words ----------------------------------------------------------------------------- */

/* Words of one step of 16 vectors at column d, even and odd in turn. */
static void query_words(const attn_item *t, int v0, size_t d, __m512i words[GROUP]) {
    const __mmask32 in = first_of(t->D - d);
    for (int i = 0; i < GROUP; i++) {
        words[i] = _mm512_setzero_si512();
        if (v0 + i >= t->R) continue;
        const float *q = attn_query(t, v0 + i) + d;
        words[i] =
            alternating_words_of(narrow(_mm512_maskz_loadu_ps((__mmask16)in, q),
                                        _mm512_maskz_loadu_ps((__mmask16)(in >> 16), q + 16)));
    }
    i32x16_transpose(words);
}

static void copy_queries(attn_item *t) {
    for (int g = 0; g < n_group(t); g++) {
        uint32_t *to = band_queries(t, g / VECTOR_GROUPS) + g % VECTOR_GROUPS * GROUP;
        for (size_t d = 0; d < t->Dp; d += WORDS_STEP) {
            __m512i words[GROUP];
            query_words(t, g * GROUP, d, words);
            for (int i = 0; i < GROUP; i++, to += BAND) _mm512_storeu_si512(to, words[i]);
        }
    }
}

/* Packs n keys and up to three rows of zeros as words: [n, Dp / 2], even and odd in turn. */
static broadcast_words key_words(attn_item *t, const uint16_t *k, int32_t n) {
    uint32_t *to = (uint32_t *)t->k;
    for (int32_t j = 0; j < n; j++, k += t->D)
        for (size_t d = 0; d < t->Dp; d += WORDS_STEP, to += STEP_WORDS)
            _mm512_storeu_si512(
                to, alternating_words_of(_mm512_maskz_loadu_epi16(first_of(t->D - d), k + d)));
    memset(to, 0, (size_t)(-n & (VECTOR_ROWS - 1)) * t->Dp / 2 * sizeof *to);
    return (broadcast_words){.at = (uint32_t *)t->k, .row = t->Dp / 2, .pair = 2, .odd = 1};
}

/* Packs 32 columns of rows j to j + 3 as words; rows from `rows` on are zeros. */
static ALWAYS_INLINE void four_rows(const uint16_t *v, size_t D, const int rows, __mmask32 in,
                                    uint32_t *to, size_t ld) {
    const __m512i lower =
        _mm512_set_epi16(15, 47, 14, 46, 13, 45, 12, 44, 11, 43, 10, 42, 9, 41, 8, 40, 7, 39, 6, 38,
                         5, 37, 4, 36, 3, 35, 2, 34, 1, 33, 0, 32);
    const __m512i upper = _mm512_add_epi16(lower, _mm512_set1_epi16(16));
    __m512i row[4];
    UNROLL for (int i = 0; i < 4; i++) {
        row[i] =
            i < rows ? _mm512_maskz_loadu_epi16(in, v + (size_t)i * D) : _mm512_setzero_si512();
    }
    UNROLL for (int i = 0; i < 2; i++, to += ld) {
        _mm512_storeu_si512(to, _mm512_permutex2var_epi16(row[i], lower, row[i + 2]));
        _mm512_storeu_si512(to + 16, _mm512_permutex2var_epi16(row[i], upper, row[i + 2]));
    }
}

/* Packs n rows of v and up to three rows of zeros as words: [n / 2, Dp], even and odd in turn. */
static broadcast_words value_words(attn_item *t, const uint16_t *v, int32_t n) {
    const size_t ld = t->Dp + 16; /* so that a column's rows are in different sets of L1 */
    uint32_t *to = (uint32_t *)t->v;
    for (int32_t j = 0; j < n; j += 4, v += 4 * t->D, to += 2 * ld)
        for (size_t d = 0; d < t->Dp; d += WORDS_STEP) {
            const __mmask32 in = first_of(t->D - d);
            switch (n - j) {
            case 1: four_rows(v + d, t->D, 1, in, to + d, ld); break;
            case 2: four_rows(v + d, t->D, 2, in, to + d, ld); break;
            case 3: four_rows(v + d, t->D, 3, in, to + d, ld); break;
            default: four_rows(v + d, t->D, 4, in, to + d, ld);
            }
        }
    return (broadcast_words){.at = (uint32_t *)t->v, .row = 1, .pair = 2 * ld, .odd = ld};
}

/* ---- visible keys ---------------------------------------------------------------------- */

/* For each of a band's groups, the least and the most keys of the block that one of its vectors sees. */
typedef struct seen_keys {
    int groups, least[VECTOR_GROUPS], most[VECTOR_GROUPS];
} seen_keys;

static seen_keys seen_keys_of(const attn_item *t, int band) {
    seen_keys seen = {.groups = groups_of(t, band)};
    for (int g = 0; g < seen.groups; g++) {
        const __m512i n = _mm512_loadu_si512(t->n_seen + band * BAND + g * GROUP);
        seen.least[g] = _mm512_reduce_min_epi32(n);
        seen.most[g] = _mm512_reduce_max_epi32(n);
    }
    return seen;
}

/* Groups [lo, hi) span those that see key j. Returns the most keys that one of them sees. */
static ALWAYS_INLINE int groups_at(const seen_keys *seen, int j, int *lo, int *hi) {
    int most = 0;
    *lo = 0;
    *hi = seen->groups;
    while (*lo < seen->groups && seen->most[*lo] <= j) ++*lo;
    while (*hi > *lo && seen->most[*hi - 1] <= j) --*hi;
    for (int g = *lo; g < *hi; g++) most = seen->most[g] > most ? seen->most[g] : most;
    return most;
}

/* ---- scores ---------------------------------------------------------------------------- */

/* Scores of mr keys for ng groups. */
static ALWAYS_INLINE void score_tile(broadcast_words keys, const uint32_t *q, size_t steps,
                                     const int mr, const int ng, float *to) {
    ROLLED for (size_t s = 0; s < steps; s++, keys.at += STEP_WORDS, q += STEP_WORDS * BAND) {
        __m512 sum[VECTOR_TILE];
        leave_registers();
        vector_step(&keys, q, HALF_WORDS, mr, ng, sum);
        UNROLL for (int i = 0; i < mr * ng; i++) {
            float *at = to + i / ng * BAND + i % ng * GROUP;
            __m512 x = s > 0 ? _mm512_loadu_ps(at) : _mm512_setzero_ps();
            _mm512_storeu_ps(at, _mm512_add_ps(x, sum[i]));
        }
    }
}

/* Scores of the first n keys. Not inlined: the compiler must not move its arithmetic across the caller's changes of
 * MXCSR. */
static NEVER_INLINE void score_keys(const attn_item *t, broadcast_words keys, int band,
                                    const seen_keys *seen, int32_t n, ahead *next) {
    const size_t steps = t->Dp / WORDS_STEP;
    const uint32_t *of = band_queries(t, band);
    float *s = t->s;
    for (int32_t j = 0, lo, hi; j < n;
         j += VECTOR_ROWS, s += VECTOR_ROWS * BAND, keys.at += VECTOR_ROWS * keys.row) {
        groups_at(seen, j, &lo, &hi);
        fetch(next);
        const uint32_t *q = of + lo * GROUP;
        float *to = s + lo * GROUP;
        switch (hi - lo) {
        case 0: break;
        case 1: score_tile(keys, q, steps, VECTOR_ROWS, 1, to); break;
        case 2: score_tile(keys, q, steps, VECTOR_ROWS, 2, to); break;
        default: score_tile(keys, q, steps, VECTOR_ROWS, VECTOR_GROUPS, to);
        }
    }
}

/* ---- softmax --------------------------------------------------------------------------- */

/* Scales scores of group g up to whole 16 keys, -inf where a vector does not see a key. Returns the largest score, or m
 * where m is larger; *sees: the vectors that see a key. All of the group's vectors see the first `least` keys, none
 * sees more than `most`. position: positions of the block's keys, or NULL. */
static ALWAYS_INLINE __m512 scale_scores(const attn_item *t, int g, int least, int most, float *s,
                                         const int32_t *position, __m512 m, __mmask16 *sees) {
    const __m512 scale = _mm512_set1_ps(t->a->scale), none = _mm512_set1_ps(-INFINITY);
    const __m512i n = _mm512_loadu_si512(t->n_seen + g * GROUP);
    if (position) least = 0;
    __m512 top[4] = {m, m, m, m};
    int j = 0;
    for (; j + 4 <= least; j += 4) UNROLL for (int i = 0; i < 4; i++) {
            float *at = s + (j + i) * BAND;
            __m512 x = _mm512_mul_ps(_mm512_loadu_ps(at), scale);
            _mm512_storeu_ps(at, x);
            top[i] = _mm512_max_ps(x, top[i]);
        }
    if (least > 0) *sees = _mm512_cmpgt_epi32_mask(n, _mm512_setzero_si512());
    for (; j < most; j++) {
        float *at = s + j * BAND;
        __mmask16 in = _mm512_cmpgt_epi32_mask(n, _mm512_set1_epi32(j));
        if (position) {
            int32_t from[GROUP];
            for (int i = 0; i < GROUP; i++) {
                int v = g * GROUP + i;
                from[i] = v < t->R ? t->seq->window_from[t->row0 + v / t->group] : 0;
            }
            in = _mm512_mask_cmple_epi32_mask(in, _mm512_loadu_si512(from),
                                              _mm512_set1_epi32(position[j]));
        }
        __m512 x = _mm512_mask_mul_ps(none, in, _mm512_loadu_ps(at), scale);
        _mm512_storeu_ps(at, x);
        top[0] = _mm512_max_ps(x, top[0]);
        *sees |= in;
    }
    for (; j % KEYS; j++) _mm512_storeu_ps(s + j * BAND, none);
    return _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
}

/* Scores of group g become p; m, l and c as in softmax(). */
static void soften(attn_item *t, int g, int least, int most, const int32_t *position) {
    const int at = g * GROUP, in_band = g % VECTOR_GROUPS * GROUP;
    float *s = t->s + in_band;
    const __m512 m = _mm512_loadu_ps(t->m + at), l = _mm512_loadu_ps(t->l + at);
    __mmask16 sees = 0;
    __m512 top = scale_scores(t, g, least, most, s, position, m, &sees);
    __m512 sum = many_shares(s, _mm512_maskz_mov_ps(sees, top), (most + KEYS - 1) / KEYS,
                             (uint32_t *)t->p + in_band);
    __m512 c = _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), sees, exp_lanes(_mm512_sub_ps(m, top)));
    _mm512_storeu_ps(t->c + at, c);
    _mm512_storeu_ps(t->l + at, _mm512_mask_mov_ps(l, sees, _mm512_fmadd_ps(l, c, sum)));
    _mm512_storeu_ps(t->m + at, _mm512_mask_mov_ps(m, sees, top));
}

/* ---- values ---------------------------------------------------------------------------- */

/* o = o * c + p v for some groups, over n rows of v. */
typedef struct value_part {
    broadcast_words v;
    const uint32_t *p;
    const float *c; /* NULL: all are 1 */
    float *o;
    int n;
} value_part;

/* o for mr columns and ng groups. */
static ALWAYS_INLINE void value_tile(const value_part *a, broadcast_words v, float *o, const int mr,
                                     const int ng) {
    const uint32_t *p = a->p;
    const float *c = a->c;
    ROLLED for (int n = a->n; n > 0; n -= WORDS_STEP) {
        __m512 sum[VECTOR_TILE];
        leave_registers();
        vector_step(&v, p, n < WORDS_STEP ? (n + 3) / 4 : HALF_WORDS, mr, ng, sum);
        UNROLL for (int i = 0; i < mr * ng; i++) {
            float *at = o + i / ng * BAND + i % ng * GROUP;
            __m512 x = _mm512_loadu_ps(at);
            if (c) x = _mm512_mul_ps(x, _mm512_loadu_ps(c + i % ng * GROUP));
            _mm512_storeu_ps(at, _mm512_add_ps(x, sum[i]));
        }
        v.at += HALF_WORDS * v.pair;
        p += STEP_WORDS * BAND;
        c = NULL;
    }
}

static ALWAYS_INLINE void value_columns(const value_part *a, size_t D, const int ng, ahead *next) {
    const int mr = ng == 1 ? VECTOR_ALONE : VECTOR_ROWS;
    broadcast_words v = a->v;
    float *o = a->o, *end = o + D * BAND;
    for (; end - o >= mr * BAND; o += mr * BAND, v.at += mr) {
        fetch(next);
        value_tile(a, v, o, mr, ng);
    }
    if (o < end) value_tile(a, v, o, VECTOR_ROWS, ng);
}

/* Not inlined, as score_keys(). */
static NEVER_INLINE void value_groups(const value_part *a, size_t D, int ng, ahead *next) {
    switch (ng) {
    case 1: value_columns(a, D, 1, next); break;
    case 2: value_columns(a, D, 2, next); break;
    default: value_columns(a, D, VECTOR_GROUPS, next);
    }
}

static bool all_are_one(const float *c, int n) {
    bool all = true;
    for (int i = 0; i < n; i++) all &= c[i] == 1.0f;
    return all;
}

/* Adds rows [0, n) of v to o [D, BAND] of those of the band's groups that see them. Takes both steps of 32 rows at once
 * where the same groups see them. */
static void add_values(const attn_item *t, broadcast_words v, int band, const seen_keys *seen,
                       float *o, ahead *next) {
    int lo, hi, from, to;
    int most = groups_at(seen, 0, &lo, &hi), later = groups_at(seen, WORDS_STEP, &from, &to);
    const bool once = from == lo && to == hi;
    const float *c = t->c + band * BAND + lo * GROUP;
    value_part a = {.v = v,
                    .p = (const uint32_t *)t->p + lo * GROUP,
                    .c = all_are_one(c, (hi - lo) * GROUP) ? NULL : c,
                    .o = o + lo * GROUP,
                    .n = once || most < WORDS_STEP ? most : WORDS_STEP};
    if (lo < hi) value_groups(&a, t->D, hi - lo, next);
    if (once || from == to) return;
    a.v.at += HALF_WORDS * v.pair;
    a.p = (const uint32_t *)t->p + STEP_WORDS * BAND + from * GROUP;
    a.c = NULL;
    a.o = o + from * GROUP;
    a.n = later - WORDS_STEP;
    value_groups(&a, t->D, to - from, next);
}

/* Adds rows [0, n_seen) for one vector where later rows are not finite: computes its band's o aside, and copies that
 * vector's lane. */
static void values_of_one(attn_item *t, const uint16_t *block, int32_t vector, int groups) {
    const int lane = vector % BAND;
    const int32_t n = t->n_seen[vector];
    float *aside = band_o(t, n_band(t)), *o = band_o(t, vector / BAND);
    seen_keys seen = {.groups = groups};
    ahead nothing = {0};
    seen.most[lane / GROUP] = n;
    memcpy(aside, o, t->D * BAND * sizeof *o);
    unsigned before = flush_subnormal();
    add_values(t, value_words(t, block, n), vector / BAND, &seen, aside, &nothing);
    _mm_setcsr(before);
    for (size_t d = 0; d < t->D; d++) o[d * BAND + lane] = aside[d * BAND + lane];
}

/* ---- a block --------------------------------------------------------------------------- */

static void whole_block(attn_item *t, const void *k, const void *v, int32_t n,
                        const int32_t *position) {
    const bool shared = attn_rows_shared(t, v, n);
    const broadcast_words keys = key_words(t, k, n);
    broadcast_words values = {0};
    ahead next = ahead_of(t);
    if (shared) values = value_words(t, v, attn_most_seen(t));
    for (int i = t->R; i < n_group(t) * GROUP; i++) t->n_seen[i] = 0;
    for (int band = 0; band < n_band(t); band++) {
        const seen_keys seen = seen_keys_of(t, band);
        unsigned before = flush_subnormal();
        score_keys(t, keys, band, &seen, n, &next);
        _mm_setcsr(before);
        for (int g = 0; g < seen.groups; g++)
            soften(t, band * VECTOR_GROUPS + g, seen.least[g], seen.most[g], position);
        if (shared) {
            flush_subnormal();
            add_values(t, values, band, &seen, band_o(t, band), &next);
            _mm_setcsr(before);
        }
        for (int32_t i = band * BAND; !shared && i < t->R && i < (band + 1) * BAND; i++)
            values_of_one(t, v, i, seen.groups);
    }
}

static const float *rows_of_o(attn_item *t) {
    float *to = t->k; /* continues into t->v: room for 128 rows */
    for (int g = 0; g < n_group(t); g++, to += GROUP * t->Dp) {
        const float *o = band_o(t, g / VECTOR_GROUPS) + g % VECTOR_GROUPS * GROUP;
        for (size_t d = 0; d < t->D; d += GROUP) {
            __m512i r[GROUP];
            for (size_t i = 0; i < GROUP; i++)
                r[i] =
                    d + i < t->D ? _mm512_loadu_si512(o + (d + i) * BAND) : _mm512_setzero_si512();
            i32x16_transpose(r);
            for (size_t i = 0; i < GROUP; i++) _mm512_storeu_si512(to + i * t->Dp + d, r[i]);
        }
    }
    return t->k;
}

/* ---- scores alone ---------------------------------------------------------------------- */

/* Scores transposed to rows, for score_sums. */
static void scores(attn_item *t, const void *k, const void *after, int32_t n) {
    const broadcast_words keys = key_words(t, k, n);
    float *const rows = t->s, *const lines = t->o;
    ahead nothing = {0};
    (void)after;
    for (int band = 0; band < n_band(t); band++) {
        seen_keys seen = {.groups = groups_of(t, band)};
        for (int g = 0; g < seen.groups; g++) seen.most[g] = n;
        unsigned before = flush_subnormal();
        t->s = lines;
        score_keys(t, keys, band, &seen, n, &nothing);
        t->s = rows;
        _mm_setcsr(before);
        for (int32_t j = 0; j < n; j += GROUP)
            for (int g = 0; g < seen.groups; g++) {
                __m512i r[GROUP];
                for (int i = 0; i < GROUP; i++)
                    r[i] = _mm512_loadu_si512(lines + (j + i) * BAND + g * GROUP);
                i32x16_transpose(r);
                for (int i = 0, v = band * BAND + g * GROUP; i < GROUP && v < t->R; i++, v++)
                    _mm512_storeu_si512(rows + v * FV_KV_BLOCK + j, r[i]);
            }
    }
}

const attn_products fv_avx512bf16_attention_prefill = {.bf16 = true,
                                                       .takes = takes,
                                                       .copy_queries = copy_queries,
                                                       .scores = scores,
                                                       .whole_block = whole_block,
                                                       .rows_of_o = rows_of_o};
