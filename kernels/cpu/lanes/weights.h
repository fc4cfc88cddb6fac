#ifndef FOVEA_KERNELS_CPU_LANES_WEIGHTS_H
#define FOVEA_KERNELS_CPU_LANES_WEIGHTS_H

/* Helpers of the fast versions of linear: the bias, storing a row of sums, converting rows of weights to
 * bf16, and quantizing rows of x to integers. */
#include <math.h>
#include <string.h>

#include "common/convert.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/int4_offsets.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/path.h"
#include "kernels/number_tables.h"

enum { BF16_STEP = 32, BF16_ROWS = 16 }; /* columns of a step, rows of weights of a panel */

static inline size_t bf16_steps(size_t K) { return (K + BF16_STEP - 1) / BF16_STEP; }

/* Elements [n0, n0 + n) of the bias as f32 in `wide`, or NULL when there is none. */
static inline const float *bias_f32(const fv_tensor *bias, int64_t n0, int n, float *wide) {
    if (!bias->data) return NULL;
    for (int j = 0; j < n; j++) wide[j] = widened(bias->data, bias->dtype, (size_t)(n0 + j));
    return wide;
}

/* Stores the sums of row m and columns [n0, n0 + n) in y; bias [n] or NULL. */
static inline void store_sums(const fv_linear_part *p, int64_t m, int64_t n0, int n,
                              const float *bias, const float *sums) {
    float *y = row_f32(&p->y, m) + n0;
    for (int i = 0; i < n; i++) {
        float sum = bias ? sums[i] + bias[i] : sums[i];
        y[i] = p->accumulate ? sum + y[i] : sum;
    }
}

/* Stores sums in f32 [rows, NR] of a tile in y. */
static inline void store_f32(const fv_gemm_item *t, int m, int rows, int n, int cols,
                             const void *sums) {
    const float *bias = t->bias ? t->bias + n : NULL, *at = sums;
    for (int i = 0; i < rows; i++, at += t->call->impl->tiles->NR)
        store_sums(t->p, t->m0 + m + i, t->n0 + n, cols, bias, at);
}

#ifdef __AVX512F__
/* Narrows 16 operands of a product to bf16; subnormal results may become zeros. */
static inline __m256i bf16_of_16(__m512 x) {
#ifdef __AVX512BF16__
    /* The instruction treats subnormal numbers as zeros, even those that round up to 2^-126. */
    __m512i upper = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff8000));
    if (!_mm512_cmpeq_epi32_mask(upper, _mm512_set1_epi32(0x007f8000)))
        return (__m256i)_mm512_cvtneps_pbh(x);
#endif
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(f32x16_round_bf16(x)), 16));
}
#endif

/* The parameters of a group of integers (kernels/tensor.h). */
typedef struct quant_group {
    float scale, zero, min;
    const float *table;
} quant_group;

#ifdef __AVX512F__
/* How codes of 8 bits become numbers. */
typedef enum int8_numbers { INT8_INTEGERS, INT8_E4M3, INT8_E4M3_SCALED, INT8_TABLE } int8_numbers;

/* The numbers of 16 codes in E4M3. The four bits of the exponent count from 2^-7 where those of f32 count
 * from 2^-127, and subnormal numbers are subnormal in both. */
static ALWAYS_INLINE __m512 e4m3_numbers(__m512i codes) {
    __m512i low = _mm512_and_si512(codes, _mm512_set1_epi32(0x7f));
    __m512 x = _mm512_castsi512_ps(_mm512_slli_epi32(low, 20));
    x = _mm512_mul_ps(x, _mm512_set1_ps(0x1p120f));
    x = _mm512_mask_mov_ps(x, _mm512_cmpeq_epi32_mask(low, _mm512_set1_epi32(0x7f)),
                           _mm512_set1_ps(NAN));
    __m512i sign = _mm512_slli_epi32(_mm512_xor_si512(codes, low), 24);
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(x), sign));
}

