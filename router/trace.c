/* The span of a request, with the fields of its answer. Loop thread. */
#include "router/trace.h"

#include "common/clock.h"
#include "policy/policy.h"

void fv_trace_begin(fv_request *r) {
    fv_trace_context parent = fv_rpc_call_trace(r->client);
    if (!fv_trace_known(&parent)) parent = fv_span_new_trace();
    r->span = fv_span_begin("Generate", FV_SPAN_SERVER, &parent, r->arrived_s);
    fv_trace_id_print(&r->span.context, r->trace_id);
}

void fv_trace_answer(fv_request *r, const Fovea__Inference__V1__Report *report) {
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
