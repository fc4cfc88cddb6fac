/* Unpacks factors in codes of 4 bits to words of products in bf16 (avx512bf16/words.h), without panels of f32 in
 * between. A column of keys' U has only 16 different numbers, and so has a row of values' U before the columns'
 * factors: both are looked up. The bits equal those of decoding number by number (packed/read.h). */
#include "kernels/cpu/avx512bf16/products.h"
#include "kernels/cpu/avx512bf16/words.h"
#include "kernels/ops.h"
#include "packed/read.h"

enum { ROWS = 24, STEPS = 4 }; /* of x that are packed in words at a time */

/* The numbers of codes 0 to 15. */
static inline __m512 all_codes(__m512 lo, __m512 step) {
    const __m512 code = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_fmadd_ps(step, code, lo);
}

static inline __m512 column_codes(const float *pair) {
    return all_codes(_mm512_set1_ps(pair[0]), _mm512_set1_ps(pair[1]));
}

static inline __m512 row_codes(const char *pair) {
    __m128 both = _mm_cvtph_ps(_mm_loadu_si32(pair));
    return all_codes(_mm512_broadcastss_ps(both), _mm512_broadcastss_ps(_mm_movehdup_ps(both)));
}

/* ---- keys ------------------------------------------------------------------------------ */

/* Makes tables of words: the numbers of columns k and k + 2, and of k + 1 and k + 3. */
static void make_tables(const float *pair, size_t n, uint32_t *tables) {
    for (size_t k = 0; k < n; k += 4, pair += 8)
        for (int i = 0; i < 4; i += 2, tables += 16) {
            __m512 upper = column_codes(pair + i), lower = column_codes(pair + i + 4);
            _mm512_store_si512(tables, narrow(upper, lower));
        }
}

/* Looks up the words of two lines of 16 codes. */
static inline __m512i look_up(const char *upper, const char *lower, __m512i table) {
    const __m512i spread = _mm512_set_epi64(
        (long long)0x8007800f8007800f, (long long)0x8006800e8006800e, (long long)0x8005800d8005800d,
        (long long)0x8004800c8004800c, (long long)0x8003800b8003800b, (long long)0x8002800a8002800a,
        (long long)0x8001800980018009, (long long)0x8000800880008008);
    const __m512i half = _mm512_set1_epi64(0x0004000400000000);
    const __m512i low = _mm512_set1_epi32(0x000f000f), second = _mm512_set1_epi32(0x10);
    __m128i codes = _mm_unpacklo_epi64(_mm_loadl_epi64((const void *)upper),
                                       _mm_loadl_epi64((const void *)lower));
    __m512i at = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(codes), spread);
    at = _mm512_ternarylogic_epi32(_mm512_srlv_epi16(at, half), low, second, 0xea);
    return _mm512_permutexvar_epi16(at, table);
}

static void key_words(const char *lines, size_t n, const uint32_t *tables, unsigned without,
                      uint32_t *to, size_t ld) {
    enum { LINE = FV_PACKED_TILE / 2 };
    __mmask16 with = (__mmask16)~without;
    for (size_t k = 0; k < n; k += 4, lines += 4 * LINE, tables += 32, to += 2 * ld) {
        __m512i even = look_up(lines, lines + 2 * LINE, _mm512_load_si512(tables));
        __m512i odd = look_up(lines + LINE, lines + 3 * LINE, _mm512_load_si512(tables + 16));
        _mm512_store_si512(to, _mm512_maskz_mov_epi32(with, even));
        _mm512_store_si512(to + ld, _mm512_maskz_mov_epi32(with, odd));
    }
}

/* ---- lines of codes -------------------------------------------------------------------- */

/* The even and the odd ones of 32 codes; bits above the lowest four belong to other codes. */
typedef struct two_halves {
    __m512i even, odd;
} two_halves;

/* Loads 32 codes, or with `all` unset 16, which have 8 bytes. */
static ALWAYS_INLINE two_halves halves_of(const char *p, const bool all) {
    __m128i bytes = all ? _mm_loadu_si128((const void *)p) : _mm_loadl_epi64((const void *)p);
    __m512i even = _mm512_cvtepu8_epi32(bytes);
    return (two_halves){even, _mm512_srli_epi32(even, 4)};
}

/* Numbers of the even and of the odd ones of 32 columns. */
typedef struct two_columns {
    __m512 even, odd;
} two_columns;

