#ifndef FOVEA_COMMON_TRACE_CONTEXT_H
#define FOVEA_COMMON_TRACE_CONTEXT_H

/* TRACE CONTEXT: the trace that a request belongs to, as in W3C's `traceparent`
 * (Trace Context, level 1): "00-<32 hex: trace>-<16 hex: span>-<2 hex: flags>". Pure functions. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FV_TRACE_KEY "traceparent" /* of gRPC metadata and HTTP headers */
enum { FV_TRACE_TEXT = 55, FV_TRACE_ID_BYTES = 16, FV_SPAN_ID_BYTES = 8 };

typedef struct fv_trace_context {
    uint8_t trace_id[FV_TRACE_ID_BYTES]; /* all zero: no trace */
    uint8_t span_id[FV_SPAN_ID_BYTES];
    bool sampled; /* the trace's originator records it */
} fv_trace_context;

/* Parses n bytes. Returns false, with *out = {0}, unless they are a valid header; of a later
 * version, reads the parts that level 1 defines. */
bool fv_trace_parse(const char *text, size_t n, fv_trace_context *out);

bool fv_trace_known(const fv_trace_context *t); /* whether there is a trace */

void fv_trace_print(const fv_trace_context *t, char out[FV_TRACE_TEXT + 1]);

/* The trace's id in 32 hex digits; "" without a trace. */
void fv_trace_id_print(const fv_trace_context *t, char out[2 * FV_TRACE_ID_BYTES + 1]);

#endif
