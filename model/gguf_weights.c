/* Unpacks blocks of GGUF to integers with scales, or to numbers (ggml's quants, and gguf-py's).
 * Pure functions on memory. */
#include "model/gguf_weights.h"

#include <math.h>
#include <string.h>

#include "common/convert.h"
#include "gguf/gguf.h"
#include "model/safetensors.h"

enum { BLOCK_MAX = 256, GROUPS_MAX = 16 };

/* An unpacked block. */
typedef struct block {
    uint8_t q[BLOCK_MAX]; /* signed in int8 formats */
    float scale[GROUPS_MAX], min[GROUPS_MAX];
} block;

typedef struct format {
    const char *type;
    size_t n, bytes, group; /* numbers per block, bytes per block, numbers per scale */
    fv_dtype dtype, scale;  /* scale: a type that holds every scale exactly */
    bool min;
    void (*open)(const uint8_t *from, block *b);
} format;

static float half_at(const uint8_t *p) { return f32_of_f16((uint16_t)(p[0] | p[1] << 8)); }

/* Unpacks 32 int4 values: the low halves of 16 bytes, then the high ones. */
static void unpack_int4(const uint8_t *from, uint8_t *q) {
    for (int i = 0; i < 16; i++) {
        q[i] = from[i] & 15;
        q[i + 16] = from[i] >> 4;
    }
}

/* Adds the fifth bits of 32 integers. */
static void unpack_int5(const uint8_t *from, uint8_t *q) {
    for (int i = 0; i < 32; i++) q[i] |= (uint8_t)((from[i / 8] >> i % 8 & 1) << 4);
}

static void open_q4_0(const uint8_t *from, block *b) {
    b->scale[0] = half_at(from);
    unpack_int4(from + 2, b->q);
}

static void open_q4_1(const uint8_t *from, block *b) {
    b->scale[0] = half_at(from);
    b->min[0] = -half_at(from + 2);
    unpack_int4(from + 4, b->q);
}

static void open_q5_0(const uint8_t *from, block *b) {
    b->scale[0] = half_at(from);
    unpack_int4(from + 6, b->q);
    unpack_int5(from + 2, b->q);
    for (int i = 0; i < 32; i++) b->q[i] = (uint8_t)(b->q[i] - 16);
}

static void open_q5_1(const uint8_t *from, block *b) {
    b->scale[0] = half_at(from);
    b->min[0] = -half_at(from + 2);
    unpack_int4(from + 8, b->q);
    unpack_int5(from + 4, b->q);
}

static void open_q8_0(const uint8_t *from, block *b) {
    b->scale[0] = half_at(from);
    memcpy(b->q, from + 2, 32);
}

/* Unpacks eight scales and eight mins of 6 bits in 12 bytes: the first four of each are whole; the
 * others have their low halves in the last four bytes and their upper bits above the first
 * eight. */
static void open_k_scales(const uint8_t *from, block *b) {
    float d = half_at(from), m = half_at(from + 2);
    const uint8_t *s = from + 4;
    for (int i = 0; i < 4; i++) {
        b->scale[i] = d * (float)(s[i] & 63);
        b->min[i] = m * (float)(s[i + 4] & 63);
        b->scale[i + 4] = d * (float)((s[i + 8] & 15) | s[i] >> 6 << 4);
        b->min[i + 4] = m * (float)(s[i + 8] >> 4 | s[i + 4] >> 6 << 4);
    }
}

/* Unpacks pairs of groups of 32, each in 32 bytes: the low halves, then the high ones. */
static void unpack_k_int4(const uint8_t *from, uint8_t *q) {
    for (int i = 0; i < 256; i++) q[i] = from[i / 64 * 32 + i % 32] >> i / 32 % 2 * 4 & 15;
}

static void open_q4_k(const uint8_t *from, block *b) {
    open_k_scales(from, b);
    unpack_k_int4(from + 16, b->q);
}

