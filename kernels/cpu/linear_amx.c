/* y = x w^T + bias (+ y) with AMX (amx.h), in bf16 and, with weights in int8, in integers.
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
#include "kernels/cpu/amx.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/linear_parts_lanes.h"

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

fv_cpu_plan fv_amx_pack_bf16_plan(const void *args) {
    layout l = layout_of(&((const fv_cpu_packed_linear *)args)->a->x, false);
    fv_cpu_plan plan = {.grain = div_up(PACK_GRAIN, KB * BF16_STEP * l.cols)};
    plan.n_item = (int64_t)blocks_of_k(&l) * l.blocks * l.tiles;
    plan.shared_bytes = packed_bytes(&l);
    return plan;
}

void fv_amx_pack_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
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
fv_cpu_plan fv_amx_pack_int8_plan(const void *args) {
    layout l = layout_of(&((const fv_cpu_packed_linear *)args)->a->x, true);
    fv_cpu_plan plan = {.grain = div_up(PACK_GRAIN, (int64_t)(l.K + 1) * l.cols)};
    plan.n_item = (int64_t)l.blocks * l.tiles;
    plan.shared_bytes = int8_x_head(l.M) + packed_bytes(&l);
    return plan;
}

void fv_amx_pack_int8(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_cpu_packed_linear *b = args;
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

/* Rows of w per item: four A tiles, or two where x fills two B tiles or w is decoded. */
static int few_columns(const layout *l, const fv_tensor *w) {
    return l->tiles == 1 && !is_decoded(l, w) ? 4 * TILE_ROWS : 2 * TILE_ROWS;
}

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
static void few_end(const work *t, int64_t n0, int N) {
    const layout *l = &t->l;
    _Alignas(64) int32_t out[4 * TILE_BYTES / 4];
    float bias_wide[4 * TILE_ROWS];
    const float *bias = bias_f32(&t->p->bias, n0, N, bias_wide);
    sums_store(out, l->cols);
    for (int i = 0; i < 4; i++) {
        int g = l->tiles == 1 ? i : i / 2, m0 = l->tiles == 1 ? 0 : i % 2 * TILE_ROWS;
        if (g * TILE_ROWS >= N) break;
        store_tile(t, m0, min_int(TILE_ROWS, l->M - m0), n0 + g * TILE_ROWS,
                   min_int(TILE_ROWS, N - g * TILE_ROWS), bias ? bias + g * TILE_ROWS : NULL,
                   out + (size_t)i * tile_words(l), l->cols);
    }
}

