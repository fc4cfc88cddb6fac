/* Thresholds between measured values: the mean layer changes only where a threshold passes one of
 * them, so only the midpoints between adjacent values are tried. */
#include "eval/scenes/thresholds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t fv_filter_layer(const float *least, int32_t n_layer, double cos) {
    for (int32_t l = 0; l < n_layer; l++)
        if (least[l] != FV_NOT_MEASURED && (double)least[l] < cos) return l;
    return n_layer;
}

int32_t fv_exit_layer(const float *least, int32_t n_layer, int32_t count, double cos) {
    for (int32_t l = 0, n = 0; l < n_layer; l++) {
        n += least[l] != FV_NOT_MEASURED && (double)least[l] >= cos;
        if (n >= count) return l;
    }
    return n_layer;
}

/* count 0: for the filter, otherwise for the exit */
static double mean_layer(const float *least, int32_t n_item, int32_t n_layer, int32_t count,
                         double cos) {
    double sum = 0;
    for (int32_t i = 0; i < n_item; i++) {
        const float *item = least + (size_t)i * (size_t)n_layer;
        sum +=
            count ? fv_exit_layer(item, n_layer, count, cos) : fv_filter_layer(item, n_layer, cos);
    }
    return sum / n_item;
}

static int ascending(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The measured values, ascending; free them. */
static fv_status sorted(const float *least, size_t n, float **out, size_t *n_out) {
    float *v = malloc((n + 1) * sizeof *v);
    if (!v) return FV_FAIL(FV_ENOMEM, "out of memory for %zu cosines", n);
    *n_out = 0;
    for (size_t i = 0; i < n; i++)
        if (least[i] != FV_NOT_MEASURED && least[i] <= 1) v[(*n_out)++] = least[i];
    qsort(v, *n_out, sizeof *v, ascending);
    *out = v;
    return FV_OK;
}

static fv_status nearest(const float *least, int32_t n_item, int32_t n_layer, int32_t count,
                         double layer, double *cos, double *mean) {
    float *v;
    size_t n;
    double best = HUGE_VAL;
    FV_TRY(sorted(least, (size_t)n_item * (size_t)n_layer, &v, &n));
    *cos = 1;
    *mean = n_layer;
    for (size_t k = 0; k <= n && n > 0; k++) {
        double below = k > 0 ? (double)v[k - 1] : -1, above = k < n ? (double)v[k] : 1;
        double at = (below + above) / 2, m;
        if (below == above) continue;
        m = mean_layer(least, n_item, n_layer, count, at);
        if (fabs(m - layer) >= best) continue;
        best = fabs(m - layer);
        *cos = at;
        *mean = m;
    }
    free(v);
    return FV_OK;
}

fv_status fv_filter_cos(const float *least, int32_t n_item, int32_t n_layer, double layer,
                        double *cos, double *mean) {
    return nearest(least, n_item, n_layer, 0, layer, cos, mean);
}

fv_status fv_exit_cos(const float *least, int32_t n_item, int32_t n_layer, int32_t count,
                      double layer, double *cos, double *mean) {
    return nearest(least, n_item, n_layer, count, layer, cos, mean);
}

fv_status fv_kept_l2(float *l2, size_t n, double share, double *least) {
    if (n == 0) return FV_FAIL(FV_EDATA, "no visual token was ablated");
    qsort(l2, n, sizeof *l2, ascending);
    size_t kept = (size_t)(share * (double)n + 0.5);
    if (kept < 1) kept = 1;
    if (kept > n) kept = n;
    double below = kept < n ? (double)l2[n - kept - 1] : 0;
    *least = (below + (double)l2[n - kept]) / 2;
    return FV_OK;
}
