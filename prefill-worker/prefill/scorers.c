/* Sums are in double: the choice must not depend on their order. */
#include "prefill-worker/prefill/scorers.h"

#include <math.h>

static void add_softmax(const float *s, int32_t n, int32_t of, double *m) {
    double most = -INFINITY, sum = 0;
    for (int32_t i = 0; i < n; i++)
        if ((double)s[i] > most) most = (double)s[i];
    for (int32_t i = 0; i < n; i++) sum += exp((double)s[i] - most);
    for (int32_t i = 0; i < n; i++) m[i] += exp((double)s[i] - most) / sum / of;
}

int32_t fv_scorers_choose(const float *dot, int32_t n_visual, int32_t n_text, double *m,
                          uint8_t *scorer) {
    int32_t n = 0;
    double mean = 0;
    for (int32_t i = 0; i < n_text; i++) m[i] = 0;
    for (int32_t j = 0; j < n_visual; j++)
        add_softmax(dot + (ptrdiff_t)j * n_text, n_text, n_visual, m);
    for (int32_t i = 0; i < n_text; i++) mean += m[i] / n_text;
    for (int32_t i = 0; i < n_text; i++) n += scorer[i] = m[i] > mean * (1 + 1e-9);
    for (int32_t i = 0; n == 0 && i < n_text; i++) scorer[i] = 1;
    return n ? n : n_text;
}

void fv_scorers_rope(const fv_rope *rope, const fv_rope_pos *pos, int32_t n, double *out) {
    double scale = 2 / sqrt(2.0 * rope->half);
    for (int32_t j = 0; j < n; j++) {
        const double apart[3] = {pos[n - 1].t - pos[j].t, pos[n - 1].h - pos[j].h,
                                 pos[n - 1].w - pos[j].w};
        double score = 0;
        for (int32_t f = 0; f < rope->half; f++)
            score += cos(apart[rope->axis[f]] * (double)rope->freq[f]);
        out[j] = scale * score;
    }
}
