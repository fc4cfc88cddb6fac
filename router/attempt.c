/* An attempt at a request: the call to a prefill worker and, after the first token, the call to a
 * decode worker.
 *
 *     PREFILL --first token--> DECODE --Finished, and the prefill worker's half--> answered
 *
 * Events are reported as they come. An attempt survives the loss of its prefill worker after the first
 * token, because everything may have been handed over. The decode worker knows, and its call fails if not.
 *
 * The wait for a worker that accepts a call and then stays silent is bounded: a worker without reports
 * loses its membership (--silence-ms), pings find a machine that is gone, and router/watch.c finds a
 * worker that reports but makes no progress. Loop thread. */
#include "router/attempt.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "router/kept.h"
#include "rpc/message.h"

typedef Fovea__Handoff__V1__PrefillEvent prefill_event;
typedef Fovea__Handoff__V1__FirstToken first_message;
typedef Fovea__Inference__V1__GenerateEvent event_message;

/* ---- opening and ending ----------------------------------------------------------------- */

fv_status fv_attempt_open(fv_request *r, const fv_attempt_events *events, fv_attempt **out) {
    fv_attempt *a = calloc(1, sizeof *a);
    if (!a) return FV_FAIL(FV_ENOMEM, "no memory to try a request");
    a->req = r;
    a->relay = r->relay;
    a->events = events;
    a->relay->n_alive++;
    *out = a;
    return FV_OK;
}

/* Lists the attempt to be freed when the event is over, if nothing can come for it any more. */
static void list_if_over(fv_attempt *a) {
    if (a->req || a->prefill.rpc || a->decode.rpc) return;
    a->next_over = a->relay->over_attempts;
    a->relay->over_attempts = a;
}

void fv_attempts_free_over(fv_relay *relay) {
    while (relay->over_attempts) {
        fv_attempt *a = relay->over_attempts;
        relay->over_attempts = a->next_over;
        relay->n_alive--;
        fv_arena_fini(&a->arena);
        free(a);
    }
}

static fv_outcome outcome_of(fv_status st, fv_origin origin) {
    if (st == FV_OK) return FV_OUTCOME_WORKED;
    return fv_failure_remedy(st, origin) == FV_COUNTED ? FV_OUTCOME_FAILED : FV_OUTCOME_UNKNOWN;
}

/* Detaches the attempt from its request, releases its reservations with these outcomes, and cancels its calls. */
static void detach(fv_attempt *a, fv_outcome p, fv_outcome d) {
    double now_s = fv_clock_s();
    a->req = NULL;
    fv_reservation_give(&a->p, p, now_s);
    fv_reservation_give(&a->d, d, now_s);
    if (a->prefill.rpc) fv_rpc_call_cancel(a->prefill.rpc);
    if (a->decode.rpc) fv_rpc_call_cancel(a->decode.rpc);
    list_if_over(a);
}

/* Returns the part of a TTFT that is due to the prompt's tokens rather than to images. The images' part is an
 * estimate and may be wrong, so at least a tenth always counts for the tokens. */
static double tokens_s(const fv_attempt *a, double seconds) {
    const fv_registered_worker *p = a->p.worker;
    double images_s =
        fv_estimate_images_s(&a->req->fleet->estimate, p ? &p->pace : NULL, a->p.pixels_ahead);
    return fmax(seconds - images_s, seconds / 10);
}

/* Measures an attempt that is given up: a first token that has not come takes at least this long, and an
 * answer that has not ended is longer. Otherwise the slowest would be missing from the estimates. */
static void measure_unfinished(const fv_attempt *a) {
    double now_s = fv_clock_s();
    fv_estimate *e = &a->req->fleet->estimate;
    fv_registered_worker *p = a->p.worker;
    if (a->finish || a->finished) return;
    if (p && !a->first_done)
        fv_estimate_late(e, &p->pace, a->p.prompt_ahead, tokens_s(a, now_s - a->p.taken_s), now_s);
    if (!a->req->msg->ignore_eos) fv_estimate_answer(e, a->req->n_token, false, now_s);
}

