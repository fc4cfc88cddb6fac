/* y = x w^T + bias (+ y) for few rows of x, with weights in groups of integers of 8 or 4 bits, with
 * AVX-512 VNNI. What counts is how fast w is read, so no panel of it is written: four groups of a row of
 * w, a block, are multiplied where they lie, so that each group has four sums, and sums of 16 rows are
 * added up and transposed together, to lanes of rows.
 *
 * VPDPBUSD's first operand is unsigned, so w is raised by 128, and integers of 4 bits are 0..15 as they
 * lie; sums begin at what that adds, with the other sign: it depends on x alone. */
#include <immintrin.h>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/linear_int8_groups_vnni.h"
#include "kernels/cpu/linear_parts_lanes.h"
#include "kernels/cpu/scales_avx512.h"

/* BLOCK: groups of a block. PART: blocks of a row that are multiplied before their sums are scaled.
 * AHEAD: bytes between what is read and what is fetched, to L2. */
enum { BLOCK = 4, ROWS = 4, PART = 16, AHEAD = 8192 };

/* A block of a row of x; groups after the last are zeros. A register holds 16 columns of each group: the
 * first 16 and the last, or, for integers of 4 bits, the even ones and the odd ones. */
typedef struct x_block {
    int8_t part[2][64];
    int32_t start[16]; /* what the four sums of each group begin at */
    float scale[BLOCK];
} x_block;

static size_t blocks_of(int32_t K) { return (int8_groups(K) + BLOCK - 1) / BLOCK; }

bool fv_vnni_few_groups(const fv_linear_args *a) {
    bool few = a->x.rows <= ROWS;
    for (int p = 0; p < a->n_part; p++) few = few && int8_units(a->part[p].w.quant) == 1;
    return few;
}

size_t fv_vnni_few_groups_bytes(const fv_linear_args *a) {
    return (size_t)a->x.rows * blocks_of(a->x.cols) * sizeof(x_block);
}

/* ---- x --------------------------------------------------------------------------------- */

static void pack_group(const float *x, size_t K, size_t g, bool int4, x_block *to) {
    const int32_t raised = int4 ? 8 : 128;
    int8_t codes[INT8_GROUP];
    size_t at = g % BLOCK;
    to->scale[at] = int8_group_of(x, K, g, codes);
    for (size_t k = 0; k < INT8_GROUP; k++) {
        size_t part = int4 ? k % 2 : k / 16, i = at * 16 + (int4 ? k / 2 : k % 16);
        to->part[part][i] = codes[k];
        to->start[i / 4] -= raised * codes[k];
    }
}

void fv_vnni_pack_few_groups(const fv_cpu_packed_linear *b, int64_t m) {
    const fv_linear_args *a = b->a;
    const bool int4 = a->part[0].w.dtype == FV_INT4;
    x_block *to = (x_block *)b->x + (size_t)m * blocks_of(a->x.cols);
    memset(to, 0, blocks_of(a->x.cols) * sizeof *to);
    for (size_t g = 0; g < int8_groups(a->x.cols); g++)
        pack_group(row_f32(&a->x, m), (size_t)a->x.cols, g, int4, to + g / BLOCK);
}

/* ---- products -------------------------------------------------------------------------- */

/* 64 bytes, of which `left` are there. */
static ALWAYS_INLINE __m512i at64(const uint8_t *at, size_t left, const bool whole) {
    if (whole) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi8(left < 64 ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0, at);
}

/* A block of a row of w, unsigned, as x_block lays it. */
static ALWAYS_INLINE void block_of(const uint8_t *at, size_t left, const bool whole,
                                   const bool int4, __m512i part[2]) {
    const __m512i low = _mm512_set1_epi8(15), flip = _mm512_set1_epi8((char)0x80);
    const __m512i first = at64(at, left, whole);
    if (int4) {
        part[0] = _mm512_and_si512(first, low);
        part[1] = _mm512_and_si512(_mm512_srli_epi16(first, 4), low);
    } else {
        const __m512i second = at64(at + 64, left > 64 ? left - 64 : 0, whole);
        part[0] = _mm512_xor_si512(_mm512_shuffle_i64x2(first, second, 0x88), flip);
        part[1] = _mm512_xor_si512(_mm512_shuffle_i64x2(first, second, 0xdd), flip);
    }
}

