#ifndef FOVEA_KERNELS_CPU_PLAIN_GEMM_H
#define FOVEA_KERNELS_CPU_PLAIN_GEMM_H

/* Matrix products of the plain path: an item is one output column. */
#include "common/convert.h"
#include "kernels/cpu/gemm.h"

extern const fv_gemm_impl fv_plain_gemm_f32, fv_plain_gemm_bf16, fv_plain_gemm_int8,
    fv_plain_gemm_groups;

/* Writes y of row m: the sum, plus the bias, plus y where the part accumulates. */
static inline void plain_store(const fv_gemm_item *t, int64_t m, float sum) {
    const fv_linear_part *p = t->p;
    float *y = row_f32(&p->y, m) + t->n0;
    if (p->bias.data) sum += widened(p->bias.data, p->bias.dtype, (size_t)t->n0);
    if (p->accumulate) sum += *y;
    *y = sum;
}

#endif