/* The same without NaN, times 2^-120: a code's bits in their places of f32. */
static ALWAYS_INLINE __m512 e4m3_scaled(__m128i codes) {
    __m512i wide = _mm512_slli_epi32(_mm512_cvtepi8_epi32(codes), 20);
    return _mm512_castsi512_ps(_mm512_and_si512(wide, _mm512_set1_epi32((int)0x87f00000)));
}

/* Returns whether n codes of a group may be multiplied as e4m3_scaled() by the scale times 2^120: no code is NaN,
 * and that scale is a normal number. */
static inline bool e4m3_may_scale(const int8_t *from, size_t n, float scale) {
    const __m512i low = _mm512_set1_epi8(0x7f);
    __mmask64 nan = 0;
    if (!(fabsf(scale) > 0x1p-126f && fabsf(scale) < 0x1p7f)) return false;
    for (size_t i = 0; i < n; i += 64) {
        __mmask64 in = n - i < 64 ? (1ULL << (n - i)) - 1 : ~0ULL;
        __m512i codes = _mm512_maskz_loadu_epi8(in, from + i);
        nan |= _mm512_cmpeq_epi8_mask(_mm512_and_si512(codes, low), low);
    }
    return nan == 0;
}

/* The numbers of 16 codes of 8 bits; `how` is a constant after inlining. */
static ALWAYS_INLINE __m512 int8_numbers_of(__m128i codes, const float *table,
                                            const int8_numbers how) {
    if (how == INT8_INTEGERS) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes));
    if (how == INT8_E4M3_SCALED) return e4m3_scaled(codes);
    __m512i wide = _mm512_cvtepu8_epi32(codes);
    return how == INT8_E4M3 ? e4m3_numbers(wide) : _mm512_i32gather_ps(wide, table, 4);
}

static ALWAYS_INLINE void int8_decoded(const int8_t *from, size_t n, quant_group g,
                                       const int8_numbers how, uint16_t *to) {
    const float by = how == INT8_E4M3_SCALED ? g.scale * 0x1p120f : g.scale;
    const __m512 scale = _mm512_set1_ps(by), min = _mm512_set1_ps(-g.min);
    for (; n >= 16; n -= 16, from += 16, to += 16) {
        __m512 x = int8_numbers_of(_mm_loadu_si128((const void *)from), g.table, how);
        _mm256_storeu_si256((void *)to, bf16_of_16(_mm512_fmadd_ps(scale, x, min)));
    }
    if (n == 0) return;
    const __mmask16 mask = (__mmask16)((1u << n) - 1);
    __m512 x = int8_numbers_of(_mm_maskz_loadu_epi8(mask, from), g.table, how);
    _mm256_mask_storeu_epi16(to, mask, bf16_of_16(_mm512_fmadd_ps(scale, x, min)));
}
#endif

/* Decodes n integers or codes of 8 bits. */
static inline void int8_group(const int8_t *from, size_t n, quant_group g, uint16_t *to) {
#ifdef __AVX512F__
    if (!g.table)
        int8_decoded(from, n, g, INT8_INTEGERS, to);
    else if (g.table == fv_e4m3 && e4m3_may_scale(from, n, g.scale))
        int8_decoded(from, n, g, INT8_E4M3_SCALED, to);
    else if (g.table == fv_e4m3)
        int8_decoded(from, n, g, INT8_E4M3, to);
    else
        int8_decoded(from, n, g, INT8_TABLE, to);
#else
    for (size_t i = 0; i < n; i++) {
        float x = g.table ? g.table[(uint8_t)from[i]] : (float)from[i];
        to[i] = bf16_of_f32(fmaf(g.scale, x, -g.min));
    }
#endif
}

/* The numbers of the 16 integers of 4 bits: a table for 32 lookups at a time. */
#ifdef __AVX512F__
typedef __m512i int4_table; /* the table twice, as a lookup has indices of five bits */

