/* Sends a client the events of its request, and keeps the ids of the tokens that it has received, because another
 * worker may have to continue after them. Loop thread. */
#include "router/answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/grow.h"
#include "common/log.h"
#include "policy/policy.h"
#include "router/merge.h"
#include "router/record.h"

typedef Fovea__Inference__V1__GenerateEvent event_message;
typedef Fovea__Inference__V1__Finished finished_message;
typedef Fovea__Inference__V1__Report report_message;

static fv_status send_accepted(fv_request *r) {
    Fovea__Inference__V1__Accepted a = FOVEA__INFERENCE__V1__ACCEPTED__INIT;
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    if (r->accepted) return FV_OK;
    a.request_id = r->id;
    a.abort_token = r->abort_token;
    a.model = r->asks_adapter ? r->msg->model : r->fleet->model;
    a.prefill_worker = r->attempt->p.name;
    a.decode_worker = r->attempt->d.name;
    a.bytes_bound = r->attempt->bytes_bound;
    a.n_prompt = r->attempt->n_prompt;
    a.thinks = r->attempt->thinks;
    a.reasoning_parser = r->reasoning;
    a.n_prompt_cached = r->attempt->n_prompt_cached;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED;
    e.accepted = &a;
    FV_TRY(fv_rpc_call_send(r->client, &e.base));
    r->accepted = true;
    return FV_OK;
}

void fv_answer_begin(fv_request *r) {
    fv_status st = send_accepted(r);
    if (st != FV_OK) fv_request_finish(r, st);
}

static fv_status send_prompt(fv_request *r, uint32_t number, fv_prompt_message *t) {
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    FV_TRY(send_accepted(r));
    if (number < r->n_prompt_event || r->n_token > 0) return FV_OK;
    r->n_prompt_event++;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_PROMPT;
    e.prompt = t;
    return fv_rpc_call_send(r->client, &e.base);
}

void fv_answer_prompt(fv_request *r, uint32_t number, fv_prompt_message *t) {
    fv_status st = send_prompt(r, number, t);
    if (st != FV_OK) fv_request_finish(r, st);
}

static fv_status keep_ids(fv_request *r, const fv_tokens_message *t) {
    size_t n = r->n_token + t->n_tokens;
    FV_TRY(fv_grow(&r->id_of, &r->cap_id, n, sizeof *r->id_of));
    FV_TRY(fv_grow(&r->digest_of, &r->cap_digest, n, sizeof *r->digest_of));
    for (size_t i = 0; i < t->n_tokens; i++) {
        r->id_of[r->n_token + i] = t->tokens[i]->id;
        r->digest_of[r->n_token + i] = t->tokens[i]->digest;
    }
    return FV_OK;
}

static fv_status send_tokens(fv_request *r, fv_tokens_message *t) {
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS;
    e.tokens = t;
    double now_s = fv_clock_s();
    bool first = r->n_token == 0;
    if (r->first_s == 0) r->first_s = now_s;
    FV_TRY(keep_ids(r, t));
    FV_TRY(fv_rpc_call_send(r->client, &e.base));
    fv_record_tokens((uint32_t)t->n_tokens, first, now_s - (first ? r->arrived_s : r->token_s),
                     &r->span.context);
    r->token_s = now_s;
    r->n_token += (uint32_t)t->n_tokens;
    return FV_OK;
}

void fv_answer_tokens(fv_request *r, fv_tokens_message *t) {
    fv_status st = send_accepted(r);
    if (st == FV_OK) st = send_tokens(r, t);
    if (st != FV_OK) fv_request_finish(r, st);
}

/* Writes which half of the report is missing, because its worker was lost; "": none. */
static void name_missing_half(const fv_request *r, char *out, size_t size) {
    const fv_attempt *a = r->attempt;
    out[0] = '\0';
    if (a->had_ended)
        snprintf(
            out, size,
            "decode worker %s was lost after the last token: its half of this report is missing",
            r->last_d);
    else if (!a->report && *a->p.name)
        snprintf(out, size, "prefill worker %s was lost: its half of this report is missing",
                 a->p.name);
}

