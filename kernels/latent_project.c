/* A band is a matrix of its own: see latent_project.h. */
#include "kernels/latent_project.h"

fv_status fv_latent_project(fv_backend *be, const fv_tensor *x, const float *encode, fv_tensor y) {
    for (int32_t r = 0; r < y.cols; r += FV_LATENT_BAND) {
        int32_t n = y.cols - r < FV_LATENT_BAND ? y.cols - r : FV_LATENT_BAND;
        const float *band = encode + (size_t)r * (size_t)x->cols;
        fv_matmul_nn_args a = {
            .x = *x, .w = fv_tensor_of((void *)(uintptr_t)band, FV_F32, x->cols, n), .y = y};
        a.y.data = (float *)y.data + r;
        a.y.cols = n;
        FV_TRY(be->ops->matmul_nn(be, &a));
    }
    return FV_OK;
}