static ALWAYS_INLINE int4_table int4_table_of(quant_group g, const bool symmetric) {
    const __m512 all = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 x = _mm512_sub_ps(all, _mm512_set1_ps(symmetric ? 8.0f : g.zero));
    if (!symmetric && g.table) x = _mm512_loadu_ps(g.table);
    x = symmetric ? _mm512_mul_ps(_mm512_set1_ps(g.scale), x)
                  : _mm512_fmadd_ps(_mm512_set1_ps(g.scale), x, _mm512_set1_ps(-g.min));
#ifdef __AVX512BF16__
    /* as bf16_of_16, where no product can round to 2^-126 */
    if (symmetric && __builtin_expect((bits_of_f32(g.scale) & 0x7fffffff) > 0x01000000, 1))
        return (__m512i)_mm512_cvtne2ps_pbh(x, x);
#endif
    return _mm512_broadcast_i64x4(bf16_of_16(x));
}

/* Looks up 32 integers in 16 bytes; each is moved to the low bits of a word first. */
static ALWAYS_INLINE __m512i int4_numbers(__m128i bytes, int4_table table) {
    const __m512i spread = _mm512_set_epi64(
        0x0f0e0f0e0f0e0f0e, 0x0d0c0d0c0d0c0d0c, 0x0b0a0b0a0b0a0b0a, 0x0908090809080908,
        0x0706070607060706, 0x0504050405040504, 0x0302030203020302, 0x0100010001000100);
    __m512i four = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), spread);
    return _mm512_permutexvar_epi16(_mm512_srlv_epi16(four, _mm512_set1_epi64(0x000c000800040000)),
                                    table);
}

/* Decodes n integers, the first in a byte's low half. */
static ALWAYS_INLINE void int4_columns(const uint8_t *from, size_t n, int4_table table,
                                       uint16_t *to) {
    if (n == BF16_STEP) {
        _mm512_storeu_si512(to, int4_numbers(_mm_loadu_si128((const void *)from), table));
        return;
    }
    __m128i last = _mm_maskz_loadu_epi8((__mmask16)((1u << (n + 1) / 2) - 1), from);
    _mm512_mask_storeu_epi16(to, (__mmask32)((1u << n) - 1), int4_numbers(last, table));
}
#else
typedef struct int4_table {
    uint16_t of[16];
} int4_table;

static inline int4_table int4_table_of(quant_group g, bool symmetric) {
    int4_table t;
    (void)symmetric;
    for (int i = 0; i < 16; i++) {
        float x = g.table ? g.table[i] : (float)i - g.zero;
        t.of[i] = bf16_of_f32(fmaf(g.scale, x, -g.min));
    }
    return t;
}

static inline void int4_columns(const uint8_t *from, size_t n, int4_table table, uint16_t *to) {
    for (size_t i = 0; i < n; i++) to[i] = table.of[from[i / 2] >> i % 2 * 4 & 15];
}
#endif

/* The parameters of group g of q; `type` and `symmetric` are constants after inlining. */
static ALWAYS_INLINE quant_group group_at(const fv_quant *q, size_t g, const fv_dtype type,
                                          const bool symmetric) {
    if (symmetric) return (quant_group){widened(q->scale, type, g), 8.0f, 0.0f, NULL};
    return (quant_group){widened(q->scale, type, g),
                         q->zero  ? (float)q->zero[g]
                         : q->min ? 0.0f
                                  : 8.0f,
                         q->min ? q->min[g] : 0.0f, q->table};
}

/* Decodes n columns at `from`, which is in group g with `left` columns to go; `group`: columns of a
 * group. */
