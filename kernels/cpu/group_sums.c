/* Sums of groups of columns, each the canonical sum of one vector (kernels/ops.h). Compiled for any x86-64, so that
 * all instruction sets have the same: it is a small part of a product. */
#include "kernels/cpu/group_sums.h"

enum { SUM_LANES = 16 };

/* The canonical sum of n numbers. */
static float sum_of(const float *x, int64_t n) {
    float acc[SUM_LANES] = {0};
    for (; n >= SUM_LANES; n -= SUM_LANES, x += SUM_LANES)
        for (int i = 0; i < SUM_LANES; i++) acc[i] += x[i];
    for (int i = 0; i < n; i++) acc[i] += x[i];
    for (int s = SUM_LANES / 2; s > 0; s /= 2)
        for (int i = 0; i < s; i++) acc[i] += acc[i + s];
    return acc[0];
}

void fv_group_sums(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_group_sums_args *a = args;
    const int64_t K = a->x->cols;
    (void)scratch;
    for (int64_t m = begin; m < end; m++) {
        const float *x = row_f32(a->x, m);
        float *to = row_f32(a->sums, m);
        for (int64_t k = 0; k < K; k += a->group)
            *to++ = sum_of(x + k, K - k < a->group ? K - k : a->group);
    }
}
