#ifndef FOVEA_KERNELS_CPU_LINEAR_PARTS_H
#define FOVEA_KERNELS_CPU_LINEAR_PARTS_H

/* What the fast versions of linear share: the bias, the end of a row of sums, and rows of weights
 * that are not as a product in bf16 wants them. */
#include <string.h>

#include "kernels/convert.h"
#include "kernels/cpu/path.h"

enum { BF16_STEP = 32, BF16_ROWS = 16 }; /* columns of a step, rows of weights beside each other */

static inline size_t bf16_steps(size_t K) { return (K + BF16_STEP - 1) / BF16_STEP; }

/* Elements [n0, n0 + n) of the bias as f32 in `wide`, or NULL when there is none. */
static inline const float *bias_f32(const fv_tensor *bias, int64_t n0, int n, float *wide) {
    if (!bias->data) return NULL;
    for (int j = 0; j < n; j++) wide[j] = widened(bias->data, bias->dtype, (size_t)(n0 + j));
    return wide;
}

/* Puts the sums of row m and columns [n0, n0 + n) into y; bias [n] or NULL. */
static inline void store_sums(const fv_linear_part *p, int64_t m, int64_t n0, int n,
                              const float *bias, const float *sums) {
    float *y = row_f32(&p->y, m) + n0;
    for (int i = 0; i < n; i++) {
        float sum = bias ? sums[i] + bias[i] : sums[i];
        y[i] = p->accumulate ? sum + y[i] : sum;
    }
}

/* A block of rows [n0, n0 + rows) and columns [k0, k0 + cols) of w as bf16, to [BF16_ROWS, ld] with
 * zeros after its rows and, up to column `padded_cols`, after its columns. */
static inline void bf16_rows(const fv_tensor *w, int64_t n0, int64_t rows, size_t k0, size_t cols,
                             size_t padded_cols, size_t ld, uint16_t *to) {
    for (int i = 0; i < BF16_ROWS; i++, to += ld) {
        size_t n = i < rows ? cols : 0, at = (size_t)(n0 + i) * (size_t)w->cols + k0;
        if (w->dtype == FV_BF16 && n)
            memcpy(to, (const uint16_t *)w->data + at, n * sizeof *to);
        else
            for (size_t k = 0; k < n; k++) to[k] = bf16_of_f32(widened(w->data, w->dtype, at + k));
        memset(to + n, 0, (padded_cols - n) * sizeof *to);
    }
}

#endif
