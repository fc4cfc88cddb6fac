#ifndef FOVEA_TELEMETRY_METRICS_INTERNAL_H
#define FOVEA_TELEMETRY_METRICS_INTERNAL_H

/* Reads recorded values, for exposition.c. */
#include "telemetry/metrics.h"

typedef struct fv_exemplar {
    fv_trace_context trace;
    double value, time_s; /* time_s: since 1970 */
} fv_exemplar;

bool fv_metric_has(fv_metric m); /* whether this daemon has the metric, which the other functions
                                  * require */
double fv_metric_value(fv_metric m, int32_t series);
uint64_t fv_metric_bucket(fv_metric m, int32_t series, int32_t bucket); /* this bucket only, not
                                                                         * cumulative */
double fv_metric_sum(fv_metric m, int32_t series);
/* Returns false if there is no exemplar, or it is being written. */
bool fv_metric_exemplar(fv_metric m, int32_t series, int32_t bucket, fv_exemplar *out);

#endif
