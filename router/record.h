#ifndef FOVEA_ROUTER_RECORD_H
#define FOVEA_ROUTER_RECORD_H

/* RECORD: updates the router's metrics (telemetry/metrics.def). Loop thread. */
#include "router/relay_internal.h"
#include "telemetry/metrics.h"

/* Records n tokens for the client; call it before the request's fields change. */
void fv_record_tokens(const fv_request *r, uint32_t n, double now_s);

/* Records a complete answer with its report. */
void fv_record_answer(const fv_request *r, const fv_report_message *report, double now_s);

/* Records the status of a client's call of Generate. */
void fv_record_end(const fv_rpc_end *end);

/* Records a refusal for this reason, FV_REASON_..., unless st is FV_OK. Returns st. */
fv_status fv_record_refusal(int32_t reason, fv_status st);
/* The same for a request that is invalid or not for this fleet; the reason follows from st. */
fv_status fv_record_invalid(fv_status st);

/* Sets the metrics of the current state of requests and workers. */
void fv_record_state(const fv_relay *relay, const fv_registry *members, double now_s);

#endif
