#ifndef FOVEA_KERNELS_CPU_AVX512_LANES_H
#define FOVEA_KERNELS_CPU_AVX512_LANES_H

/* The 16 lanes of a canonical dot product in one AVX-512 register. */
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/inline.h"
#include "kernels/tensor.h"

typedef __m512 f32x16;

/* The output tile of a matrix product: MR rows of x times NR rows of w. 24 accumulators, 4
 * registers for w, 1 for x: 29 of 32, and 10 loads for 24 fused multiply-adds. */
enum { MR = 6, NR = 4 };

static inline f32x16 f32x16_zero(void) { return _mm512_setzero_ps(); }
static inline f32x16 f32x16_all(float x) { return _mm512_set1_ps(x); }
static inline f32x16 f32x16_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void f32x16_store(float *p, f32x16 v) { _mm512_storeu_ps(p, v); }
static inline f32x16 f32x16_mul(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
static inline f32x16 f32x16_add(f32x16 a, f32x16 b) { return _mm512_add_ps(a, b); }
static inline f32x16 f32x16_max(f32x16 a, f32x16 b) { return _mm512_max_ps(a, b); }
static inline float f32x16_largest(f32x16 v) { return _mm512_reduce_max_ps(v); }
static inline f32x16 f32x16_fma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fmadd_ps(a, b, c); }

/* p 2^n, rounded once, n integers; or 0 where x is `zero`: a product that underflows there would take a
 * hundred times as long. */
static inline f32x16 f32x16_scale(f32x16 p, f32x16 n, f32x16 x, f32x16 zero) {
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, zero, _CMP_NEQ_UQ), p, n);
}

/* Widens 16 bf16: each is the upper half of an f32. Takes one shuffle, as the copy to both halves is part
 * of the load; extending and shifting would take two, and decode with 8 rows is limited by shuffles. */
static inline f32x16 f32x16_of_bf16(__m256i h) {
    const __m512i upper = _mm512_set_epi16(15, 0, 14, 0, 13, 0, 12, 0, 11, 0, 10, 0, 9, 0, 8, 0, 7,
                                           0, 6, 0, 5, 0, 4, 0, 3, 0, 2, 0, 1, 0, 0, 0);
    return _mm512_castsi512_ps(
        _mm512_maskz_permutexvar_epi16(0xaaaaaaaa, upper, _mm512_broadcast_i64x4(h)));
}

/* 16 elements of an array, widened. */
static inline f32x16 f32x16_widen(const void *p, fv_dtype t) {
    if (t == FV_F32) return _mm512_loadu_ps(p);
    __m256i h = _mm256_loadu_si256(p);
    return t == FV_BF16 ? f32x16_of_bf16(h) : _mm512_cvtph_ps(h);
}

/* The first n < 16 elements, widened; the other lanes are 0 and their memory is not read. */
static inline f32x16 f32x16_widen_tail(const void *p, fv_dtype t, size_t n) {
    __mmask16 m = (__mmask16)((1u << n) - 1);
    if (t == FV_F32) return _mm512_maskz_loadu_ps(m, p);
    __m256i h = _mm256_maskz_loadu_epi16(m, p);
    return t == FV_BF16 ? f32x16_of_bf16(h) : _mm512_cvtph_ps(h);
}

/* Rounds to bf16, to nearest even. */
static inline f32x16 f32x16_round_bf16(f32x16 x) {
    __m512i u = _mm512_castps_si512(x), odd = _mm512_srli_epi32(u, 16);
    odd = _mm512_and_si512(odd, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32((int)0xffff0000)));
}