static ALWAYS_INLINE two_columns columns_of(const float *p, const bool all) {
    const __m512i even =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    __m512 a = _mm512_loadu_ps(p), b = all ? _mm512_loadu_ps(p + 16) : a;
    return (two_columns){_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)};
}

/* Packs words of 32 columns from the two lines of a word's halves. */
static ALWAYS_INLINE void two_lines_words(two_columns upper, two_columns lower, const bool normal,
                                          const bool all, uint32_t *to) {
    static const uint16_t order[2][32] = {
        {16, 0, 48, 32, 17, 1, 49, 33, 18, 2, 50, 34, 19, 3, 51, 35,
         20, 4, 52, 36, 21, 5, 53, 37, 22, 6, 54, 38, 23, 7, 55, 39},
        {24, 8,  56, 40, 25, 9,  57, 41, 26, 10, 58, 42, 27, 11, 59, 43,
         28, 12, 60, 44, 29, 13, 61, 45, 30, 14, 62, 46, 31, 15, 63, 47}};
    __m512i even = normal ? narrow_normal(upper.even, lower.even) : narrow(upper.even, lower.even);
    __m512i odd = normal ? narrow_normal(upper.odd, lower.odd) : narrow(upper.odd, lower.odd);
    _mm512_store_si512(to, _mm512_permutex2var_epi16(even, _mm512_loadu_si512(order[0]), odd));
    if (all)
        _mm512_store_si512(to + 16,
                           _mm512_permutex2var_epi16(even, _mm512_loadu_si512(order[1]), odd));
}

/* ---- values ---------------------------------------------------------------------------- */

/* Rows of values' U, NULL where missing. A row's pair is in F16, so its numbers are 0 or at least 2^-24 before
 * multiplication by their column's factor. */
typedef struct rows_tables {
    const char *at[FV_KV_BLOCK];
    __m512 table[FV_KV_BLOCK]; /* of codes 0 to 15 */
} rows_tables;

static ALWAYS_INLINE two_columns row_numbers(const char *codes, __m512 table, two_columns by,
                                             const bool all) {
    two_halves at = halves_of(codes, all); /* lookups use the lowest four bits */
    return (two_columns){_mm512_mul_ps(_mm512_permutexvar_ps(at.even, table), by.even),
                         _mm512_mul_ps(_mm512_permutexvar_ps(at.odd, table), by.odd)};
}

/* Unpacks 32 columns from column d on, or 16, of rows [0, end). */
static ALWAYS_INLINE void row_columns(const rows_tables *r, int32_t end, size_t d, two_columns by,
                                      const bool normal, const bool all, uint32_t *to, size_t ld) {
    for (int32_t k = 0; k < end; k += 4, to += 2 * ld) {
        two_columns x[4];
        UNROLL for (int i = 0; i < 4; i++) {
            x[i] = (two_columns){_mm512_setzero_ps(), _mm512_setzero_ps()};
            if (r->at[k + i]) x[i] = row_numbers(r->at[k + i] + d / 2, r->table[k + i], by, all);
        }
        two_lines_words(x[0], x[2], normal, all, to);
        two_lines_words(x[1], x[3], normal, all, to + ld);
    }
}

/* Whether products with numbers of at least 2^-24 are 0 or at least 2^-126. */
static bool are_normal(const float *column, size_t width) {
    const __m512 least = _mm512_set1_ps(0x1p-100f);
    __mmask16 small = 0;
    for (size_t d = 0; d < width; d += 16) {
        __m512 c = _mm512_abs_ps(_mm512_loadu_ps(column + d));
        small |= _mm512_mask_cmp_ps_mask(_mm512_test_epi32_mask((__m512i)c, (__m512i)c), c, least,
                                         _CMP_LT_OQ);
    }
    return !small;
}

static void row_words(const char *from, size_t stride, const char *pair, const float *column,
                      size_t width, const int32_t *j, int32_t n, uint32_t *to) {
    size_t ld = (width + 15) / 16 * 16;
    int32_t end = (n + WORDS_STEP - 1) / WORDS_STEP * WORDS_STEP;
    bool normal = are_normal(column, width);
    rows_tables rows;
    for (int32_t k = 0; k < end; k++) {
        rows.at[k] = k < n ? from + (size_t)j[k] * stride : NULL;
        rows.table[k] = k < n ? row_codes(pair + (size_t)j[k] * 4) : _mm512_setzero_ps();
    }
    for (size_t d = 0; d < ld; d += 32) {
        const bool all = d + 32 <= ld;
        two_columns by = columns_of(column + d, all);
        if (!normal)
            row_columns(&rows, end, d, by, false, all, to + d, ld);
        else if (all)
            row_columns(&rows, end, d, by, true, true, to + d, ld);
        else
            row_columns(&rows, end, d, by, true, false, to + d, ld);
    }
}