static void open_q5_k(const uint8_t *from, block *b) {
    open_k_scales(from, b);
    unpack_k_int4(from + 48, b->q);
    for (int i = 0; i < 256; i++) b->q[i] |= (uint8_t)((from[16 + i % 32] >> i / 32 & 1) << 4);
}

/* Q6_K: per 128 numbers, the low four bits are in 64 bytes and the upper two in 32; 16 numbers
 * share a signed scale. */
static void open_q6_k(const uint8_t *from, block *b) {
    const uint8_t *low = from, *high = from + 128, *scale = from + 192;
    float d = half_at(from + 208);
    for (int i = 0; i < 256; i++) {
        int h = i / 128, part = i / 32 % 4;
        int four = low[h * 64 + i % 64] >> part / 2 * 4 & 15;
        int two = high[h * 32 + i % 32] >> part * 2 & 3;
        b->q[i] = (uint8_t)((four | two << 4) - 32);
    }
    for (int g = 0; g < 16; g++) b->scale[g] = d * (float)(int8_t)scale[g];
}

static const format formats[] = {
    {"Q4_0", 32, 18, 32, FV_INT4, FV_F16, false, open_q4_0},
    {"Q4_1", 32, 20, 32, FV_INT4, FV_F16, true, open_q4_1},
    {"Q5_0", 32, 22, 32, FV_INT8, FV_F16, false, open_q5_0},
    {"Q5_1", 32, 24, 32, FV_INT8, FV_F16, true, open_q5_1},
    {"Q8_0", 32, 34, 32, FV_INT8, FV_F16, false, open_q8_0},
    {"Q4_K", 256, 144, 32, FV_INT4, FV_F32, true, open_q4_k},
    {"Q5_K", 256, 176, 32, FV_INT8, FV_F32, true, open_q5_k},
    {"Q6_K", 256, 210, 16, FV_INT8, FV_F32, false, open_q6_k},
};

static const format *format_of(const char *type) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].type, type) == 0) return &formats[i];
    return NULL;
}

bool fv_gguf_is_blocks(const char *type) { return format_of(type) != NULL; }

/* ---- memory ---------------------------------------------------------------------------- */

static size_t groups_of(const fv_gguf_weight *w) {
    return (size_t)w->view.rows * (size_t)w->view.quant->groups;
}

size_t fv_gguf_bytes(const fv_gguf_weight *w) {
    const fv_tensor *t = &w->view;
    if (!t->quant) return (size_t)t->rows * (size_t)t->cols * fv_dtype_bytes(t->dtype);
    size_t each = fv_dtype_bytes(t->quant->scale_type) + (t->quant->min ? sizeof(float) : 0);
    return (size_t)t->rows * t->quant->row_bytes + groups_of(w) * each;
}

static fv_status place_integers(const format *f, fv_arena *arena, fv_tensor *t) {
    fv_quant *q;
    size_t rows = (size_t)t->rows, cols = (size_t)t->cols;
    FV_TRY(FV_ARENA_NEW(arena, 1, q));
    q->scale_type = f->scale;
    q->group = (int32_t)f->group;
    q->groups = (int32_t)(cols / f->group);
    q->row_bytes = f->dtype == FV_INT4 ? cols / 2 : cols;
    q->integers = f->dtype == FV_INT4 && !f->min;
    void *scale;
    float *min = NULL;
    FV_TRY(fv_arena_array(arena, rows * (size_t)q->groups, fv_dtype_bytes(f->scale), &scale));
    if (f->min) FV_TRY(FV_ARENA_NEW(arena, rows * (size_t)q->groups, min));
    FV_TRY(fv_arena_array(arena, rows, q->row_bytes, &t->data));
    q->scale = scale;
    q->min = min;
    t->dtype = f->dtype;
    t->quant = q;
    return FV_OK;
}

fv_status fv_gguf_place(fv_gguf_weight *w, int32_t rows, int32_t cols, bool linear,
                        fv_arena *arena) {
    const format *f = format_of(w->type);
    fv_dtype dtype = FV_BF16;
    if (!f) (void)fv_safetensors_dtype(w->type, &dtype);
    w->view = fv_tensor_of(NULL, dtype, rows, cols);
    if (f && linear) return place_integers(f, arena, &w->view);
    return fv_arena_array(arena, (size_t)rows * (size_t)cols, fv_dtype_bytes(dtype), &w->view.data);
}

