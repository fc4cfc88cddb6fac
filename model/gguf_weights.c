/* Repacks weights of GGUF files. Pure functions on memory. */
#include "model/gguf_weights.h"

#include <math.h>
#include <string.h>

#include "common/convert.h"
#include "model/gguf_formats.h"
#include "model/safetensors.h"

bool fv_gguf_is_blocks(const char *type) { return fv_gguf_format_of(type) != NULL; }

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

static fv_status place_integers(const fv_gguf_format *f, fv_arena *arena, fv_tensor *t) {
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
    const fv_gguf_format *f = fv_gguf_format_of(w->type);
    fv_dtype dtype = FV_BF16;
    if (f && w->tiles.columns && w->tiles.width % (int32_t)f->group)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "a weight of type %s has heads of %d columns, and a scale for each %zu",
                       w->type, w->tiles.width, f->group);
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

size_t fv_gguf_untile(const fv_gguf_tiles *t, bool to_view, size_t i) {
    size_t first = (size_t)t->first, width = (size_t)t->width;
    if (t->each <= 1 || i < first) return i;
    size_t outer = (size_t)(to_view ? t->n : t->each), inner = (size_t)(to_view ? t->each : t->n);
    size_t head = (i - first) / width, at = (i - first) % width;
    return first + (head % outer * inner + head / outer) * width + at;
}

/* Row r of the view in the file, whose rows have `bytes` bytes. */
static const uint8_t *source_of(const fv_gguf_weight *w, size_t r, size_t bytes) {
    if (w->n_more == 0) {
        size_t at = w->tiles.columns ? r : fv_gguf_untile(&w->tiles, false, r);
        return (const uint8_t *)w->data + row_of(w, at) * bytes;
    }
    size_t n = (size_t)w->n_more + 1, span = (size_t)w->span, run = r / span;
    const void *from = run % n ? w->more[run % n - 1] : w->data;
    return (const uint8_t *)from + (run / n * span + r % span) * bytes;
}

/* Column k of the file in the view. */
static size_t column_of(const fv_gguf_weight *w, size_t k) {
    return w->tiles.columns ? fv_gguf_untile(&w->tiles, true, k) : k;
}

/* Writes integers and scale of group i of a block to row r from column k on. */
static void put_integers(const fv_gguf_weight *w, const fv_gguf_format *f, size_t r, size_t k,
                         size_t i, const fv_gguf_block *b) {
    const fv_quant *q = w->view.quant;
    const uint8_t *from = b->q + i * f->group;
    size_t g = r * (size_t)q->groups + k / f->group;
    uint8_t *to = (uint8_t *)w->view.data + r * q->row_bytes;
    if (f->scale == FV_F16)
        ((uint16_t *)(uintptr_t)q->scale)[g] = f16_of_f32(b->scale[i]);
    else
        ((float *)(uintptr_t)q->scale)[g] = b->scale[i];
    if (f->min) ((float *)(uintptr_t)q->min)[g] = b->min[i];
    if (f->dtype == FV_INT8) {
        memcpy(to + k, from, f->group);
        return;
    }
    for (size_t n = 0; n < f->group; n += 2)
        to[(k + n) / 2] = (uint8_t)(from[n] | from[n + 1] << 4);
}

static void put_numbers(const fv_gguf_weight *w, const fv_gguf_format *f, size_t r, size_t k,
                        size_t i, const fv_gguf_block *b) {
    uint16_t *to = (uint16_t *)w->view.data + r * (size_t)w->view.cols + k;
    int zero = f->dtype == FV_INT4 && !f->min ? 8 : 0;
    for (size_t n = 0; n < f->group; n++) {
        uint8_t byte = b->q[i * f->group + n];
        int q = f->dtype == FV_INT8 ? (int8_t)byte : byte;
        to[n] = bf16_of_f32(fmaf(b->scale[i], (float)(q - zero), -b->min[i]));
    }
}

static bool fill_blocks(const fv_gguf_weight *w, const fv_gguf_format *f, size_t r,
                        const uint8_t *from) {
    float poison = 0.0f;
    for (size_t k = 0; k < (size_t)w->view.cols; k += f->n, from += f->bytes) {
        fv_gguf_block b = {0};
        f->open(from, &b);
        for (size_t g = 0; g < f->n / f->group; g++) {
            poison += (b.scale[g] + b.min[g]) * 0.0f;
            (w->view.quant ? put_integers : put_numbers)(w, f, r, column_of(w, k + g * f->group), g,
                                                         &b);
        }
    }
    return !isnan(poison);
}

/* Copies a row of numbers of `bytes` bytes, whose heads are restored to their order. */
static void copy_columns(const fv_gguf_weight *w, const uint8_t *from, size_t bytes, uint8_t *to) {
    size_t width = (size_t)w->tiles.width;
    for (size_t k = 0; k < (size_t)w->view.cols; k += width)
        memcpy(to + column_of(w, k) * bytes, from + k * bytes, width * bytes);
}

bool fv_gguf_fill(const fv_gguf_weight *w) {
    const fv_gguf_format *f = fv_gguf_format_of(w->type);
    size_t cols = (size_t)w->view.cols,
           row = f ? cols / f->n * f->bytes : cols * fv_dtype_bytes(w->view.dtype);
    bool whole = true;
    for (size_t r = 0; r < (size_t)w->view.rows; r++) {
        const uint8_t *from = source_of(w, r, row);
        if (f)
            whole &= fill_blocks(w, f, r, from);
        else if (w->tiles.columns)
            copy_columns(w, from, row / cols, (uint8_t *)w->view.data + r * row);
        else
            memcpy((uint8_t *)w->view.data + r * row, from, row);
    }
    return whole;
}
