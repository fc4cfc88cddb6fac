#ifndef FOVEA_KERNELS_CPU_LANES_LINEAR_INT8_GROUPS_H
#define FOVEA_KERNELS_CPU_LANES_LINEAR_INT8_GROUPS_H

/* y = x w^T + bias (+ y) with weights in groups of integers, for a path with 16-lane vectors. Lanes are rows of
 * w: 16 rows and a block of K are a panel of pairs widened to 16 bits, multiplied by pairs of x. */
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

/* GROUPS_K: groups of a block of K; its panel, 8 KiB, stays in L1. */
enum { GROUPS_K = 8, GROUPS_LINE = INT8_GROUP / 2 * LANES, GROUPS_PANELS = 4, GROUPS_FEW = 16 };

/* 16 integers. */
#ifdef __AVX512F__
typedef __m512i i32x16;

static inline i32x16 i32x16_zero(void) { return _mm512_setzero_si512(); }
static inline i32x16 i32x16_load(const int32_t *p) { return _mm512_loadu_si512(p); }
static inline f32x16 f32x16_of_i32(i32x16 v) { return _mm512_cvtepi32_ps(v); }

/* sum + the products of pairs of 16 bits: those of w times the pair x. */
static inline i32x16 i32x16_pairs(i32x16 sum, i32x16 w, int32_t x) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(w, _mm512_set1_epi32(x)));
}

/* Transposes 16 rows of 32 integers, `stride` bytes apart, to [16, 16] pairs of 16 bits. */
static inline void int8_pairs_transpose(const int8_t *rows, size_t stride, int32_t *to) {
    __m512i r[16];
    UNROLL for (int i = 0; i < 16; i++) {
        r[i] = _mm512_cvtepi8_epi16(_mm256_loadu_si256((const void *)(rows + (size_t)i * stride)));
    }
    i32x16_transpose(r);
    UNROLL for (int i = 0; i < 16; i++) { _mm512_storeu_si512(to + 16 * i, r[i]); }
}
#else
typedef struct i32x16 {
    __m256i lo, hi;
} i32x16;

static inline i32x16 i32x16_zero(void) {
    return (i32x16){_mm256_setzero_si256(), _mm256_setzero_si256()};
}
static inline i32x16 i32x16_load(const int32_t *p) {
    return (i32x16){_mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 8))};
}
static inline f32x16 f32x16_of_i32(i32x16 v) {
    return (f32x16){_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)};
}
static inline i32x16 i32x16_pairs(i32x16 sum, i32x16 w, int32_t x) {
    __m256i all = _mm256_set1_epi32(x);
    return (i32x16){_mm256_add_epi32(sum.lo, _mm256_madd_epi16(w.lo, all)),
                    _mm256_add_epi32(sum.hi, _mm256_madd_epi16(w.hi, all))};
}
static inline void int8_pairs_transpose(const int8_t *rows, size_t stride, int32_t *to) {
    for (int part = 0; part < 4; part++) {
        const int8_t *from = rows + (size_t)(part % 2 * 8) * stride + part / 2 * 16;
        __m256i r[8];
        UNROLL for (int i = 0; i < 8; i++) {
            r[i] = _mm256_cvtepi8_epi16(_mm_loadu_si128((const void *)(from + (size_t)i * stride)));
        }
        i32x8_transpose(r);
        UNROLL for (int i = 0; i < 8; i++) {
            _mm256_storeu_si256((void *)(to + (part / 2 * 8 + i) * 16 + part % 2 * 8), r[i]);
        }
    }
}
#endif

/* ---- x --------------------------------------------------------------------------------- */

/* Elements of a row of x in shared memory: a scale for each group, then the integers in pairs. */
static size_t groups_ldx(const fv_linear_args *a) {
    return int8_groups(a->x.cols) * (1 + INT8_GROUP / 2);
}

static fv_cpu_plan pack_x_groups_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    fv_cpu_plan plan = {.n_item = a->x.rows, .grain = div_up(16384, a->x.cols + 1)};
    plan.shared_bytes = (size_t)a->x.rows * groups_ldx(a) * 4;
    return plan;
}

static void pack_x_groups(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    size_t n = int8_groups(b->a->x.cols);
    (void)scratch;
    for (int64_t m = begin; m < end; m++) {
        float *scale = (float *)b->x + (size_t)m * groups_ldx(b->a);
        int16_t *to = (int16_t *)(scale + n);
        for (size_t g = 0; g < n; g++, to += INT8_GROUP) {
            int8_t codes[INT8_GROUP];
            scale[g] = int8_group_of(row_f32(&b->a->x, m), (size_t)b->a->x.cols, g, codes);
            for (int k = 0; k < INT8_GROUP; k++) to[k] = codes[k];
        }
    }
}

/* ---- products -------------------------------------------------------------------------- */

/* A panel: [GROUPS_K] groups of 16 pairs of 16 rows of w, and their scales, one or two per group. */
typedef struct groups_panel {
    int32_t pairs[GROUPS_K][GROUPS_LINE];
    float scale[2 * GROUPS_K][LANES];
} groups_panel;

