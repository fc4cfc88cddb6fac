#ifndef FOVEA_TELEMETRY_OTLP_SPANS_H
#define FOVEA_TELEMETRY_OTLP_SPANS_H

/* SPANS: the steps of this process for a request, with times, for an OpenTelemetry collector (OTLP
 * over gRPC). A span is recorded when it ends:
 *
 *     fv_span s = fv_span_begin("prefill", FV_SPAN_SERVER, &trace_of_the_caller, arrived_s);
 *     ...                                                  calls for it carry s.context
 *     fv_span_stage(&s, "vision", began_s, ended_s, fields, n_field);
 *     fv_span_end(&s, now_s, GRPC_STATUS_OK, fields, n_field);
 *
 * Recorded spans wait for the next export: until there are FV_SPANS_EXPORT, or for
 * FV_SPANS_EXPORT_MS. At most FV_SPANS_MAX wait; further spans, and those of a failed export, are
 * dropped and counted (fovea_spans_total). No request waits for the collector.
 *
 * Without fv_spans_open no span is recorded, and a caller's trace is passed on unchanged to the
 * processes that this one calls. Loop thread. */
#include "rpc/client.h"

enum {
    FV_SPANS_MAX = 2048,
    FV_SPANS_EXPORT = 512,
    FV_SPANS_EXPORT_MS = 200,
    FV_SPANS_DEADLINE_MS = 5000, /* for an export */
    FV_SPANS_CLOSE_MS = 1000,    /* for the last one */
};

/* ---- spans ------------------------------------------------------------------------------ */

typedef enum fv_span_kind {
    FV_SPAN_INTERNAL = 1,
    FV_SPAN_SERVER,
    FV_SPAN_CLIENT,
} fv_span_kind;

/* An attribute. It must not contain secrets, prompts or answers. */
typedef struct fv_span_field {
    const char *key;  /* static */
    const char *text; /* UTF-8, copied; "": the field is left out; NULL: the field is `number` */
    int64_t number;
} fv_span_field;

#define FV_SPAN_FIELDS(array) (array), (int32_t)(sizeof(array) / sizeof *(array))

typedef struct fv_span {
    const char *name; /* static */
    fv_span_kind kind;
    fv_trace_context context; /* its own context, for calls; if not recorded, the parent's */
    uint8_t parent[FV_SPAN_ID_BYTES]; /* all zero: none */
    double begin_s;                   /* by fv_clock_s */
    bool recorded;
} fv_span; /* {0}: no span, not recorded */

/* Begins a span, which is recorded if the parent is sampled. */
fv_span fv_span_begin(const char *name, fv_span_kind kind, const fv_trace_context *parent,
                      double begin_s);

/* Ends a span. `code`: gRPC status of its call; below 0: the span is no call. */
void fv_span_end(const fv_span *s, double end_s, int code, const fv_span_field *fields,
                 int32_t n_field);

/* Records a part of a span; does nothing if begin_s is 0 (it did not happen) or end_s is before
 * begin_s (it did not end). */
void fv_span_stage(const fv_span *of, const char *name, double begin_s, double end_s,
                   const fv_span_field *fields, int32_t n_field);

/* Starts a trace for a request without one; it is the parent of the request's first span. Sampled
 * by a random draw with fv_spans_options.sample; {0} if spans are not recorded. */
fv_trace_context fv_span_new_trace(void);

/* ---- exports ---------------------------------------------------------------------------- */

typedef struct fv_spans_options {
    fv_bridge *bridge;     /* borrowed */
    const char *collector; /* "HOST:PORT" */
    fv_tls *tls;           /* for the collector; borrowed; NULL: plain text */
    const char *service;   /* service.name */
    const char *instance;  /* service.instance.id */
    double sample;         /* share of new traces that are sampled */
} fv_spans_options;

/* Starts recording and sending; once per process at a time. */
fv_status fv_spans_open(const fv_spans_options *opt);

/* Sends the waiting spans and stops; call it before the bridge is closed. `closed` runs once,
 * possibly at once, also without fv_spans_open. */
void fv_spans_close(void (*closed)(void *user), void *user);

#endif
