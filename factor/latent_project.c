/* Projects rows band by band, each a product of its own: see latent_project.h. */
#include "factor/latent_project.h"

static fv_status in_bf16(fv_backend *be, const fv_tensor *x, const uint16_t *rounded, fv_tensor y) {
    fv_tensor w = fv_tensor_of((void *)(uintptr_t)rounded, FV_BF16, y.cols, x->cols);
    fv_linear_args a = {.x = *x, .n_part = 1, .part = {{.w = w, .y = y}}};
    return be->ops->linear(be, &a);
}

fv_status fv_latent_project(fv_backend *be, const fv_tensor *x, const fv_latent_columns *p,
                            fv_tensor y) {
    if (p->rounded) return in_bf16(be, x, p->rounded, y);
    for (int32_t r = 0; r < y.cols; r += FV_LATENT_BAND) {
        int32_t n = y.cols - r < FV_LATENT_BAND ? y.cols - r : FV_LATENT_BAND;
        const float *band = p->bands + (size_t)r * (size_t)x->cols;
        fv_matmul_nn_args a = {
            .x = *x, .w = fv_tensor_of((void *)(uintptr_t)band, FV_F32, x->cols, n), .y = y};
        a.y.data = (float *)y.data + r;
        a.y.cols = n;
        FV_TRY(be->ops->matmul_nn(be, &a));
    }
    return FV_OK;
}
