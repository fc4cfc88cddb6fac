/* y = x w^T + bias (+ y) with AMX (amx/tiles.h), in bf16 and, with weights in int8, in integers.
 *
 * Rows of w are operand A as stored in the checkpoint: 64 bytes of them, 32 numbers in bf16 or 64
 * in int8, are a row of a tile, a step of K, and nothing is rearranged. x is operand B: it is small,
 * and packed once for all of w (pack_bf16, pack_int8). Sums come out transposed, [rows of w, rows of
 * x], as f32 or as integers. `int8` is a constant after inlining.
 *
 * Few rows (decode): w is read from the mapping, 64 rows at a time; groups of integers are decoded,
 * 32 rows at a time.
 *
 * Many rows (prefill): an item is MANY_N rows of w and some rows of x. K is cut into blocks of KB
 * steps; a panel of 32 rows of w and a block of K, 16 KiB, is copied to lines at multiples of 64,
 * which a checkpoint's tensors do not have, and multiplied by all the item's rows of x, while the
 * next panel is prefetched. Sums stay in scratch between blocks of K.
 *
 * The last columns of K, the last rows of w and weights of another type go through a copy padded with
 * zeros: nothing beyond a tensor is read. */
#include "kernels/cpu/amx/products.h"
#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/weights.h"

enum { STEP = 64 }; /* bytes of a row of w in one step of K */

/* KB: steps of a block of K. A panel stays in L1, and one block of K of the rows of x (320 KiB for 640
 * rows) in L2, with the sums. */
enum { KB = BLOCK_STEPS, PANEL_ROWS = 32, MANY_N = 128, MANY_M = 768, FEW = 32 };

/* Numbers of x that a thread packs at a time, so many that a single row stays with the caller. */
enum { PACK_GRAIN = 16384 };

/* Layout of packed x: [block of K][32 rows of x][step][one or two tiles], pairs or quads of 32 bits. */
typedef struct layout {
    size_t K, bytes, steps; /* bytes: of a row of w */
    bool int8;
    int M, cols, tiles; /* columns of a tile, tiles of a step and of 32 rows of x */
    int blocks;         /* of 32 rows */
} layout;

static layout layout_of(const fv_tensor *x, bool int8) {
    layout l = {.K = (size_t)x->cols, .int8 = int8, .M = x->rows};
    l.bytes = l.K * (int8 ? 1 : 2);
    l.steps = (l.bytes + STEP - 1) / STEP;
    l.cols = min_int(TILE_ROWS, l.M);
    l.tiles = l.M > TILE_ROWS ? 2 : 1;
    l.blocks = (int)div_up(l.M, 2 * TILE_ROWS);
    return l;
}

static size_t tile_words(const layout *l) { return (size_t)TILE_ROWS * (size_t)l->cols; }

static size_t steps_in(const layout *l, size_t k) {
    size_t left = l->steps - k * KB;
    return left < KB ? left : KB;
}

/* Offset, in words, of the first step of block k of K and block b of rows. */
static size_t x_at(const layout *l, size_t k, int b) {
    size_t steps = k * KB * (size_t)l->blocks + (size_t)b * steps_in(l, k);
    return steps * (size_t)l->tiles * tile_words(l);
}

/* ---- x --------------------------------------------------------------------------------- */

static size_t blocks_of_k(const layout *l) { return (l->steps + KB - 1) / KB; }

static size_t packed_bytes(const layout *l) {
    return l->steps * (size_t)l->blocks * (size_t)l->tiles * tile_words(l) * 4;
}

static fv_cpu_plan pack_bf16_plan(const void *args) {
    layout l = layout_of(&((const fv_gemm_call *)args)->a->x, false);
    fv_cpu_plan plan = {.grain = div_up(PACK_GRAIN, KB * BF16_STEP * l.cols)};
    plan.n_item = (int64_t)blocks_of_k(&l) * l.blocks * l.tiles;
    plan.shared_bytes = packed_bytes(&l);
    return plan;
}

