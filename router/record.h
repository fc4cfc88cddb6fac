#ifndef FOVEA_ROUTER_RECORD_H
#define FOVEA_ROUTER_RECORD_H

/* RECORD: updates the router's metrics (telemetry/metrics.def). Loop thread. */
#include "inference.pb-c.h"
#include "router/registry.h"
#include "telemetry/metrics.h"

/* Records n > 0 tokens that the client gets together. first: the first ones of the answer; then `seconds`
 * passed since the request arrived, otherwise since the tokens before. */
void fv_record_tokens(uint32_t n, bool first, double seconds, const fv_trace_context *trace);

/* How long the parts of a complete answer took, from the request's arrival. */
typedef struct fv_answer_times {
    uint32_t n_token;
    double start_s, first_s, end_s; /* first attempt, first token, end */
} fv_answer_times;

/* Records a complete answer with its report. */
void fv_record_answer(const fv_answer_times *t, const Fovea__Inference__V1__Report *report,
                      bool continues_conversation, const fv_trace_context *trace);

/* Records the status of a client's call of Generate. */
void fv_record_end(const fv_rpc_end *end);

/* Records a refusal for this reason, FV_REASON_..., unless st is FV_OK. Returns st. */
fv_status fv_record_refusal(int32_t reason, fv_status st);
/* The same for a request that is invalid or not for this fleet; the reason follows from st. */
fv_status fv_record_invalid(fv_status st);

/* Sets the metrics of the current state of requests and workers. */
void fv_record_state(int32_t n_queued, int32_t n_running, const fv_registry *members, double now_s);

/* Counts how a prefill worker was chosen: one of FV_HINTED_...; and whether it had what it was thought to keep. */
void fv_record_routed(int32_t outcome);
void fv_record_hint(bool wrong);
void fv_record_hints(size_t n); /* names in the index now */

#endif
