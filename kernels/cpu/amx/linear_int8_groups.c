/* y = x w^T + bias (+ y) with weights in groups of integers, with AMX (amx/tiles.h).
 *
 * A group is half a step of TDPBSSD, or a quarter: its bytes of 16 rows of w are operand A, and its integers of
 * 16 rows of x operand B. Its sums go through memory to vectors, one per row of w, where they become f32 and
 * are scaled; with one row of x a group's sums of 16 rows of w are one vector. K is cut into blocks: a panel
 * of 32 rows of w and 256 columns, 8 KiB, is multiplied by all the item's rows of x, and one f32 for each
 * output is kept between blocks. */
#include "kernels/cpu/amx/products.h"
#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

/* KB: groups of a block of K. */
enum { KB = 8, ROW = KB * INT8_GROUP, STRIPS = 2, PANEL_ROWS = STRIPS * TILE_ROWS };

/* FEW: up to this many rows of x are few. MANY_N: rows of w of an item otherwise. MANY_M: the most rows of x. */
enum { FEW = 32, MANY_N = 128, MANY_M = 768 };

/* A block of K of 16 rows of x: scales, and quads of integers. */
typedef struct x_block {
    float scale[KB][TILE_ROWS];
    uint32_t quads[KB][INT8_GROUP / 4 * TILE_ROWS];
} x_block;

typedef struct w_panel {
    int8_t codes[STRIPS][TILE_ROWS][ROW];
    float scale[STRIPS][2 * KB][TILE_ROWS]; /* one or two per group of x */
} w_panel;

static size_t x_blocks(const fv_linear_args *a) { return (size_t)div_up(a->x.rows, TILE_ROWS); }

static size_t k_blocks(const fv_linear_args *a) { return (int8_groups(a->x.cols) + KB - 1) / KB; }

static fv_cpu_plan pack_x_plan(const void *args) {
    const fv_linear_args *a = ((const fv_gemm_call *)args)->a;
    fv_cpu_plan plan = {.grain = div_up(16384, ROW * min_int(TILE_ROWS, a->x.rows + 1))};
    plan.n_item = (int64_t)(x_blocks(a) * k_blocks(a));
    plan.shared_bytes = (size_t)plan.n_item * sizeof(x_block);
    return plan;
}

static void pack_x(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    size_t blocks = x_blocks(b->a), all = int8_groups(b->a->x.cols);
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        x_block *to = (x_block *)b->x + i;
        int64_t m0 = (int64_t)((size_t)i % blocks) * TILE_ROWS;
        int rows = min_int(TILE_ROWS, b->a->x.rows - m0);
        for (int g = 0; g < KB; g += 2) {
            int8_t part[TILE_ROWS][64] = {{0}};
            for (int h = 0; h < 2; h++) {
                size_t at = (size_t)i / blocks * KB + (size_t)(g + h);
                for (int j = 0; j < TILE_ROWS; j++)
                    to->scale[g + h][j] =
                        j < rows && at < all
                            ? int8_group_of(row_f32(&b->a->x, m0 + j), (size_t)b->a->x.cols, at,
                                            part[j] + h * INT8_GROUP)
                            : 0.0f;
            }
            words_tile(part, TILE_ROWS, to->quads[g]);
        }
    }
}

/* ---- products -------------------------------------------------------------------------- */

