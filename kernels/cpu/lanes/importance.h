#ifndef FOVEA_KERNELS_CPU_LANES_IMPORTANCE_H
#define FOVEA_KERNELS_CPU_LANES_IMPORTANCE_H

/* Updates the importance of packed rows; compilers vectorize the loops over rows. */
#include "kernels/cpu/path.h"
#include "kernels/mathf.h"

enum { IMPORTANCE_CHUNK = 256 };

/* Rows [begin, end) of the block, in chunks that stay in the cache. */
static void importance(const void *args, void *scratch, int64_t begin, int64_t end) {
    const fv_importance_args *a = args;
    float sum[IMPORTANCE_CHUNK], *importance = row_f32(&a->importance, 0);
    (void)scratch;
    for (int64_t j0 = begin; j0 < end; j0 += IMPORTANCE_CHUNK) {
        int64_t n = end - j0 < IMPORTANCE_CHUNK ? end - j0 : IMPORTANCE_CHUNK;
        for (int64_t j = 0; j < n; j++) sum[j] = 0.0f;
        for (int64_t line = 0; line < (int64_t)a->n_head * a->n_rows; line++) {
            const float *s = a->score + line * a->score_ld + j0;
            float lse = row_f32(&a->lse, line % a->n_rows)[line / a->n_rows];
            if (lse == -INFINITY) continue; /* the query row sees nothing */
            for (int64_t j = 0; j < n; j++) sum[j] += exp_f32(s[j] - lse);
        }
        float lines = (float)a->n_head * (float)a->n_rows, rest = 1.0f - a->keep;
        for (int64_t j = 0; j < n; j++) {
            float mean = sum[j] / lines, old = a->keep == 0.0f ? 0.0f : importance[j0 + j];
            importance[j0 + j] = fmaf(a->keep, old, rest * mean);
        }
    }
}

#endif