static void groups_panel_of(const fv_tensor *w, int64_t n0, int rows, size_t g0, size_t n,
                            groups_panel *to) {
    const fv_quant *q = w->quant;
    const size_t scales = int8_scales(q, g0, n);
    for (size_t u = 0; u < scales; u++)
        for (int i = 0; i < LANES; i++)
            to->scale[u][i] = i < rows ? int8_scale_at(q, n0 + i, g0, u) : 0.0f;
    for (size_t g = 0; g < n; g++) {
        size_t k = (g0 + g) * INT8_GROUP, cols = (size_t)w->cols - k;
        const int8_t *at = (const int8_t *)w->data + (size_t)n0 * q->row_bytes + k;
        int8_t part[LANES][INT8_GROUP] = {{0}};
        if (w->dtype == FV_INT4) {
            const uint8_t *row = (const uint8_t *)w->data + (size_t)n0 * q->row_bytes + k / 2;
            for (int i = 0; i < rows; i++, row += q->row_bytes) int4_integers(row, cols, part[i]);
            int8_pairs_transpose(part[0], INT8_GROUP, to->pairs[g]);
            continue;
        }
        bool whole = rows == LANES && cols >= INT8_GROUP;
        for (int i = 0; i < rows && !whole; i++)
            memcpy(part[i], at + (size_t)i * q->row_bytes, cols < INT8_GROUP ? cols : INT8_GROUP);
        int8_pairs_transpose(whole ? at : part[0], whole ? q->row_bytes : INT8_GROUP, to->pairs[g]);
    }
}

/* Adds n groups of w, `per` of them per group of x, for mr rows of x at a distance of ldx: scales from `scale` on,
 * pairs from x on. */
static ALWAYS_INLINE void groups_tile(const groups_panel *w, size_t n, const float *scale,
                                      const int32_t *x, size_t ldx, float *at, const int mr,
                                      const int per) {
    const int pairs = INT8_GROUP / 2 / per;
    const int32_t *line_at = w->pairs[0];
    f32x16 acc[4];
    UNROLL for (int i = 0; i < mr; i++) acc[i] = f32x16_load(at + i * LANES);
    for (size_t g = 0; g < n; g++, x += pairs, line_at += pairs * LANES) {
        i32x16 sum[4];
        UNROLL for (int i = 0; i < mr; i++) sum[i] = i32x16_zero();
        for (int k = 0; k < pairs; k++) {
            i32x16 line = i32x16_load(line_at + k * LANES);
            UNROLL for (int i = 0; i < mr; i++) {
                sum[i] = i32x16_pairs(sum[i], line, x[(size_t)i * ldx + (size_t)k]);
            }
        }
        f32x16 by = f32x16_load(w->scale[g]);
        UNROLL for (int i = 0; i < mr; i++) {
            acc[i] =
                f32x16_fma(f32x16_mul(by, f32x16_all(scale[(size_t)i * ldx + g / (size_t)per])),
                           f32x16_of_i32(sum[i]), acc[i]);
        }
    }
    UNROLL for (int i = 0; i < mr; i++) f32x16_store(at + i * LANES, acc[i]);
}

static ALWAYS_INLINE void groups_rows(const groups_panel *w, size_t n, const float *scale,
                                      const int32_t *x, size_t ldx, float *at, int rows,
                                      const int per) {
    switch (rows) {
    case 1: groups_tile(w, n, scale, x, ldx, at, 1, per); break;
    case 2: groups_tile(w, n, scale, x, ldx, at, 2, per); break;
    case 3: groups_tile(w, n, scale, x, ldx, at, 3, per); break;
    default: groups_tile(w, n, scale, x, ldx, at, 4, per);
    }
}

/* Groups of x in the current block of K. */
static size_t groups_of_block(const fv_gemm_item *t) {
    const size_t left = int8_groups(t->call->a->x.cols) - t->k * GROUPS_K;
    return left < GROUPS_K ? left : GROUPS_K;
}

static void groups_pack_w(fv_gemm_item *t, int n, int cols, void *panel) {
    groups_panel_of(&t->p->w, t->n0 + n, cols, t->k * GROUPS_K, groups_of_block(t), panel);
}

static void groups_tiles(fv_gemm_item *t, int m, int rows, int n, int cols, const void *panel,
                         void *sums) {
    const fv_linear_args *a = t->call->a;
    const fv_quant *q = t->p->w.quant;
    const size_t ldx = groups_ldx(a), g = t->k * GROUPS_K;
    const size_t scales = int8_scales(q, g, groups_of_block(t));
    const float *scale = (const float *)t->call->x + (size_t)(t->m0 + m) * ldx + g;
    const int32_t *x = (const int32_t *)t->call->x + (size_t)(t->m0 + m) * ldx +
                       int8_groups(a->x.cols) + g * (INT8_GROUP / 2);
    float *at = sums;
    (void)n, (void)cols;
    if (t->k == 0) memset(sums, 0, (size_t)rows * LANES * sizeof *at);
    for (; rows > 0; rows -= 4, scale += 4 * ldx, x += 4 * ldx, at += 4 * LANES)
        if (int8_units(q) == 1)
            groups_rows(panel, scales, scale, x, ldx, at, min_int(4, rows), 1);
        else
            groups_rows(panel, scales, scale, x, ldx, at, min_int(4, rows), 2);
}

static const fv_gemm_x x_groups = {1 << FV_PRODUCT_INT8_GROUPS | 1 << FV_PRODUCT_INT4_GROUPS,
                                   pack_x_groups_plan, pack_x_groups};

static const fv_gemm_tiles groups_panels = {16,
                                            LANES,
                                            GROUPS_K *INT8_GROUP,
                                            (sizeof(groups_panel) + 63) / 64 * 64,
                                            sizeof(float),
                                            false,
                                            groups_pack_w,
                                            groups_tiles,
                                            store_f32};

static const fv_gemm_impl gemm_groups_few = {.name = "panels-few",
                                             .x = &x_groups,
                                             .rows_max = GROUPS_FEW,
                                             .columns = LANES,
                                             .grain = FV_GEMM_STREAM,
                                             .tiles = &groups_panels};

static const fv_gemm_impl gemm_groups = {
    .name = "panels", .x = &x_groups, .columns = GROUPS_PANELS * LANES, .tiles = &groups_panels};

#endif
