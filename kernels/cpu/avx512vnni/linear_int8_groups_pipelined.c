/* y = x w^T + bias (+ y) for few rows of x, with weights in groups of integers of 8 or 4 bits, with
 * AVX-512 VNNI. Reading w limits the speed, so rows of w are read one after the other in memory order, which
 * hardware prefetchers follow; two at a time with two rows of x or more, to load x half as often. 16 groups
 * of a row, a run, are the lanes of a register of sums. The sums of 16 rows are kept, transposed so that lanes
 * are rows, scaled and added up while the next 16 rows are read: done on its own, that would leave the memory
 * idle.
 *
 * VPDPBUSD's first operand is unsigned, so w is raised by 128, and integers of 4 bits stay 0..15 as stored;
 * sums begin at minus what that adds, which depends on x alone. */
#include <immintrin.h>

#include "kernels/cpu/avx512vnni/gemm.h"
#include "kernels/cpu/avx512vnni/scales.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

/* ROWS: the most rows of x. TOGETHER: rows of w that are read side by side. NEAR, FAR: bytes between the line
 * read and the lines prefetched to L2. A core drops prefetches while its fill buffers are full, so each line is
 * prefetched twice. */
enum { RUN = LANES, QUADS_OF_RUN = 8, ROWS = 4, TOGETHER = 2, NEAR = 4096, FAR = 10240 };

/* A run of a row of x; groups after the last are zeros. Lane 4 q + i of quads and sums is group 4 i + q: the
 * order that a run of w gets with the fewest shuffles. Quads of a group have its columns in order or, for
 * integers of 4 bits, the even and then the odd ones of each 8 columns. */
typedef struct x_run {
    int8_t quad[QUADS_OF_RUN][64];
    int32_t start[RUN]; /* the initial sum of each lane */
    float scale[RUN];   /* of the groups, in order */
} x_run;

static size_t runs_of(int32_t K) { return (int8_groups(K) + RUN - 1) / RUN; }

static bool takes(const fv_linear_args *a, const fv_tensor *w) {
    (void)a;
    return int8_units(w->quant) == 1;
}

/* Sums of a run for 16 rows of w. */
typedef struct run_sums {
    __m512i row[LANES];
} run_sums;

/* Bytes of two sets of sums: of the 16 rows being read, and of the 16 before. */
static size_t scratch_bytes(const fv_linear_args *a) {
    return 2 * (size_t)a->x.rows * runs_of(a->x.cols) * sizeof(run_sums);
}

/* ---- x --------------------------------------------------------------------------------- */

static void pack_group(const float *x, size_t K, size_t g, bool int4, x_run *to) {
    const int32_t raised = int4 ? 8 : 128;
    const size_t at = g % RUN, lane = at % 4 * 4 + at / 4;
    int8_t codes[INT8_GROUP];
    to->scale[at] = int8_group_of(x, K, g, codes);
    for (size_t k = 0; k < INT8_GROUP; k++) {
        size_t quad = int4 ? k / 8 * 2 + k % 2 : k / 4, i = int4 ? k % 8 / 2 : k % 4;
        to->quad[quad][lane * 4 + i] = codes[k];
        to->start[lane] -= raised * codes[k];
    }
}

static fv_cpu_plan pack_x_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    return (fv_cpu_plan){.n_item = a->x.rows,
                         .grain = div_up(16384, a->x.cols + 1),
                         .shared_bytes = (size_t)a->x.rows * runs_of(a->x.cols) * sizeof(x_run)};
}

static void pack_x(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *c = args;
    const fv_tensor *x = &c->a->x;
    const size_t runs = runs_of(x->cols);
    (void)scratch;
    memset((x_run *)c->x + (size_t)begin * runs, 0, (size_t)(end - begin) * runs * sizeof(x_run));
    for (int64_t m = begin; m < end; m++)
        for (size_t g = 0; g < int8_groups(x->cols); g++)
            pack_group(row_f32(x, m), (size_t)x->cols, g, c->product == FV_PRODUCT_INT4_GROUPS,
                       (x_run *)c->x + (size_t)m * runs + g / RUN);
}

/* ---- sums of a run --------------------------------------------------------------------- */