/* Copies `units` scales of rows [n0, n0 + n) of w, from group g0 of x on. */
static void copy_scales(const fv_quant *q, int64_t n0, int n, size_t g0, size_t units,
                        float to[2 * KB][TILE_ROWS]) {
    size_t at = (size_t)n0 * (size_t)q->groups + g0 * int8_units(q);
    if (q->scale_type == FV_F32 && n >= TILE_ROWS && units == TILE_ROWS) {
        __m512i r[TILE_ROWS];
        UNROLL for (int i = 0; i < TILE_ROWS; i++) {
            r[i] = _mm512_loadu_si512((const float *)q->scale + at + (size_t)i * (size_t)q->groups);
        }
        i32x16_transpose(r);
        UNROLL for (int i = 0; i < TILE_ROWS; i++) { _mm512_store_si512(to[i], r[i]); }
        return;
    }
    if (q->scale_type != FV_F32 && q->group == INT8_GROUP && n >= TILE_ROWS && units == KB) {
        const bool half = q->scale_type == FV_F16;
        const __m512i rows = _mm512_mullo_epi32(
            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
            _mm512_set1_epi32(q->groups));
        for (int g = 0; g < KB; g += 2) {
            __m512i two = _mm512_i32gather_epi32(rows, (const uint16_t *)q->scale + at + g, 2);
            __m512i second = _mm512_srli_epi32(two, 16);
            __m512 as_bf16 = _mm512_castsi512_ps(_mm512_slli_epi32(two, 16));
            __m512 second_bf16 = _mm512_castsi512_ps(_mm512_slli_epi32(second, 16));
            _mm512_store_ps(to[g], half ? _mm512_cvtph_ps(_mm512_cvtepi32_epi16(two)) : as_bf16);
            _mm512_store_ps(to[g + 1],
                            half ? _mm512_cvtph_ps(_mm512_cvtepi32_epi16(second)) : second_bf16);
        }
        return;
    }
    for (int i = 0; i < TILE_ROWS; i++)
        for (size_t u = 0; u < units; u++)
            to[u][i] = i < n ? int8_scale_at(q, n0 + i, g0, u) : 0.0f;
}

/* Loads 64 integers of 8 bits, or of 4 bits, less 8. */
static ALWAYS_INLINE __m512i integers(const uint8_t *from, const bool int4) {
    if (!int4) return _mm512_loadu_si512(from);
    __m512i two = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const void *)from));
    two = _mm512_or_si512(two, _mm512_slli_epi16(two, 4));
    return _mm512_sub_epi8(_mm512_and_si512(two, _mm512_set1_epi8(15)), _mm512_set1_epi8(8));
}

/* Unpacks the first n > 0 columns of a row's block, and zeros. */
static void part_of_row(const uint8_t *from, size_t n, bool int4, int8_t to[ROW]) {
    memset(to, 0, ROW);
    if (!int4) {
        memcpy(to, from, n);
        return;
    }
    for (size_t c = 0; c < n; c += INT8_GROUP) int4_integers(from + c / 2, n - c, to + c);
}

/* Unpacks rows [n0, n0 + n) of w and block k of K; prefetches `ahead` bytes further on. */
static ALWAYS_INLINE void copy_panel(const fv_tensor *w, int64_t n0, int n, size_t k, size_t units,
                                     ptrdiff_t ahead, const bool int4, w_panel *to) {
    const fv_quant *q = w->quant;
    const size_t bytes = int4 ? 32 : 64; /* of 64 columns */
    size_t left = (size_t)w->cols - k * ROW, cols = left < ROW ? left : ROW;
    for (int i = 0; i < PANEL_ROWS; i++) {
        int8_t *codes = to->codes[0][0] + i * ROW;
        const uint8_t *from =
            (const uint8_t *)w->data + (size_t)(n0 + i) * q->row_bytes + k * ROW / 64 * bytes;
        size_t scale =
            (size_t)(n0 + PANEL_ROWS + i) * (size_t)q->groups + k * ROW / (size_t)q->group;
        _mm_prefetch((const void *)((uintptr_t)q->scale + scale * fv_dtype_bytes(q->scale_type)),
                     _MM_HINT_T1);
        if (i >= n) {
            memset(codes, 0, ROW);
            continue;
        }
        if (cols < ROW) {
            part_of_row(from, cols, int4, codes);
            continue;
        }
        for (size_t c = 0; c < ROW / 64; c++) {
            _mm_prefetch((const void *)((uintptr_t)from + (size_t)ahead + c * bytes), _MM_HINT_T0);
            _mm512_store_si512(codes + c * 64, integers(from + c * bytes, int4));
        }
    }
    for (int s = 0; s < STRIPS; s++)
        copy_scales(q, n0 + s * TILE_ROWS, n - s * TILE_ROWS, k * KB, units, to->scale[s]);
}

/* Computes the sums of group g, [16 rows of w, 16 rows of x], in tile c. */
#define GROUP_SUMS(c, g)                                                                           \
    do {                                                                                           \
        _tile_zero(c);                                                                             \
        _tile_loadd(4, codes + (g) * (INT8_GROUP / per), ROW);                                     \
        _tile_loadd(6, x->quads[0] + (g) * (INT8_GROUP / per) * (TILE_ROWS / 4), 64);              \
        _tile_dpbssd(c, 4, 6);                                                                     \
        _tile_stored(c, sums[c], 64);                                                              \
    } while (0)