static void pack_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    layout l = layout_of(&b->a->x, false);
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        int t = (int)(i % l.tiles), block = (int)(i / l.tiles % l.blocks);
        size_t k = (size_t)(i / l.tiles / l.blocks);
        int64_t m0 = block * 2 * TILE_ROWS + t * TILE_ROWS;
        int rows = min_int(TILE_ROWS, l.M - m0);
        const float *from[TILE_ROWS] = {NULL};
        for (int j = 0; j < rows; j++) from[j] = row_f32(&b->a->x, m0 + j);
        uint32_t *to = (uint32_t *)b->x + x_at(&l, k, block) + (size_t)t * tile_words(&l);
        for (size_t s = 0; s < steps_in(&l, k); s++, to += (size_t)l.tiles * tile_words(&l))
            pairs_tile(from, (k * KB + s) * BF16_STEP, l.K, l.cols, to);
    }
}

/* An item is a tile's rows of x and all of K. */
static fv_cpu_plan pack_int8_plan(const void *args) {
    layout l = layout_of(&((const fv_gemm_call *)args)->a->x, true);
    fv_cpu_plan plan = {.grain = div_up(PACK_GRAIN, (int64_t)(l.K + 1) * l.cols)};
    plan.n_item = (int64_t)l.blocks * l.tiles;
    plan.shared_bytes = int8_x_head(l.M) + packed_bytes(&l);
    return plan;
}

static void pack_int8(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_gemm_call *b = args;
    layout l = layout_of(&b->a->x, true);
    int8_x x = int8_x_at(b->x, l.M);
    (void)scratch;
    for (int64_t i = begin; i < end; i++) {
        int t = (int)(i % l.tiles), block = (int)(i / l.tiles);
        int64_t m0 = i * TILE_ROWS;
        int rows = min_int(TILE_ROWS, l.M - m0);
        float by[TILE_ROWS];
        for (int j = 0; j < rows; j++)
            x.scale[m0 + j] = int8_scale(row_f32(&b->a->x, m0 + j), l.K, &by[j]);
        for (size_t s = 0; s < l.steps; s++) {
            int8_t part[TILE_ROWS][STEP] = {0};
            size_t n = l.K - s * STEP < STEP ? l.K - s * STEP : STEP;
            for (int j = 0; j < rows; j++)
                int8_codes(row_f32(&b->a->x, m0 + j) + s * STEP, n, by[j], part[j]);
            size_t tile = s % KB * (size_t)l.tiles + (size_t)t;
            words_tile(part, l.cols,
                       (uint32_t *)x.codes + x_at(&l, s / KB, block) + tile * tile_words(&l));
        }
    }
}

/* ---- storing sums ---------------------------------------------------------------------- */

/* A call and one of its parts. */
typedef struct work {
    layout l;
    const fv_linear_part *p;
    const uint32_t *x;    /* packed */
    const float *scale_x; /* [M], of int8 */
} work;

static work work_of(const fv_gemm_item *t) {
    const fv_gemm_call *c = t->call;
    work w = {layout_of(&c->a->x, c->product == FV_PRODUCT_INT8), t->p, c->x, NULL};
    if (!w.l.int8) return w;
    int8_x x = int8_x_at(c->x, w.l.M);
    w.x = (const uint32_t *)(const void *)x.codes;
    w.scale_x = x.scale;
    return w;
}

/* Stores sums [16 rows of w, cols rows of x] of a tile in y from row m0 and column n0 on. */
static void store_tile(const work *t, int64_t m0, int rows, int64_t n0, int n, const float *bias,
                       const int32_t *sums, int cols) {
    const __mmask16 in = (__mmask16)((1u << n) - 1), from = (__mmask16)((1u << cols) - 1);
    __m512 b = bias ? _mm512_maskz_loadu_ps(in, bias) : _mm512_setzero_ps(), by = b;
    if (t->l.int8) by = _mm512_maskz_loadu_ps(in, (const float *)t->p->w.quant->scale + n0);
    __m512i r[TILE_ROWS];
    UNROLL for (int i = 0; i < TILE_ROWS; i++) {
        r[i] = _mm512_maskz_loadu_epi32(from, sums + i * cols);
    }
    i32x16_transpose(r);
    for (int m = 0; m < rows; m++) {
        float *y = row_f32(&t->p->y, m0 + m) + n0;
        __m512 v = _mm512_castsi512_ps(r[m]);
        if (t->l.int8) v = _mm512_cvtepi32_ps(r[m]) * _mm512_set1_ps(t->scale_x[m0 + m]) * by;
        if (bias) v = v + b;
        if (t->p->accumulate) v = v + _mm512_maskz_loadu_ps(in, y);
        _mm512_mask_storeu_ps(y, in, v);
    }
}

