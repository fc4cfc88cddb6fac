/* An attempt at a request: the call to a prefill worker and, after the first token, the call to a
 * decode worker.
 *
 *     PREFILL --first token--> DECODE --Finished, and the prefill worker's half--> answered
 *
 * Events go to the client as they come. A failed attempt is abandoned: messages that its calls still
 * bring are dropped, and the request continues without it (router/replay.c). An attempt survives the
 * loss of its prefill worker after the first token, because everything may have been handed over. The
 * decode worker knows, and its call fails if not.
 *
 * The wait for a worker that accepts a call and then stays silent is bounded: a worker without reports
 * loses its membership (--silence-ms), pings find a machine that is gone, and router/watch.c finds a
 * worker that reports but makes no progress. Loop thread. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "handoff/refusal.h"
#include "router/balancer.h"
#include "router/relay_internal.h"
#include "rpc/message.h"

typedef Fovea__Handoff__V1__PrefillEvent prefill_event;
typedef Fovea__Handoff__V1__FirstToken first_message;
typedef Fovea__Inference__V1__GenerateEvent event_message;

/* ---- opening and ending ----------------------------------------------------------------- */

static fv_status attempt_open(fv_request *r, fv_attempt **out) {
    fv_attempt *a = calloc(1, sizeof *a);
    if (!a) return FV_FAIL(FV_ENOMEM, "no memory to try a request");
    a->req = r;
    a->relay = r->relay;
    a->relay->n_alive++;
    r->attempt = a;
    fv_request_set_state(r, FV_REQUEST_RUNNING);
    if (r->started_s == 0) r->started_s = fv_clock_s();
    *out = a;
    return FV_OK;
}

static void maybe_free(fv_attempt *a) {
    if (a->req || a->prefill || a->decode) return;
    a->relay->n_alive--;
    fv_arena_fini(&a->arena);
    free(a);
}

static fv_outcome outcome_of(fv_status st, fv_origin origin) {
    if (st == FV_OK) return FV_OUTCOME_WORKED;
    return fv_failure_counts(st, origin) ? FV_OUTCOME_FAILED : FV_OUTCOME_UNKNOWN;
}

/* Detaches the attempt from its request, releases its reservations with these outcomes, and cancels its calls. */
static void part(fv_attempt *a, fv_outcome p, fv_outcome d) {
    double now_s = fv_clock_s();
    a->req->attempt = NULL;
    a->req = NULL;
    fv_reservation_give(&a->p, p, now_s);
    fv_reservation_give(&a->d, d, now_s);
    if (a->prefill) fv_rpc_call_cancel(a->prefill);
    if (a->decode) fv_rpc_call_cancel(a->decode);
}

/* The part of a TTFT that is due to the prompt's tokens rather than to images. The images' part is an estimate and
 * may be wrong, so at least a tenth always counts for the tokens. */
static double tokens_s(const fv_attempt *a, double seconds) {
    const fv_registered_worker *p = a->p.worker;
    double images_s =
        fv_estimate_images_s(&a->req->fleet->estimate, p ? &p->pace : NULL, a->p.pixels_ahead);
    return fmax(seconds - images_s, seconds / 10);
}

/* Measures an attempt that is given up: a first token that has not come takes at least this long, and an
 * answer that has not ended is longer. Otherwise the slowest would be missing from the estimates. */
static void note_unfinished(const fv_attempt *a) {
    double now_s = fv_clock_s();
    fv_estimate *e = &a->req->fleet->estimate;
    fv_registered_worker *p = a->p.worker;
    if (a->finish || a->finished) return;
    if (p && !a->first)
        fv_estimate_late(e, &p->pace, a->p.ahead, tokens_s(a, now_s - a->p.taken_s), now_s);
    if (!a->req->msg->ignore_eos) fv_estimate_answer(e, a->req->n_token, false, now_s);
}

void fv_attempt_abandon(fv_attempt *a) {
    note_unfinished(a);
    part(a, FV_OUTCOME_UNKNOWN, FV_OUTCOME_UNKNOWN);
    maybe_free(a);
}