void fv_attempt_abandon(fv_attempt *a) {
    if (!a->req) return;
    measure_unfinished(a);
    detach(a, FV_OUTCOME_UNKNOWN, FV_OUTCOME_UNKNOWN);
}

bool fv_attempt_works_at(const fv_attempt *a, const fv_registered_worker *w) {
    if (!w) return false;
    if (a->p.worker == w) return !a->first_done && !a->p.works_on_others;
    return a->d.worker == w && a->decode.rpc && !a->finished && !a->d.works_on_others;
}

/* Ends the attempt with fv_last_error and reports the failure. f: whom to avoid, and the refusal. */
static void fail(fv_attempt *a, fv_status st, fv_failure f) {
    fv_request *r = a->req;
    f.status = st;
    f.origin = fv_last_origin();
    f.p = a->p.name;
    f.d = a->d.name;
    f.worked_p = fv_attempt_works_at(a, a->p.worker);
    f.worked_d = fv_attempt_works_at(a, a->d.worker);
    /* A missed deadline is not the worker's fault. */
    bool late = st == FV_EDEADLINE && fv_request_left_ms(r, fv_clock_s()) <= 0;
    if (late) measure_unfinished(a);
    fv_outcome outcome = late ? FV_OUTCOME_UNKNOWN : outcome_of(st, f.origin);
    detach(a, f.avoid_p ? outcome : FV_OUTCOME_UNKNOWN, f.avoid_d ? outcome : FV_OUTCOME_UNKNOWN);
    a->events->failed(r, &f);
}

static fv_status worker_failure(const fv_rpc_end *end, const char *role, const char *name) {
    char who[FV_WORKER_NAME_MAX + 32];
    /* A client's own error is reported without the worker's name. */
    if (end->status == FV_EINVAL || (end->status != FV_OK && end->origin == FV_ORIGIN_CALLER))
        return fv_fail_origin(FV_FAIL(end->status, "%s", end->text), end->origin);
    snprintf(who, sizeof who, "%s worker %s", role, name);
    return fv_rpc_end_status(end, who);
}

/* Reads which worker lacks memory, and marks it: it gets no request until it reports. */
static void read_refusal(fv_attempt *a, const fv_rpc_call *c, bool by_decode, fv_status st,
                         fv_failure *f) {
    const char *name = "";
    size_t n = 0;
    (void)fv_rpc_call_metadata(c, FV_REFUSAL_KEY, &name, &n);
    f->refusal = fv_refusal_named(name, n);
    if (st == FV_EBUSY && f->refusal != FV_REFUSED_TENANT_FULL)
        fv_reservation_mark_full(by_decode || f->refusal != FV_REFUSED_NONE ? &a->d : &a->p);
    if (f->refusal != FV_REFUSED_TOO_LARGE) return;
    if (a->d.worker)
        f->refuser_capacity = a->d.worker->load.bytes_capacity;
    else
        f->refusal = FV_REFUSED_NONE; /* the worker is gone, so its capacity is unknown */
}

/* Checks that these are the next tokens of the answer. */
static fv_status check_tokens(const fv_request *r, const fv_tokens_message *t) {
    if (!t || t->n_tokens == 0) return FV_FAIL(FV_EDATA, "received an event without tokens");
    if (t->index != r->n_token)
        return FV_FAIL(FV_EDATA, "received token %" PRIu32 " instead of %" PRIu32, t->index,
                       r->n_token);
    return FV_OK;
}

/* ---- decode ----------------------------------------------------------------------------- */

static void measure_tokens(fv_attempt *a, uint32_t n) {
    fv_registered_worker *d = a->d.worker;
    double now_s = fv_clock_s();
    if (d && a->token_s > 0)
        fv_estimate_tokens(&a->req->fleet->estimate, &d->pace, d->n_taken + d->n_foreign, n,
                           now_s - a->token_s, now_s);
    a->token_s = now_s;
}

