/* Decodes integers to numbers. Pure functions on memory. */
#include "model/dequantize.h"

#include <math.h>

#include "common/convert.h"

/* Number k of row n. */
static float number(const fv_tensor *w, size_t n, size_t k) {
    const fv_quant *q = w->quant;
    const size_t row = q->group ? q->row_bytes : (size_t)w->cols;
    const uint8_t *at = (const uint8_t *)w->data + n * row;
    const int code = w->dtype == FV_INT8 ? at[k] : at[k / 2] >> k % 2 * 4 & 15;
    if (!q->group) return (float)(int8_t)code * ((const float *)q->scale)[n];
    const size_t g = n * (size_t)q->groups + k / (size_t)q->group;
    float x;
    if (q->table)
        x = q->table[code];
    else if (w->dtype == FV_INT8)
        x = (float)(int8_t)code;
    else
        x = (float)(code - (q->zero ? q->zero[g] : q->min ? 0 : 8));
    return fmaf(widened(q->scale, q->scale_type, g), x, q->min ? -q->min[g] : -0.0f);
}

void fv_dequantize(const fv_tensor *w, fv_dtype type, void *out) {
    const size_t cols = (size_t)w->cols;
    const int32_t *order = w->quant->order;
    for (size_t n = 0; n < (size_t)w->rows; n++)
        for (size_t k = 0; k < cols; k++) {
            const float x = number(w, n, k);
            const size_t at = n * cols + (order ? (size_t)order[k] : k);
            if (type == FV_F32)
                ((float *)out)[at] = x;
            else
                ((uint16_t *)out)[at] = type == FV_BF16 ? bf16_of_f32(x) : f16_of_f32(x);
        }
}