/* ---- filling --------------------------------------------------------------------------- */

/* The file's row for row r of the view. */
static size_t row_of(const fv_gguf_weight *w, size_t r) {
    if (w->heads == 0) return r;
    size_t D = (size_t)w->view.rows / (size_t)w->heads, i = r % D;
    return r - i + (i < D / 2 ? 2 * i : 2 * (i - D / 2) + 1);
}

/* Row r of the view in the file, whose rows have `bytes` bytes. */
static const uint8_t *source_of(const fv_gguf_weight *w, size_t r, size_t bytes) {
    if (w->n_more == 0) return (const uint8_t *)w->data + row_of(w, r) * bytes;
    size_t n = (size_t)w->n_more + 1, span = (size_t)w->span, run = r / span;
    const void *from = run % n ? w->more[run % n - 1] : w->data;
    return (const uint8_t *)from + (run / n * span + r % span) * bytes;
}

/* Writes the block's integers and scales to row r from column k on. */
static void put_integers(const fv_gguf_weight *w, const format *f, size_t r, size_t k,
                         const block *b) {
    const fv_quant *q = w->view.quant;
    size_t g = r * (size_t)q->groups + k / f->group, n = f->n / f->group;
    uint8_t *to = (uint8_t *)w->view.data + r * q->row_bytes;
    for (size_t i = 0; i < n; i++) {
        if (f->scale == FV_F16)
            ((uint16_t *)(uintptr_t)q->scale)[g + i] = f16_of_f32(b->scale[i]);
        else
            ((float *)(uintptr_t)q->scale)[g + i] = b->scale[i];
        if (f->min) ((float *)(uintptr_t)q->min)[g + i] = b->min[i];
    }
    if (f->dtype == FV_INT8) {
        memcpy(to + k, b->q, f->n);
        return;
    }
    for (size_t i = 0; i < f->n; i += 2) to[(k + i) / 2] = (uint8_t)(b->q[i] | b->q[i + 1] << 4);
}

static void put_numbers(const fv_gguf_weight *w, const format *f, size_t r, size_t k,
                        const block *b) {
    uint16_t *to = (uint16_t *)w->view.data + r * (size_t)w->view.cols + k;
    int zero = f->dtype == FV_INT4 && !f->min ? 8 : 0;
    for (size_t i = 0; i < f->n; i++) {
        size_t g = i / f->group;
        int q = f->dtype == FV_INT8 ? (int8_t)b->q[i] : b->q[i];
        to[i] = bf16_of_f32(fmaf(b->scale[g], (float)(q - zero), -b->min[g]));
    }
}

static bool fill_blocks(const fv_gguf_weight *w, const format *f, size_t r, const uint8_t *from) {
    float poison = 0.0f;
    for (size_t k = 0; k < (size_t)w->view.cols; k += f->n, from += f->bytes) {
        block b = {0};
        f->open(from, &b);
        for (size_t g = 0; g < f->n / f->group; g++) poison += (b.scale[g] + b.min[g]) * 0.0f;
        (w->view.quant ? put_integers : put_numbers)(w, f, r, k, &b);
    }
    return !isnan(poison);
}

bool fv_gguf_fill(const fv_gguf_weight *w) {
    const format *f = format_of(w->type);
    size_t cols = (size_t)w->view.cols,
           row = f ? cols / f->n * f->bytes : cols * fv_dtype_bytes(w->view.dtype);
    bool whole = true;
    for (size_t r = 0; r < (size_t)w->view.rows; r++) {
        const uint8_t *from = source_of(w, r, row);
        if (f)
            whole &= fill_blocks(w, f, r, from);
        else
            memcpy((uint8_t *)w->view.data + r * row, from, row);
    }
    return whole;
}