/* Loads 64 bytes, of which `left` exist; the others are 0. */
static ALWAYS_INLINE __m512i at64(const uint8_t *at, size_t left, const bool whole) {
    if (whole) return _mm512_loadu_si512(at);
    return _mm512_maskz_loadu_epi8(left < 64 ? ((__mmask64)1 << left) - 1 : ~(__mmask64)0, at);
}

/* Transposes the dwords of each quarter of four registers. */
static ALWAYS_INLINE void turn_dwords(__m512i r[4]) {
    __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    r[0] = _mm512_unpacklo_epi64(a, c);
    r[1] = _mm512_unpackhi_epi64(a, c);
    r[2] = _mm512_unpacklo_epi64(b, d);
    r[3] = _mm512_unpackhi_epi64(b, d);
}

/* Transposes the four quarters of four registers. */
static ALWAYS_INLINE void turn_quarters(__m512i q[4]) {
    __m512i a = _mm512_shuffle_i32x4(q[0], q[1], 0x44), b = _mm512_shuffle_i32x4(q[0], q[1], 0xee);
    __m512i c = _mm512_shuffle_i32x4(q[2], q[3], 0x44), d = _mm512_shuffle_i32x4(q[2], q[3], 0xee);
    q[0] = _mm512_shuffle_i32x4(a, c, 0x88);
    q[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    q[2] = _mm512_shuffle_i32x4(b, d, 0x88);
    q[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

/* Loads a run of a row of w, of which `left` bytes exist, in the order of x_run; unsigned, and odd columns of
 * 4 bits are 16 times as large. */
static ALWAYS_INLINE void run_of(const uint8_t *at, size_t left, const bool whole, const bool int4,
                                 __m512i quad[QUADS_OF_RUN]) {
    const __m512i low = _mm512_set1_epi8(15), flip = _mm512_set1_epi8((char)0x80);
    const size_t lines = int4 ? 4 : 8;
    __m512i line[8];
    UNROLL for (size_t i = 0; i < lines; i++) {
        _mm_prefetch((const void *)((uintptr_t)at + FAR + 64 * i), _MM_HINT_T1);
        _mm_prefetch((const void *)((uintptr_t)at + NEAR + 64 * i), _MM_HINT_T1);
        line[i] = at64(at + 64 * i, left > 64 * i ? left - 64 * i : 0, whole);
    }
    if (int4) {
        turn_dwords(line);
        UNROLL for (int j = 0; j < 4; j++) {
            quad[2 * j] = _mm512_and_si512(line[j], low);
            quad[2 * j + 1] = _mm512_andnot_si512(low, line[j]);
        }
        return;
    }
    UNROLL for (int j = 0; j < 4; j++) {
        quad[j] = _mm512_shuffle_i64x2(line[2 * j], line[2 * j + 1], 0x88);
        quad[4 + j] = _mm512_shuffle_i64x2(line[2 * j], line[2 * j + 1], 0xdd);
    }
    turn_dwords(quad);
    turn_dwords(quad + 4);
    UNROLL for (int j = 0; j < QUADS_OF_RUN; j++) quad[j] = _mm512_xor_si512(quad[j], flip);
}

/* The sums of runs of nr rows of w with one of x. */
static ALWAYS_INLINE void sums_of_runs(__m512i quad[][QUADS_OF_RUN], const x_run *x, __m512i *sum,
                                       const int nr, const bool int4) {
    __m512i odd[TOGETHER];
    UNROLL for (int j = 0; j < nr; j++) {
        sum[j] = _mm512_loadu_si512(x->start);
        odd[j] = _mm512_setzero_si512();
    }
    UNROLL for (int q = 0; q < QUADS_OF_RUN; q++) {
        const __m512i by = _mm512_loadu_si512(x->quad[q]);
        UNROLL for (int j = 0; j < nr; j++) {
            if (int4 && q % 2)
                odd[j] = _mm512_dpbusd_epi32(odd[j], quad[j][q], by);
            else
                sum[j] = _mm512_dpbusd_epi32(sum[j], quad[j][q], by);
        }
    }
    UNROLL for (int j = 0; j < nr; j++) {
        if (int4) sum[j] = _mm512_add_epi32(sum[j], _mm512_srai_epi32(odd[j], 4));
    }
}

/* ---- 16 rows of w ---------------------------------------------------------------------- */

static const __mmask32 UPPER_WORDS = 0xaaaaaaaa; /* upper halves of dwords */

/* Rows [n0, n0 + rows) of w, and the sums of all runs. `packed`: two sums per dword, since sums of integers of 4
 * bits fit in 16, |sum| <= 32 * 8 * 127. The lower half of the first dword belongs to row 0 of x, the upper half
 * is the group's scale; each further dword has two rows of x. So scales are transposed together with the sums. */
typedef struct few_rows {
    const fv_linear_part *p;
    int64_t n0;
    int rows;
    bool packed;
    run_sums *sums; /* [rows of x or dwords, runs] */
    float acc[ROWS][LANES];
} few_rows;

/* Groups of x per scale of w. */
static size_t groups_of_scale(const fv_quant *q) { return (size_t)q->group / INT8_GROUP; }

static bool is_packed(const fv_tensor *w) {
    return w->dtype == FV_INT4 && w->quant->scale_type != FV_F32 && w->quant->group > 0 &&
           RUN % groups_of_scale(w->quant) == 0;
}

/* The index of each lane's scale within a run, in the upper words: the group divided by groups_of_scale, a
 * power of two where scales are packed, with a shift. */
static ALWAYS_INLINE __m512i scale_of_lanes(int shift) {
    const __m512i group = _mm512_set_epi16(15, 0, 11, 0, 7, 0, 3, 0, 14, 0, 10, 0, 6, 0, 2, 0, 13,
                                           0, 9, 0, 5, 0, 1, 0, 12, 0, 8, 0, 4, 0, 0, 0);
    return _mm512_srl_epi16(group, _mm_cvtsi32_si128(shift));
}

/* Computes the sums of run u of nr rows from r on. Of a row `left` bytes exist, and the scales in the mask `scales`. */
static ALWAYS_INLINE void read_runs(const few_rows *f, const x_run *x, int r, size_t u, size_t runs,
                                    int shift, __m512i lanes, __mmask16 scales, size_t left,
                                    const bool whole, const int mr, const int nr, const bool int4,
                                    const bool packed) {
    const fv_quant *quant = f->p->w.quant;
    __m512i scale[TOGETHER];
    __m512i quad[TOGETHER][QUADS_OF_RUN], sums[ROWS][TOGETHER];
    UNROLL for (int j = 0; j < nr; j++) {
        const size_t row = (size_t)f->n0 + (size_t)min_int(r + j, f->rows - 1);
        if (packed) {
            const uint16_t *at = (const uint16_t *)quant->scale + row * (size_t)quant->groups;
            at += u * RUN >> shift;
            scale[j] = _mm512_castsi256_si512(_mm256_maskz_loadu_epi16(scales, at));
        }
        run_of((const uint8_t *)f->p->w.data + row * quant->row_bytes + u * (int4 ? 256 : 512),
               left, whole, int4, quad[j]);
    }
    UNROLL for (int m = 0; m < mr; m++) {
        sums_of_runs(quad, x + (size_t)m * runs + u, sums[m], nr, int4);
        UNROLL for (int j = 0; j < nr; j++) {
            run_sums *to = f->sums + u;
            if (!packed)
                to[(size_t)m * runs].row[r + j] = sums[m][j];
            else if (m == 0)
                to->row[r + j] =
                    _mm512_mask_permutexvar_epi16(sums[0][j], UPPER_WORDS, lanes, scale[j]);
            else if (m % 2 == 0)
                sums[m][j] = _mm512_mask_blend_epi16(UPPER_WORDS, sums[m - 1][j],
                                                     _mm512_slli_epi32(sums[m][j], 16));
            if (packed && m > 0 && (m % 2 == 0 || m == mr - 1))
                to[(size_t)(m + 1) / 2 * runs].row[r + j] = sums[m][j];
        }
    }
}

static ALWAYS_INLINE void read_rows(const few_rows *f, const fv_gemm_call *b, int r, const int mr,
                                    const int nr, const bool int4, const bool packed) {
    const fv_tensor *w = &f->p->w;
    const size_t runs = runs_of(w->cols), size = int4 ? 256 : 512;
    const size_t bytes = int4 ? ((size_t)w->cols + 1) / 2 : (size_t)w->cols, whole = bytes / size;
    const size_t scale_bytes = (size_t)w->quant->groups * fv_dtype_bytes(w->quant->scale_type);
    if (!packed) /* scales are used while the next rows are read */
        for (size_t i = 0; i < (size_t)nr * scale_bytes; i += 64)
            _mm_prefetch(
                (const void *)((uintptr_t)w->quant->scale + (size_t)(f->n0 + r) * scale_bytes + i),
                _MM_HINT_T1);
    const size_t per = packed ? groups_of_scale(w->quant) : 1;
    const int shift = __builtin_ctzll(per);
    const size_t left = (int8_groups(w->cols) - whole * RUN + per - 1) >> shift;
    const __m512i lanes = scale_of_lanes(shift);
    const __mmask16 all = (__mmask16)((1u << (RUN >> shift)) - 1);
    const __mmask16 last = (__mmask16)((1u << left) - 1);
    for (size_t u = 0; u < whole; u++)
        read_runs(f, b->x, r, u, runs, shift, lanes, all, size, true, mr, nr, int4, packed);
    if (whole < runs)
        read_runs(f, b->x, r, whole, runs, shift, lanes, last, bytes - whole * size, false, mr, nr,
                  int4, packed);
}

/* Transposes the dwords of a run of 16 rows so that lanes are rows; group 4 i + q goes to to[i][q]. */
static ALWAYS_INLINE void turn_run(const __m512i row[LANES], __m512i to[4][4]) {
    __m512i four[4][4];
    UNROLL for (int i = 0; i < 4; i++) {
        UNROLL for (int j = 0; j < 4; j++) four[i][j] = row[4 * i + j];
        turn_dwords(four[i]);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        UNROLL for (int j = 0; j < 4; j++) to[i][j] = four[j][i];
        turn_quarters(to[i]);
    }
}

/* The part of a dword that a sum takes. */
typedef enum place { WHOLE, LOWER, UPPER } place;

/* Adds the first `groups` groups of a run to acc. */
static ALWAYS_INLINE void add_groups(float acc[LANES], __m512i turned[4][4], const place in,
                                     size_t groups, const x_run *x, float scale[][LANES]) {
    __m512 all = _mm512_loadu_ps(acc);
    UNROLL for (size_t g = 0; g < RUN; g++) {
        if (g < groups) {
            __m512i sum = turned[g / 4][g % 4];
            if (in == LOWER) sum = _mm512_slli_epi32(sum, 16);
            if (in != WHOLE) sum = _mm512_srai_epi32(sum, 16);
            __m512 by = _mm512_mul_ps(_mm512_loadu_ps(scale[g]), _mm512_set1_ps(x->scale[g]));
            all = _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(sum), all);
        }
    }
    _mm512_storeu_ps(acc, all);
}

/* Widens the scales in the upper halves. */
static ALWAYS_INLINE void scales_in(__m512i turned[4][4], const fv_dtype t, float to[][LANES]) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    UNROLL for (int g = 0; g < RUN; g++) {
        const __m512i dword = turned[g / 4][g % 4];
        if (t == FV_BF16)
            _mm512_storeu_si512(to[g], _mm512_and_si512(dword, upper));
        else
            _mm512_storeu_ps(to[g],
                             _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(dword, 16))));
    }
}

