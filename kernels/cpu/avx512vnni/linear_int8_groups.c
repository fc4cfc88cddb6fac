/* y = x w^T + bias (+ y) with weights in groups of integers of 8 or 4 bits, with AVX-512 VNNI.
 *
 * Lanes are rows of w: 16 rows and a block of K are a panel of quads, four neighbouring columns of a row,
 * multiplied by quads of x. VPDPBUSD's first operand is unsigned, so w is raised by 128, and integers of 4 bits
 * stay 0..15 as stored; sums begin at minus what that adds, which depends on x alone.
 *
 * A dword of 4-bit integers is 8 columns: its low halves are the even ones, a quad, and its high halves the
 * odd ones. So dwords are transposed before they are split, and x is packed in that order. */
#include <immintrin.h>
#include <string.h>

#include "kernels/cpu/avx512vnni/gemm.h"
#include "kernels/cpu/avx512vnni/panels.h"
#include "kernels/cpu/avx512vnni/scales.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

/* K_GROUPS: groups of a block of K; its panel, 8 KiB, stays in L1. ROWS: rows of x per tile, TILES: tiles of a call. */
enum { K_GROUPS = 16, PANELS = 4, FEW = 16, ROWS = 4, TILES = 4 };

/* A row of x in shared memory, a group for each 32 columns, zeros after the last. */
typedef struct x_group {
    float scale;
    int32_t start[3]; /* initial sums: of the group, and of its halves */
    int32_t quad[QUADS];
} x_group;

/* 16 rows of w and a block of K; one scale for each group, or two, for its halves. */
typedef struct panel {
    __m512i quad[K_GROUPS][QUADS];
    float scale[2 * K_GROUPS][LANES];
} panel;

/* ---- x --------------------------------------------------------------------------------- */

static fv_cpu_plan pack_x_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    return (fv_cpu_plan){.n_item = a->x.rows,
                         .grain = div_up(16384, a->x.cols + 1),
                         .shared_bytes =
                             (size_t)a->x.rows * int8_groups(a->x.cols) * sizeof(x_group)};
}

static void pack_group(const float *x, size_t K, size_t g, bool int4, x_group *to) {
    /* the even ones of each 8 columns, then the odd ones */
    const __m256i apart = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    int8_t codes[INT8_GROUP];
    int32_t four[INT8_GROUP / 4], half[2] = {0, 0}, raised = int4 ? 8 : 128;
    to->scale = int8_group_of(x, K, g, codes);
    __m256i all = _mm256_loadu_si256((const void *)codes);
    __m256i sums = _mm256_maddubs_epi16(_mm256_set1_epi8(1), all);
    _mm256_storeu_si256((void *)four, _mm256_madd_epi16(sums, _mm256_set1_epi16(1)));
    for (int i = 0; i < INT8_GROUP / 4; i++) half[i / 4] += four[i];
    to->start[0] = -raised * (half[0] + half[1]);
    to->start[1] = -raised * half[0];
    to->start[2] = -raised * half[1];
    _mm256_storeu_si256((void *)to->quad, int4 ? _mm256_shuffle_epi8(all, apart) : all);
}

static void pack_x(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *c = args;
    const size_t n = int8_groups(c->a->x.cols);
    (void)scratch;
    for (int64_t m = begin; m < end; m++)
        for (size_t g = 0; g < n; g++)
            pack_group(row_f32(&c->a->x, m), (size_t)c->a->x.cols, g,
                       c->product == FV_PRODUCT_INT4_GROUPS, (x_group *)c->x + (size_t)m * n + g);
}

/* ---- w --------------------------------------------------------------------------------- */

/* Packs n groups from g0 on of rows [n0, n0 + rows); prefetches `ahead` bytes after each row. */
static ALWAYS_INLINE void panel_of(const fv_tensor *w, int64_t n0, int rows, size_t g0, size_t n,
                                   ptrdiff_t ahead, const bool int4, panel *to) {
    const fv_quant *q = w->quant;
    const size_t size = int4 ? INT8_GROUP / 2 : INT8_GROUP;
    const size_t all = ((size_t)w->cols * size + INT8_GROUP - 1) / INT8_GROUP;
    const uint8_t *at = (const uint8_t *)w->data + (size_t)n0 * q->row_bytes + g0 * size;
    for (int i = 0; i < rows; i++)
        for (size_t b = 0; b < n * size; b += 64)
            _mm_prefetch(
                (const void *)((uintptr_t)at + (size_t)i * q->row_bytes + (size_t)ahead + b),
                _MM_HINT_T1);
    scales_of(q, n0, rows, g0, n, to->scale);
    for (size_t g = 0; g < n; g++, at += size) {
        size_t left = all - (g0 + g) * size;
        if (rows == LANES && left >= size)
            quads_of(at, q->row_bytes, int4, to->quad[g]);
        else
            edge_of(at, q->row_bytes, rows, left < size ? left : size, int4, to->quad[g]);
    }
}

/* ---- products -------------------------------------------------------------------------- */

