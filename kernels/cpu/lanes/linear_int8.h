#ifndef FOVEA_KERNELS_CPU_LANES_LINEAR_INT8_H
#define FOVEA_KERNELS_CPU_LANES_LINEAR_INT8_H

/* y = x w^T + bias (+ y) with weights in int8, for a path with 16-lane vectors. An item is 64
 * columns of y: 64 rows of w, read once in place, stay in L2 for all rows of x. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

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

static size_t int8_ldx(const fv_linear_args *a) { return ((size_t)a->x.cols + 63) / 64 * 64; }

/* ---- x --------------------------------------------------------------------------------- */

static fv_cpu_plan pack_x_int8_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    fv_cpu_plan plan = {.n_item = a->x.rows, .grain = div_up(16384, a->x.cols + 1)};
    plan.shared_bytes = int8_x_head(a->x.rows) + (size_t)a->x.rows * int8_ldx(a);
    return plan;
}

static void pack_x_int8(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    int8_x to = int8_x_at(b->x, b->a->x.rows);
    size_t K = (size_t)b->a->x.cols, ldx = int8_ldx(b->a);
    (void)scratch;
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

static void int8_item(fv_gemm_item *t) {
    const fv_gemm_call *c = t->call;
    int32_t sums[INT8_STRIP * INT8_N];
    int8_x x = int8_x_at(c->x, c->a->x.rows);
    int8_product a = {.K = (size_t)c->a->x.cols, .ldx = int8_ldx(c->a), .N = t->N, .ld = INT8_N};
    a.w = (const int8_t *)t->p->w.data + (size_t)t->n0 * a.K;
    a.out = sums;
    for (int m = 0; m < t->M; m += INT8_STRIP) {
        a.M = min_int(INT8_STRIP, t->M - m);
        a.x = x.codes + (size_t)m * a.ldx;
        int8_products(&a);
        for (int i = 0; i < a.M; i++)
            store_int8_sums(t->p, m + i, x.scale[m + i], t->n0, t->N, t->bias, sums + i * INT8_N);
    }
}

static const fv_gemm_x x_int8 = {1 << FV_PRODUCT_INT8, pack_x_int8_plan, pack_x_int8};

static const fv_gemm_impl gemm_int8 = {
    .name = "in-place", .x = &x_int8, .columns = INT8_N, .item = int8_item};

#endif