/* Names a kept conversation for the client: the decode worker's id for it, followed by the worker's name. */
static void name_conversation(const fv_attempt *a, uint8_t *buffer, finished_message *out) {
    const ProtobufCBinaryData *id = &a->finished->conversation;
    size_t n = strlen(a->d.name);
    if (id->len != FV_CONVERSATION_ID_BYTES) return; /* the worker keeps nothing */
    memcpy(buffer, id->data, id->len);
    memcpy(buffer + id->len, a->d.name, n);
    out->conversation = (ProtobufCBinaryData){id->len + n, buffer};
    out->keep_ms = a->finished->keep_ms;
}

static void end_span(fv_request *r, const report_message *report) {
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
        {"fovea.hoped_tokens", .number = r->attempt->hoped.tokens},
        {"fovea.cached_tokens", .number = r->attempt->n_prompt_cached},
        {"fovea.replays", .number = r->n_replay}};
    fv_span_end(&r->span, fv_clock_s(), GRPC_STATUS_OK, FV_SPAN_FIELDS(fields));
    r->span.recorded = false;
}

static fv_status send_finished(fv_request *r) {
    fv_attempt *a = r->attempt;
    char missing[256];
    uint8_t conversation[FV_CONVERSATION_BYTES_MAX];
    fv_relay_facts facts = {.n_generated = r->n_token,
                            .n_replay = r->n_replay,
                            .seconds_first_token = r->first_s - r->arrived_s,
                            .seconds_queued = r->started_s - r->arrived_s,
                            .n_digest = r->msg->digests ? r->n_token : 0,
                            .digest = r->digest_of,
                            .missing = missing,
                            .prefill_worker = a->p.name,
                            .decode_worker = a->d.name};
    report_message report;
    name_missing_half(r, missing, sizeof missing);
    FV_TRY(fv_report_merge(a->report, a->finished ? a->finished->report : NULL, &facts, &a->arena,
                           &report));
    finished_message f = FOVEA__INFERENCE__V1__FINISHED__INIT;
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    f.reason = a->finished ? a->finished->reason : a->finish;
    f.report = &report;
    if (a->finished) name_conversation(a, conversation, &f);
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED;
    e.finished = &f;
    FV_TRY(fv_rpc_call_send(r->client, &e.base));
    fv_answer_times times = {.n_token = r->n_token,
                             .start_s = facts.seconds_queued,
                             .first_s = facts.seconds_first_token,
                             .end_s = fv_clock_s() - r->arrived_s};
    fv_record_answer(&times, &report, r->msg->conversation.len > 0, &r->span.context);
    end_span(r, &report);
    return FV_OK;
}

static bool at_limit(const fv_attempt *a) {
    return (a->finished ? a->finished->reason : a->finish) ==
           FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH;
}

void fv_answer_finish_if_complete(fv_request *r) {
    const fv_attempt *a = r->attempt;
    if (!a || !fv_attempt_is_complete(a) || !fv_rpc_call_writable(r->client)) return;
    fv_status st = send_finished(r);
    if (!r->msg->ignore_eos)
        fv_estimate_answer(&r->fleet->estimate, r->n_token, !at_limit(a), fv_clock_s());
    FV_LOG(INFO, ROUTER,
           "req=%s tenant?=%s trace?=%s event=done tokens=%" PRIu32 " replays=%" PRIu32
           " prefill=%s decode=%s hoped_tokens=%" PRIu32 " cached_tokens=%" PRIu32,
           r->id, r->tenant->name, r->trace_id, r->n_token, r->n_replay, a->p.name, a->d.name,
           a->hoped.tokens, a->n_prompt_cached);
    fv_request_finish(r, st);
}