/* Ends the attempt with fv_last_error; `a` may be freed after this. */
static void fail(fv_attempt *a, fv_status st, bool blame_p, bool blame_d) {
    fv_request *r = a->req;
    fv_origin origin = fv_last_origin();
    if (st == FV_EIO) fv_blame_note(r, a);
    char p_name[sizeof a->p.name], d_name[sizeof a->d.name];
    snprintf(p_name, sizeof p_name, "%s", a->p.name);
    snprintf(d_name, sizeof d_name, "%s", a->d.name);
    fv_failure f = {.status = st,
                    .origin = origin,
                    .p = p_name,
                    .d = d_name,
                    .exclude_p = blame_p,
                    .exclude_d = blame_d};
    /* A worker that ends a request without time left is well. */
    bool late = st == FV_EDEADLINE && fv_request_left_ms(r, fv_clock_s()) <= 0;
    if (late) note_unfinished(a);
    fv_outcome outcome = late ? FV_OUTCOME_UNKNOWN : outcome_of(st, origin);
    part(a, blame_p ? outcome : FV_OUTCOME_UNKNOWN, blame_d ? outcome : FV_OUTCOME_UNKNOWN);
    maybe_free(a);
    fv_request_failed(r, &f);
}

static fv_status worker_failure(const fv_rpc_end *end, const char *role, const char *name) {
    char who[FV_WORKER_NAME_MAX + 32];
    /* A client's own error is reported without the worker's name. */
    if (end->status == FV_EINVAL || (end->status != FV_OK && end->origin == FV_ORIGIN_CALLER))
        return fv_fail_origin(FV_FAIL(end->status, "%s", end->text), end->origin);
    snprintf(who, sizeof who, "%s worker %s", role, name);
    return fv_rpc_end_status(end, who);
}

/* Ends the request if sending to the client failed. That is no worker's fault, so the worker's call does not
 * fail: it is cancelled with the request. */
static fv_status client_status(fv_request *r, fv_status st) {
    if (st != FV_OK) fv_request_finish(r, st);
    return FV_OK;
}

/* ---- decode ----------------------------------------------------------------------------- */

static void note_tokens(fv_attempt *a, uint32_t n) {
    fv_registered_worker *d = a->d.worker;
    double now_s = fv_clock_s();
    if (d && a->token_s > 0)
        fv_estimate_tokens(&a->req->fleet->estimate, &d->pace, d->n_taken + d->n_foreign, n,
                           now_s - a->token_s, now_s);
    a->token_s = now_s;
}

void fv_attempt_resume(fv_attempt *a) {
    a->token_s = 0;
    if (a->prefill) fv_rpc_call_resume(a->prefill);
    if (a->decode) fv_rpc_call_resume(a->decode);
}

static fv_status on_decoded_tokens(fv_attempt *a, fv_rpc_call *c, fv_tokens_message *t) {
    fv_request *r = a->req;
    FV_TRY(fv_answer_check(r, t));
    note_tokens(a, (uint32_t)t->n_tokens);
    a->decoding = true;
    fv_status st = fv_answer_accept(r);
    if (st == FV_OK) st = fv_answer_tokens(r, t);
    if (st == FV_OK && !fv_rpc_call_writable(r->client)) fv_rpc_call_pause(c);
    return client_status(r, st);
}

static fv_status on_decoded(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_attempt *a = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    if (!a->req) return FV_OK;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const event_message *e = (const event_message *)m;
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS)
        return on_decoded_tokens(a, c, e->tokens);
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED) {
        FV_TRY(fv_rpc_unpack(&fovea__inference__v1__generate_event__descriptor, message, &a->arena,
                             &m));
        a->finished = ((const event_message *)m)->finished;
    }
    return FV_OK;
}

/* Whether the worker says why it refused the hand-off; a worker that does is well. */
static bool says_refusal(const fv_rpc_call *c) {
    const char *name;
    size_t n;
    return fv_rpc_call_metadata(c, FV_REFUSAL_KEY, &name, &n);
}

/* Notes which worker lacks memory: it gets nothing until it reports. If the request can never fit a decode
 * worker but may fit a larger one, raises the need accordingly and has the request wait: *st is FV_EBUSY. */
