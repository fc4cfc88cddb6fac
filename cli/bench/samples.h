#ifndef FOVEA_CLI_BENCH_SAMPLES_H
#define FOVEA_CLI_BENCH_SAMPLES_H

/* SAMPLES of a measurement, and their statistics. */
#include <stdbool.h>
#include <stddef.h>

#include "common/status.h"

typedef struct fv_samples {
    double *v; /* [n], owned */
    size_t n;
    /* private */
    size_t cap;
    bool sorted;
} fv_samples; /* {0} is empty and may be freed */

fv_status fv_samples_add(fv_samples *s, double v);
fv_status fv_samples_append(fv_samples *s, const fv_samples *more);
void fv_samples_clear(fv_samples *s); /* keeps the memory */
void fv_samples_free(fv_samples *s);

/* The value that a share q (0..1) of the samples does not exceed, interpolated linearly: the 0.5
 * quantile of 1, 2, 3, 4 is 2.5. NAN without samples. Sorts the samples. */
double fv_samples_quantile(fv_samples *s, double q);

double fv_samples_mean(const fv_samples *s); /* NAN without samples */

#endif
