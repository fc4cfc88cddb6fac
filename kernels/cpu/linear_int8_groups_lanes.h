#ifndef FOVEA_KERNELS_CPU_LINEAR_INT8_GROUPS_LANES_H
#define FOVEA_KERNELS_CPU_LINEAR_INT8_GROUPS_LANES_H

/* y = x w^T + bias (+ y) with weights in groups of integers, for a path with 16-lane vectors. Lanes are rows of
 * w: 16 rows and a block of K are a panel of pairs widened to 16 bits, multiplied by pairs of x. Where AVX-512
 * has VNNI, linear_int8_groups_vnni.c is used. */
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/linear_int8.h"
#include "kernels/cpu/linear_int8_groups_vnni.h"
#include "kernels/cpu/linear_parts_lanes.h"

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

#ifdef __AVX512F__
static bool groups_in_vnni(void) { return fv_vnni_runs_here(); }
#else
static bool groups_in_vnni(void) { return false; }
#endif

static fv_cpu_plan pack_int8_groups_plan(const void *args) {
    if (groups_in_vnni()) return fv_vnni_pack_int8_groups_plan(args);
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    fv_cpu_plan plan = {.n_item = a->x.rows, .grain = div_up(16384, a->x.cols + 1)};
    plan.shared_bytes = (size_t)a->x.rows * groups_ldx(a) * 4;
    return plan;
}

static void pack_int8_groups(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    size_t n = int8_groups(b->a->x.cols);
    if (groups_in_vnni()) {
        fv_vnni_pack_int8_groups(args, scratch, begin, end);
        return;
    }
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

static int groups_columns(const fv_linear_args *a) {
    return LANES * (a->x.rows <= GROUPS_FEW ? 1 : GROUPS_PANELS);
}

static fv_cpu_plan linear_int8_groups_plan(const void *args) {
    if (groups_in_vnni()) return fv_vnni_linear_int8_groups_plan(args);
    const fv_linear_args *a = ((const fv_cpu_packed_linear *)args)->a;
    int columns = groups_columns(a);
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += div_up(a->part[p].w.rows, columns);
    if (a->x.rows <= GROUPS_FEW) plan.grain = div_up(1 << 18, (int64_t)columns * (a->x.cols + 1));
    plan.scratch_bytes = (size_t)columns / LANES * sizeof(groups_panel) +
                         (size_t)columns * (size_t)a->x.rows * sizeof(float);
    return plan;
}

/* Computes columns [n0, n0 + N) of y. */
static void linear_int8_groups_item(const fv_cpu_packed_linear *b, const fv_linear_part *p,
                                    int64_t n0, int N, groups_panel *panel) {
    size_t all = int8_groups(b->a->x.cols), ldx = groups_ldx(b->a), n;
    int M = b->a->x.rows, panels = (int)div_up(N, LANES);
    float *accs = (float *)(panel + panels), wide[GROUPS_PANELS * LANES];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    memset(accs, 0, (size_t)panels * (size_t)M * LANES * sizeof *accs);
    for (size_t g = 0; g < all; g += n) {
        n = all - g < GROUPS_K ? all - g : GROUPS_K;
        size_t scales = int8_scales(p->w.quant, g, n);
        for (int j = 0; j < panels; j++)
            groups_panel_of(&p->w, n0 + j * LANES, min_int(LANES, N - j * LANES), g, n, panel + j);
        for (int m = 0; m < M; m += 4)
            for (int j = 0; j < panels; j++) {
                const float *scale = (const float *)b->x + (size_t)m * ldx + g;
                const int32_t *x = (const int32_t *)b->x + (size_t)m * ldx + all;
                float *at = accs + ((size_t)j * (size_t)M + (size_t)m) * LANES;
                x += g * (INT8_GROUP / 2);
                if (int8_units(p->w.quant) == 1)
                    groups_rows(panel + j, scales, scale, x, ldx, at, min_int(4, M - m), 1);
                else
                    groups_rows(panel + j, scales, scale, x, ldx, at, min_int(4, M - m), 2);
            }
    }
    for (int j = 0; j < panels; j++)
        for (int m = 0; m < M; m++)
            store_sums(p, m, n0 + j * LANES, min_int(LANES, N - j * LANES),
                       bias ? bias + j * LANES : NULL,
                       accs + ((size_t)j * (size_t)M + (size_t)m) * LANES);
}

static void linear_int8_groups(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
    int columns = groups_columns(b->a);
    if (groups_in_vnni()) {
        fv_vnni_linear_int8_groups(args, scratch, begin, end);
        return;
    }
    for (int p = 0; p < b->a->n_part; p++) {
        int64_t N = b->a->part[p].w.rows, n = div_up(N, columns);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++)
            linear_int8_groups_item(b, &b->a->part[p], i * columns,
                                    min_int(columns, N - i * columns), scratch);
        begin -= n;
        end -= n;
    }
}

#endif