/* ---- bases ----------------------------------------------------------------------------- */

/* Decodes a line; pairs are in F16, so its numbers are 0 or at least 2^-24. */
static ALWAYS_INLINE two_columns line_numbers(const char *codes, two_columns lo, two_columns step,
                                              const bool all) {
    const __m512i low = _mm512_set1_epi32(15);
    two_halves of = halves_of(codes, all);
    __m512 even = _mm512_cvtepi32_ps(_mm512_and_si512(of.even, low));
    return (two_columns){_mm512_fmadd_ps(step.even, even, lo.even),
                         _mm512_fmadd_ps(step.odd, _mm512_cvtepi32_ps(of.odd), lo.odd)};
}

static ALWAYS_INLINE two_columns everywhere(float x) {
    return (two_columns){_mm512_set1_ps(x), _mm512_set1_ps(x)};
}

/* Unpacks 32 columns from column d on, or 16, of n lines. */
static ALWAYS_INLINE void basis_columns(const char *lines, size_t stride, size_t n, size_t d,
                                        const float *lo, const float *step, const bool of_columns,
                                        const bool all, uint32_t *to, size_t ld) {
    const size_t end = (n + WORDS_STEP - 1) / WORDS_STEP * WORDS_STEP;
    two_columns lo_all = of_columns ? columns_of(lo + d, all) : everywhere(0),
                step_all = of_columns ? columns_of(step + d, all) : everywhere(0);
    for (size_t k = 0; k < end; k += 4, to += 2 * ld) {
        two_columns x[4];
        UNROLL for (size_t i = 0; i < 4; i++) {
            x[i] = everywhere(0);
            if (k + i >= n) continue;
            const char *codes = lines + (k + i) * stride + d / 2;
            x[i] = of_columns
                       ? line_numbers(codes, lo_all, step_all, all)
                       : line_numbers(codes, everywhere(lo[k + i]), everywhere(step[k + i]), all);
        }
        two_lines_words(x[0], x[2], true, all, to);
        two_lines_words(x[1], x[3], true, all, to + ld);
    }
}

static void basis_words(const char *lines, size_t stride, size_t n, size_t width, const float *lo,
                        const float *step, bool of_columns, uint32_t *to, size_t ld) {
    for (size_t d = 0; d < width; d += 32) {
        const bool all = width - d > 16;
        if (of_columns && all)
            basis_columns(lines, stride, n, d, lo, step, true, true, to + d, ld);
        else if (of_columns)
            basis_columns(lines, stride, n, d, lo, step, true, false, to + d, ld);
        else if (all)
            basis_columns(lines, stride, n, d, lo, step, false, true, to + d, ld);
        else
            basis_columns(lines, stride, n, d, lo, step, false, false, to + d, ld);
    }
}

/* ---- products -------------------------------------------------------------------------- */

static void multiply_words(const words_product *a) {
    _Alignas(64) uint32_t x[ROWS * STEPS * STEP_WORDS];
    for (size_t s = 0, steps; s < a->steps; s += steps) {
        steps = a->steps - s < STEPS ? a->steps - s : STEPS;
        for (int m = 0, rows; m < a->M; m += rows) {
            rows = a->M - m < ROWS ? a->M - m : ROWS;
            pack_rows_as_words(a->x + (size_t)m * a->ldx + s * WORDS_STEP, a->ldx, rows, steps, x,
                               STEPS * STEP_WORDS);
            for (int p = 0, n; p < a->panels; p += n) {
                n = a->panels - p < WORDS_PANELS ? 1 : WORDS_PANELS;
                words_products((words_tile){.x = x,
                                            .w = a->w + s * STEP_WORDS * a->ldw + p * 16,
                                            .ldx = STEPS * STEP_WORDS,
                                            .ldw = a->ldw,
                                            .steps = steps,
                                            .acc = a->acc + (size_t)m * a->ld_row + p * 16,
                                            .ld_row = a->ld_row,
                                            .ld_panel = 16},
                               rows, n);
            }
        }
    }
}

const packed_words fv_avx512bf16_packed_words = {.tables = make_tables,
                                                 .keys = key_words,
                                                 .rows = row_words,
                                                 .basis = basis_words,
                                                 .coded = fv_avx512bf16_coded_words,
                                                 .multiply = multiply_words};