/* Copies bytes [at, at + bytes) of rows [n, n + rows) of w to [16, ld] bytes, with zeros after the rows
 * and, up to `padded`, after the columns. */
static void copy_rows(const work *t, int64_t n, int64_t rows, size_t at, size_t bytes,
                      size_t padded, size_t ld, uint8_t *to) {
    const fv_tensor *w = &t->p->w;
    if (!t->l.int8) {
        bf16_rows(w, n, rows, at / 2, bytes / 2, padded / 2, ld / 2, (uint16_t *)(void *)to);
        return;
    }
    for (int i = 0; i < TILE_ROWS; i++, to += ld) {
        size_t m = i < rows ? bytes : 0;
        if (m) memcpy(to, (const uint8_t *)w->data + (size_t)(n + i) * t->l.bytes + at, m);
        memset(to + m, 0, padded - m);
    }
}

/* Whether tiles are loaded from w as stored. */
static bool in_place(const work *t) { return t->l.int8 || t->p->w.dtype == FV_BF16; }

/* Adds one step to the sums of tile c; a macro, because the registers' numbers are part of the instruction. */
#define TILE_DP(c, a, b)                                                                           \
    do {                                                                                           \
        if (int8)                                                                                  \
            _tile_dpbssd(c, a, b);                                                                 \
        else                                                                                       \
            _tile_dpbf16ps(c, a, b);                                                               \
    } while (0)

/* ---- few rows -------------------------------------------------------------------------- */

/* Whether w is in groups of integers that are decoded to bf16. */
static bool is_decoded(const layout *l, const fv_tensor *w) { return w->quant && !l->int8; }

/* Adds `steps` steps of 64 rows of w, 16 at each of `w`, times 16 rows of x to the sums. */
static ALWAYS_INLINE void few_one(const uint8_t *const w[4], size_t stride, const uint32_t *x,
                                  size_t steps, int cols, const bool int8) {
    size_t words = (size_t)TILE_ROWS * (size_t)cols, ldx = 4 * (size_t)cols;
    const uint8_t *w0 = w[0], *w1 = w[1], *w2 = w[2], *w3 = w[3];
    for (size_t s = 0; s < steps; s++, x += words) {
        _tile_loadd(6, x, ldx);
        _tile_loadd(4, w0 + s * STEP, stride);
        TILE_DP(0, 4, 6);
        _tile_loadd(5, w1 + s * STEP, stride);
        TILE_DP(1, 5, 6);
        _tile_loadd(4, w2 + s * STEP, stride);
        TILE_DP(2, 4, 6);
        _tile_loadd(5, w3 + s * STEP, stride);
        TILE_DP(3, 5, 6);
    }
}

/* Adds `steps` steps of 32 rows of w times 32 rows of x to the sums. */
static ALWAYS_INLINE void few_two(const uint8_t *const w[4], size_t stride, const uint32_t *x,
                                  size_t steps, const bool int8) {
    const uint8_t *w0 = w[0], *w1 = w[1];
    for (size_t s = 0; s < steps; s++, x += 2 * TILE_BYTES / 4) {
        _tile_loadd(6, x, 64);
        _tile_loadd(7, x + TILE_BYTES / 4, 64);
        _tile_loadd(4, w0 + s * STEP, stride);
        TILE_DP(0, 4, 6);
        TILE_DP(1, 4, 7);
        _tile_loadd(5, w1 + s * STEP, stride);
        TILE_DP(2, 5, 6);
        TILE_DP(3, 5, 7);
    }
}

/* Not inlined, like few_int8: GCC does not know that tile loads read memory. */
static NEVER_INLINE void few_bf16(const uint8_t *const w[4], size_t stride, const uint32_t *x,
                                  size_t steps, const layout *l) {
    if (l->tiles == 1)
        few_one(w, stride, x, steps, l->cols, false);
    else
        few_two(w, stride, x, steps, false);
}

static NEVER_INLINE void few_int8(const uint8_t *const w[4], size_t stride, const uint32_t *x,
                                  size_t steps, const layout *l) {
    if (l->tiles == 1)
        few_one(w, stride, x, steps, l->cols, true);
    else
        few_two(w, stride, x, steps, true);
}