static ALWAYS_INLINE void int4_row(const fv_quant *q, const uint8_t *from, size_t n, size_t g,
                                   size_t left, const size_t group, const fv_dtype type,
                                   const bool symmetric, uint16_t *to) {
    const fv_quant own = *q; /* a copy, so that the compiler knows that stores do not change it */
    for (; n >= left; g++, n -= left, left = group) {
        int4_table table = int4_table_of(group_at(&own, g, type, symmetric), symmetric);
        for (size_t i = 0; i < left; i += BF16_STEP, from += BF16_STEP / 2, to += BF16_STEP)
            int4_columns(from, BF16_STEP, table, to);
    }
    if (n == 0) return;
    int4_table table = int4_table_of(group_at(&own, g, type, symmetric), symmetric);
    for (size_t i = 0; i < n; i += BF16_STEP)
        int4_columns(from + i / 2, n - i < BF16_STEP ? n - i : BF16_STEP, table, to + i);
}

static inline void int8_row(const fv_quant *q, const int8_t *from, size_t n, size_t g, size_t left,
                            uint16_t *to) {
    for (size_t i = 0, m; i < n; i += m, left = (size_t)q->group) {
        m = n - i < left ? n - i : left;
        int8_group(from + i, m, group_at(q, g++, q->scale_type, false), to + i);
    }
}

/* A block of K, decoded at a time. */
enum { BLOCK_STEPS = 8, BLOCK_COLUMNS = BLOCK_STEPS * BF16_STEP };

#ifdef __AVX512F__
/* Decodes a block of a row with `groups` scales in bf16, a constant; step s goes to `to` + s ld. Returns
 * false without writing where a scale is out of range for fv_int4_offsets. */
static ALWAYS_INLINE bool int4_block(const uint8_t *from, const uint16_t *scales, const int groups,
                                     uint16_t *to, size_t ld) {
    _Alignas(32) uint32_t twice[BLOCK_STEPS], row[BLOCK_STEPS];
    __m128i s = _mm_maskz_loadu_epi16((__mmask8)((1u << groups) - 1), scales);
    __m128i magnitude = _mm_and_si128(s, _mm_set1_epi16(0x7fff));
    __mmask8 other = _mm_cmpge_epu16_mask(_mm_sub_epi16(magnitude, _mm_set1_epi16(0x0080)),
                                          _mm_set1_epi16(0x7d00 - 0x0080));
    if (__builtin_expect(other & ((1u << groups) - 1), 0)) return false;
    __m256i wide = _mm256_cvtepu16_epi32(s);
    _mm256_store_si256((void *)twice, _mm256_or_si256(wide, _mm256_slli_epi32(wide, 16)));
    _mm256_store_si256((void *)row, _mm256_and_si256(wide, _mm256_set1_epi32(127)));
    __asm__(""
            : "+m"(twice), "+m"(row)); /* forces loads: extracting elements would cost shuffles */
    UNROLL for (int g = 0; g < groups; g++) {
        int4_table table =
            _mm512_broadcast_i64x4(_mm256_load_si256((const void *)fv_int4_offsets[row[g]]));
        table = _mm512_maskz_add_epi16(0xfefffeff, table, _mm512_set1_epi32((int)twice[g]));
        UNROLL for (int i = 0; i < BLOCK_STEPS / groups; i++, from += BF16_STEP / 2, to += ld)
            _mm512_storeu_si512(to, int4_numbers(_mm_loadu_si128((const void *)from), table));
    }
    return true;
}
#endif

/* Decodes n > 0 columns from k on, a multiple of 32, of a row of w in groups of integers to bf16. k is in
 * group g of the row, with `left` columns to go. */
static inline void quantized_row(const fv_tensor *w, size_t row, size_t k, size_t n, size_t g,
                                 size_t left, uint16_t *to) {
    const fv_quant *q = w->quant;
    const uint8_t *from = (const uint8_t *)w->data + row * q->row_bytes;
    g += row * (size_t)q->groups;
    if (w->dtype == FV_INT8)
        int8_row(q, (const int8_t *)from + k, n, g, left, to);
    else if (q->zero || q->min || q->table || q->scale_type != FV_BF16)
        int4_row(q, from + k / 2, n, g, left, (size_t)q->group, q->scale_type, false, to);
    else if (q->group == BF16_STEP)
        int4_row(q, from + k / 2, n, g, BF16_STEP, BF16_STEP, FV_BF16, true, to);
    else
        int4_row(q, from + k / 2, n, g, left, (size_t)q->group, FV_BF16, true, to);
}

