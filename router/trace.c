/* Spans of the router: Generate, each wait in the queue, each call to a worker. Loop thread. */
#include "common/clock.h"
#include "policy/policy.h"
#include "router/relay_internal.h"

void fv_trace_begin(fv_request *r) {
    fv_trace_context parent = fv_rpc_call_trace(r->client);
    if (!fv_trace_known(&parent)) parent = fv_span_new_trace();
    r->span = fv_span_begin("Generate", FV_SPAN_SERVER, &parent, r->arrived_s);
    fv_trace_id_print(&r->span.context, r->trace_id);
}

void fv_trace_queued(const fv_request *r, double now_s) {
    fv_span_stage(&r->span, "queue", r->queued_s, now_s, NULL, 0);
}

void fv_trace_answer(fv_request *r, const fv_report_message *report) {
    const fv_span_field fields[] = {
        {"fovea.request_id", .text = r->id},
        {"fovea.tenant", .text = r->tenant->name},
        {"gen_ai.request.model", .text = r->msg->model},
        {"fovea.policy", .text = fv_policy_name_of(report->policy)},
        {"gen_ai.usage.input_tokens", .number = report->n_prompt},
        {"gen_ai.usage.output_tokens", .number = r->n_token},
        {"fovea.visual_tokens", .number = report->n_visual},
        {"fovea.kv_raw_bytes", .number = (int64_t)report->bytes_raw},
        {"fovea.kv_held_bytes", .number = (int64_t)(report->bytes_visual + report->bytes_text)},
        {"fovea.kv_sent_bytes",
         .number = report->transfer ? (int64_t)report->transfer->bytes_sent : 0},
        {"fovea.replays", .number = r->n_replay}};
    fv_span_end(&r->span, fv_clock_s(), GRPC_STATUS_OK, FV_SPAN_FIELDS(fields));
    r->span.recorded = false;
}

void fv_trace_end(const fv_request *r, const fv_rpc_end *end) {
    const fv_span_field fields[] = {{"fovea.request_id", .text = r->id},
                                    {"fovea.tenant", .text = r->tenant->name},
                                    {"gen_ai.usage.output_tokens", .number = r->n_token},
                                    {"fovea.replays", .number = r->n_replay}};
    fv_span_end(&r->span, fv_clock_s(), (int)end->code, FV_SPAN_FIELDS(fields));
}

void fv_trace_call(const fv_attempt *a, const fv_span *s, const fv_rpc_end *end) {
    const fv_span_field fields[] = {
        {"fovea.worker", .text = s == &a->prefill_span ? a->p.name : a->d.name}};
    fv_span_end(s, fv_clock_s(), (int)end->code, FV_SPAN_FIELDS(fields));
}