/* Adds `units` groups of w, `per` of them per group of x, for mr rows of x, which are `all` groups apart. */
static ALWAYS_INLINE void tile(const panel *w, size_t units, const x_group *x, size_t all,
                               float *at, const int mr, const int per) {
    const int quads = QUADS / per;
    const __m512i *line = w->quad[0];
    __m512 acc[ROWS];
    UNROLL for (int i = 0; i < mr; i++) acc[i] = _mm512_loadu_ps(at + i * LANES);
    for (size_t u = 0; u < units; u++, line += quads) {
        const x_group *of = x + u / (size_t)per;
        const int half = per == 1 ? 0 : (int)(u % 2), q0 = half * quads;
        __m512i sum[ROWS];
        UNROLL for (int i = 0; i < mr; i++) {
            sum[i] = _mm512_set1_epi32(of[(size_t)i * all].start[per == 1 ? 0 : 1 + half]);
        }
        UNROLL for (int k = 0; k < quads; k++) {
            UNROLL for (int i = 0; i < mr; i++) {
                sum[i] = _mm512_dpbusd_epi32(sum[i], line[k],
                                             _mm512_set1_epi32(of[(size_t)i * all].quad[q0 + k]));
            }
        }
        __m512 scale = _mm512_loadu_ps(w->scale[u]);
        UNROLL for (int i = 0; i < mr; i++) {
            __m512 by = _mm512_mul_ps(scale, _mm512_set1_ps(of[(size_t)i * all].scale));
            acc[i] = _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(sum[i]), acc[i]);
        }
    }
    UNROLL for (int i = 0; i < mr; i++) _mm512_storeu_ps(at + i * LANES, acc[i]);
}

static ALWAYS_INLINE void tile_rows(const panel *w, size_t units, const x_group *x, size_t all,
                                    float *at, int rows, const int per) {
    switch (rows) {
    case 1: tile(w, units, x, all, at, 1, per); break;
    case 2: tile(w, units, x, all, at, 2, per); break;
    case 3: tile(w, units, x, all, at, 3, per); break;
    default: tile(w, units, x, all, at, ROWS, per);
    }
}

/* Groups of x in the current block of K. */
static size_t groups_of_block(const fv_gemm_item *t) {
    const size_t left = int8_groups(t->call->a->x.cols) - t->k * K_GROUPS;
    return left < K_GROUPS ? left : K_GROUPS;
}

static void pack_w(fv_gemm_item *t, int n, int cols, void *to) {
    const bool int4 = t->call->product == FV_PRODUCT_INT4_GROUPS;
    const size_t g = t->k * K_GROUPS, some = groups_of_block(t), row = t->p->w.quant->row_bytes;
    const size_t bytes = int4 ? INT8_GROUP / 2 : INT8_GROUP;
    /* to the next block of these rows, or the first of the next item */
    const ptrdiff_t ahead = t->last ? (ptrdiff_t)((size_t)t->N * row) - (ptrdiff_t)(g * bytes)
                                    : (ptrdiff_t)(some * bytes);
    if (int4)
        panel_of(&t->p->w, t->n0 + n, cols, g, some, ahead, true, to);
    else
        panel_of(&t->p->w, t->n0 + n, cols, g, some, ahead, false, to);
}

static void tiles(fv_gemm_item *t, int m, int rows, int n, int cols, const void *w, void *sums) {
    const fv_quant *q = t->p->w.quant;
    const size_t all = int8_groups(t->call->a->x.cols), g = t->k * K_GROUPS;
    const size_t units = int8_scales(q, g, groups_of_block(t));
    const x_group *x = (const x_group *)t->call->x + (size_t)(t->m0 + m) * all + g;
    float *at = sums;
    (void)n, (void)cols;
    if (t->k == 0) memset(at, 0, (size_t)rows * LANES * sizeof *at);
    for (; rows > 0; rows -= ROWS, x += ROWS * all, at += ROWS * LANES)
        if (int8_units(q) == 1)
            tile_rows(w, units, x, all, at, min_int(ROWS, rows), 1);
        else
            tile_rows(w, units, x, all, at, min_int(ROWS, rows), 2);
}

static const fv_gemm_x x_groups = {1 << FV_PRODUCT_INT8_GROUPS | 1 << FV_PRODUCT_INT4_GROUPS,
                                   pack_x_plan, pack_x};

static const fv_gemm_tiles panels = {ROWS * TILES,  LANES,         K_GROUPS *INT8_GROUP,
                                     sizeof(panel), sizeof(float), false,
                                     pack_w,        tiles,         store_f32};

const fv_gemm_impl fv_avx512vnni_groups_few = {.name = "panels-few",
                                               .x = &x_groups,
                                               .rows_max = FEW,
                                               .columns = LANES,
                                               .grain = FV_GEMM_STREAM,
                                               .tiles = &panels};

const fv_gemm_impl fv_avx512vnni_groups = {
    .name = "panels", .x = &x_groups, .columns = PANELS * LANES, .tiles = &panels};
