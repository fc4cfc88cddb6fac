/* Samples and their quantiles. */
#include "cli/bench/samples.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

fv_status fv_samples_add(fv_samples *s, double v) {
    FV_TRY(fv_grow(&s->v, &s->cap, s->n + 1, sizeof *s->v));
    s->v[s->n++] = v;
    s->sorted = false;
    return FV_OK;
}

fv_status fv_samples_append(fv_samples *s, const fv_samples *more) {
    if (more->n == 0) return FV_OK;
    FV_TRY(fv_grow(&s->v, &s->cap, s->n + more->n, sizeof *s->v));
    memcpy(s->v + s->n, more->v, more->n * sizeof *s->v);
    s->n += more->n;
    s->sorted = false;
    return FV_OK;
}

void fv_samples_clear(fv_samples *s) { s->n = 0; }

void fv_samples_free(fv_samples *s) {
    free(s->v);
    *s = (fv_samples){0};
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double fv_samples_quantile(fv_samples *s, double q) {
    if (s->n == 0) return (double)NAN;
    if (!s->sorted) qsort(s->v, s->n, sizeof *s->v, compare);
    s->sorted = true;
    double at = q * (double)(s->n - 1);
    size_t below = (size_t)at;
    if (below + 1 >= s->n) return s->v[s->n - 1];
    return s->v[below] + (at - (double)below) * (s->v[below + 1] - s->v[below]);
}

double fv_samples_mean(const fv_samples *s) {
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) sum += s->v[i];
    return s->n ? sum / (double)s->n : (double)NAN;
}