static ALWAYS_INLINE void add_group(__m512 acc[TILE_ROWS], const int32_t *sums, __m512 scale_x,
                                    const float *scale) {
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
        __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + i * TILE_ROWS));
        __m512 by = _mm512_mul_ps(_mm512_set1_ps(scale[i]), scale_x);
        acc[i] = _mm512_fmadd_ps(by, sum, acc[i]);
    }
}

/* Adds 16 rows of w times 16 of x, over a block of K with `groups` groups of w, `per` of them per group of x,
 * to acc [16, 16]. */
static ALWAYS_INLINE void strip_many(const int8_t *codes, const float *scale, const x_block *x,
                                     size_t groups, float *at, const size_t per) {
    _Alignas(64) int32_t sums[2][TILE_ROWS * TILE_ROWS];
    __m512 acc[TILE_ROWS];
    UNROLL for (int i = 0; i < TILE_ROWS; i++) acc[i] = _mm512_load_ps(at + i * TILE_ROWS);
    GROUP_SUMS(0, 0);
    for (size_t g = 0; g < groups; g += 2) {
        if (g + 1 < groups) GROUP_SUMS(1, g + 1);
        add_group(acc, sums[0], _mm512_load_ps(x->scale[g / per]), scale + g * TILE_ROWS);
        if (g + 1 == groups) break;
        if (g + 2 < groups) GROUP_SUMS(0, g + 2);
        add_group(acc, sums[1], _mm512_load_ps(x->scale[(g + 1) / per]),
                  scale + (g + 1) * TILE_ROWS);
    }
    UNROLL for (int i = 0; i < TILE_ROWS; i++) _mm512_store_ps(at + i * TILE_ROWS, acc[i]);
}

/* strip_many with one row of x: a group's sums are one vector, and acc is [16]. */
static ALWAYS_INLINE void strip_one(const int8_t *codes, const float *scale, const x_block *x,
                                    size_t groups, float *at, const size_t per) {
    _Alignas(64) int32_t sums[2 * KB][TILE_ROWS];
    __m512 acc = _mm512_load_ps(at);
    for (size_t g = 0; g < groups; g++) {
        _tile_zero(0);
        _tile_loadd(4, codes + g * (INT8_GROUP / per), ROW);
        _tile_loadd(6, x->quads[0] + g * (INT8_GROUP / per) * (TILE_ROWS / 4), 64);
        _tile_dpbssd(0, 4, 6);
        _tile_stored(0, sums[g], 4);
    }
    for (size_t g = 0; g < groups; g++) {
        __m512 by = _mm512_mul_ps(_mm512_load_ps(scale + g * TILE_ROWS),
                                  _mm512_set1_ps(x->scale[g / per][0]));
        acc = _mm512_fmadd_ps(by, _mm512_cvtepi32_ps(_mm512_load_si512(sums[g])), acc);
    }
    _mm512_store_ps(at, acc);
}

/* Not inlined: GCC does not know that tile loads read memory. */
typedef void strip_fn(const int8_t *codes, const float *scale, const x_block *x, size_t groups,
                      float *at);
#define STRIP(name, kind, per)                                                                     \
    static NEVER_INLINE void name(const int8_t *codes, const float *scale, const x_block *x,       \
                                  size_t groups, float *at) {                                      \
        kind(codes, scale, x, groups, at, per);                                                    \
    }
STRIP(one_of_32, strip_one, 1)
STRIP(one_of_16, strip_one, 2)
STRIP(many_of_32, strip_many, 1)
STRIP(many_of_16, strip_many, 2)

/* Stores acc [16 rows of w, 16 rows of x], or [16] of one row, in y from row m0 and column n0 on. */
static void store_tile(const fv_linear_part *p, int64_t m0, int rows, int64_t n0, int n,
                       const float *bias, const float *acc) {
    const __mmask16 in = (__mmask16)((1u << n) - 1);
    __m512i r[TILE_ROWS];
    UNROLL for (int i = 0; i < TILE_ROWS; i++) r[i] = _mm512_load_si512(acc + i * TILE_ROWS);
    if (p->y.rows > 1) i32x16_transpose(r);
    for (int m = 0; m < rows; m++) {
        float *y = row_f32(&p->y, m0 + m) + n0;
        __m512 v = _mm512_castsi512_ps(r[m]);
        if (bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(in, bias));
        if (p->accumulate) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(in, y));
        _mm512_mask_storeu_ps(y, in, v);
    }
}

