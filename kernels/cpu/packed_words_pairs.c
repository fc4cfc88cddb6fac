/* Factors in codes of 4 bits as words of products in bf16 (pairs_avx512.h), without panels of f32 between
 * them. A column of keys' U has 16 numbers, and so has a row of values' U before its columns' factors: they
 * are looked up. The bits are those of numbers that are decoded one by one (kernels/packed_read.h). */
#include "kernels/cpu/pairs_avx512.h"
#include "kernels/cpu/product_bf16.h"
#include "kernels/packed_read.h"

enum { ROWS = 24, STEPS = 4 }; /* of x, in words at a time */

/* What codes 0 to 15 stand for. */
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

/* The numbers of columns k and k + 2, and of k + 1 and k + 3. */
static void make_tables(const float *pair, size_t n, uint32_t *tables) {
    for (size_t k = 0; k < n; k += 4, pair += 8)
        for (int i = 0; i < 4; i += 2, tables += 16) {
            __m512 upper = column_codes(pair + i), lower = column_codes(pair + i + 4);
            _mm512_store_si512(tables, narrow(upper, lower));
        }
}

/* Words of two lines of 16 codes. */
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

/* ---- values ---------------------------------------------------------------------------- */

/* 16 codes of a row, decoded: lookups count four bits of each. */
static inline __m512 row_numbers(const char *codes, __m512 table, __m512 column) {
    __m512i at = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const void *)codes));
    at = _mm512_or_si512(at, _mm512_slli_epi64(at, 28)); /* the upper half of a byte, one lane on */
    return _mm512_mul_ps(_mm512_permutexvar_ps(at, table), column);
}

static void row_words(const char *from, size_t stride, const char *pair, const float *column,
                      size_t width, const int32_t *j, int32_t n, uint32_t *to) {
    size_t ld = (width + 15) / 16 * 16;
    int32_t end = (n + PAIRS_STEP - 1) / PAIRS_STEP * PAIRS_STEP;
    for (int32_t k = 0; k < end; k += 4, to += 2 * ld) {
        const char *at[4];
        __m512 table[4], x[4];
        for (int i = 0; i < 4; i++) {
            at[i] = k + i < n ? from + (size_t)j[k + i] * stride : NULL;
            table[i] = at[i] ? row_codes(pair + (size_t)j[k + i] * 4) : _mm512_setzero_ps();
        }
        for (size_t d = 0; d < width; d += 16) {
            __m512 by = _mm512_loadu_ps(column + d);
            for (int i = 0; i < 4; i++)
                x[i] = at[i] ? row_numbers(at[i] + d / 2, table[i], by) : _mm512_setzero_ps();
            _mm512_store_si512(to + d, pairs_line_words(x[0], x[2]));
            _mm512_store_si512(to + ld + d, pairs_line_words(x[1], x[3]));
        }
    }
}

/* ---- products -------------------------------------------------------------------------- */

static void multiply_words(const words_product *a) {
    _Alignas(64) uint32_t x[ROWS * STEPS * PAIRS_WORDS];
    for (size_t s = 0, steps; s < a->steps; s += steps) {
        steps = a->steps - s < STEPS ? a->steps - s : STEPS;
        for (int m = 0, rows; m < a->M; m += rows) {
            rows = a->M - m < ROWS ? a->M - m : ROWS;
            pairs_x_words(a->x + (size_t)m * a->ldx + s * PAIRS_STEP, a->ldx, rows, steps, x,
                          STEPS * PAIRS_WORDS);
            for (int p = 0, n; p < a->panels; p += n) {
                n = a->panels - p < PAIRS_PANELS ? 1 : PAIRS_PANELS;
                pairs_products((pairs_tile){.x = x,
                                            .w = a->w + s * PAIRS_WORDS * a->ldw + p * 16,
                                            .ldx = STEPS * PAIRS_WORDS,
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

const packed_words fv_pairs_packed_words = {
    .tables = make_tables, .keys = key_words, .rows = row_words, .multiply = multiply_words};