static void note_room(fv_attempt *a, const fv_rpc_call *c, bool by_decode, fv_status *st) {
    fv_need *need = &a->req->need;
    const char *name = "";
    size_t n = 0;
    (void)fv_rpc_call_metadata(c, FV_REFUSAL_KEY, &name, &n);
    fv_refusal why = fv_refusal_named(name, n);
    if (why == FV_REFUSED_TENANT_FULL) {
        a->req->n_tenant_full++;
        return;
    }
    if (*st == FV_EBUSY) fv_reservation_full(by_decode || why != FV_REFUSED_NONE ? &a->d : &a->p);
    if (why != FV_REFUSED_TOO_LARGE || !a->d.worker) return;
    uint64_t capacity = a->d.worker->load.bytes_capacity;
    if (capacity >= need->bytes_least) need->bytes_least = capacity + 1;
    if (need->bytes_least > need->bytes) need->bytes = need->bytes_least;
    if (fv_choose_largest(a->req->fleet, a->d.worker->role) >= need->bytes_least) *st = FV_EBUSY;
}

/* Handles the end of the decode call. `a` may be freed after this, also on success: the request may end. */
static void decode_over(fv_attempt *a, const fv_rpc_call *c, const fv_rpc_end *end) {
    fv_relay *relay = a->relay;
    fv_status st = a->finished ? FV_OK : worker_failure(end, "decode", a->d.name);
    if (st == FV_OK && !a->finished)
        st = FV_FAIL(FV_EDATA, "decode worker %s ended before the answer did", a->d.name);
    if (st == FV_OK) {
        fv_reservation_give(&a->d, FV_OUTCOME_WORKED, fv_clock_s());
        fv_answer_maybe_finish(a->req);
    } else {
        /* If the hand-off did not arrive, the prefill worker is at fault. */
        bool not_brought = says_refusal(c);
        note_room(a, c, true, &st);
        fail(a, st, not_brought, !not_brought);
    }
    fv_relay_dispatch(relay);
}

static void on_decode_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_attempt *a = fv_rpc_call_user(c);
    a->decode = NULL;
    fv_trace_call(a, &a->decode_span, end);
    if (a->req)
        decode_over(a, c, end);
    else
        maybe_free(a);
}

static const fv_rpc_events decode_events = {.on_message = on_decoded, .on_end = on_decode_end};

/* The deadline of a worker's call: a little later than the request's, so that the relay ends the request and
 * says why. */
static int64_t deadline_ms(const fv_request *r) {
    double ms = fv_request_left_ms(r, fv_clock_s());
    return FV_DEADLINE_SLACK_MS + (ms > 0 ? (int64_t)ms : 0);
}

/* Opens a call to a worker on the client's behalf. token: NULL if the message carries a secret, the ticket. */
static fv_status open_call(fv_attempt *a, const fv_registered_worker *w, const char *method,
                           const char *token, const fv_rpc_events *events,
                           const ProtobufCMessage *message, fv_span *span, fv_rpc_call **out) {
    *span = fv_span_begin(strrchr(method, '/') + 1, FV_SPAN_CLIENT, &a->req->span.context,
                          fv_clock_s());
    fv_rpc_metadata metadata = {FV_CALL_TOKEN_KEY, token};
    fv_rpc_call_options opt = {.path = method,
                               .metadata = &metadata,
                               .n_metadata = token && token[0],
                               .trace = &span->context,
                               .events = events,
                               .user = a,
                               .deadline_ms = deadline_ms(a->req),
                               .request = message,
                               .half_close = true,
                               .parent = a->req->client};
    return fv_rpc_call_open(w->channel, &opt, out);
}

