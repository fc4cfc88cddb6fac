#ifndef FOVEA_ROUTER_RECORD_H
#define FOVEA_ROUTER_RECORD_H

/* What happens on the router, as metrics (telemetry/metrics.def). Loop thread. */
#include "router/relay_internal.h"
#include "telemetry/metrics.h"

/* `n` tokens go to the client: the request's fields are as before. */
void fv_record_tokens(const fv_request *r, uint32_t n, double now_s);

/* Its answer is complete, with this report. */
void fv_record_answer(const fv_request *r, const fv_report_message *report, double now_s);

/* A call of Generate is over for its client. */
void fv_record_end(const fv_rpc_end *end);

/* A request is refused for this reason, FV_REASON_...; FV_OK: it is not. Returns st. */
fv_status fv_record_refusal(int32_t reason, fv_status st);
/* By the status: the request is wrong, or not for this fleet. */
fv_status fv_record_invalid(fv_status st);

/* How requests and workers are now. */
void fv_record_state(const fv_relay *relay, const fv_registry *members, double now_s);

#endif
