#ifndef FOVEA_KERNELS_CPU_AVX2_LANES_H
#define FOVEA_KERNELS_CPU_AVX2_LANES_H

/* The 16 lanes of a canonical dot product in two AVX2 registers. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/inline.h"
#include "kernels/tensor.h"

typedef struct f32x16 {
    __m256 lo, hi;
} f32x16;

/* The output tile of a matrix product: MR rows of x times NR rows of w. 12 registers of
 * accumulators, 2 for w, 1 for x: 15 of 16 when the two halves go one after the other. */
enum { MR = 3, NR = 2 };

static inline f32x16 f32x16_zero(void) {
    return (f32x16){_mm256_setzero_ps(), _mm256_setzero_ps()};
}

static inline f32x16 f32x16_all(float x) { return (f32x16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

static inline f32x16 f32x16_load(const float *p) {
    return (f32x16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

static inline void f32x16_store(float *p, f32x16 v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}

static inline f32x16 f32x16_mul(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

static inline f32x16 f32x16_add(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

static inline f32x16 f32x16_max(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

static inline float f32x16_largest(f32x16 v) {
    __m256 m = _mm256_max_ps(v.lo, v.hi);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

static inline f32x16 f32x16_fma(f32x16 a, f32x16 b, f32x16 c) {
    return (f32x16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

/* p 2^n, rounded once; n integers, p and n in the range of exp_f32 (mathf.h): the first of two
 * products is exact. */
static inline __m256 f32x8_scale(__m256 p, __m256 n) {
    const __m256i bias = _mm256_set1_epi32(127);
    __m256i k = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(k, 1);
    __m256i rest = _mm256_sub_epi32(k, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p,
                         _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

/* p 2^n, or 0 where x is `zero`: a product that underflows there would take a hundred times as long. */
static inline f32x16 f32x16_scale(f32x16 p, f32x16 n, f32x16 x, f32x16 zero) {
    p.lo = _mm256_and_ps(p.lo, _mm256_cmp_ps(x.lo, zero.lo, _CMP_NEQ_UQ));
    p.hi = _mm256_and_ps(p.hi, _mm256_cmp_ps(x.hi, zero.hi, _CMP_NEQ_UQ));
    return (f32x16){f32x8_scale(p.lo, n.lo), f32x8_scale(p.hi, n.hi)};
}

/* Widens 8 bf16: each is the upper half of an f32. */
static inline __m256 f32x8_of_bf16(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* 16 elements of an array, widened. */
static inline f32x16 f32x16_widen(const void *p, fv_dtype t) {
    if (t == FV_F32) return f32x16_load(p);
    __m128i lo = _mm_loadu_si128(p), hi = _mm_loadu_si128((const __m128i *)p + 1);
    if (t == FV_BF16) return (f32x16){f32x8_of_bf16(lo), f32x8_of_bf16(hi)};
    return (f32x16){_mm256_cvtph_ps(lo), _mm256_cvtph_ps(hi)};
}

/* The first n < 16 elements, widened; the other lanes are 0 and their memory is not read. */
static inline f32x16 f32x16_widen_tail(const void *p, fv_dtype t, size_t n) {
    float wide[16] = {0};
    memcpy(wide, p, n * fv_dtype_bytes(t));
    return f32x16_widen(wide, t);
}

/* Rounds to bf16, to nearest even. */
static inline __m256 f32x8_round_bf16(__m256 x) {
    __m256i u = _mm256_castps_si256(x), odd = _mm256_srli_epi32(u, 16);
    odd = _mm256_and_si256(odd, _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256 y = _mm256_blendv_ps(_mm256_castsi256_ps(up), _mm256_castsi256_ps(quiet),
                                _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_and_ps(y, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000)));
}

static inline f32x16 f32x16_round_bf16(f32x16 x) {
    return (f32x16){f32x8_round_bf16(x.lo), f32x8_round_bf16(x.hi)};
}

/* Transposes 8 rows of 8 dwords. */
static inline void i32x8_transpose(__m256i r[8]) {
    __m256i t[8];
    UNROLL for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 2; i++) {
        r[4 * i] = _mm256_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm256_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm256_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm256_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(r[i], r[4 + i], 0x20);
        t[4 + i] = _mm256_permute2x128_si256(r[i], r[4 + i], 0x31);
    }
    UNROLL for (int i = 0; i < 8; i++) r[i] = t[i];
}

/* Transposes 16 rows of 32 bf16, `stride` bytes apart, to [32, 16] f32, 8 rows and 16 columns at a time. */
static inline void bf16x32_transpose(const void *rows, size_t stride, float *to) {
    const __m256i upper = _mm256_set1_epi32((int)0xffff0000);
    for (int part = 0; part < 4; part++) {
        const char *from = (const char *)rows + (size_t)(part % 2 * 8) * stride + part / 2 * 32;
        float *at = to + part / 2 * 256 + part % 2 * 8;
        __m256i r[8];
        UNROLL for (int i = 0; i < 8; i++) {
            r[i] = _mm256_loadu_si256((const void *)(from + (size_t)i * stride));
        }
        i32x8_transpose(r);
        UNROLL for (int i = 0; i < 8; i++) {
            _mm256_storeu_ps(at + 32 * i, _mm256_castsi256_ps(_mm256_slli_epi32(r[i], 16)));
            _mm256_storeu_ps(at + 32 * i + 16, _mm256_castsi256_ps(_mm256_and_si256(r[i], upper)));
        }
    }
}

/* A step in bf16 (lanes/linear_bf16.h) of mr rows of x, ldx apart, with 16 rows of 32 bf16:
 * acc[i] = acc[i] + (even + odd), lanes are rows. Prefetches the line `ahead` bytes after each row. */
static ALWAYS_INLINE void bf16x32_step(const void *rows, size_t stride, ptrdiff_t ahead,
                                       const float *x, size_t ldx, const int mr, f32x16 *acc) {
    float w[32 * 16];
    for (int i = 0; i < 16; i++)
        _mm_prefetch((const void *)((uintptr_t)rows + (size_t)i * stride + (size_t)ahead),
                     _MM_HINT_T1);
    bf16x32_transpose(rows, stride, w);
    UNROLL for (int i = 0; i < mr; i++) {
        f32x16 even = f32x16_zero(), odd = even;
        for (int k = 0; k < 32; k += 2) {
            even = f32x16_fma(f32x16_all(x[(size_t)i * ldx + (size_t)k]), f32x16_load(w + 16 * k),
                              even);
            odd = f32x16_fma(f32x16_all(x[(size_t)i * ldx + (size_t)k + 1]),
                             f32x16_load(w + 16 * k + 16), odd);
        }
        acc[i] = f32x16_add(acc[i], f32x16_add(even, odd));
    }
}

/* 16 codes of 8 or 4 bits (packed/lowrank.h) as numbers. */
static ALWAYS_INLINE f32x16 f32x16_of_codes(const void *p, const int bits) {
    const __m128i low = _mm_set1_epi8(15);
    __m128i c = bits == 8 ? _mm_loadu_si128(p) : _mm_loadl_epi64(p);
    if (bits == 4)
        c = _mm_unpacklo_epi8(_mm_and_si128(c, low), _mm_and_si128(_mm_srli_epi16(c, 4), low));
    return (f32x16){_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(c)),
                    _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(c, 8)))};
}

/* out[i] = tree(v_i): four vectors go through the tree of kernels/ops.h together, after step
 * s = 4 in one register. Addition is commutative, so each has the same bits as alone. */
static inline void f32x16_tree4(f32x16 a, f32x16 b, f32x16 c, f32x16 d, float out[4]) {
    __m256 a8 = _mm256_add_ps(a.lo, a.hi), b8 = _mm256_add_ps(b.lo, b.hi);
    __m256 c8 = _mm256_add_ps(c.lo, c.hi), d8 = _mm256_add_ps(d.lo, d.hi);
    __m256 ab =
        _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
    __m256 cd =
        _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
    __m256 s = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    s = _mm256_add_ps(s, _mm256_permute_ps(s, 0xb1)); /* halves: a a c c, b b d d */
    __m128 ac = _mm256_castps256_ps128(s), bd = _mm256_extractf128_ps(s, 1);
    _mm_storeu_ps(out, _mm_movelh_ps(_mm_unpacklo_ps(ac, bd), _mm_unpackhi_ps(ac, bd)));
}

/* A step of 16 along K of an MR x NR tile: x MR rows at a distance of ldx, w NR rows of a panel
 * (lanes/dots.h). Half of the lanes first, then the other: the registers do not hold all of w.
 * KEEP stops the compiler from loading x again for each use, 16 loads instead of 10; with it the
 * tile runs at 54 % of the FMA rate instead of 48 % (640 x 1024 x 1024, Sapphire Rapids). */
#define KEEP(v) __asm__("" : "+x"(v))

static ALWAYS_INLINE void tile_step(f32x16 *acc, const float *x, size_t ldx, const float *w) {
    __m256 wk[NR];
    UNROLL for (int j = 0; j < NR; j++) wk[j] = _mm256_loadu_ps(w + (size_t)j * 16);
    UNROLL for (int i = 0; i < MR; i++) {
        __m256 xk = _mm256_loadu_ps(x + (size_t)i * ldx);
        KEEP(xk);
        UNROLL for (int j = 0; j < NR; j++) {
            acc[i * NR + j].lo = _mm256_fmadd_ps(xk, wk[j], acc[i * NR + j].lo);
        }
    }
    UNROLL for (int j = 0; j < NR; j++) wk[j] = _mm256_loadu_ps(w + (size_t)j * 16 + 8);
    UNROLL for (int i = 0; i < MR; i++) {
        __m256 xk = _mm256_loadu_ps(x + (size_t)i * ldx + 8);
        KEEP(xk);
        UNROLL for (int j = 0; j < NR; j++) {
            acc[i * NR + j].hi = _mm256_fmadd_ps(xk, wk[j], acc[i * NR + j].hi);
        }
    }
}

#endif
