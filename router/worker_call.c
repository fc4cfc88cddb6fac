/* Writes the messages of the calls to workers, with the tokens that identify the router there. Loop thread. */
#include "router/worker_call.h"

#include <string.h>

#include "common/clock.h"

/* The deadline of a worker's call: a little later than the request's, so that the relay ends the request and
 * says why. */
static int64_t deadline_ms(const fv_request *r) {
    double ms = fv_request_left_ms(r, fv_clock_s());
    return FV_DEADLINE_SLACK_MS + (ms > 0 ? (int64_t)ms : 0);
}

/* Opens a call to a worker on the client's behalf. token: NULL if the message carries a secret, the ticket. */
static fv_status open_call(fv_worker_call *c, const fv_request *r, const fv_registered_worker *w,
                           const char *method, const char *token, const ProtobufCMessage *message,
                           const fv_rpc_events *events, void *user) {
    c->span =
        fv_span_begin(strrchr(method, '/') + 1, FV_SPAN_CLIENT, &r->span.context, fv_clock_s());
    fv_rpc_metadata metadata = {FV_CALL_TOKEN_KEY, token};
    fv_rpc_call_options opt = {.path = method,
                               .metadata = &metadata,
                               .n_metadata = token && token[0],
                               .trace = &c->span.context,
                               .events = events,
                               .user = user,
                               .deadline_ms = deadline_ms(r),
                               .request = message,
                               .half_close = true,
                               .parent = r->client};
    return fv_rpc_call_open(w->channel, &opt, &c->rpc);
}

/* Returns the form of the reasoning behind which the text of the constraint begins, "": it begins at once. All workers
 * of a request are told the same. */
static const char *reasoning_of(const fv_request *r) {
    const Fovea__Inference__V1__TokenRules *rules = r->msg->rules;
    const bool chats =
        r->msg->prompt && r->msg->prompt->form_case == FOVEA__INFERENCE__V1__PROMPT__FORM_CHAT;
    const bool after = rules && rules->constraint && rules->constraint->after_reasoning;
    return chats && after ? r->reasoning : "";
}

fv_status fv_worker_call_decode(fv_worker_call *c, const fv_request *r,
                                const fv_registered_worker *d, const fv_handed_off *from,
                                const fv_rpc_events *events, void *user) {
    static const char method[] = "/fovea.handoff.v1.Decode/Decode";
    char token[FV_CALL_TOKEN_MAX];
    Fovea__Handoff__V1__DecodeRequest m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    m.request_id = (char *)(uintptr_t)r->fleet_id;
    m.tenant = r->tenant->name;
    m.tenant_kv_bytes = fv_tenancy_kv_bytes(r->tenant);
    m.tenant_weight = r->sharer->weight;
    m.share = r->sharer->name;
    if (from->ticket) {
        m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
        m.ticket = (fv_ticket_message *)(uintptr_t)from->ticket;
    } else {
        m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
        m.conversation = (ProtobufCBinaryData){FV_CONVERSATION_ID_BYTES, r->msg->conversation.data};
        m.prompt = r->msg->prompt;
        m.sampling = r->msg->sampling;
        m.model = r->msg->model;
    }
    m.max_tokens = r->need.max_tokens;
    m.n_stop = r->msg->n_stop;
    m.stop = r->msg->stop;
    m.ignore_eos = r->msg->ignore_eos;
    m.n_logprobs = r->msg->n_logprobs;
    m.digests = r->msg->digests;
    m.token_texts = r->msg->token_texts;
    m.keep_ms = r->msg->keep_ms;
    m.rules = r->msg->rules;
    m.reasoning = (char *)(uintptr_t)reasoning_of(r);
    m.thinks = from->thinks; /* a follow-up is rendered by the decode worker */
    m.thought = from->thought;
    m.special_tokens = r->msg->special_tokens;
    m.include_stop = r->msg->include_stop;
    m.continue_text = r->msg->continue_text;
    if (r->msg->speculation_case) {
        m.speculation_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SPECULATION_SPECULATE;
        m.speculate = r->msg->speculate;
    }
    m.prediction = r->msg->prediction;
    m.n_replay = from->n_replay;
    m.replay = r->id_of;
    if (!from->ticket)
        FV_TRY(fv_registry_token(r->relay->opt.members, d, method, r->fleet_id, "",
                                 FV_CALL_VALID_MS, token));
    return open_call(c, r, d, method, from->ticket ? NULL : token, &m.base, events, user);
}