/* Adds `groups` groups of run u to acc, for all rows of f, from packed sums. */
static ALWAYS_INLINE void add_packed(few_rows *f, const fv_gemm_call *b, size_t u, size_t groups) {
    const size_t runs = runs_of(b->a->x.cols);
    const x_run *x = (const x_run *)b->x + u;
    __m512i turned[4][4];
    float scale[RUN][LANES];
    turn_run(f->sums[u].row, turned);
    if (f->p->w.quant->scale_type == FV_BF16)
        scales_in(turned, FV_BF16, scale);
    else
        scales_in(turned, FV_F16, scale);
    add_groups(f->acc[0], turned, LOWER, groups, x, scale);
    for (int m = 1; m < b->a->x.rows; m += 2) {
        turn_run(f->sums[(size_t)(m + 1) / 2 * runs + u].row, turned);
        add_groups(f->acc[m], turned, LOWER, groups, x + (size_t)m * runs, scale);
        if (m + 1 < b->a->x.rows)
            add_groups(f->acc[m + 1], turned, UPPER, groups, x + (size_t)(m + 1) * runs, scale);
    }
}

static ALWAYS_INLINE void add_whole(few_rows *f, const fv_gemm_call *b, size_t u, size_t groups) {
    const size_t runs = runs_of(b->a->x.cols);
    float scale[RUN][LANES];
    scales_of(f->p->w.quant, f->n0, f->rows, u * RUN, groups, scale);
    for (int m = 0; m < b->a->x.rows; m++) {
        const size_t at = (size_t)m * runs + u;
        __m512i turned[4][4];
        turn_run(f->sums[at].row, turned);
        add_groups(f->acc[m], turned, WHOLE, groups, (const x_run *)b->x + at, scale);
    }
}