void fv_attempt_resume(fv_attempt *a) {
    a->token_s = 0;
    if (a->prefill.rpc) fv_rpc_call_resume(a->prefill.rpc);
    if (a->decode.rpc) fv_rpc_call_resume(a->decode.rpc);
}

static fv_status on_decoded_tokens(fv_attempt *a, fv_rpc_call *c, fv_tokens_message *t) {
    FV_TRY(check_tokens(a->req, t));
    measure_tokens(a, (uint32_t)t->n_tokens);
    a->decoding = true;
    a->events->tokens(a->req, t);
    if (a->req && !fv_rpc_call_writable(a->req->client)) fv_rpc_call_pause(c);
    return FV_OK;
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

static void decode_over(fv_attempt *a, const fv_rpc_call *c, const fv_rpc_end *end) {
    fv_status st = a->finished ? FV_OK : worker_failure(end, "decode", a->d.name);
    if (st == FV_OK && !a->finished)
        st = FV_FAIL(FV_EDATA, "decode worker %s ended before the answer did", a->d.name);
    if (st == FV_OK) {
        fv_reservation_give(&a->d, FV_OUTCOME_WORKED, fv_clock_s());
        a->events->finished(a->req);
        return;
    }
    /* A decode worker that says why it refused the hand-off is healthy: the prefill worker did not deliver it. */
    const char *name;
    size_t n;
    bool refused = fv_rpc_call_metadata(c, FV_REFUSAL_KEY, &name, &n);
    fv_failure f = {.avoid_p = refused, .avoid_d = !refused};
    read_refusal(a, c, true, st, &f);
    if (f.refusal == FV_REFUSED_PREEMPTED) f.avoid_p = false;
    fail(a, st, f);
}

static void on_decode_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_attempt *a = fv_rpc_call_user(c);
    fv_worker_call_ended(&a->decode, a->d.name, end);
    if (!a->req) {
        list_if_over(a);
        return;
    }
    a->relay->dispatch_due = true;
    decode_over(a, c, end);
}

static const fv_rpc_events decode_events = {.on_message = on_decoded, .on_end = on_decode_end};

static fv_status start_decode(fv_attempt *a) {
    const fv_handed_off from = {a->ticket, a->n_replay, a->thinks, a->thought};
    return fv_worker_call_decode(&a->decode, a->req, a->d.worker, &from, &decode_events, a);
}

/* ---- prefill ---------------------------------------------------------------------------- */

/* The decode worker computes the end of the prompt and the first token. How long that takes says nothing about prefill. */
static fv_status begin_at_decode(fv_attempt *a) {
    if (a->first_done || !a->ticket || !a->d.worker)
        return FV_FAIL(FV_EDATA, "no decode worker can compute the first token");
    a->first_done = true;
    fv_reservation_prompt_done(&a->p);
    fv_status st = start_decode(a);
    if (st != FV_OK) fail(a, st, (fv_failure){0});
    return FV_OK;
}

static fv_status on_begun(fv_attempt *a, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_unpack(&fovea__handoff__v1__prefill_event__descriptor, message, &a->arena, &m));
    const Fovea__Handoff__V1__Begun *b = ((const prefill_event *)m)->begun;
    a->ticket = b->ticket;
    a->n_prompt = b->n_prompt;
    a->thinks = b->thinks;
    a->thought = b->thought;
    a->n_prompt_cached = b->n_prompt_cached;
    if (a->p.worker) fv_kept_correct(a->req, a->p.worker, b->caches, b->n_prompt_cached, &a->hoped);
    fv_reservation_resize(&a->d, b->bytes_bound);
    /* The worker sends Begun after it has decoded the images. */
    fv_reservation_images_decoded(&a->p);
    a->bytes_bound = b->bytes_bound;
    if (b->bytes_reserved) fv_reservation_resize(&a->d, b->bytes_reserved);
    a->events->begun(a->req);
    return b->first_by_decode && a->req ? begin_at_decode(a) : FV_OK;
}