/* Number of scales of a block of K if int4_block can decode w, otherwise 0. */
static inline int int4_scales(const fv_tensor *w) {
#ifdef __AVX512F__
    const fv_quant *q = w->quant;
    if (w->dtype != FV_INT4 || q->scale_type != FV_BF16) return 0;
    if (q->zero || q->min || q->table) return 0;
    return q->group == 32 || q->group == 128 ? BLOCK_COLUMNS / q->group : 0;
#else
    (void)w;
    return 0;
#endif
}

/* Decodes block k of a row of w in groups of integers, its steps ld apart, with zeros after the last
 * column. `scales` is int4_scales(w), a constant. */
static ALWAYS_INLINE void quantized_block(const fv_tensor *w, int64_t row, size_t k,
                                          const int scales, uint16_t *to, size_t ld) {
    const fv_quant *q = w->quant;
    const size_t k0 = k * BLOCK_COLUMNS, group = (size_t)q->group;
    size_t n = (size_t)w->cols - k0;
#ifdef __AVX512F__
    if (scales && n >= BLOCK_COLUMNS &&
        int4_block((const uint8_t *)w->data + (size_t)row * q->row_bytes + k0 / 2,
                   (const uint16_t *)q->scale + (size_t)row * (size_t)q->groups +
                       k * (size_t)scales,
                   scales, to, ld))
        return;
#else
    (void)scales;
#endif
    uint16_t part[BLOCK_COLUMNS];
    n = n < BLOCK_COLUMNS ? n : BLOCK_COLUMNS;
    quantized_row(w, (size_t)row, k0, n, k0 / group, group - k0 % group, part);
    memset(part + n, 0, (BLOCK_COLUMNS - n) * sizeof *part);
    for (size_t s = 0; s * BF16_STEP < n; s++)
        memcpy(to + s * ld, part + s * BF16_STEP, BF16_STEP * sizeof *part);
}

/* Converts rows [n0, n0 + rows) and columns [k0, k0 + cols) of w to bf16, to [BF16_ROWS, ld] with zeros
 * after the rows and, up to column `padded_cols`, after the columns. */
static inline void bf16_rows(const fv_tensor *w, int64_t n0, int64_t rows, size_t k0, size_t cols,
                             size_t padded_cols, size_t ld, uint16_t *to) {
    const size_t group = w->quant ? (size_t)w->quant->group : 1;
    const size_t g = k0 / group, left = group - k0 % group;
    for (int i = 0; i < BF16_ROWS; i++, to += ld) {
        size_t n = i < rows ? cols : 0, at = (size_t)(n0 + i) * (size_t)w->cols + k0;
        if (w->quant && n)
            quantized_row(w, (size_t)(n0 + i), k0, n, g, left, to);
        else if (w->dtype == FV_BF16 && n)
            memcpy(to, (const uint16_t *)w->data + at, n * sizeof *to);
        else
            for (size_t k = 0; k < n; k++) to[k] = bf16_of_f32(widened(w->data, w->dtype, at + k));
        if (n < padded_cols) memset(to + n, 0, (padded_cols - n) * sizeof *to);
    }
}

/* ---- int8 ------------------------------------------------------------------------------ */

enum { INT8_GROUP = 32 };

static inline size_t int8_groups(int32_t K) { return ((size_t)K + INT8_GROUP - 1) / INT8_GROUP; }

/* Scales of w per group of x: two with groups of 16, otherwise one. */
static inline size_t int8_units(const fv_quant *q) { return q->group < INT8_GROUP ? 2 : 1; }

/* Scales of w for n groups of x from g0 on; the last group may have only one of its two. */
static inline size_t int8_scales(const fv_quant *q, size_t g0, size_t n) {
    if (int8_units(q) == 1) return n;
    size_t left = (size_t)q->groups - 2 * g0;
    return 2 * n < left ? 2 * n : left;
}

