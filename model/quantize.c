/* Quantizes rows of weights to int8 and int4. Pure functions on memory. */
#include "model/quantize.h"

#include <math.h>
#include <string.h>

#include "common/convert.h"

static const fv_weights all[] = {
    {"int8", FV_INT8, 0, "int8.2"},           {"int4", FV_INT4, 32, "int4.3"},
    {"int4-128", FV_INT4, 128, "int4-128.3"}, {"dequantized", FV_F32, 0, "dequantized.1"},
    {"exact", FV_BF16, 0, "exact.1"},
};

const fv_weights fv_weights_head = {.name = "int8 in groups", .dtype = FV_INT8, .group = 32};

fv_status fv_weights_find(const char *name, const fv_weights **out) {
    *out = NULL;
    if (!name || strcmp(name, "stored") == 0) return FV_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i].name) == 0) *out = &all[i];
    if (*out) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "invalid --weights '%s'; use stored, int8, int4, int4-128, exact or dequantized",
                   name);
}

/* Offsets of a weight's parts in its memory: the fv_quant, its scales, its integers. */
typedef struct layout {
    size_t groups, row_bytes, scales_at, codes_at, bytes;
} layout;

static size_t up_to_64(size_t n) { return (n + 63) / 64 * 64; }

static size_t scale_bytes(const fv_weights *to) { return to->group ? 2 : 4; }

static layout layout_of(int32_t n_row, int32_t n_col, const fv_weights *to) {
    size_t rows = (size_t)n_row, cols = (size_t)n_col;
    bool int8 = to->dtype == FV_INT8;
    layout l = {.groups = 1, .row_bytes = int8 ? cols : (cols + 7) / 8 * 4};
    if (to->group) l.groups = (cols + (size_t)to->group - 1) / (size_t)to->group;
    l.scales_at = up_to_64(sizeof(fv_quant));
    l.codes_at = l.scales_at + up_to_64(rows * l.groups * scale_bytes(to));
    l.bytes = l.codes_at + up_to_64(rows * l.row_bytes);
    return l;
}

size_t fv_quantize_bytes(const fv_tensor *w, const fv_weights *to) {
    return layout_of(w->rows, w->cols, to).bytes;
}

/* Returns the number of largest magnitude, with its sign; NaN if a number is not finite. */
static float largest(const float *w, size_t n) {
    float most = 0.0f, poison = 0.0f;
    for (size_t k = 0; k < n; k++) {
        poison += w[k] * 0.0f;
        most = fabsf(w[k]) > fabsf(most) ? w[k] : most;
    }
    return most + poison;
}

/* A row of w, which is widened in chunks. */
typedef struct row {
    const char *at;
    fv_dtype dtype;
    size_t n;
} row;

enum { CHUNK = 128 };

static size_t widen(const row *r, size_t first, size_t most, float wide[CHUNK]) {
    size_t n = r->n - first < most ? r->n - first : most;
    widen_row(r->at + first * fv_dtype_bytes(r->dtype), r->dtype, n, wide);
    return n;
}

/* Rounds x / scale to the nearest integer, ties to even, and clamps it to [low, high]; |x / scale|
 * < 2^22. Adding 1.5 2^23 rounds, and unlike rintf and fmaxf needs no call. */
static inline float whole(float x, float scale, float low, float high) {
    float q = (x / scale + 0x1.8p23f) - 0x1.8p23f;
    q = q > low ? q : low;
    return q < high ? q : high;
}

static float row_to_int8(const row *r, int8_t *to) {
    float wide[CHUNK], most = 0.0f;
    for (size_t k = 0; k < r->n && !isnan(most); k += CHUNK) {
        float here = fabsf(largest(wide, widen(r, k, CHUNK, wide)));
        if (!(here <= most)) most = here;
    }
    float scale = most / 127.0f;
    if (scale < 0x1p-126f) scale = 0.0f;
    for (size_t k = 0; k < r->n && !isnan(most); k += CHUNK) {
        size_t n = widen(r, k, CHUNK, wide);
        if (scale > 0.0f)
            for (size_t i = 0; i < n; i++) to[k + i] = (int8_t)whole(wide[i], scale, -127, 127);
        else
            memset(to + k, 0, n);
    }
    return scale;
}

