#ifndef FOVEA_TELEMETRY_METRICS_INTERNAL_H
#define FOVEA_TELEMETRY_METRICS_INTERNAL_H

/* What has been recorded, for exposition.c. */
#include "telemetry/metrics.h"

typedef struct fv_exemplar {
    fv_trace_context trace;
    double value, time_s; /* since 1970 */
} fv_exemplar;

bool fv_metric_has(fv_metric m); /* does this daemon have it? The others need it to */
double fv_metric_value(fv_metric m, int32_t series);
uint64_t fv_metric_bucket(fv_metric m, int32_t series, int32_t bucket); /* alone, not cumulative */
double fv_metric_sum(fv_metric m, int32_t series);
/* False: none, or it is being written. */
bool fv_metric_exemplar(fv_metric m, int32_t series, int32_t bucket, fv_exemplar *out);

#endif
