#ifndef FOVEA_KERNELS_CPU_LANES_ACTIVATE_H
#define FOVEA_KERNELS_CPU_LANES_ACTIVATE_H

/* Activations in loops that compilers vectorize: over chunks in a local array, because source and
 * destination may be the same row, and a compiler that has to allow for overlap does not vectorize. */
#include <string.h>

#include "kernels/activations.h"
#include "kernels/cpu/inline.h"
#include "kernels/cpu/path.h"

enum { ACT_CHUNK = 256 };

static ALWAYS_INLINE void map_row(float (*f)(float), const float *x, const float *gate,
                                  bool accumulate, float *y, size_t n) {
    float t[ACT_CHUNK] = {0}, g[ACT_CHUNK] = {0};
    for (size_t k = 0; k < n; k += ACT_CHUNK) {
        size_t m = n - k < ACT_CHUNK ? n - k : ACT_CHUNK;
        memcpy(t, x + k, m * sizeof *t);
        for (int i = 0; i < ACT_CHUNK; i++) t[i] = f(t[i]);
        if (gate) {
            memcpy(g, gate + k, m * sizeof *g);
            for (int i = 0; i < ACT_CHUNK; i++) t[i] *= g[i];
        }
        if (accumulate) {
            memcpy(g, y + k, m * sizeof *g);
            for (int i = 0; i < ACT_CHUNK; i++) t[i] += g[i];
        }
        memcpy(y + k, t, m * sizeof *y);
    }
}

static void activate(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_activate_args *a = args;
    (void)scratch;
    size_t n = (size_t)a->x.cols;
    for (int64_t r = begin; r < end; r++) {
        const float *x = row_f32(&a->x, r), *g = a->gate.data ? row_f32(&a->gate, r) : NULL;
        float *y = row_f32(&a->y, r);
        switch (a->act) {
        case FV_ACT_SILU: map_row(act_silu, x, g, a->accumulate, y, n); break;
        case FV_ACT_GELU: map_row(act_gelu, x, g, a->accumulate, y, n); break;
        case FV_ACT_GELU_TANH: map_row(act_gelu_tanh, x, g, a->accumulate, y, n); break;
        case FV_ACT_QUICK_GELU: map_row(act_quick_gelu, x, g, a->accumulate, y, n); break;
        case FV_ACT_RELU: map_row(act_relu, x, g, a->accumulate, y, n); break;
        case FV_ACT_SIGMOID: map_row(act_sigmoid, x, g, a->accumulate, y, n); break;
        default: map_row(act_none, x, g, a->accumulate, y, n);
        }
    }
}

#endif
