#ifndef FOVEA_KERNELS_CPU_LANES_MERGE_H
#define FOVEA_KERNELS_CPU_LANES_MERGE_H

/* Two attentions over disjoint keys merged into one; compilers vectorize the loop over o. */
#include <string.h>

#include "kernels/cpu/path.h"
#include "kernels/mathf.h"

static void merge_head(const fv_merge_args *a, int64_t row, int32_t h) {
    size_t D = (size_t)(a->o.cols / a->n_head);
    float *o = row_f32(&a->o, row) + (size_t)h * D, *lse = row_f32(&a->lse, row) + h;
    const float *o2 = row_f32(&a->o2, row) + (size_t)h * D, lse2 = row_f32(&a->lse2, row)[h];
    if (lse2 == -INFINITY) return;
    if (*lse == -INFINITY) {
        memcpy(o, o2, D * sizeof *o);
        *lse = lse2;
        return;
    }
    float m = *lse > lse2 ? *lse : lse2;
    float w = exp_f32(*lse - m), w2 = exp_f32(lse2 - m), l = w + w2;
    for (size_t d = 0; d < D; d++) o[d] = fmaf(w2, o2[d], w * o[d]) / l;
    *lse = m + log_f32(l);
}

static void merge(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_merge_args *a = args;
    (void)scratch;
    for (int64_t row = begin; row < end; row++)
        for (int32_t h = 0; h < a->n_head; h++) merge_head(a, row, h);
}

#endif