/* Stores the sums in columns [n0, n0 + N) of y. */
static void few_end(const work *t, const float *bias, int64_t n0, int N) {
    const layout *l = &t->l;
    _Alignas(64) int32_t out[4 * TILE_BYTES / 4];
    sums_store(out, l->cols);
    for (int i = 0; i < 4; i++) {
        int g = l->tiles == 1 ? i : i / 2, m0 = l->tiles == 1 ? 0 : i % 2 * TILE_ROWS;
        if (g * TILE_ROWS >= N) break;
        store_tile(t, m0, min_int(TILE_ROWS, l->M - m0), n0 + g * TILE_ROWS,
                   min_int(TILE_ROWS, N - g * TILE_ROWS), bias ? bias + g * TILE_ROWS : NULL,
                   out + (size_t)i * tile_words(l), l->cols);
    }
}

/* An item of 64 columns, or 32 where x fills two B tiles: whole steps from w in place, the others from copied blocks
 * of K. */
static void few_item(fv_gemm_item *of) {
    enum { LD = KB * STEP };
    const work of_part = work_of(of), *t = &of_part;
    const layout *l = &t->l;
    const int64_t n0 = of->n0;
    const int N = of->N, columns = of->call->impl->columns, groups = columns / TILE_ROWS;
    uint8_t *scratch = (uint8_t *)of->scratch;
    size_t n, whole = in_place(t) && N == columns ? l->bytes / STEP : 0;
    sums_zero();
    for (size_t s = 0; s < l->steps; s += n) {
        const uint8_t *rows[4] = {NULL};
        size_t at = s * STEP, stride = s < whole ? l->bytes : LD;
        n = s < whole ? whole : l->steps - s < KB ? l->steps - s : KB;
        for (int g = 0; g < groups; g++) {
            int64_t row = n0 + g * TILE_ROWS;
            uint8_t *copy = scratch + g * TILE_ROWS * LD;
            rows[g] = s < whole ? (const uint8_t *)t->p->w.data + (size_t)row * l->bytes : copy;
            if (s >= whole)
                copy_rows(t, row, N - g * TILE_ROWS, at,
                          l->bytes - at < n * STEP ? l->bytes - at : n * STEP, n * STEP, LD, copy);
        }
        (l->int8 ? few_int8 : few_bf16)(rows, stride, t->x + s * (size_t)l->tiles * tile_words(l),
                                        n, l);
    }
    few_end(t, of->bias, n0, N);
}

/* ---- few rows, decoded ----------------------------------------------------------------- */

/* A panel of 32 rows of w and a block of K is decoded while the panel before it is multiplied, one step
 * after every four decoded rows. */
enum { PANEL_BYTES = KB * 2 * TILE_BYTES };

/* Adds a step of the panel, at `a`, times x to the sums. */
static NEVER_INLINE void decoded_step(const uint8_t *a, const uint32_t *x, const layout *l) {
    size_t ldx = 4 * (size_t)l->cols;
    _tile_loadd(6, x, ldx);
    _tile_loadd(4, a, STEP);
    _tile_loadd(5, a + TILE_BYTES, STEP);
    _tile_dpbf16ps(0, 4, 6);
    if (l->tiles == 1) {
        _tile_dpbf16ps(1, 5, 6);
        return;
    }
    _tile_loadd(7, x + tile_words(l), ldx);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
}

/* Decodes block k of row i of the panel at n0. */
static ALWAYS_INLINE void decode(const fv_tensor *w, int64_t n0, int N, int i, size_t k,
                                 const int scales, uint8_t *panel) {
    uint8_t *to = panel + i * STEP;
    if (i < N) {
        quantized_block(w, n0 + i, k, scales, (uint16_t *)(void *)to,
                        2 * TILE_BYTES / sizeof(uint16_t));
        return;
    }
    for (int s = 0; s < KB; s++) memset(to + s * 2 * TILE_BYTES, 0, STEP);
}

/* Prefetches the weights needed next to L2: `bytes` of integers, and some scales, for each row of a block
 * that is decoded. */
typedef struct walk {
    uintptr_t codes, scales;
    size_t bytes, stride, scale_stride;
} walk;

