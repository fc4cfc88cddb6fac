/* Records the spans of a task: its call, and the steps that it reached. On the loop thread. */
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "prefill-worker/service/internal.h"

enum { STAGES_TEXT = 512 };

/* Prints how many entries each method got and kept: "prune fastv 576>288, select snapkv 4608>2304". */
static void print_stages(const fv_task *t, char out[STAGES_TEXT]) {
    size_t n = 0;
    out[0] = '\0';
    for (int s = 0; s < FV_N_STAGE && n < STAGES_TEXT; s++) {
        const fv_stage_stats_stage *a = &t->prefill.stats.stage[s];
        if (a->n_layer == 0) continue;
        n +=
            (size_t)snprintf(out + n, STAGES_TEXT - n, "%s%s %s %llu>%llu", n ? ", " : "",
                             fv_stage_name((fv_stage)s), t->prefill.policy.stage[s].method->name,
                             (unsigned long long)a->entries_in, (unsigned long long)a->entries_out);
    }
}

static void trace_steps(const fv_task *t) {
    const fv_prefill_job *j = &t->prefill;
    char stages[STAGES_TEXT];
    print_stages(t, stages);
    const fv_span_field images[] = {{"fovea.images", .number = j->n_image},
                                    {"fovea.images_cached", .number = j->n_cached + j->n_skip}};
    const fv_span_field vision[] = {{"fovea.visual_tokens", .number = j->prompt.n_visual}};
    const fv_span_field prefill[] = {
        {"fovea.stages", .text = stages},
        {"fovea.cached_tokens", .number = fv_task_cached(t)},
        {"fovea.kv_held_bytes", .number = (int64_t)(j->bytes_visual + j->bytes_text)},
        {"fovea.packed_bytes", .number = (int64_t)j->packed.bytes},
        {"fovea.pack_microseconds", .number = (int64_t)(1e6 * j->packed.seconds)}};
    const fv_span_field sent[] = {{"fovea.kv_sent_bytes", .number = (int64_t)t->sent.bytes},
                                  {"fovea.frames", .number = (int64_t)t->sent.frames},
                                  {"fovea.nccl_bytes", .number = (int64_t)t->sent.ways.bytes_oob}};
    fv_span_stage(&t->span, "queue", t->arrived_s, t->began_s, NULL, 0);
    fv_span_stage(&t->span, "preprocess", t->reading_s, t->read_s, FV_SPAN_FIELDS(images));
    fv_span_stage(&t->span, "vision", j->s_vision > 0 ? t->encoding_s : 0,
                  t->encoding_s + j->s_vision, FV_SPAN_FIELDS(vision));
    fv_span_stage(&t->span, "prefill", j->s_prefill > 0 ? t->prefilled_s - j->s_prefill : 0,
                  t->prefilled_s, FV_SPAN_FIELDS(prefill));
    fv_span_stage(&t->span, "open", t->opened_s, t->sent.granted_s, NULL, 0);
    fv_span_stage(&t->span, "send", t->sending_s, t->sent_s, FV_SPAN_FIELDS(sent));
    fv_span_stage(&t->span, "commit", t->sent_s, t->sent.committed_s, NULL, 0);
}

void fv_task_trace(fv_task *t, int code) {
    const fv_prefill_job *j = &t->prefill;
    char policy[FV_POLICY_TEXT_MAX];
    if (!t->span.recorded) return;
    fv_policy_print(&j->policy, policy);
    trace_steps(t);
    const fv_span_field fields[] = {
        {"fovea.request_id", .text = t->msg && t->msg->request ? t->msg->request->request_id : ""},
        {"fovea.tenant", .text = t->msg ? t->msg->tenant : ""},
        {"fovea.policy", .text = j->prompt.n ? fv_policy_name_of(policy) : ""},
        {"gen_ai.usage.input_tokens", .number = j->prompt.n},
        {"fovea.visual_tokens", .number = j->prompt.n_visual},
        {"fovea.kv_sent_bytes", .number = (int64_t)t->sent.bytes}};
    fv_span_end(&t->span, fv_clock_s(), code, FV_SPAN_FIELDS(fields));
    t->span.recorded = false;
}