/* Scale u of row n of w, counted from group g0 of x. */
static inline float int8_scale_at(const fv_quant *q, int64_t n, size_t g0, size_t u) {
    size_t group = (g0 * INT8_GROUP + u * (INT8_GROUP / int8_units(q))) / (size_t)q->group;
    return widened(q->scale, q->scale_type, (size_t)n * (size_t)q->groups + group);
}

/* Unpacks 32 integers of 4 bits, less 8; those from n on become 0. */
static inline void int4_integers(const uint8_t *from, size_t n, int8_t to[INT8_GROUP]) {
    uint8_t part[INT8_GROUP / 2];
    memset(part, 0x88, sizeof part);
    memcpy(part, from, (n + 1) / 2 < sizeof part ? (n + 1) / 2 : sizeof part);
    for (size_t k = 0; k < sizeof part; k++) {
        to[2 * k] = (int8_t)((part[k] & 15) - 8);
        to[2 * k + 1] = (int8_t)((part[k] >> 4) - 8);
    }
}

/* x as integers, in the shared memory of pack_int8: a scale for each row, a sum where the path needs
 * it, and the integers in the path's layout, aligned to 64 bytes. */
typedef struct int8_x {
    float *scale; /* [M] */
    int32_t *sum; /* [M] */
    int8_t *codes;
} int8_x;

static inline size_t int8_x_head(int64_t M) { return (size_t)(M * 8 + 63) / 64 * 64; }

static inline int8_x int8_x_at(void *shared, int64_t M) {
    return (int8_x){shared, (int32_t *)shared + M, (int8_t *)shared + int8_x_head(M)};
}

/* Returns the scale of a row; *by: the factor of its numbers, 0 where all of them become 0. */
static inline float int8_scale(const float *x, size_t K, float *by) {
    uint32_t most = 0;
    for (size_t k = 0; k < K; k++) {
        uint32_t u = bits_of_f32(x[k]) & 0x7fffffff;
        most = u > most ? u : most;
    }
    float a = f32_of_bits(most);
    bool finite = most < 0x7f800000;
    *by = finite && a >= 0x1p-100f ? 127.0f / a : 0.0f;
    return !finite ? NAN : *by > 0.0f ? a / 127.0f : 0.0f;
}

/* Quantizes n numbers. Adding 1.5 2^23 rounds to nearest even and leaves the integer in the last bits. */
static inline void int8_codes(const float *x, size_t n, float by, int8_t *to) {
    const float shift = 0x1.8p23f;
    if (by <= 0.0f) {
        memset(to, 0, n);
        return;
    }
    for (size_t k = 0; k < n; k++) to[k] = (int8_t)(bits_of_f32(x[k] * by + shift) & 0xff);
}

/* Quantizes group g of a row of x of K numbers, with zeros after the last; returns its scale. */
static inline float int8_group_of(const float *x, size_t K, size_t g, int8_t *to) {
    float part[INT8_GROUP] = {0}, by;
    size_t n = K - g * INT8_GROUP;
    memcpy(part, x + g * INT8_GROUP, (n < INT8_GROUP ? n : INT8_GROUP) * sizeof *part);
    float scale = int8_scale(part, INT8_GROUP, &by);
    int8_codes(part, INT8_GROUP, by, to);
    return scale;
}

/* Scales the integer sums of row m and columns [n0, n0 + n), and stores them in y. */
static inline void store_int8_sums(const fv_linear_part *p, int64_t m, float scale, int64_t n0,
                                   int n, const float *bias, const int32_t *sums) {
    const float *scale_w = p->w.quant->scale;
    float out[64];
    for (int i = 0; i < n; i++) out[i] = (float)sums[i] * scale * scale_w[n0 + i];
    store_sums(p, m, n0, n, bias, out);
}

#endif