/* The four quarters of four registers, transposed. */
static ALWAYS_INLINE void quarters(__m512i q[4]) {
    __m512i a = _mm512_shuffle_i32x4(q[0], q[1], 0x44), b = _mm512_shuffle_i32x4(q[0], q[1], 0xee);
    __m512i c = _mm512_shuffle_i32x4(q[2], q[3], 0x44), d = _mm512_shuffle_i32x4(q[2], q[3], 0xee);
    q[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    q[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    q[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    q[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

/* 16 rows of w, the last of `rows` again after it. */
typedef struct few_rows {
    const uint8_t *at;
    size_t stride, bytes; /* from row to row; of a row */
    int rows;
} few_rows;

/* Sums of a part of K, of each block and row of x those of 16 rows of w: number g * 4 + i of quad j is that
 * of group g and row 4 j + i. */
typedef struct few_sums {
    __m512i quad[PART][ROWS][4];
} few_sums;

/* Four rows of w from row r on, n blocks from block b0 on, with mr rows of x, `all` blocks from one to the
 * next. A row is read block after block, which memory likes best; the bytes `ahead` of it are fetched. */
static ALWAYS_INLINE void four_rows_of(const few_rows *w, int r, size_t b0, size_t n, size_t ahead,
                                       const x_block *x, size_t all, few_sums *to, const int mr,
                                       const bool int4) {
    const size_t size = int4 ? 64 : 128;
    const uint8_t *at[4];
    UNROLL for (int j = 0; j < 4; j++) at[j] =
        w->at + (size_t)min_int(r + j, w->rows - 1) * w->stride;
    for (size_t b = 0; b < n; b++) {
        const size_t begin = (b0 + b) * size, left = w->bytes - begin;
        __m512i sum[ROWS][4];
        UNROLL for (int j = 0; j < 4; j++) {
            __m512i part[2];
            UNROLL for (size_t p = 0; p < size; p += 64) {
                _mm_prefetch((const void *)((uintptr_t)at[j] + begin + p + ahead), _MM_HINT_T1);
            }
            block_of(at[j] + begin, left, left >= size, int4, part);
            UNROLL for (int m = 0; m < mr; m++) {
                const x_block *of = x + (size_t)m * all + b0 + b;
                sum[m][j] = _mm512_loadu_si512(of->start);
                sum[m][j] =
                    _mm512_dpbusd_epi32(sum[m][j], part[0], _mm512_loadu_si512(of->part[0]));
                sum[m][j] =
                    _mm512_dpbusd_epi32(sum[m][j], part[1], _mm512_loadu_si512(of->part[1]));
            }
        }
        UNROLL for (int m = 0; m < mr; m++) {
            to->quad[b][m][r / 4] = sums_of_quarters(sum[m][0], sum[m][1], sum[m][2], sum[m][3]);
        }
    }
}

/* acc goes on by the n groups of a part; x begins there. */
static ALWAYS_INLINE void add_groups(few_sums *sums, float scale[][LANES], size_t n,
                                     const x_block *x, size_t all, __m512 *acc, const int mr) {
    for (size_t b = 0; b * BLOCK < n; b++) {
        UNROLL for (int m = 0; m < mr; m++) {
            const x_block *of = x + (size_t)m * all + b;
            __m512i *q = sums->quad[b][m];
            quarters(q);
            for (size_t g = 0; g < BLOCK && b * BLOCK + g < n; g++) {
                __m512 by = _mm512_mul_ps(_mm512_loadu_ps(scale[b * BLOCK + g]),
                                          _mm512_set1_ps(of->scale[g]));
                acc[m] = _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(q[g]), acc[m]);
            }
        }
    }
}

/* Columns [n0, n0 + N) of y, for mr rows of x. */
static ALWAYS_INLINE void item(const fv_cpu_packed_linear *b, const fv_linear_part *p, int64_t n0,
                               int N, const int mr, const bool int4) {
    const fv_quant *quant = p->w.quant;
    const size_t all = int8_groups(b->a->x.cols), blocks = blocks_of(b->a->x.cols);
    const size_t stride = quant->row_bytes, size = int4 ? 64 : 128;
    const few_rows w = {.at = (const uint8_t *)p->w.data + (size_t)n0 * stride,
                        .stride = stride,
                        .bytes = int4 ? ((size_t)p->w.cols + 1) / 2 : (size_t)p->w.cols,
                        .rows = N};
    const size_t scale_bytes = LANES * (size_t)quant->groups * fv_dtype_bytes(quant->scale_type);
    const uintptr_t scales_after = (uintptr_t)quant->scale + (size_t)(n0 / LANES + 1) * scale_bytes;
    /* Rows that are read AHEAD bytes after these ones. */
    const size_t run = 4 * size * (blocks < PART ? blocks : PART);
    const size_t ahead = run ? (AHEAD + run - 1) / run * 4 * stride : 0;
    few_sums sums;
    float scale[PART * BLOCK][LANES], wide[LANES], out[LANES];
    const float *bias = bias_f32(&p->bias, n0, N, wide);
    __m512 acc[ROWS];
    UNROLL for (int m = 0; m < mr; m++) acc[m] = _mm512_setzero_ps();
    for (size_t at = 0; at < scale_bytes; at += 64)
        _mm_prefetch((const void *)(scales_after + at), _MM_HINT_T1);
    for (size_t b0 = 0, n; b0 < blocks; b0 += n) {
        n = blocks - b0 < PART ? blocks - b0 : PART;
        const size_t groups = all - b0 * BLOCK < n * BLOCK ? all - b0 * BLOCK : n * BLOCK;
        for (int r = 0; r < LANES; r += 4)
            four_rows_of(&w, r, b0, n, ahead, b->x, blocks, &sums, mr, int4);
        scales_of(quant, n0, N, b0 * BLOCK, groups, scale);
        add_groups(&sums, scale, groups, (const x_block *)b->x + b0, blocks, acc, mr);
    }
    UNROLL for (int m = 0; m < mr; m++) {
        _mm512_storeu_ps(out, acc[m]);
        store_sums(p, m, n0, N, bias, out);
    }
}

static ALWAYS_INLINE void items(const fv_cpu_packed_linear *b, const fv_linear_part *p,
                                int64_t begin, int64_t end, const int mr) {
    const bool int4 = p->w.dtype == FV_INT4;
    for (int64_t i = begin; i < end; i++) {
        int N = min_int(LANES, p->w.rows - i * LANES);
        if (int4)
            item(b, p, i * LANES, N, mr, true);
        else
            item(b, p, i * LANES, N, mr, false);
    }
}

void fv_vnni_linear_few_groups(const fv_cpu_packed_linear *b, const fv_linear_part *p,
                               int64_t begin, int64_t end) {
    switch (b->a->x.rows) {
    case 1: items(b, p, begin, end, 1); break;
    case 2: items(b, p, begin, end, 2); break;
    case 3: items(b, p, begin, end, 3); break;
    default: items(b, p, begin, end, ROWS);
    }
}