/* Quantizes n numbers to int4, two a byte; returns the scale, which is a bf16 number. */
static float group_to_int4(const float *w, size_t n, uint8_t *to) {
    float most = largest(w, n), scale = f32_of_bf16(bf16_of_f32(-most / 8.0f));
    bool zero = !(fabsf(scale) >= 0x1p-126f);
    uint8_t q[CHUNK + 1];
    memset(q, zero ? 8 : 0, sizeof q);
    for (size_t k = 0; k < n && !zero; k++) q[k] = (uint8_t)(whole(w[k], scale, -8, 7) + 8.0f);
    if (n % 2) q[n] = 0;
    for (size_t k = 0; k < n; k += 2) to[k / 2] = (uint8_t)(q[k] | q[k + 1] << 4);
    return isnan(most) ? most : zero ? 0.0f : scale;
}

/* Quantizes n numbers to int8; returns the scale, which is a bf16 number. */
static float group_to_int8(const float *w, size_t n, uint8_t *to) {
    float most = largest(w, n), scale = f32_of_bf16(bf16_of_f32(fabsf(most) / 127.0f));
    if (isnan(most)) return most;
    if (!(scale >= 0x1p-126f)) return 0.0f; /* the integers are 0 already */
    for (size_t k = 0; k < n; k++) to[k] = (uint8_t)(int8_t)whole(w[k], scale, -127, 127);
    return scale;
}

/* Quantizes a row; returns false if a number is not finite. */
static bool quantize_row(const row *r, const fv_weights *to, size_t groups, void *scales,
                         uint8_t *codes) {
    bool int8 = to->dtype == FV_INT8;
    if (!to->group) return !isnan(*(float *)scales = row_to_int8(r, (int8_t *)codes));
    for (size_t g = 0; g < groups; g++) {
        float wide[CHUNK];
        size_t first = g * (size_t)to->group, n = widen(r, first, (size_t)to->group, wide);
        float scale = int8 ? group_to_int8(wide, n, codes + first)
                           : group_to_int4(wide, n, codes + first / 2);
        if (isnan(scale)) return false;
        ((uint16_t *)scales)[g] = bf16_of_f32(scale);
    }
    return true;
}

void fv_quantize_begin(int32_t rows, int32_t cols, const fv_weights *to, void *memory,
                       fv_tensor *out) {
    layout l = layout_of(rows, cols, to);
    memset(memory, 0, l.bytes);
    *out = fv_tensor_of((char *)memory + l.codes_at, to->dtype, rows, cols);
    out->quant = memory;
    *(fv_quant *)memory = (fv_quant){.scale = (char *)memory + l.scales_at,
                                     .scale_type = to->group ? FV_BF16 : FV_F32,
                                     .group = to->group,
                                     .groups = (int32_t)l.groups,
                                     .row_bytes = l.row_bytes,
                                     .integers = to->dtype == FV_INT4};
}

bool fv_quantize_rows(const fv_tensor *w, const fv_weights *to, int32_t row0, fv_tensor *out) {
    const fv_quant *q = out->quant;
    const size_t groups = (size_t)q->groups, n = (size_t)row0;
    row r = {w->data, w->dtype, (size_t)w->cols};
    char *scales = (char *)(uintptr_t)q->scale + n * groups * scale_bytes(to);
    uint8_t *codes = (uint8_t *)out->data + n * q->row_bytes;
    for (int32_t i = 0; i < w->rows; i++) {
        if (!quantize_row(&r, to, groups, scales, codes)) return false;
        r.at += r.n * fv_dtype_bytes(w->dtype);
        scales += groups * scale_bytes(to);
        codes += q->row_bytes;
    }
    return true;
}

bool fv_quantize(const fv_tensor *w, const fv_weights *to, void *memory, fv_tensor *out) {
    fv_quantize_begin(w->rows, w->cols, to, memory, out);
    return fv_quantize_rows(w, to, 0, out);
}
