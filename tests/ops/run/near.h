#ifndef FOVEA_TESTS_OPS_RUN_NEAR_H
#define FOVEA_TESTS_OPS_RUN_NEAR_H

#include "tests/ops/run/run.h"

/* Checks that got and want differ by no more than products in bf16 cost, and that outputs which the
 * CPU left alone keep their bits. */
static inline void near(const float *got, const float *want, const float *before, size_t n,
                        const char *what) {
    double worst = 0, diff = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        bool left = memcmp(&want[i], &before[i], 4) == 0;
        if (left || isinf(want[i]) || isnan(want[i])) {
            if (!same_f32(got[i], want[i])) worst = (double)INFINITY;
            continue;
        }
        double e = fabs((double)got[i] - (double)want[i]);
        worst = fmax(worst, e == e ? e / (1 + fabs((double)want[i])) : (double)INFINITY);
        diff += e * e;
        all += (double)want[i] * (double)want[i];
    }
    double norm = note_error(all > 0 ? sqrt(diff / all) : 0);
    check(worst < 0.04 && norm < 6e-3, "%s: largest error %.3g, of the norm %.3g", what, worst,
          norm);
}

#endif
