/* Activations, element by element: the formulas of fv_activation, with constants rounded to f32. */
#include "kernels/cpu/plain/plain.h"

static float activation(fv_activation act, float x) {
    const float sqrt_half = 0x1.6a09e6p-1f, sqrt_2_pi = 0x1.988454p-1f; /* sqrt 1/2, sqrt(2/pi) */
    switch (act) {
    case FV_ACT_SILU: return x / (1.0f + exp_f32(-x));
    case FV_ACT_GELU: return x * 0.5f * (erf_f32(sqrt_half * x) + 1.0f);
    case FV_ACT_GELU_TANH: {
        float cube = 0.044715f * x * x;
        return x * 0.5f * (tanh_f32(sqrt_2_pi * fmaf(cube, x, x)) + 1.0f);
    }
    case FV_ACT_QUICK_GELU: return x / (1.0f + exp_f32(-1.702f * x));
    case FV_ACT_SIGMOID: return 1.0f / (1.0f + exp_f32(-x));
    case FV_ACT_RELU: return x <= 0.0f ? 0.0f : x; /* NaN stays */
    default: return x;
    }
}

void fv_plain_activate(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_activate_args *a = args;
    (void)scratch;
    for (int64_t r = begin; r < end; r++)
        for (int32_t k = 0; k < a->x.cols; k++) {
            float y = activation(a->act, row_f32(&a->x, r)[k]);
            if (a->gate.data) y *= row_f32(&a->gate, r)[k];
            row_f32(&a->y, r)[k] = a->accumulate ? y + row_f32(&a->y, r)[k] : y;
        }
}

fv_status fv_check_activate(const void *args, fv_cpu_rows *out) {
    const fv_activate_args *a = args;
    FV_TRY(need_f32(&a->x, "activate's x"));
    FV_TRY(need_f32(&a->gate, "activate's gate"));
    FV_TRY(need_f32(&a->y, "activate's y"));
    assert(a->act >= 0 && a->act < FV_N_ACT);
    assert(same_shape(&a->x, &a->y) && (!a->gate.data || same_shape(&a->x, &a->gate)));
    *out = (fv_cpu_rows){a->x.rows, a->x.cols};
    return FV_OK;
}