/* Computes columns [n0, n0 + N) of y: whole steps from w in place, the others from copied blocks of K. */
static void few_item(const work *t, int64_t n0, int N, uint8_t *scratch) {
    enum { LD = KB * STEP };
    const layout *l = &t->l;
    int columns = few_columns(l, &t->p->w), groups = columns / TILE_ROWS;
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
    few_end(t, n0, N);
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

/* Computes columns [n0, n0 + N) of y from decoded weights. */
static void few_decoded(const work *t, int64_t n0, int N, uint8_t *scratch) {
    enum { ROWS = 4 }; /* rows decoded between two steps of the panel before */
    const layout *l = &t->l;
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
    few_end(t, n0, N);
}

/* ---- many rows ------------------------------------------------------------------------- */

/* The state of an item during its loop over K. */
typedef struct many {
    const work *work;
    int64_t n0;
    int N, block0, blocks; /* rows of w; blocks of 32 rows of x */
    uint8_t *panel;        /* [KB][2][16, STEP] */
    int32_t *sums;         /* [panels][blocks][4][16, 16] */
    const float *bias;
} many;

/* Copies or decodes rows [n, n + 32) of w and block k of K to the panel. */
static void copy_panel(const many *t, int64_t n, size_t k) {
    const layout *l = &t->work->l;
    int64_t left = t->n0 + t->N - n;
    if (l->steps == 0) return;
    if (is_decoded(l, &t->work->p->w)) {
        const fv_tensor *w = &t->work->p->w;
        walk next =
            left > PANEL_ROWS ? walk_down(w, n + PANEL_ROWS, k) : walk_down(w, t->n0, k + 1);
        decode_panel(w, n, min_int(PANEL_ROWS, left), 0, PANEL_ROWS, k, &next, t->panel);
        return;
    }
    for (size_t s = 0; s < steps_in(l, k); s++) {
        size_t c = (k * KB + s) * STEP, bytes = l->bytes - c;
        uint8_t *to = t->panel + s * 2 * TILE_BYTES;
        if (in_place(t->work) && left >= PANEL_ROWS && bytes >= STEP) {
            const uint8_t *from = (const uint8_t *)t->work->p->w.data + (size_t)n * l->bytes + c;
            for (int i = 0; i < PANEL_ROWS; i++, from += l->bytes, to += STEP)
                _mm512_store_si512(to, _mm512_loadu_si512(from));
            continue;
        }
        if (bytes > STEP) bytes = STEP;
        for (int h = 0; h < 2; h++, to += TILE_BYTES)
            copy_rows(t->work, n + h * TILE_ROWS, left - h * TILE_ROWS, c, bytes, STEP, STEP, to);
    }
}

/* Prefetches the next panel, line by line. */
typedef struct ahead {
    uintptr_t at;
    size_t stride;
    int line;
} ahead;

static inline void fetch(ahead *a) {
    if (a->line >= PANEL_ROWS * KB) return;
    _mm_prefetch(
        (const void *)(a->at + (size_t)(a->line / KB) * a->stride + (size_t)(a->line % KB) * STEP),
        _MM_HINT_T1);
    a->line++;
}

/* Adds the panel times 32 rows of x to `sums`, or with `begin` starts them at 0. */
static ALWAYS_INLINE void many_block(const uint8_t *a, const uint32_t *x, size_t steps, bool begin,
                                     int32_t *sums, ahead *next, const bool int8) {
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
                                   int32_t *sums, ahead *next) {
    many_block(a, x, steps, begin, sums, next, false);
}

static NEVER_INLINE void many_int8(const uint8_t *a, const uint32_t *x, size_t steps, bool begin,
                                   int32_t *sums, ahead *next) {
    many_block(a, x, steps, begin, sums, next, true);
}

/* Prefetches the lines of y that many_store writes. */
static void fetch_y(const many *t, int64_t n, int block) {
    int64_t m0 = (int64_t)block * PANEL_ROWS, left = t->work->l.M - m0;
    for (int64_t m = m0; m < m0 + min_int(PANEL_ROWS, left); m++) {
        const char *y = (const char *)(row_f32(&t->work->p->y, m) + n);
        __builtin_prefetch(y, 1);
        __builtin_prefetch(y + 64, 1);
    }
}

static void many_store(const many *t, int64_t n, int block, const int32_t *sums) {
    for (int i = 0; i < 4; i++) {
        int64_t row = n + i / 2 * TILE_ROWS, m0 = (int64_t)(2 * block + i % 2) * TILE_ROWS;
        int rows = min_int(TILE_ROWS, t->work->l.M - m0),
            cols = min_int(TILE_ROWS, t->n0 + t->N - row);
        if (rows > 0 && cols > 0)
            store_tile(t->work, m0, rows, row, cols, t->bias ? t->bias + (row - t->n0) : NULL,
                       sums + i * 256, TILE_ROWS);
    }
}

static void many_item(const many *t) {
    const layout *l = &t->work->l;
    size_t last = l->steps ? blocks_of_k(l) - 1 : 0; /* without columns y is the bias */
    for (size_t k = 0; k <= last; k++) {
        int32_t *sums = t->sums;
        for (int j = 0; j < t->N; j += PANEL_ROWS) {
            int64_t n = t->n0 + j, next = j + PANEL_ROWS < t->N ? n + PANEL_ROWS : t->n0;
            size_t next_k = j + PANEL_ROWS < t->N ? k : k + 1;
            ahead a = {(uintptr_t)t->work->p->w.data + (size_t)next * l->bytes + next_k * KB * STEP,
                       l->bytes, 0};
            copy_panel(t, n, k);
            for (int b = t->block0; b < t->block0 + t->blocks; b++, sums += TILE_BYTES) {
                if (k == last) fetch_y(t, n, b);
                (l->int8 ? many_int8 : many_bf16)(t->panel, t->work->x + x_at(l, k, b),
                                                  steps_in(l, k), k == 0, sums, &a);
                if (k == last) many_store(t, n, b, sums);
            }
        }
    }
}

/* ---- items ----------------------------------------------------------------------------- */

/* Blocks of 32 rows of x per item, cut evenly. */
static int blocks_per_item(const layout *l) {
    int most = MANY_M / 32, cuts = (l->blocks + most - 1) / most;
    return (l->blocks + cuts - 1) / cuts;
}

static bool is_few(const layout *l) { return l->M <= FEW; }

static int64_t items_of_part(const layout *l, const fv_tensor *w) {
    if (is_few(l)) return div_up(w->rows, few_columns(l, w));
    return div_up(w->rows, MANY_N) * div_up(l->blocks, blocks_per_item(l));
}

static fv_cpu_plan plan_of(const fv_cpu_packed_linear *b, bool int8) {
    const fv_linear_args *a = b->a;
    layout l = layout_of(&a->x, int8);
    fv_cpu_plan plan = {.grain = 1};
    for (int p = 0; p < a->n_part; p++) plan.n_item += items_of_part(&l, &a->part[p].w);
    if (is_few(&l)) {
        int columns = few_columns(&l, &a->part[0].w);
        plan.grain = div_up(1 << 18, (int64_t)columns * (a->x.cols + 1));
        plan.scratch_bytes = (size_t)4 * TILE_ROWS * KB * STEP;
    } else {
        size_t sums = MANY_N / PANEL_ROWS * (size_t)blocks_per_item(&l) * 4 * TILE_BYTES;
        plan.scratch_bytes = KB * 2 * TILE_BYTES + sums;
    }
    return plan;
}

fv_cpu_plan fv_amx_linear_bf16_plan(const void *args) { return plan_of(args, false); }

fv_cpu_plan fv_amx_linear_int8_plan(const void *args) { return plan_of(args, true); }

static void item(const work *w, int64_t i, void *scratch) {
    const layout *l = &w->l;
    if (is_few(l)) {
        int columns = few_columns(l, &w->p->w);
        int64_t n0 = i * columns;
        (is_decoded(l, &w->p->w) ? few_decoded
                                 : few_item)(w, n0, min_int(columns, w->p->w.rows - n0), scratch);
        return;
    }
    /* Neighbouring items share their weights and run at the same time. */
    int each = blocks_per_item(l);
    int64_t cuts = div_up(l->blocks, each);
    float bias[MANY_N];
    many t = {.work = w, .n0 = i / cuts * MANY_N, .block0 = (int)(i % cuts) * each};
    t.N = min_int(MANY_N, w->p->w.rows - t.n0);
    t.blocks = min_int(each, l->blocks - t.block0);
    t.panel = scratch;
    t.sums = (int32_t *)scratch + KB * 2 * TILE_BYTES / 4;
    t.bias = bias_f32(&w->p->bias, t.n0, t.N, bias);
    many_item(&t);
}

static void items(const fv_cpu_packed_linear *b, bool int8, void *scratch, int64_t begin,
                  int64_t end) {
    work w = {.l = layout_of(&b->a->x, int8), .x = b->x};
    if (int8) {
        int8_x x = int8_x_at(b->x, w.l.M);
        w.x = (const uint32_t *)(const void *)x.codes;
        w.scale_x = x.scale;
    }
    tiles_open(w.l.cols);
    for (int p = 0; p < b->a->n_part; p++) {
        w.p = &b->a->part[p];
        int64_t n = items_of_part(&w.l, &w.p->w);
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i++) item(&w, i, scratch);
        begin -= n;
        end -= n;
    }
    tiles_close();
}

void fv_amx_linear_bf16(const void *args, void *scratch, int64_t begin, int64_t end) {
    items(args, false, scratch, begin, end);
}

void fv_amx_linear_int8(const void *args, void *scratch, int64_t begin, int64_t end) {
    items(args, true, scratch, begin, end);
}