/* Whether the replayed tokens were already the whole answer: the worker sends the reason and no token. */
static bool replay_was_complete(const fv_attempt *a, const first_message *first) {
    return a->n_replay > 0 && first->finish && (!first->tokens || first->tokens->n_tokens == 0);
}

static void measure_prefill(fv_attempt *a) {
    fv_registered_worker *p = a->p.worker;
    double now_s = fv_clock_s();
    /* A wait for memory says nothing about prefill, and kept tokens nothing about others. */
    if (!a->waited_for_memory && a->n_prompt_cached == 0)
        fv_estimate_prefilled(&a->req->fleet->estimate, p ? &p->pace : NULL, a->p.prompt_ahead,
                              tokens_s(a, now_s - a->p.taken_s), now_s);
    if (!a->waited_for_memory && 2 * a->n_prompt_cached > a->n_prompt)
        fv_estimate_kept(&a->req->fleet->estimate, p ? &p->pace : NULL, a->p.n_ahead,
                         now_s - a->p.taken_s, now_s);
    fv_reservation_prompt_done(&a->p);
    a->token_s = now_s;
}

static fv_status on_first_token(fv_attempt *a, const first_message *first) {
    if (a->first_done) return FV_FAIL(FV_EDATA, "received two first tokens");
    measure_prefill(a);
    a->had_ended = replay_was_complete(a, first);
    if (!a->had_ended) FV_TRY(check_tokens(a->req, first->tokens));
    if (!first->finish && !(a->ticket && a->d.worker))
        return FV_FAIL(FV_EDATA, "the answer continues, but no decode worker has memory for it");
    a->first_done = true;
    a->finish = first->finish;
    fv_reservation_images_decoded(&a->p);
    if (first->finish) fv_reservation_give(&a->d, FV_OUTCOME_UNKNOWN, fv_clock_s());
    if (a->had_ended)
        a->events->begun(a->req);
    else
        a->events->tokens(a->req, first->tokens);
    if (!a->req || first->finish) return FV_OK;
    fv_status st = start_decode(a);
    if (st != FV_OK) fail(a, st, (fv_failure){0});
    return FV_OK;
}

/* Measures the time for images, unless some came from the cache and cost nothing. */
static void measure_images(const fv_attempt *a) {
    const Fovea__Inference__V1__Report *r = a->report;
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
    measure_images(a);
    return FV_OK;
}

/* Passes tokens of the prompt on, as fast as the client reads them. */
static fv_status on_prompt(fv_attempt *a, fv_rpc_call *c, fv_prompt_message *prompt) {
    a->events->prompt(a->req, a->n_prompt_event++, prompt);
    if (a->req && !fv_rpc_call_writable(a->req->client)) fv_rpc_call_pause(c);
    return FV_OK;
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
static bool can_continue(const fv_attempt *a, fv_status st) {
    return a->finish || a->finished || (a->first_done && st == FV_EIO);
}

static void prefill_over(fv_attempt *a, const fv_rpc_call *c, const fv_rpc_end *end) {
    fv_status st = worker_failure(end, "prefill", a->p.name);
    if (st == FV_OK && !a->first_done)
        st = FV_FAIL(FV_EDATA, "prefill worker %s ended before the first token", a->p.name);
    if (st == FV_OK || can_continue(a, st)) {
        a->prefill_done = true;
        fv_reservation_give(&a->p, outcome_of(st, end->origin), fv_clock_s());
        a->events->finished(a->req);
        return;
    }
    /* The fault may be the network between the two workers, so both are avoided. A healthy one
     * soon shows it with another call. */
    fv_failure f = {.avoid_p = true, .avoid_d = true};
    read_refusal(a, c, false, st, &f);
    fail(a, st, f);
}

static void on_prefill_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_attempt *a = fv_rpc_call_user(c);
    fv_worker_call_ended(&a->prefill, a->p.name, end);
    if (!a->req) {
        list_if_over(a);
        return;
    }
    a->relay->dispatch_due = true;
    prefill_over(a, c, end);
}

