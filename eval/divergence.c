/* The measure of similar layers, and blocks made from it. */
#include "eval/divergence.h"

#include <math.h>
#include <stddef.h>

/* a ln(a / m), with the limit at 0. */
static double term(double a, double m) { return a > 0 ? a * log(a / m) : 0; }

double fv_js_divergence(const float *a, const float *b, int32_t n) {
    double sum = 0;
    for (int32_t j = 0; j < n; j++) {
        double x = (double)a[j], y = (double)b[j], m = (x + y) / 2;
        sum += term(x, m) + term(y, m);
    }
    return sum > 0 ? sum / 2 : 0; /* rounding must not make it negative */
}

void fv_alike_blocks(const double *s, int32_t n_layer, double epsilon, int32_t cap,
                     int32_t *leader) {
    if (n_layer > 0) leader[0] = 0;
    for (int32_t l = 1; l < n_layer; l++) {
        double apart = s[(size_t)(l - 1) * (size_t)n_layer + (size_t)l];
        int32_t size = l - leader[l - 1];
        leader[l] = apart < epsilon && size < cap ? leader[l - 1] : l;
    }
}