static fv_status start_decode(fv_attempt *a) {
    static const char method[] = "/fovea.handoff.v1.Decode/Decode";
    char token[FV_CALL_TOKEN_MAX];
    fv_request *r = a->req;
    Fovea__Handoff__V1__DecodeRequest m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    m.request_id = r->fleet_id;
    m.tenant = r->tenant->name;
    m.tenant_kv_bytes = fv_tenancy_kv_bytes(r->tenant);
    m.tenant_weight = r->sharer->weight;
    m.share = r->sharer->name;
    if (a->ticket) {
        m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
        m.ticket = (Fovea__Handoff__V1__Ticket *)(uintptr_t)a->ticket;
    } else {
        m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_CONVERSATION;
        m.conversation = (ProtobufCBinaryData){FV_CONVERSATION_ID_BYTES, r->msg->conversation.data};
        m.prompt = r->msg->prompt;
        m.sampling = r->msg->sampling;
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
    m.special_tokens = r->msg->special_tokens;
    m.include_stop = r->msg->include_stop;
    m.continue_text = r->msg->continue_text;
    m.n_replay = a->n_replay;
    m.replay = r->id_of;
    if (!a->ticket)
        FV_TRY(fv_registry_token(a->relay->opt.members, a->d.worker, method, r->fleet_id, "",
                                 FV_CALL_VALID_MS, token));
    return open_call(a, a->d.worker, method, a->ticket ? NULL : token, &decode_events, &m.base,
                     &a->decode_span, &a->decode);
}

/* ---- prefill ---------------------------------------------------------------------------- */

static fv_status on_begun(fv_attempt *a, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_unpack(&fovea__handoff__v1__prefill_event__descriptor, message, &a->arena, &m));
    const Fovea__Handoff__V1__Begun *b = ((const prefill_event *)m)->begun;
    a->ticket = b->ticket;
    fv_reservation_resize(&a->d, b->bytes_bound);
    fv_reservation_decoded(&a->p); /* the worker sends Begun after it has decoded the images */
    return client_status(a->req, fv_answer_accept(a->req));
}

/* Whether the replayed tokens were already the whole answer: the worker sends the reason and no token. */
static bool had_ended(const fv_attempt *a, const first_message *first) {
    return a->n_replay > 0 && first->finish && (!first->tokens || first->tokens->n_tokens == 0);
}

static void note_prefilled(fv_attempt *a) {
    fv_registered_worker *p = a->p.worker;
    double now_s = fv_clock_s();
    if (!a->waited) /* a wait for memory says nothing about prefill */
        fv_estimate_prefilled(&a->req->fleet->estimate, p ? &p->pace : NULL, a->p.ahead,
                              tokens_s(a, now_s - a->p.taken_s), now_s);
    fv_reservation_prefilled(&a->p);
    a->token_s = now_s;
}

static fv_status on_first_token(fv_attempt *a, const first_message *first) {
    fv_request *r = a->req;
    if (a->first) return FV_FAIL(FV_EDATA, "received two first tokens");
    note_prefilled(a);
    a->ended = had_ended(a, first);
    if (!a->ended) FV_TRY(fv_answer_check(r, first->tokens));
    if (!first->finish && !(a->ticket && a->d.worker))
        return FV_FAIL(FV_EDATA, "the answer continues, but no decode worker has memory for it");
    a->first = true;
    a->finish = first->finish;
    fv_reservation_decoded(&a->p);
    fv_status st = fv_answer_accept(r);
    if (st == FV_OK && !a->ended) st = fv_answer_tokens(r, first->tokens);
    if (st == FV_OK && !first->finish) st = start_decode(a);
    if (first->finish) fv_reservation_give(&a->d, FV_OUTCOME_UNKNOWN, fv_clock_s());
    return client_status(r, st);
}

/* Measures the time for images, unless some came from the cache and cost nothing. */
static void note_read(const fv_attempt *a) {
    const fv_report_message *r = a->report;
    fv_registered_worker *p = a->p.worker;
    if (!r || r->n_images_cached || !a->req->need.pixels || !(r->seconds_preprocess > 0)) return;
    fv_estimate_read(&a->req->fleet->estimate, p ? &p->pace : NULL, a->req->need.pixels,
                     r->seconds_preprocess, fv_clock_s());
}

static fv_status on_handed_off(fv_attempt *a, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_unpack(&fovea__handoff__v1__prefill_event__descriptor, message, &a->arena, &m));
    a->report = ((const prefill_event *)m)->handed_off->report;
    if (a->report && a->req->need.tokens_text)
        fv_estimate_text(&a->req->fleet->estimate, a->req->need.tokens_text, a->report->n_text,
                         fv_clock_s());
    note_read(a);
    return FV_OK;
}