static NEVER_INLINE void add_run(few_rows *f, const fv_gemm_call *b, size_t u) {
    const size_t left = int8_groups(b->a->x.cols) - u * RUN;
    if (f->packed && left >= RUN)
        add_packed(f, b, u, RUN);
    else if (f->packed)
        add_packed(f, b, u, left);
    else if (left >= RUN)
        add_whole(f, b, u, RUN);
    else
        add_whole(f, b, u, left);
}

static void store(const few_rows *f, const fv_gemm_call *b) {
    float wide[LANES];
    const float *bias = bias_f32(&f->p->bias, f->n0, f->rows, wide);
    for (int m = 0; m < b->a->x.rows; m++) store_sums(f->p, m, f->n0, f->rows, bias, f->acc[m]);
}

/* ---- items ----------------------------------------------------------------------------- */

static ALWAYS_INLINE void items(const fv_gemm_call *b, const fv_linear_part *p, int64_t begin,
                                int64_t end, run_sums *scratch, const int mr, const bool int4,
                                const bool packed) {
    const size_t runs = runs_of(b->a->x.cols);
    const int nr = mr > 1 ? TOGETHER : 1;
    few_rows each[2], *before = NULL;
    for (int64_t i = begin; i < end; i++) {
        few_rows *f = &each[i % 2];
        *f = (few_rows){.p = p, .n0 = i * LANES, .packed = packed};
        f->rows = min_int(LANES, p->w.rows - f->n0);
        f->sums = scratch + (size_t)(i % 2) * (size_t)mr * runs;
        size_t u = 0;
        for (int r = 0; r < f->rows; r += nr) {
            read_rows(f, b, r, mr, nr, int4, packed);
            for (; before && u * (size_t)f->rows < runs * (size_t)(r + nr) && u < runs; u++)
                add_run(before, b, u);
        }
        if (before) store(before, b);
        before = f;
    }
    if (!before) return;
    for (size_t u = 0; u < runs; u++) add_run(before, b, u);
    store(before, b);
}