/* Transposes 16 rows of 16 dwords. */
static inline void i32x16_transpose(__m512i r[16]) {
    __m512i t[16];
    UNROLL for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = _mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
        r[4 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
        r[12 + i] = _mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

/* Transposes 16 rows of 32 bf16, `stride` bytes apart, to [32, 16] f32. */
static inline void bf16x32_transpose(const void *rows, size_t stride, float *to) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i r[16];
    UNROLL for (int i = 0; i < 16; i++) {
        r[i] = _mm512_loadu_si512((const char *)rows + (size_t)i * stride);
    }
    i32x16_transpose(r);
    UNROLL for (int i = 0; i < 16; i++) {
        f32x16_store(to + 32 * i, _mm512_castsi512_ps(_mm512_slli_epi32(r[i], 16)));
        f32x16_store(to + 32 * i + 16, _mm512_castsi512_ps(_mm512_and_si512(r[i], upper)));
    }
}

/* A step in bf16 (lanes/linear_bf16.h) of mr rows of x, ldx apart, with 16 rows of 32 bf16 in place:
 * acc[i] = acc[i] + (even + odd), lanes are rows. Prefetches the line `ahead` bytes after each row. */
static ALWAYS_INLINE void bf16x32_step(const void *rows, size_t stride, ptrdiff_t ahead,
                                       const float *x, size_t ldx, const int mr, f32x16 *acc) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    __m512i r[16];
    f32x16 even[4], odd[4];
    UNROLL for (int i = 0; i < 16; i++) {
        const char *at = (const char *)rows + (size_t)i * stride;
        _mm_prefetch((const void *)((uintptr_t)at + (size_t)ahead), _MM_HINT_T1);
        r[i] = _mm512_loadu_si512(at);
    }
    i32x16_transpose(r);
    UNROLL for (int i = 0; i < mr; i++) even[i] = odd[i] = f32x16_zero();
    UNROLL for (int k = 0; k < 16; k++) {
        f32x16 w_even = _mm512_castsi512_ps(_mm512_slli_epi32(r[k], 16));
        f32x16 w_odd = _mm512_castsi512_ps(_mm512_and_si512(r[k], upper));
        UNROLL for (int i = 0; i < mr; i++) {
            even[i] = f32x16_fma(f32x16_all(x[(size_t)i * ldx + 2 * k]), w_even, even[i]);
            odd[i] = f32x16_fma(f32x16_all(x[(size_t)i * ldx + 2 * k + 1]), w_odd, odd[i]);
        }
    }
    UNROLL for (int i = 0; i < mr; i++) {
        acc[i] = f32x16_add(acc[i], f32x16_add(even[i], odd[i]));
    }
}

/* 16 codes of 8 or 4 bits (packed/lowrank.h) as numbers. */
static ALWAYS_INLINE f32x16 f32x16_of_codes(const void *p, const int bits) {
    const __m128i low = _mm_set1_epi8(15);
    __m128i c = bits == 8 ? _mm_loadu_si128(p) : _mm_loadl_epi64(p);
    if (bits == 4)
        c = _mm_unpacklo_epi8(_mm_and_si128(c, low), _mm_and_si128(_mm_srli_epi16(c, 4), low));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(c));
}

/* out[i] = tree(v_i): four vectors go through the tree of kernels/ops.h together. In step
 * s = 8 two vectors share a register, then four: 5 additions instead of 16. Addition is commutative,
 * so each has the same bits as alone. */
static inline void f32x16_tree4(f32x16 a, f32x16 b, f32x16 c, f32x16 d, float out[4]) {
    f32x16 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    f32x16 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
    f32x16 s =
        _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0x4e)); /* each quarter: i + (i ^ 2) */
    s = _mm512_add_ps(s, _mm512_permute_ps(s, 0xb1)); /* i + (i ^ 1) */
    __m512i quarters = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_permutexvar_ps(quarters, s)));
}

/* A step of 16 along K of an MR x NR tile: x MR rows at a distance of ldx, w NR rows of a panel
 * (lanes/dots.h). */
static ALWAYS_INLINE void tile_step(f32x16 *acc, const float *x, size_t ldx, const float *w) {
    f32x16 wk[NR];
    UNROLL for (int j = 0; j < NR; j++) wk[j] = f32x16_load(w + (size_t)j * 16);
    UNROLL for (int i = 0; i < MR; i++) {
        f32x16 xk = f32x16_load(x + (size_t)i * ldx);
        UNROLL for (int j = 0; j < NR; j++) acc[i * NR + j] =
            f32x16_fma(xk, wk[j], acc[i * NR + j]);
    }
}

#endif