/* Passes tokens of the prompt on, as fast as the client reads them. */
static fv_status on_prompt(fv_attempt *a, fv_rpc_call *c,
                           Fovea__Inference__V1__PromptTokens *prompt) {
    fv_request *r = a->req;
    fv_status st = fv_answer_accept(r);
    if (st == FV_OK) st = fv_answer_prompt(r, a->n_prompt++, prompt);
    if (st == FV_OK && !fv_rpc_call_writable(r->client)) fv_rpc_call_pause(c);
    return client_status(r, st);
}

static fv_status on_prefilled(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_attempt *a = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    if (!a->req) return FV_OK;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__prefill_event__descriptor, message, &m));
    const prefill_event *e = (const prefill_event *)m;
    switch (e->event_case) {
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_BEGUN: return on_begun(a, message);
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_FIRST_TOKEN:
        return on_first_token(a, e->first_token);
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_HANDED_OFF: return on_handed_off(a, message);
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_PROMPT: return on_prompt(a, c, e->prompt);
    default: return FV_OK;
    }
}

/* Whether the answer can continue without the prefill worker: the decode worker may have all that it needs. */
static bool may_go_on(const fv_attempt *a, fv_status st) {
    return a->finish || a->finished || (a->first && st == FV_EIO);
}

static void prefill_over(fv_attempt *a, const fv_rpc_call *c, const fv_rpc_end *end) {
    fv_relay *relay = a->relay;
    fv_status st = worker_failure(end, "prefill", a->p.name);
    if (st == FV_OK && !a->first)
        st = FV_FAIL(FV_EDATA, "prefill worker %s ended before the first token", a->p.name);
    if (st == FV_OK || may_go_on(a, st)) {
        a->prefill_done = true;
        fv_reservation_give(&a->p, outcome_of(st, end->origin), fv_clock_s());
        fv_answer_maybe_finish(a->req);
    } else {
        /* The fault may be the network between the two workers, so both are avoided. A healthy one
         * soon shows it with another call. */
        note_room(a, c, false, &st);
        fail(a, st, true, true);
    }
    fv_relay_dispatch(relay);
}

static void on_prefill_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_attempt *a = fv_rpc_call_user(c);
    a->prefill = NULL;
    fv_trace_call(a, &a->prefill_span, end);
    if (a->req)
        prefill_over(a, c, end);
    else
        maybe_free(a);
}

static const fv_rpc_events prefill_events = {.on_message = on_prefilled, .on_end = on_prefill_end};

/* The request's age, by which workers serve the oldest first among the requests of all routers. */
static uint32_t age_ms(const fv_request *r) {
    return (uint32_t)(1e3 * (fv_clock_s() - r->arrived_s));
}

/* Makes the tokens for the prefill worker's calls to the decode worker. They are valid until the request's
 * deadline, because the prefill worker may have to wait for its turn first. */
static fv_status make_tokens(fv_attempt *a, char open[FV_CALL_TOKEN_MAX],
                             char pair[FV_CALL_TOKEN_MAX]) {
    const fv_registry *m = a->relay->opt.members;
    const fv_registered_worker *d = a->d.worker;
    int64_t ms = deadline_ms(a->req) + FV_CALL_VALID_MS;
    uint32_t valid_ms = ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
    open[0] = pair[0] = '\0';
    if (!d) return FV_OK;
    FV_TRY(fv_registry_token(m, d, "/fovea.handoff.v1.Handoff/Open", a->req->fleet_id, "", valid_ms,
                             open));
    return fv_registry_token(m, d, "/fovea.handoff.v1.Handoff/Pair", "", "", valid_ms, pair);
}