static const fv_rpc_events prefill_events = {.on_message = on_prefilled, .on_end = on_prefill_end};

/* ---- from outside ----------------------------------------------------------------------- */

void fv_attempt_need(const fv_request *r, fv_constraints *c) {
    const fv_request_bounds *need = &r->need;
    c->bytes = need->bytes;
    c->bytes_least = need->bytes_least;
    c->bytes_prompt = need->bytes_prompt;
    c->bytes_token = need->bytes_token;
    c->tokens = need->max_tokens > r->n_token ? need->max_tokens - r->n_token : 0;
    c->reserve_all = fv_request_reserves_all(r);
}

fv_status fv_attempt_start(fv_attempt *a, fv_registered_worker *p, fv_registered_worker *d) {
    const fv_request *r = a->req;
    const fv_kept kept = fv_kept_at(r, p);
    fv_worker_need of_p = {.pixels = kept.left.pixels, .suspect = r->n_lost > 0};
    fv_constraints at_d = {.ignore_slots = true};
    fv_attempt_need(r, &at_d);
    fv_worker_need of_d = {.bytes = d ? fv_balance_bytes(d, &at_d) : 0, .suspect = r->n_lost > 0};
    fv_reservation_take(&a->p, p, &of_p, fv_clock_s());
    fv_reservation_queue_prompt(&a->p, kept.left.prompt);
    a->hoped = kept;
    fv_kept_count(r, &kept);
    fv_kept_expect(r, p);
    if (d) fv_kept_expect(r, d);
    bool waits = d && !fv_registered_worker_has_room(d, &at_d);
    if (d) fv_reservation_take(&a->d, d, &of_d, fv_clock_s());
    if (waits) fv_reservation_mark_waiting(&a->d);
    a->waited_for_memory = waits;
    a->n_replay = r->n_token;
    return fv_worker_call_prefill(&a->prefill, r, p, d, &prefill_events, a);
}

fv_status fv_attempt_continue(fv_attempt *a, fv_registered_worker *d) {
    fv_reservation_take(&a->d, d, &(fv_worker_need){.bytes = a->req->need.bytes}, fv_clock_s());
    a->bytes_bound = a->req->need.bytes;
    a->first_done = a->prefill_done = true;
    return start_decode(a);
}

bool fv_attempt_waits(const fv_attempt *a) { return a->d.waits && a->d.worker && !a->ticket; }

bool fv_attempt_is_complete(const fv_attempt *a) {
    return a->prefill_done && (a->finish || a->finished);
}

/* After the first token the prefill worker is still needed until the decode worker has received everything. */
void fv_attempt_hang(fv_attempt *a, const fv_registered_worker *w) {
    bool p = a->p.worker == w && !a->report && !a->decoding && !a->finish;
    bool d = a->d.worker == w && !a->finished;
    if (!p && !d) return;
    fv_status st =
        FV_FAIL(FV_EIO, "%s worker %s hangs: no progress for %.0f s", d ? "decode" : "prefill",
                w->intro->name, 1e-3 * (double)a->relay->opt.stall_ms);
    fail(a, st, (fv_failure){.avoid_p = p, .avoid_d = d});
}

void fv_attempt_lose(fv_attempt *a, const fv_registered_worker *w) {
    bool p = a->p.worker == w, d = a->d.worker == w;
    if (p) a->p.worker = NULL;
    if (d) a->d.worker = NULL;
    bool left = w->state != FV_WORKER_LOST;
    if (left && !(d && !a->decode.rpc)) return; /* the worker's call ends with its own status */
    if ((d && !a->finished) || (p && !a->first_done)) {
        fv_status st =
            FV_FAIL(FV_EIO, "%s worker %s was lost", d ? "decode" : "prefill", w->intro->name);
        fail(a, st, (fv_failure){.avoid_p = p, .avoid_d = d});
    } else if (p) {
        a->prefill_done = true; /* its report is taken if it still comes */
        a->events->finished(a->req);
    }
}
