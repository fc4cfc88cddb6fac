#ifndef FOVEA_KERNELS_ACTIVATIONS_H
#define FOVEA_KERNELS_ACTIVATIONS_H

/* The activations of kernels/ops.h, for the fast CPU paths and the GPU. */
#include "kernels/mathf.h"

FV_ANYWHERE static inline float act_silu(float x) { return x / (1.0f + exp_f32(-x)); }

FV_ANYWHERE static inline float act_gelu(float x) {
    return 0.5f * x * (1.0f + erf_f32(x * 0x1.6a09e6p-1f));
}

FV_ANYWHERE static inline float act_gelu_tanh(float x) {
    float u = 0x1.988454p-1f * fmaf(0.044715f * x * x, x, x); /* sqrt(2/pi) (x + 0.044715 x^3) */
    return 0.5f * x * (1.0f + tanh_f32(u));
}

FV_ANYWHERE static inline float act_quick_gelu(float x) {
    return x / (1.0f + exp_f32(-1.702f * x));
}

FV_ANYWHERE static inline float act_relu(float x) { return x > 0.0f || x != x ? x : 0.0f; }

FV_ANYWHERE static inline float act_sigmoid(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

FV_ANYWHERE static inline float act_none(float x) { return x; }

#endif