static ALWAYS_INLINE void items_of(const fv_gemm_call *b, const fv_linear_part *p, int64_t begin,
                                   int64_t end, run_sums *scratch, const int mr) {
    if (p->w.dtype == FV_INT8)
        items(b, p, begin, end, scratch, mr, false, false);
    else if (is_packed(&p->w))
        items(b, p, begin, end, scratch, mr, true, true);
    else
        items(b, p, begin, end, scratch, mr, true, false);
}

static void items_in_row(const fv_gemm_call *c, const fv_linear_part *p, int64_t begin, int64_t end,
                         void *scratch) {
    switch (c->a->x.rows) {
    case 1: items_of(c, p, begin, end, scratch, 1); break;
    case 2: items_of(c, p, begin, end, scratch, 2); break;
    case 3: items_of(c, p, begin, end, scratch, 3); break;
    default: items_of(c, p, begin, end, scratch, ROWS);
    }
}

static const fv_gemm_x x_groups = {1 << FV_PRODUCT_INT8_GROUPS | 1 << FV_PRODUCT_INT4_GROUPS,
                                   pack_x_plan, pack_x};

const fv_gemm_impl fv_avx512vnni_groups_pipelined = {.name = "pipelined",
                                                     .x = &x_groups,
                                                     .rows_max = ROWS,
                                                     .takes = takes,
                                                     .columns = LANES,
                                                     .grain = FV_GEMM_STREAM,
                                                     .scratch_bytes = scratch_bytes,
                                                     .items = items_in_row};