/* A walk over block k of the rows from n on, row by row. */
static walk walk_down(const fv_tensor *w, int64_t n, size_t k) {
    const fv_quant *q = w->quant;
    size_t bytes = BLOCK_COLUMNS / (w->dtype == FV_INT4 ? 2 : 1);
    size_t scale_bytes = fv_dtype_bytes(q->scale_type), row = (size_t)q->groups * scale_bytes;
    uintptr_t scales = (uintptr_t)q->scale + k * BLOCK_COLUMNS / (size_t)q->group * scale_bytes;
    return (walk){(uintptr_t)w->data + (size_t)n * q->row_bytes + k * bytes,
                  scales + (size_t)n * row, bytes, q->row_bytes, row};
}

/* A walk over the whole rows from n on, in memory order, which takes as long as an item. */
static walk walk_along(const fv_tensor *w, int64_t n, size_t blocks) {
    walk t = walk_down(w, n, 0);
    if (blocks == 0) return t;
    t.bytes = t.stride = (t.stride + blocks - 1) / blocks;
    t.scale_stride = (t.scale_stride + blocks - 1) / blocks;
    return t;
}

static ALWAYS_INLINE void walk_on(walk *t) {
    for (size_t line = 0; line < t->bytes; line += 64)
        _mm_prefetch((const void *)(t->codes + line), _MM_HINT_T1);
    _mm_prefetch((const void *)t->scales, _MM_HINT_T1);
    t->codes += t->stride;
    t->scales += t->scale_stride;
}

/* Decodes rows [i, i + n) of block k of the panel at n0. */
static ALWAYS_INLINE void decode_rows(const fv_tensor *w, int64_t n0, int N, int i, int n, size_t k,
                                      const int scales, walk *ahead, uint8_t *panel) {
    const fv_quant quant =
        *w->quant; /* a copy, so that the compiler knows that stores do not change it */
    fv_tensor own = *w;
    own.quant = &quant;
    walk at = *ahead;
    for (int end = i + n; i < end; i++) {
        walk_on(&at);
        decode(&own, n0, N, i, k, scales, panel);
    }
    *ahead = at;
}

static NEVER_INLINE void decode_panel(const fv_tensor *w, int64_t n0, int N, int i, int n, size_t k,
                                      walk *ahead, uint8_t *panel) {
    switch (int4_scales(w)) {
    case BLOCK_COLUMNS / 32:
        decode_rows(w, n0, N, i, n, k, BLOCK_COLUMNS / 32, ahead, panel);
        return;
    case BLOCK_COLUMNS / 128:
        decode_rows(w, n0, N, i, n, k, BLOCK_COLUMNS / 128, ahead, panel);
        return;
    default: decode_rows(w, n0, N, i, n, k, 0, ahead, panel);
    }
}

/* An item of 32 columns from decoded weights. */
static void few_decoded(fv_gemm_item *of) {
    enum { ROWS = 4 }; /* rows decoded between two steps of the panel before */
    const work of_part = work_of(of), *t = &of_part;
    const layout *l = &t->l;
    const int64_t n0 = of->n0;
    const int N = of->N;
    uint8_t *scratch = (uint8_t *)of->scratch;
    const fv_tensor *w = &t->p->w;
    size_t blocks = blocks_of_k(l);
    walk ahead = walk_along(w, n0 + PANEL_ROWS, blocks);
    sums_zero();
    decode_panel(w, n0, N, 0, blocks ? PANEL_ROWS : 0, 0, &ahead, scratch);
    for (size_t k = 0; k < blocks; k++) {
        const uint8_t *panel = scratch + k % 2 * PANEL_BYTES;
        const uint32_t *x = t->x + x_at(l, k, 0);
        for (int i = 0; i < PANEL_ROWS; i += ROWS) {
            size_t s = (size_t)(i / ROWS);
            if (k + 1 < blocks)
                decode_panel(w, n0, N, i, ROWS, k + 1, &ahead, scratch + (k + 1) % 2 * PANEL_BYTES);
            if (s < steps_in(l, k))
                decoded_step(panel + s * 2 * TILE_BYTES, x + s * (size_t)l->tiles * tile_words(l),
                             l);
        }
    }
    few_end(t, of->bias, n0, N);
}

static bool takes_decoded(const fv_linear_args *a, const fv_tensor *w) {
    (void)a;
    return w->quant;
}

static size_t few_scratch(const fv_linear_args *a) {
    (void)a;
    return (size_t)4 * TILE_ROWS * KB * STEP;
}

