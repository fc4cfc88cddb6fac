#ifndef FOVEA_KERNELS_CPU_LINEAR_INT8_LANES_H
#define FOVEA_KERNELS_CPU_LINEAR_INT8_LANES_H

/* y = x w^T + bias (+ y) with weights in int8, for a path with 16-lane vectors. An item is 64
 * columns of y: 64 rows of w, read once in place, stay in L2 for all rows of x. Where AVX-512 has VNNI,
 * linear_int8_vnni.c is used. */
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/linear_int8.h"
#include "kernels/cpu/linear_parts_lanes.h"

enum { INT8_N = 64, INT8_STRIP = 6 };

/* Integer dot products of rows of x and rows of w, exact in any order. */
typedef struct int8_product {
    const int8_t *x; /* [M, ldx], zeros after K up to a multiple of 64 */
    const int8_t *w; /* [N, K] without gaps; nothing after it is read */
    size_t K, ldx;
    int M, N;
    int32_t *out; /* [M, ld] */
    int ld;
} int8_product;

#ifdef __AVX512F__
static bool int8_in_vnni(void) { return fv_vnni_runs_here(); }
#else
static bool int8_in_vnni(void) { return false; }
#endif

static size_t int8_ldx(const fv_linear_args *a) { return ((size_t)a->x.cols + 63) / 64 * 64; }

/* ---- x --------------------------------------------------------------------------------- */

static fv_cpu_plan pack_int8_plan(const void *args) {
    if (int8_in_vnni()) return fv_vnni_pack_int8_plan(args);
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    fv_cpu_plan plan = {.n_item = a->x.rows, .grain = div_up(16384, a->x.cols + 1)};
    plan.shared_bytes = int8_x_head(a->x.rows) + (size_t)a->x.rows * int8_ldx(a);
    return plan;
}

static void pack_int8(const void *args, void *scratch, int64_t begin, int64_t end) {
    if (int8_in_vnni()) {
        fv_vnni_pack_int8(args, scratch, begin, end);
        return;
    }
    const fv_cpu_packed_linear *b = args;
    int8_x to = int8_x_at(b->x, b->a->x.rows);
    size_t K = (size_t)b->a->x.cols, ldx = int8_ldx(b->a);
    for (int64_t m = begin; m < end; m++) {
        const float *x = row_f32(&b->a->x, m);
        int8_t *codes = to.codes + (size_t)m * ldx;
        float by;
        to.scale[m] = int8_scale(x, K, &by);
        int8_codes(x, K, by, codes);
        memset(codes + K, 0, ldx - K);
    }
}

/* ---- products -------------------------------------------------------------------------- */

/* Widens 16 numbers of w to 16 bits; zeros from number `in` on. */
static ALWAYS_INLINE __m256i int8_wide(const int8_t *w, size_t in) {
    int8_t part[16] = {0};
    if (in >= 16) return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)w));
    memcpy(part, w, in);
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)part));
}

/* Computes mr rows of x from m on times nr rows of w from n on, widened to 16 bits, by pairs. */
static ALWAYS_INLINE void int8_tile(const int8_product *a, int m, int n, const int mr,
                                    const int nr) {
    const int8_t *x = a->x + (size_t)m * a->ldx, *w = a->w + (size_t)n * a->K;
    __m256i acc[8];
    UNROLL for (int i = 0; i < mr * nr; i++) acc[i] = _mm256_setzero_si256();
    for (size_t k = 0; k < a->K; k += 16) {
        __m256i wk[4];
        UNROLL for (int j = 0; j < nr; j++) wk[j] = int8_wide(w + (size_t)j * a->K + k, a->K - k);
        UNROLL for (int i = 0; i < mr; i++) {
            __m256i xk = int8_wide(x + (size_t)i * a->ldx + k, 16);
            UNROLL for (int j = 0; j < nr; j++) {
                acc[i * nr + j] = _mm256_add_epi32(acc[i * nr + j], _mm256_madd_epi16(wk[j], xk));
            }
        }
    }
    for (int i = 0; i < mr * nr; i++) {
        __m128i s =
            _mm_add_epi32(_mm256_castsi256_si128(acc[i]), _mm256_extracti128_si256(acc[i], 1));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
        s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
        a->out[(m + i / nr) * a->ld + n + i % nr] = _mm_cvtsi128_si32(s);
    }
}

static NEVER_INLINE void int8_products(const int8_product *a) {
    for (int m = 0; m < a->M; m += 2)
        for (int n = 0; n < a->N; n += 4) {
            if (a->M - m >= 2 && a->N - n >= 4) {
                int8_tile(a, m, n, 2, 4);
                continue;
            }
            for (int i = m; i < a->M && i < m + 2; i++)
                for (int j = n; j < a->N && j < n + 4; j++) int8_tile(a, i, j, 1, 1);
        }
}

/* ---- items ----------------------------------------------------------------------------- */

static fv_cpu_plan linear_int8_plan(const void *args) {
    if (int8_in_vnni()) return fv_vnni_linear_int8_plan(args);
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += div_up(a->part[p].w.rows, INT8_N);
    return plan;
}

static void linear_int8_item(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n0) {
    int M = b->a->x.rows, N = min_int(INT8_N, p->w.rows - n0);
    int32_t sums[INT8_STRIP * INT8_N];
    float wide[INT8_N];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    int8_x x = int8_x_at(b->x, M);
    int8_product a = {.K = (size_t)b->a->x.cols, .ldx = int8_ldx(b->a), .N = N, .ld = INT8_N};
    a.w = (const int8_t *)p->w.data + (size_t)n0 * a.K;
    a.out = sums;
    for (int m = 0; m < M; m += INT8_STRIP) {
        a.M = min_int(INT8_STRIP, M - m);
        a.x = x.codes + (size_t)m * a.ldx;
        int8_products(&a);
        for (int i = 0; i < a.M; i++)
            store_int8_sums(p, m + i, x.scale[m + i], n0, N, bias, sums + i * INT8_N);
    }
}

static void linear_int8(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    if (int8_in_vnni()) {
        fv_vnni_linear_int8(args, scratch, begin, end);
        return;
    }
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t n = div_up(b->a->part[p].w.rows, INT8_N);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            linear_int8_item(b, &b->a->part[p], i * INT8_N);
        begin -= n;
        end -= n;
    }
}

#endif
