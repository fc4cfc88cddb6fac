/* Records the spans of an answer: its call, and the stages that it reached. On the loop thread. */
#include "common/clock.h"
#include "decode-worker/service/internal.h"

static void trace_steps(const fv_span *span, const fv_answer *x, const fv_answer_report *r) {
    const fv_span_field decode[] = {
        {"fovea.evicted_entries", .number = (int64_t)r->entries_evicted},
        {"fovea.kv_held_bytes", .number = (int64_t)(r->bytes_visual_end + r->bytes_text_end)}};
    const fv_span_field recompress[] = {{"fovea.tokens", .number = r->recompressed.rows}};
    double joined_s = r->attached_s + r->s_attach;
    fv_span_stage(span, x->follows ? "queue" : "attach", r->attached_s, joined_s, NULL, 0);
    if (x->follows || x->begins)
        fv_span_stage(span, "prefill", joined_s, joined_s + r->s_prefill, NULL, 0);
    fv_span_stage(span, "decode", r->ended_s - r->s_decode, r->ended_s, FV_SPAN_FIELDS(decode));
    if (r->recompressed.rows)
        fv_span_stage(span, "recompress", r->ended_s, r->ended_s + r->recompressed.seconds,
                      FV_SPAN_FIELDS(recompress));
}

void fv_answer_trace(const fv_span *span, const fv_answer *x, const fv_answer_report *r, int code) {
    if (!span->recorded) return;
    const fv_span_field fields[] = {{"fovea.request_id", .text = x->request_id},
                                    {"fovea.tenant", .text = x->tenant ? x->tenant : ""},
                                    {"fovea.policy", .text = fv_policy_name_of(r->policy)},
                                    {"gen_ai.usage.output_tokens", .number = r->n_generated}};
    if (r->attached_s > 0) trace_steps(span, x, r);
    fv_span_end(span, fv_clock_s(), code, FV_SPAN_FIELDS(fields));
}