/* ---- many rows ------------------------------------------------------------------------- */

/* Copies or decodes a block of K of 32 rows of w; leaves what the tiles need in scratch. */
static void pack_w(fv_gemm_item *t, int n, int cols, void *panel) {
    work *of = (work *)(void *)t->scratch;
    *of = work_of(t);
    const fv_tensor *w = &t->p->w;
    const layout *l = &of->l;
    const int64_t row = t->n0 + n;
    const bool more = n + PANEL_ROWS < t->N;
    t->ahead =
        (fv_gemm_ahead){(uintptr_t)w->data + (size_t)(more ? row + PANEL_ROWS : t->n0) * l->bytes +
                            (more ? t->k : t->k + 1) * KB * STEP,
                        l->bytes, 0};
    if (l->steps == 0) return;
    if (is_decoded(l, w)) {
        walk next = more ? walk_down(w, row + PANEL_ROWS, t->k) : walk_down(w, t->n0, t->k + 1);
        decode_panel(w, row, cols, 0, PANEL_ROWS, t->k, &next, panel);
        return;
    }
    for (size_t s = 0; s < steps_in(l, t->k); s++) {
        size_t c = (t->k * KB + s) * STEP, bytes = l->bytes - c;
        uint8_t *to = (uint8_t *)panel + s * 2 * TILE_BYTES;
        if (in_place(of) && cols == PANEL_ROWS && bytes >= STEP) {
            const uint8_t *from = (const uint8_t *)w->data + (size_t)row * l->bytes + c;
            for (int i = 0; i < PANEL_ROWS; i++, from += l->bytes, to += STEP)
                _mm512_store_si512(to, _mm512_loadu_si512(from));
            continue;
        }
        if (bytes > STEP) bytes = STEP;
        for (int h = 0; h < 2; h++, to += TILE_BYTES)
            copy_rows(of, row + h * TILE_ROWS, cols - h * TILE_ROWS, c, bytes, STEP, STEP, to);
    }
}

/* Prefetches a line of the next panel. */
static inline void fetch(fv_gemm_ahead *a) {
    if (a->line >= PANEL_ROWS * KB) return;
    _mm_prefetch(
        (const void *)(a->at + (size_t)(a->line / KB) * a->stride + (size_t)(a->line % KB) * STEP),
        _MM_HINT_T1);
    a->line++;
}

/* Adds the panel times 32 rows of x to `sums`, or with `begin` starts them at 0. */
static ALWAYS_INLINE void many_block(const uint8_t *a, const uint32_t *x, size_t steps, bool begin,
                                     int32_t *sums, fv_gemm_ahead *next, const bool int8) {
    if (begin)
        sums_zero();
    else
        sums_load(sums, 16);
    for (size_t s = 0; s < steps; s++, a += 2 * TILE_BYTES, x += 512) {
        fetch(next);
        _tile_loadd(4, a, 64);
        _tile_loadd(6, x, 64);
        TILE_DP(0, 4, 6);
        UNROLL for (int i = 0; i < 16; i++)
            _mm_prefetch((const void *)(x + 1024 + i * 16), _MM_HINT_T0);
        _tile_loadd(7, x + 256, 64);
        TILE_DP(1, 4, 7);
        UNROLL for (int i = 16; i < 32; i++)
            _mm_prefetch((const void *)(x + 1024 + i * 16), _MM_HINT_T0);
        _tile_loadd(5, a + TILE_BYTES, 64);
        TILE_DP(2, 5, 6);
        fetch(next);
        UNROLL for (size_t i = 0; i < 8; i++) /* the sums of the next 32 rows of x */
            _mm_prefetch((const void *)(sums + 1024 + (s * 8 + i) * 16), _MM_HINT_T0);
        TILE_DP(3, 5, 7);
    }
    sums_store(sums, 16);
}

static NEVER_INLINE void many_bf16(const uint8_t *a, const uint32_t *x, size_t steps, bool begin,
                                   int32_t *sums, fv_gemm_ahead *next) {
    many_block(a, x, steps, begin, sums, next, false);
}

static NEVER_INLINE void many_int8(const uint8_t *a, const uint32_t *x, size_t steps, bool begin,
                                   int32_t *sums, fv_gemm_ahead *next) {
    many_block(a, x, steps, begin, sums, next, true);
}