/* ---- the list --------------------------------------------------------------------------- */

enum { ACC = TILE_ROWS * TILE_ROWS };

static void open_tiles(const fv_gemm_call *c, const fv_linear_part *p) {
    const int width = INT8_GROUP / (int)int8_units(p->w.quant); /* columns of a sum */
    tiles_open_as(width, width / 4, c->a->x.rows == 1 ? 1 : TILE_ROWS);
}

/* Groups of w in the current block of K. */
static size_t units_of_block(const fv_gemm_item *t) {
    const size_t left = int8_groups(t->call->a->x.cols) - t->k * KB;
    return int8_scales(t->p->w.quant, t->k * KB, left < KB ? left : KB);
}

static void pack_w(fv_gemm_item *t, int n, int cols, void *panel) {
    const fv_tensor *w = &t->p->w;
    const bool int4 = w->dtype == FV_INT4;
    const ptrdiff_t block = int4 ? ROW / 2 : ROW; /* bytes of a row */
    const bool next_rows = t->last || n + PANEL_ROWS < t->N;
    ptrdiff_t ahead = next_rows ? (ptrdiff_t)PANEL_ROWS * (ptrdiff_t)w->quant->row_bytes : block;
    if (w->cols == 0) return;
    if (t->last && t->N <= PANEL_ROWS) ahead -= (ptrdiff_t)t->k * block;
    if (int4)
        copy_panel(w, t->n0 + n, cols, t->k, units_of_block(t), ahead, true, panel);
    else
        copy_panel(w, t->n0 + n, cols, t->k, units_of_block(t), ahead, false, panel);
}

static void tile(fv_gemm_item *t, int m, int rows, int n, int cols, const void *panel, void *sums) {
    const fv_linear_args *a = t->call->a;
    strip_fn *const of[2][2] = {{many_of_16, many_of_32}, {one_of_16, one_of_32}};
    strip_fn *strip = of[a->x.rows == 1][int8_units(t->p->w.quant) == 1];
    const size_t block = t->k * x_blocks(a) + (size_t)(t->m0 + m) / TILE_ROWS;
    const w_panel *w = panel;
    (void)rows, (void)n, (void)cols;
    if (t->k == 0) memset(sums, 0, STRIPS * ACC * sizeof(float));
    for (int s = 0; s < STRIPS && a->x.cols > 0; s++)
        strip(w->codes[s][0], w->scale[s][0], (const x_block *)t->call->x + block,
              units_of_block(t), (float *)sums + s * ACC);
}

static void store(const fv_gemm_item *t, int m, int rows, int n, int cols, const void *sums) {
    for (int s = 0; s < STRIPS && s * TILE_ROWS < cols; s++, n += TILE_ROWS)
        store_tile(t->p, t->m0 + m, rows, t->n0 + n, min_int(TILE_ROWS, cols - s * TILE_ROWS),
                   t->bias ? t->bias + n : NULL, (const float *)sums + s * ACC);
}

static const fv_gemm_x x_groups = {1 << FV_PRODUCT_INT8_GROUPS | 1 << FV_PRODUCT_INT4_GROUPS,
                                   pack_x_plan, pack_x};

static const fv_gemm_tiles panels = {
    TILE_ROWS, PANEL_ROWS, ROW, sizeof(w_panel), sizeof(float), true, pack_w, tile, store};

#define HOLDS_TILES .open = open_tiles, .close = tiles_close

const fv_gemm_impl fv_amx_groups_few = {.name = "panels-few",
                                        .x = &x_groups,
                                        .rows_max = FEW,
                                        .columns = PANEL_ROWS,
                                        .rows = MANY_M,
                                        .grain = FV_GEMM_STREAM,
                                        .tiles = &panels,
                                        HOLDS_TILES};

const fv_gemm_impl fv_amx_groups = {.name = "panels",
                                    .x = &x_groups,
                                    .columns = MANY_N,
                                    .rows = MANY_M,
                                    .tiles = &panels,
                                    HOLDS_TILES};
