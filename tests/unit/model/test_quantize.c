/* Quantizing weights: each stays within half a step. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "common/convert.h"
#include "kernels/backends/open.h"
#include "model/quantize.h"

static uint64_t state = 1;

static float draw(void) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (float)(int32_t)(state >> 33) * 0x1p-30f - 1.0f;
}

static const fv_weights *find(const char *name) {
    const fv_weights *to;
    cr_assert_eq(fv_weights_find(name, &to), FV_OK);
    return to;
}

static double int4_at(const fv_tensor *t, int row, int col) {
    const fv_quant *q = t->quant;
    int code = ((const uint8_t *)t->data)[(size_t)row * q->row_bytes + (size_t)col / 2];
    code = col % 2 ? code >> 4 : code & 15;
    size_t g = (size_t)(row * q->groups + col / q->group);
    return (double)f32_of_bf16(((const uint16_t *)q->scale)[g]) * (code - 8);
}

Test(quantize, int8_is_within_half_a_step_and_has_the_largest_exactly) {
    enum { ROWS = 5, COLS = 301 };
    static float w[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) w[i] = i / COLS == 3 ? 0 : draw();
    fv_tensor from = fv_tensor_of(w, FV_F32, ROWS, COLS), to;
    void *memory = aligned_alloc(64, fv_quantize_bytes(&from, find("int8")));
    cr_assert(fv_quantize(&from, find("int8"), memory, &to));
    cr_assert(to.dtype == FV_INT8 && to.rows == ROWS && to.cols == COLS);
    for (int r = 0; r < ROWS; r++) {
        double scale = (double)((const float *)to.quant->scale)[r], most = 0;
        int code = 0;
        for (int c = 0; c < COLS; c++) {
            int q = ((const int8_t *)to.data)[r * COLS + c];
            cr_assert_leq(fabs(scale * q - (double)w[r * COLS + c]), scale * 0.5001);
            most = fmax(most, fabs((double)w[r * COLS + c]));
            code = abs(q) > code ? abs(q) : code;
        }
        cr_assert_float_eq(scale, most / 127, most * 1e-6);
        cr_assert_eq(code, r == 3 ? 0 : 127);
    }
    free(memory);
}

Test(quantize, the_head_is_within_half_a_step_in_groups_of_32) {
    enum { ROWS = 3, COLS = 77 };
    static float w[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) w[i] = i < 32 ? 0 : draw() * (i % 64 < 32 ? 1 : 1e-3f);
    fv_tensor from = fv_tensor_of(w, FV_F32, ROWS, COLS), to;
    void *memory = aligned_alloc(64, fv_quantize_bytes(&from, &fv_weights_head));
    cr_assert(fv_quantize(&from, &fv_weights_head, memory, &to));
    cr_assert(to.dtype == FV_INT8 && to.quant->group == 32 && to.quant->groups == 3);
    cr_assert(to.quant->row_bytes == COLS && to.quant->scale_type == FV_BF16);
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLS; c++) {
            double scale = (double)f32_of_bf16(((const uint16_t *)to.quant->scale)[r * 3 + c / 32]);
            int q = ((const int8_t *)to.data)[r * COLS + c];
            cr_assert_leq(fabs(scale * q - (double)w[r * COLS + c]), scale * 0.5001);
        }
    free(memory);
}

Test(quantize, int4_is_within_half_a_step_but_at_the_far_end) {
    enum { ROWS = 3, COLS = 141 };
    static uint16_t w[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++) w[i] = bf16_of_f32(i < 32 ? 0 : draw());
    fv_tensor from = fv_tensor_of(w, FV_BF16, ROWS, COLS), to;
    static const char *const name[] = {"int4", "int4-128"};
    for (int i = 0; i < 2; i++) {
        void *memory = aligned_alloc(64, fv_quantize_bytes(&from, find(name[i])));
        cr_assert(fv_quantize(&from, find(name[i]), memory, &to));
        cr_assert_eq(to.quant->groups, i ? 2 : 5);
        cr_assert_eq(to.quant->row_bytes, 72);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLS; c++) {
                size_t g = (size_t)(r * to.quant->groups + c / to.quant->group);
                double scale = (double)f32_of_bf16(((const uint16_t *)to.quant->scale)[g]);
                double was = (double)f32_of_bf16(w[r * COLS + c]), off = int4_at(&to, r, c) - was;
                /* 8 steps from the middle on one side, 7 on the other */
                cr_assert_leq(fabs(off), fabs(scale) * (was * scale > 0 ? 1.05 : 0.55));
            }
        free(memory);
    }
}

Test(quantize, what_is_not_finite_is_refused) {
    static const char *const name[] = {"int8", "int4", "int4-128"};
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 9; i++) {
        float w[200] = {1, 2, 3};
        w[i % 3 * 90] = bad[i / 3];
        fv_tensor from = fv_tensor_of(w, FV_F32, 1, 200), to;
        void *memory = aligned_alloc(64, fv_quantize_bytes(&from, find(name[i % 3])));
        cr_assert_not(fv_quantize(&from, find(name[i % 3]), memory, &to));
        free(memory);
    }
}

Test(quantize, an_unknown_name_lists_those_that_are) {
    const fv_weights *to;
    cr_assert_eq(fv_weights_find("int2", &to), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "stored, int8, int4, int4-128, exact or dequantized"));
    cr_assert_eq(fv_weights_find("stored", &to), FV_OK);
    cr_assert_null(to);
}