static fv_status start_prefill(fv_attempt *a) {
    static const char method[] = "/fovea.handoff.v1.Prefill/Prefill";
    char token[FV_CALL_TOKEN_MAX], open[FV_CALL_TOKEN_MAX], pair[FV_CALL_TOKEN_MAX];
    fv_request *r = a->req;
    Fovea__Handoff__V1__PrefillRequest m = FOVEA__HANDOFF__V1__PREFILL_REQUEST__INIT;
    fv_request_message checked = *r->msg;
    checked.request_id = r->fleet_id;
    checked.max_tokens = r->need.max_tokens;
    m.request = &checked;
    if (a->d.worker) m.decode_address = a->d.worker->intro->address;
    m.age_ms = age_ms(r);
    m.tenant = r->tenant->name;
    m.tenant_kv_bytes = fv_tenancy_kv_bytes(r->tenant);
    m.tenant_weight = r->sharer->weight;
    m.share = r->sharer->name;
    m.n_replay = a->n_replay = r->n_token;
    m.replay = r->id_of;
    FV_TRY(make_tokens(a, open, pair));
    m.open_token = open;
    m.pair_token = pair;
    FV_TRY(fv_registry_token(a->relay->opt.members, a->p.worker, method, r->fleet_id,
                             m.decode_address, FV_CALL_VALID_MS, token));
    return open_call(a, a->p.worker, method, token, &prefill_events, &m.base, &a->prefill_span,
                     &a->prefill);
}

/* ---- from outside ----------------------------------------------------------------------- */

fv_status fv_attempt_start(fv_request *r, fv_registered_worker *p, fv_registered_worker *d) {
    fv_attempt *a;
    FV_TRY(attempt_open(r, &a));
    fv_portion of_p = {.pixels = r->need.pixels, .suspect = r->n_lost > 0};
    fv_portion of_d = {.bytes = r->need.bytes, .suspect = r->n_lost > 0};
    fv_reservation_take(&a->p, p, &of_p, fv_clock_s());
    fv_reservation_queue(&a->p, r->work.prompt);
    bool waits =
        d && !fv_registered_worker_has_room(d, &(fv_constraints){.bytes = r->need.bytes,
                                                                 .bytes_least = r->need.bytes_least,
                                                                 .over_slots = true});
    if (d) fv_reservation_take(&a->d, d, &of_d, fv_clock_s());
    if (waits) fv_reservation_wait(&a->d);
    a->waited = waits;
    return start_prefill(a);
}

bool fv_attempt_waits(const fv_attempt *a) { return a->d.waits && a->d.worker && !a->ticket; }

fv_status fv_attempt_follow(fv_request *r, fv_registered_worker *d) {
    fv_attempt *a;
    FV_TRY(attempt_open(r, &a));
    fv_reservation_take(&a->d, d, &(fv_portion){.bytes = r->need.bytes}, fv_clock_s());
    a->first = a->prefill_done = true;
    return start_decode(a);
}

/* After the first token the prefill worker is still needed until the decode worker has received everything. */
void fv_attempt_hung(fv_attempt *a, const fv_registered_worker *w) {
    bool p = a->p.worker == w && !a->report && !a->decoding && !a->finish;
    bool d = a->d.worker == w && !a->finished;
    if (p || d)
        fail(a,
             FV_FAIL(FV_EIO, "%s worker %s hangs: no progress for %.0f s", d ? "decode" : "prefill",
                     w->intro->name, 1e-3 * (double)a->relay->opt.stall_ms),
             p, d);
}

void fv_attempt_lost(fv_attempt *a, const fv_registered_worker *w) {
    bool p = a->p.worker == w, d = a->d.worker == w;
    if (d && fv_attempt_waits(a)) { /* d has granted nothing, so nothing is lost with it */
        fv_request *r = a->req;
        a->d.worker = NULL;
        fv_attempt_abandon(a);
        fv_request_set_state(r, FV_REQUEST_QUEUED);
        return;
    }
    if (p) a->p.worker = NULL;
    if (d) a->d.worker = NULL;
    bool left = w->state != FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_LOST;
    if (left && !(d && !a->decode)) return; /* the worker's call ends with its own status */
    if ((d && !a->finished) || (p && !a->first)) {
        fail(a, FV_FAIL(FV_EIO, "%s worker %s was lost", d ? "decode" : "prefill", w->intro->name),
             p, d);
    } else if (p) {
        a->prefill_done = true; /* its report is taken if it still comes */
        fv_answer_maybe_finish(a->req);
    }
}
