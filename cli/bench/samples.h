#ifndef FOVEA_CLI_BENCH_SAMPLES_H
#define FOVEA_CLI_BENCH_SAMPLES_H

/* SAMPLES of one measured thing, and what a reader wants to know of them. */
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
void fv_samples_clear(fv_samples *s); /* empty again; keeps its memory */
void fv_samples_free(fv_samples *s);

/* The value that a share q (0..1) of the samples does not exceed; between two samples by a straight
 * line: of 1, 2, 3, 4 the half is 2.5. NAN when there are none. Puts the samples in order. */
double fv_samples_quantile(fv_samples *s, double q);

double fv_samples_mean(const fv_samples *s); /* NAN when there are none */

#endif
