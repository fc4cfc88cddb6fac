#ifndef FOVEA_TELEMETRY_OTLP_SPANS_H
#define FOVEA_TELEMETRY_OTLP_SPANS_H

/* SPANS: what this process did for a request, and when, for a collector of OpenTelemetry (OTLP over
 * gRPC). A span is recorded when it ends:
 *
 *     fv_span s = fv_span_begin("prefill", FV_SPAN_SERVER, &trace_of_the_caller, arrived_s);
 *     ...                                                  calls for it carry s.context
 *     fv_span_stage(&s, "vision", began_s, ended_s, fields, n_field);
 *     fv_span_end(&s, now_s, GRPC_STATUS_OK, fields, n_field);
 *
 * What is recorded waits for the next export: FV_SPANS_EXPORT spans, or FV_SPANS_EXPORT_MS. At most
 * FV_SPANS_MAX wait; those that come while so many do, and those of an export that fails, are dropped
 * and counted (fovea_spans_total). Nothing waits for the collector.
 *
 * Without fv_spans_open, nothing is recorded, and the trace of a caller goes on to those whom this
 * process calls as it is. Loop thread. */
#include "rpc/client.h"

enum {
    FV_SPANS_MAX = 2048,
    FV_SPANS_EXPORT = 512,
    FV_SPANS_EXPORT_MS = 200,
    FV_SPANS_DEADLINE_MS = 5000, /* of an export */
    FV_SPANS_CLOSE_MS = 1000,    /* of the last one */
};

/* ---- spans ------------------------------------------------------------------------------ */

typedef enum fv_span_kind {
    FV_SPAN_INTERNAL = 1,
    FV_SPAN_SERVER,
    FV_SPAN_CLIENT,
} fv_span_kind;

/* An attribute. No secrets, and nothing of prompts and answers. */
typedef struct fv_span_field {
    const char *key;  /* static */
    const char *text; /* UTF-8, copied; "": the field is left out; NULL: it is the number */
    int64_t number;
} fv_span_field;

#define FV_SPAN_FIELDS(array) (array), (int32_t)(sizeof(array) / sizeof *(array))

typedef struct fv_span {
    const char *name; /* static */
    fv_span_kind kind;
    fv_trace_context context; /* its own, for calls; of a span that is not recorded, its parent's */
    uint8_t parent[FV_SPAN_ID_BYTES]; /* all zero: none */
    double begin_s;                   /* of fv_clock_s */
    bool recorded;
} fv_span; /* {0}: none, which is not recorded */

/* It is recorded if the parent is sampled. */
fv_span fv_span_begin(const char *name, fv_span_kind kind, const fv_trace_context *parent,
                      double begin_s);

/* `code`: how its call ended, by gRPC's status codes; below 0: it is no call. */
void fv_span_end(const fv_span *s, double end_s, int code, const fv_span_field *fields,
                 int32_t n_field);

/* A part of a span; nothing when begin_s is 0, because it did not happen, or end_s is before it, because
 * it did not end. */
void fv_span_stage(const fv_span *of, const char *name, double begin_s, double end_s,
                   const fv_span_field *fields, int32_t n_field);

/* A new trace, for a request that came without one: the parent of its first span. Not sampled when the
 * draw of fv_spans_options.sample says so; {0} where nothing is recorded. */
fv_trace_context fv_span_new_trace(void);

/* ---- exports ---------------------------------------------------------------------------- */

typedef struct fv_spans_options {
    fv_bridge *bridge;     /* borrowed */
    const char *collector; /* "HOST:PORT" */
    fv_tls *tls;           /* to the collector; borrowed; NULL: plain text */
    const char *service;   /* service.name */
    const char *instance;  /* service.instance.id */
    double sample;         /* share of new traces that are sampled */
} fv_spans_options;

/* Begins to record and to send; once per process at a time. */
fv_status fv_spans_open(const fv_spans_options *opt);

/* Sends what waits, and ends; before the bridge is closed. `closed` runs once, perhaps at once;
 * without fv_spans_open it does. */
void fv_spans_close(void (*closed)(void *user), void *user);

#endif