/* Prefetches the lines of y that store() writes. */
static void fetch_y(const fv_gemm_item *t, int m, int rows, int n) {
    for (int i = 0; i < rows; i++) {
        const char *y = (const char *)(row_f32(&t->p->y, t->m0 + m + i) + t->n0 + n);
        __builtin_prefetch(y, 1);
        __builtin_prefetch(y + 64, 1);
    }
}

static void tile(fv_gemm_item *t, int m, int rows, int n, int cols, const void *panel, void *sums) {
    const work *w = (const work *)(const void *)t->scratch;
    const layout *l = &w->l;
    (void)cols;
    if (t->last) fetch_y(t, m, rows, n);
    (l->int8 ? many_int8 : many_bf16)(panel, w->x + x_at(l, t->k, (int)(t->m0 + m) / PANEL_ROWS),
                                      l->steps ? steps_in(l, t->k) : 0, t->k == 0, sums, &t->ahead);
}

static void store(const fv_gemm_item *t, int m, int rows, int n, int cols, const void *sums) {
    const work *w = (const work *)(const void *)t->scratch;
    for (int i = 0; i < 4; i++) {
        const int m1 = i % 2 * TILE_ROWS, n1 = i / 2 * TILE_ROWS;
        if (m1 < rows && n1 < cols)
            store_tile(w, t->m0 + m + m1, min_int(TILE_ROWS, rows - m1), t->n0 + n + n1,
                       min_int(TILE_ROWS, cols - n1), t->bias ? t->bias + n + n1 : NULL,
                       (const int32_t *)sums + i * 256, TILE_ROWS);
    }
}

static size_t work_bytes(const fv_linear_args *a) {
    (void)a;
    return sizeof(work);
}

/* ---- the list --------------------------------------------------------------------------- */

static void open_tiles(const fv_gemm_call *c, const fv_linear_part *p) {
    (void)p;
    tiles_open(min_int(TILE_ROWS, c->a->x.rows));
}

static const fv_gemm_x x_bf16 = {1 << FV_PRODUCT_BF16, pack_bf16_plan, pack_bf16};
static const fv_gemm_x x_int8 = {1 << FV_PRODUCT_INT8, pack_int8_plan, pack_int8};

#define PANELS(steps)                                                                              \
    { PANEL_ROWS, PANEL_ROWS, KB *(steps), PANEL_BYTES, sizeof(int32_t), true, pack_w, tile, store }

static const fv_gemm_tiles bf16_panels = PANELS(STEP / 2), int8_panels = PANELS(STEP);

#define HOLDS_TILES .open = open_tiles, .close = tiles_close
#define FEW_ROWS(most, columns_of_item)                                                            \
    .rows_max = (most), .columns = (columns_of_item), .grain = FV_GEMM_STREAM,                     \
    .scratch_bytes = few_scratch, HOLDS_TILES
#define MANY_ROWS .columns = MANY_N, .rows = MANY_M, .scratch_bytes = work_bytes, HOLDS_TILES

const fv_gemm_impl fv_amx_bf16_decoded = {.name = "decoded",
                                          .x = &x_bf16,
                                          .takes = takes_decoded,
                                          .item = few_decoded,
                                          FEW_ROWS(FEW, 2 * TILE_ROWS)};
const fv_gemm_impl fv_amx_bf16_one = {
    .name = "in-place-16", .x = &x_bf16, .item = few_item, FEW_ROWS(TILE_ROWS, 4 * TILE_ROWS)};
const fv_gemm_impl fv_amx_bf16_two = {
    .name = "in-place-32", .x = &x_bf16, .item = few_item, FEW_ROWS(FEW, 2 * TILE_ROWS)};
const fv_gemm_impl fv_amx_bf16 = {.name = "panels", .x = &x_bf16, .tiles = &bf16_panels, MANY_ROWS};
const fv_gemm_impl fv_amx_int8_one = {
    .name = "in-place-16", .x = &x_int8, .item = few_item, FEW_ROWS(TILE_ROWS, 4 * TILE_ROWS)};
const fv_gemm_impl fv_amx_int8_two = {
    .name = "in-place-32", .x = &x_int8, .item = few_item, FEW_ROWS(FEW, 2 * TILE_ROWS)};
const fv_gemm_impl fv_amx_int8 = {.name = "panels", .x = &x_int8, .tiles = &int8_panels, MANY_ROWS};
