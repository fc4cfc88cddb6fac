/* Measures how similar layers are, and makes blocks of similar layers. */
#include "eval/scenes/divergence.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>

/* a ln(a / m), with the limit at 0. */
static double term(double a, double m) { return a > 0 ? a * log(a / m) : 0; }

static double sum_of(const float *a, int32_t n) {
    double sum = 0;
    for (int32_t j = 0; j < n; j++) sum += (double)a[j];
    return sum > 0 ? sum : 1;
}

double fv_js_divergence(const float *a, const float *b, int32_t n) {
    const double of_a = sum_of(a, n), of_b = sum_of(b, n);
    double sum = 0;
    for (int32_t j = 0; j < n; j++) {
        double x = (double)a[j] / of_a, y = (double)b[j] / of_b, m = (x + y) / 2;
        sum += term(x, m) + term(y, m);
    }
    return sum > 0 ? sum / 2 : 0; /* rounding must not make it negative */
}

void fv_similar_blocks(const double *s, int32_t n_layer, double epsilon, int32_t cap,
                       int32_t *source_layer) {
    if (n_layer > 0) source_layer[0] = 0;
    for (int32_t l = 1; l < n_layer; l++) {
        double apart = s[(size_t)(l - 1) * (size_t)n_layer + (size_t)l];
        int32_t size = l - source_layer[l - 1];
        source_layer[l] = apart < epsilon && size < cap ? source_layer[l - 1] : l;
    }
}

static int32_t lazy_layers(const double *s, int32_t n_layer, double epsilon, int32_t cap) {
    int32_t source_layer[256], n = 0;
    fv_similar_blocks(s, n_layer, epsilon, cap, source_layer);
    for (int32_t l = 0; l < n_layer; l++) n += source_layer[l] != l;
    return n;
}

/* The number of lazy layers changes only where epsilon passes a divergence of adjacent layers, and
 * it never decreases with epsilon. */
double fv_similar_epsilon(const double *s, int32_t n_layer, int32_t n_lazy, int32_t cap) {
    double best = 0;
    int32_t had = 0;
    assert(n_layer <= 256);
    while (had < n_lazy) {
        double next = HUGE_VAL;
        for (int32_t l = 1; l < n_layer; l++) {
            double apart = s[(size_t)(l - 1) * (size_t)n_layer + (size_t)l];
            if (apart >= best && apart < next) next = apart;
        }
        if (next == HUGE_VAL) return best;
        best = nextafter(next, HUGE_VAL);
        had = lazy_layers(s, n_layer, best, cap);
    }
    return best;
}

/* ln sum_j exp(x_j) */
static double log_sum(const float *x, int32_t n) {
    double most = -INFINITY, sum = 0;
    for (int32_t j = 0; j < n; j++)
        if ((double)x[j] > most) most = (double)x[j];
    for (int32_t j = 0; j < n; j++) sum += exp((double)x[j] - most);
    return most + log(sum);
}

double fv_kl_divergence(const float *a, const float *b, int32_t n) {
    double of_a = log_sum(a, n), of_b = log_sum(b, n), sum = 0;
    for (int32_t j = 0; j < n; j++) {
        double p = (double)a[j] - of_a, q = (double)b[j] - of_b;
        sum += exp(p) * (p - q);
    }
    return sum > 0 ? sum : 0; /* rounding must not make it negative */
}
