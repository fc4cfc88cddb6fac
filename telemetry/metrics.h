#ifndef FOVEA_TELEMETRY_METRICS_H
#define FOVEA_TELEMETRY_METRICS_H

/* METRICS of this process: the rows of telemetry/metrics.def, each with a series per combination of
 * its labels' values. fv_metrics_open allocates all memory; all label values are known then.
 * Recording takes a few atomic operations without a lock, on any thread. Observations before
 * fv_metrics_open are dropped, so a daemon that serves no metrics keeps none.
 *
 *     fv_metric_add(FV_METRIC_REPLAYS, 0, 1);
 *     fv_metric_add(FV_METRIC_REFUSED, FV_REASON_QUEUE_FULL, 1);
 *     fv_metric_observe(FV_METRIC_STEP_TIME, FV_STEP_VISION, seconds, NULL);
 *
 * A series' number is the index of its label's value; with two labels, fv_metric_series computes
 * it. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/status.h"
#include "common/trace_context.h"

#define FV_METRIC(id, name, type, unit, label, label2, daemons, help) FV_METRIC_##id,
typedef enum fv_metric {
#include "telemetry/metrics.def"
    FV_N_METRIC
} fv_metric;

#define FV_LABEL(id, name, ...) FV_LABEL_##id,
typedef enum fv_label {
#include "telemetry/metrics.def"
    FV_N_LABEL
} fv_label;

/* Indices of label values in the table's order. For other labels: CODE has fv_status_grpc_code,
 * STAGE fv_stage, REFUSAL fv_refusal, PRESET fv_policy_preset_of. */
enum {
    FV_REASON_INVALID,
    FV_REASON_UNSUPPORTED,
    FV_REASON_NOT_FOUND,
    FV_REASON_TOO_LARGE,
    FV_REASON_QUEUE_FULL,
    FV_REASON_DEADLINE,
    FV_REASON_EXPIRED,
    FV_REASON_NO_WORKER,
    FV_REASON_DRAINING,
    FV_REASON_UNAUTHENTICATED,
    FV_REASON_DENIED,
    FV_REASON_TENANT_LIMIT,
};
enum { FV_ROLE_PREFILL, FV_ROLE_DECODE };
enum { FV_FOUND_HIT, FV_FOUND_MISS };
enum { FV_STATE_READY, FV_STATE_DRAINING, FV_STATE_LOST, FV_STATE_UNHEALTHY };
enum { FV_BREAKER_CLOSED, FV_BREAKER_OPEN, FV_BREAKER_TRIAL };
enum {
    FV_STEP_QUEUE,
    FV_STEP_PREPROCESS,
    FV_STEP_VISION,
    FV_STEP_PREFILL,
    FV_STEP_PACK,
    FV_STEP_DECODE,
    FV_STEP_RECOMPRESS,
};
enum { FV_PHASE_OPEN, FV_PHASE_SEND, FV_PHASE_EXPOSED, FV_PHASE_COMMIT, FV_PHASE_ATTACH };
enum { FV_PROMPT_HIT, FV_PROMPT_MISS, FV_PROMPT_APART, FV_PROMPT_OFF };
enum { FV_DRAFTS_KEPT, FV_DRAFTS_REJECTED };
enum { FV_TENSOR_KEYS, FV_TENSOR_VALUES, FV_TENSOR_TEXT_KEYS };
enum { FV_TRANSPORT_GRPC, FV_TRANSPORT_NCCL };
enum {
    FV_OUTCOME_GRANTED,
    FV_OUTCOME_COMMITTED,
    FV_OUTCOME_ATTACHED,
    FV_OUTCOME_ABORTED,
    FV_OUTCOME_EXPIRED,
};
enum { FV_HINTED_KEPT, FV_HINTED_PASSED, FV_HINTED_NONE, FV_HINTED_OFF };
enum { FV_EXPORT_SENT, FV_EXPORT_DROPPED };
enum {
    FV_ROUTE_CHAT,
    FV_ROUTE_COMPLETIONS,
    FV_ROUTE_RESPONSES,
    FV_ROUTE_MODELS,
    FV_ROUTE_HEALTH,
    FV_ROUTE_TOKENIZE,
    FV_ROUTE_DETOKENIZE,
    FV_ROUTE_MODEL,
    FV_ROUTE_FLEET,
    FV_ROUTE_LAYOUT,
    FV_ROUTE_PAGE,
    FV_ROUTE_VERSION,
    FV_ROUTE_METRICS,
    FV_ROUTE_OPENAPI,
    FV_ROUTE_OTHER,
};

/* The daemon that this process is. */
enum { FV_DAEMON_ROUTER = 1, FV_DAEMON_PREFILL = 2, FV_DAEMON_DECODE = 4, FV_DAEMON_GATEWAY = 8 };

/* Starts recording; once per process, before its threads. */
fv_status fv_metrics_open(unsigned daemon);
void fv_metrics_close(void); /* when no thread records any more */

void fv_metric_add(fv_metric m, int32_t series, double by); /* a counter */
void fv_metric_set(fv_metric m, int32_t series,
                   double value); /* a gauge, or a counter kept elsewhere */
/* Adds a value to a histogram. A sampled trace becomes the exemplar of its bucket; NULL: none. */
void fv_metric_observe(fv_metric m, int32_t series, double value, const fv_trace_context *trace);
/* Adds n equal values. */
void fv_metric_observe_n(fv_metric m, int32_t series, double value, uint32_t n);

int32_t fv_metric_series(fv_metric m, int32_t value, int32_t value2);

/* Prints the values in Prometheus' text format (0.0.4) or in OpenMetrics 1.0.0, which has
 * exemplars. */
void fv_metrics_print(FILE *f, bool openmetrics);

/* ---- the table, for documentation and checks -------------------------------------------- */

typedef enum fv_metric_type {
    FV_TYPE_COUNTER,
    FV_TYPE_GAUGE,
    FV_TYPE_LATENCY, /* histograms from here on */
    FV_TYPE_TOKEN_LATENCY,
    FV_TYPE_RANK,
    FV_TYPE_ERROR,
} fv_metric_type;

typedef struct fv_metric_info {
    const char *name, *unit, *help;
    fv_metric_type type;
    fv_label label[2];
    unsigned daemons;
} fv_metric_info;

const fv_metric_info *fv_metric_get_info(fv_metric m);
const char *fv_metric_type_name(fv_metric_type t);            /* "counter" ... */
const double *fv_metric_bounds(fv_metric_type t, int32_t *n); /* bucket bounds; *n = 0: no
                                                               * histogram */
const char *fv_label_name(fv_label l);                        /* "" for NONE */
int32_t fv_label_count(fv_label l);                           /* number of values; 1 for NONE */
/* NULL: there is no such value and no series for it. */
const char *fv_label_value(fv_label l, int32_t i);

#endif