/* The request's age, by which workers serve the oldest first among the requests of all routers. */
static uint32_t age_ms(const fv_request *r) {
    return (uint32_t)(1e3 * (fv_clock_s() - r->arrived_s));
}

/* Makes the tokens for the prefill worker's calls to the decode worker. They are valid until the request's
 * deadline, because the prefill worker may have to wait for its turn first. */
static fv_status make_tokens(const fv_request *r, const fv_registered_worker *d,
                             char open[FV_CALL_TOKEN_MAX], char pair[FV_CALL_TOKEN_MAX]) {
    const fv_registry *m = r->relay->opt.members;
    int64_t ms = deadline_ms(r) + FV_CALL_VALID_MS;
    uint32_t valid_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    open[0] = pair[0] = '\0';
    if (!d) return FV_OK;
    FV_TRY(
        fv_registry_token(m, d, "/fovea.handoff.v1.Handoff/Open", r->fleet_id, "", valid_ms, open));
    return fv_registry_token(m, d, "/fovea.handoff.v1.Handoff/Pair", "", "", valid_ms, pair);
}

/* Lists the names of the prompt's beginnings, for as long as `end` and `list` live. */
static void list_ends(const fv_request *r, Fovea__Handoff__V1__PromptEnd end[FV_PARTS_MAX],
                      Fovea__Handoff__V1__PromptEnd *list[FV_PARTS_MAX],
                      Fovea__Handoff__V1__PrefillRequest *m) {
    for (int32_t i = 0; i < r->parts.n; i++) {
        fovea__handoff__v1__prompt_end__init(&end[i]);
        end[i].digest = r->parts.end[i].name;
        end[i].items = r->parts.end[i].items;
        end[i].text = r->parts.end[i].text;
        list[i] = &end[i];
    }
    m->n_ends = (size_t)r->parts.n;
    m->ends = list;
}

fv_status fv_worker_call_prefill(fv_worker_call *c, const fv_request *r,
                                 const fv_registered_worker *p, const fv_registered_worker *d,
                                 const fv_rpc_events *events, void *user) {
    static const char method[] = "/fovea.handoff.v1.Prefill/Prefill";
    char token[FV_CALL_TOKEN_MAX], open[FV_CALL_TOKEN_MAX], pair[FV_CALL_TOKEN_MAX];
    Fovea__Handoff__V1__PrefillRequest m = FOVEA__HANDOFF__V1__PREFILL_REQUEST__INIT;
    fv_request_message checked = *r->msg;
    checked.request_id = (char *)(uintptr_t)r->fleet_id;
    checked.max_tokens = r->need.max_tokens;
    m.request = &checked;
    if (d) m.decode_address = d->intro->address;
    m.age_ms = age_ms(r);
    m.tenant = r->tenant->name;
    m.tenant_kv_bytes = fv_tenancy_kv_bytes(r->tenant);
    m.tenant_weight = r->sharer->weight;
    m.share = r->sharer->name;
    m.n_replay = r->n_token;
    m.replay = r->id_of;
    m.reserve_all = fv_request_reserves_all(r);
    m.open_ended = r->need.open_ended;
    m.may_leave_rest = true;
    m.reasoning = (char *)(uintptr_t)reasoning_of(r);
    Fovea__Handoff__V1__PromptEnd end[FV_PARTS_MAX], *ends[FV_PARTS_MAX];
    list_ends(r, end, ends, &m);
    FV_TRY(make_tokens(r, d, open, pair));
    m.open_token = open;
    m.pair_token = pair;
    FV_TRY(fv_registry_token(r->relay->opt.members, p, method, r->fleet_id, m.decode_address,
                             FV_CALL_VALID_MS, token));
    return open_call(c, r, p, method, token, &m.base, events, user);
}

void fv_worker_call_ended(fv_worker_call *c, const char *worker, const fv_rpc_end *end) {
    const fv_span_field fields[] = {{"fovea.worker", .text = worker}};
    fv_span_end(&c->span, fv_clock_s(), (int)end->code, FV_SPAN_FIELDS(fields));
    c->rpc = NULL;
}
