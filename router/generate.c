/* Requests: their queue, the calls to two workers on behalf of each, and the stream back. Events go
 * to the client as they come; the end waits for both halves of the report. Loop thread. */
#include "router/generate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/clock.h"
#include "common/log.h"
#include "handoff.pb-c.h"
#include "router/admit.h"
#include "router/choose.h"
#include "router/merge.h"
#include "wire/rpc_message.h"

#define PREFILL_ROLE FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL
#define DECODE_ROLE FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE

typedef Fovea__Inference__V1__GenerateRequest request_message;
typedef Fovea__Inference__V1__GenerateEvent event_message;
typedef Fovea__Inference__V1__Tokens tokens_message;
typedef Fovea__Inference__V1__Finished finished_message;
typedef Fovea__Handoff__V1__PrefillEvent prefill_event;
typedef Fovea__Handoff__V1__Ticket ticket_message;

enum { NAME_MAX_BYTES = 128, QUEUE_FULL_RETRY_MS = 1000 };

typedef enum state { QUEUED, PREFILL, DECODE, OVER } state;

typedef struct request {
    struct request *next; /* of all, the queue's in their order */
    fv_relay *relay;
    state state;
    fv_rpc_call *client, *prefill, *decode; /* borrowed; NULL before and after */
    const request_message *msg;             /* the client call's */
    size_t bytes;                           /* of the message */
    char id[NAME_MAX_BYTES + 1];
    fv_need need;
    double arrived_s, started_s, first_s, not_before_s;

    fv_member *p, *d; /* where something is noted for it; else NULL */
    uint64_t noted;   /* bytes at d */
    char p_name[NAME_MAX_BYTES], d_name[NAME_MAX_BYTES];

    fv_arena arena; /* what the workers said */
    ticket_message *ticket;
    const Fovea__Inference__V1__Report *report; /* the prefill worker's half */
    const finished_message *finished;           /* the decode worker's */
    bool accepted, prefill_done;
    Fovea__Inference__V1__FinishReason first_finish; /* the first token was the last */
    uint32_t n_tokens;
    uint64_t *digest; /* [n_tokens] in the arena, when asked for */
    size_t cap_digest;
    /* The decode worker's call failed for what may be the prefill worker's doing: it will say. */
    fv_status decode_failed;
    char decode_why[FV_RPC_TEXT_MAX];
} request;

struct fv_relay {
    fv_relay_options opt;
    request *first, **tail;
    int32_t n_queued, n_running, n_alive;
    size_t bytes;
    uint64_t random, n_request;
    bool dispatching;
};

/* ---- the end of a request --------------------------------------------------------------- */

static void release_prefill(request *r) {
    if (r->p) r->p->n_taken--;
    r->p = NULL;
}

static void release_decode(request *r) {
    if (r->d) {
        r->d->n_taken--;
        r->d->bytes_taken -= r->noted;
    }
    r->d = NULL;
    r->noted = 0;
}

static void set_state(request *r, state to) {
    fv_relay *relay = r->relay;
    relay->n_queued += (to == QUEUED) - (r->state == QUEUED);
    relay->n_running +=
        (to == PREFILL || to == DECODE) - (r->state == PREFILL || r->state == DECODE);
    r->state = to;
}

static void maybe_free(request *r) {
    if (r->client || r->prefill || r->decode) return;
    fv_relay *relay = r->relay;
    request **at = &relay->first;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    if (!*at) relay->tail = at;
    relay->n_alive--;
    fv_arena_fini(&r->arena);
    free(r);
}

/* Nothing more is done for it, and nothing is held. */
static void end_work(request *r) {
    if (r->state == OVER) return;
    set_state(r, OVER);
    if (r->prefill) fv_rpc_call_cancel(r->prefill);
    if (r->decode) fv_rpc_call_cancel(r->decode);
    release_prefill(r);
    release_decode(r);
    fv_relay_dispatch(r->relay);
}

/* Ends it for the client, with the last error when st is one. */
static void finish(request *r, fv_status st) {
    if (r->state == OVER) return;
    if (st != FV_OK)
        FV_LOG(WARN, ROUTER, "req=%s event=failed status=%s prefill=%s decode=%s why=\"%s\"", r->id,
               fv_status_name(st), r->p_name, r->d_name, fv_last_error());
    fv_rpc_call_finish(r->client, st);
    end_work(r);
}

/* ---- to the client ---------------------------------------------------------------------- */

static fv_status send_accepted(request *r, uint64_t bytes_bound) {
    if (r->accepted) return FV_OK;
    Fovea__Inference__V1__Accepted a = FOVEA__INFERENCE__V1__ACCEPTED__INIT;
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    a.request_id = r->id;
    a.prefill_worker = r->p_name;
    a.decode_worker = r->d_name;
    a.bytes_bound = bytes_bound;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED;
    e.accepted = &a;
    FV_TRY(fv_rpc_call_send(r->client, &e.base));
    r->accepted = true;
    return FV_OK;
}

/* Of tokens that the client is about to get. */
static fv_status note_digests(request *r, const tokens_message *t) {
    if (!r->msg->digests) return FV_OK;
    if (r->n_tokens + t->n_tokens > r->cap_digest) {
        size_t cap = 2 * (r->n_tokens + t->n_tokens) + 64;
        uint64_t *grown;
        FV_TRY(FV_ARENA_NEW(&r->arena, cap, grown));
        if (r->digest) memcpy(grown, r->digest, r->n_tokens * sizeof *grown);
        r->digest = grown;
        r->cap_digest = cap;
    }
    for (size_t i = 0; i < t->n_tokens; i++) r->digest[r->n_tokens + i] = t->tokens[i]->digest;
    return FV_OK;
}

static fv_status send_tokens(request *r, tokens_message *t) {
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS;
    e.tokens = t;
    FV_TRY(note_digests(r, t));
    FV_TRY(fv_rpc_call_send(r->client, &e.base));
    r->n_tokens += (uint32_t)t->n_tokens;
    return FV_OK;
}

static fv_status send_finished(request *r) {
    fv_relay_facts facts = {.n_generated = r->n_tokens,
                            .seconds_first_token = r->first_s - r->arrived_s,
                            .seconds_queued = r->started_s - r->arrived_s,
                            .n_digest = r->digest ? r->n_tokens : 0,
                            .digest = r->digest,
                            .prefill_worker = r->p_name,
                            .decode_worker = r->d_name};
    Fovea__Inference__V1__Report report;
    FV_TRY(fv_report_merge(r->report, r->finished ? r->finished->report : NULL, &facts, &r->arena,
                           &report));
    finished_message f = FOVEA__INFERENCE__V1__FINISHED__INIT;
    event_message e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    f.reason = r->finished ? r->finished->reason : r->first_finish;
    f.report = &report;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED;
    e.finished = &f;
    return fv_rpc_call_send(r->client, &e.base);
}

/* The last message, when all has been said; a client that reads slowly gets it later. */
static void maybe_finish(request *r) {
    if (r->state == OVER || !r->prefill_done) return;
    if (r->decode_failed != FV_OK) {
        finish(r, FV_FAIL(r->decode_failed, "%s", r->decode_why));
        return;
    }
    if (!r->first_finish && !r->finished) return;
    if (!fv_rpc_call_writable(r->client)) return;
    fv_status st = send_finished(r);
    FV_LOG(INFO, ROUTER, "req=%s event=done tokens=%" PRIu32 " prefill=%s decode=%s", r->id,
           r->n_tokens, r->p_name, r->d_name);
    finish(r, st);
}

/* ---- decode ----------------------------------------------------------------------------- */

static fv_status on_decoded(fv_rpc_call *c, grpc_byte_buffer *message) {
    request *r = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    if (r->state == OVER) return FV_OK;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const event_message *e = (const event_message *)m;
    if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS) {
        FV_TRY(send_tokens(r, e->tokens));
        if (!fv_rpc_call_writable(r->client)) fv_rpc_call_pause(c);
    } else if (e->event_case == FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED) {
        FV_TRY(fv_rpc_unpack(&fovea__inference__v1__generate_event__descriptor, message, &r->arena,
                             &m));
        r->finished = ((const event_message *)m)->finished;
    }
    return FV_OK;
}

static fv_status worker_failure(const fv_rpc_end *end, const char *role, const char *name) {
    char who[NAME_MAX_BYTES + 32];
    /* What is the client's own mistake is told without the way it took. */
    if (end->status == FV_EINVAL) return FV_FAIL(FV_EINVAL, "%s", end->text);
    snprintf(who, sizeof who, "%s worker %s", role, name);
    return fv_rpc_end_status(end, who);
}

static void on_decode_end(fv_rpc_call *c, const fv_rpc_end *end) {
    request *r = fv_rpc_call_user(c);
    r->decode = NULL;
    if (r->state != OVER) {
        fv_status st = worker_failure(end, "decode", r->d_name);
        if (st == FV_OK && !r->finished)
            st = FV_FAIL(FV_EDATA, "decode worker %s ended before the answer did", r->d_name);
        release_decode(r);
        if (st == FV_ENOTFOUND) st = FV_EIO; /* it knows nothing of our ticket: it was lost there */
        if (st != FV_OK && st != FV_EDEVICE && !r->prefill_done &&
            end->code != GRPC_STATUS_UNAVAILABLE) {
            r->decode_failed = st;
            snprintf(r->decode_why, sizeof r->decode_why, "%s", fv_last_error());
        } else if (st != FV_OK) {
            finish(r, st);
        } else {
            maybe_finish(r);
            fv_relay_dispatch(r->relay);
        }
    }
    maybe_free(r);
}

static const fv_rpc_events decode_events = {.on_message = on_decoded, .on_end = on_decode_end};

static fv_status start_decode(request *r) {
    Fovea__Handoff__V1__DecodeRequest m = FOVEA__HANDOFF__V1__DECODE_REQUEST__INIT;
    m.request_id = r->id;
    m.source_case = FOVEA__HANDOFF__V1__DECODE_REQUEST__SOURCE_TICKET;
    m.ticket = r->ticket;
    m.max_tokens = r->need.max_tokens;
    m.n_stop = r->msg->n_stop;
    m.stop = r->msg->stop;
    m.ignore_eos = r->msg->ignore_eos;
    m.n_logprobs = r->msg->n_logprobs;
    m.digests = r->msg->digests;
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Decode/Decode",
                               .events = &decode_events,
                               .user = r,
                               .deadline_ms = r->relay->opt.deadline_ms,
                               .request = &m.base,
                               .half_close = true,
                               .parent = r->client};
    FV_TRY(fv_rpc_call_open(r->d->channel, &opt, &r->decode));
    set_state(r, DECODE);
    return FV_OK;
}

/* ---- prefill ---------------------------------------------------------------------------- */

static fv_status on_begun(request *r, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_unpack(&fovea__handoff__v1__prefill_event__descriptor, message, &r->arena, &m));
    const Fovea__Handoff__V1__Begun *b = ((const prefill_event *)m)->begun;
    r->ticket = b->ticket;
    if (r->d) { /* now the exact number is known */
        r->d->bytes_taken += b->bytes_bound - r->noted;
        r->noted = b->bytes_bound;
    }
    return send_accepted(r, b->bytes_bound);
}

static fv_status on_first_token(request *r, const Fovea__Handoff__V1__FirstToken *first) {
    if (r->first_s > 0)
        return FV_FAIL(FV_EDATA, "prefill worker %s sent two first tokens", r->p_name);
    if (!first->tokens || first->tokens->n_tokens == 0)
        return FV_FAIL(FV_EDATA, "prefill worker %s sent no first token", r->p_name);
    r->first_s = fv_clock_s();
    FV_TRY(send_accepted(r, r->noted));
    FV_TRY(send_tokens(r, first->tokens));
    r->first_finish = first->finish;
    if (first->finish) {
        release_decode(r);
        return FV_OK;
    }
    if (!r->ticket || !r->d)
        return FV_FAIL(FV_EDATA, "prefill worker %s went on without room at a decode worker",
                       r->p_name);
    return start_decode(r);
}

static fv_status on_prefilled(fv_rpc_call *c, grpc_byte_buffer *message) {
    request *r = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    if (r->state == OVER) return FV_OK;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__prefill_event__descriptor, message, &m));
    const prefill_event *e = (const prefill_event *)m;
    switch (e->event_case) {
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_BEGUN: return on_begun(r, message);
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_FIRST_TOKEN:
        return on_first_token(r, e->first_token);
    case FOVEA__HANDOFF__V1__PREFILL_EVENT__EVENT_HANDED_OFF:
        FV_TRY(
            fv_rpc_unpack(&fovea__handoff__v1__prefill_event__descriptor, message, &r->arena, &m));
        r->report = ((const prefill_event *)m)->handed_off->report;
        return FV_OK;
    default: return FV_OK;
    }
}

/* Back to the head of the queue: there was no room after all, and the client knows nothing yet. */
static void requeue(request *r, int64_t retry_ms) {
    FV_LOG(DEBUG, ROUTER, "req=%s event=no-room prefill=%s decode=%s why=\"%s\"", r->id, r->p_name,
           r->d_name, fv_last_error());
    release_prefill(r);
    release_decode(r);
    r->not_before_s = fv_clock_s() + 1e-3 * (double)(retry_ms < 0 ? 0 : retry_ms);
    set_state(r, QUEUED);
}

static void on_prefill_end(fv_rpc_call *c, const fv_rpc_end *end) {
    request *r = fv_rpc_call_user(c);
    r->prefill = NULL;
    if (r->state != OVER) {
        fv_status st = worker_failure(end, "prefill", r->p_name);
        if (st == FV_OK && r->first_s == 0)
            st = FV_FAIL(FV_EDATA, "prefill worker %s ended before the first token", r->p_name);
        if (st == FV_EBUSY && !r->accepted) {
            requeue(r, end->retry_ms);
        } else if (st != FV_OK) {
            finish(r, st == FV_ENOTFOUND ? FV_EIO : st);
        } else {
            r->prefill_done = true;
            release_prefill(r);
            maybe_finish(r);
        }
        fv_relay_dispatch(r->relay);
    }
    maybe_free(r);
}

static const fv_rpc_events prefill_events = {.on_message = on_prefilled, .on_end = on_prefill_end};

static fv_status start_prefill(request *r) {
    Fovea__Handoff__V1__PrefillRequest m = FOVEA__HANDOFF__V1__PREFILL_REQUEST__INIT;
    request_message checked = *r->msg;
    checked.request_id = r->id;
    checked.max_tokens = r->need.max_tokens;
    m.request = &checked;
    if (r->d) m.decode_address = r->d->intro->address;
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Prefill/Prefill",
                               .events = &prefill_events,
                               .user = r,
                               .deadline_ms = r->relay->opt.deadline_ms,
                               .request = &m.base,
                               .half_close = true,
                               .parent = r->client};
    FV_TRY(fv_rpc_call_open(r->p->channel, &opt, &r->prefill));
    r->started_s = fv_clock_s();
    set_state(r, PREFILL);
    return FV_OK;
}

/* ---- the queue -------------------------------------------------------------------------- */

static void take(fv_member *w, char name[NAME_MAX_BYTES]) {
    w->n_taken++;
    snprintf(name, NAME_MAX_BYTES, "%s", w->intro->name);
}

/* Notes room on a pair of workers: the scarcer one, D, first. */
static bool choose_pair(request *r) {
    fv_relay *relay = r->relay;
    fv_members *m = relay->opt.members;
    bool alone = r->need.max_tokens == 1; /* the prefill worker's token is the answer */
    fv_member *d = alone ? NULL : fv_choose(m, DECODE_ROLE, r->need.bytes, &relay->random);
    if (!d && !alone) return false;
    fv_member *p = fv_choose(m, PREFILL_ROLE, 0, &relay->random);
    if (!p) return false;
    r->p = p;
    r->d = d;
    take(p, r->p_name);
    r->d_name[0] = '\0';
    if (d) {
        take(d, r->d_name);
        r->noted = r->need.bytes;
        d->bytes_taken += r->noted;
    }
    return true;
}

static fv_status check_waiting(const request *r, double now_s) {
    const fv_members *m = r->relay->opt.members;
    if (!fv_members_ready(m, PREFILL_ROLE))
        return FV_FAIL(FV_EIO, "there is no prefill worker in the fleet now; try again later");
    if (!fv_members_ready(m, DECODE_ROLE))
        return FV_FAIL(FV_EIO, "there is no decode worker in the fleet now; try again later");
    if ((now_s - r->arrived_s) * 1000 > (double)r->relay->opt.deadline_ms)
        return FV_FAIL(FV_EBUSY, "the fleet had no room for %.0f s", now_s - r->arrived_s);
    return FV_OK;
}

static request *first_queued(const fv_relay *relay) {
    request *r = relay->first;
    while (r && r->state != QUEUED) r = r->next;
    return r;
}

void fv_relay_dispatch(fv_relay *relay) {
    if (relay->dispatching) return; /* what ends a request in here is seen by the loop below */
    relay->dispatching = true;
    request *r;
    while ((r = first_queued(relay))) {
        double now_s = fv_clock_s();
        fv_status st = check_waiting(r, now_s);
        if (st == FV_OK && (now_s < r->not_before_s || !choose_pair(r))) break;
        if (st == FV_OK) st = start_prefill(r);
        if (st != FV_OK) finish(r, st);
    }
    relay->dispatching = false;
}

/* ---- the client's call ------------------------------------------------------------------ */

static fv_relay *relay_of(const fv_rpc_call *c) { return *(fv_relay **)fv_rpc_call_service(c); }

static request *find(const fv_relay *relay, const char *id) {
    request *r = relay->first;
    while (r && (r->state == OVER || strcmp(r->id, id) != 0)) r = r->next;
    return r;
}

static fv_status on_start(fv_rpc_call *c) {
    fv_relay *relay = relay_of(c);
    if (relay->n_queued >= relay->opt.queue_max || relay->bytes > relay->opt.bytes_max) {
        fv_rpc_call_retry_after(c, QUEUE_FULL_RETRY_MS);
        return FV_FAIL(FV_EBUSY, "%d requests wait already; try again later", relay->n_queued);
    }
    request *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "no memory for another request");
    r->relay = relay;
    r->client = c;
    r->state = OVER; /* until it is known to be right */
    *relay->tail = r;
    relay->tail = &r->next;
    relay->n_alive++;
    fv_rpc_call_set_user(c, r);
    return FV_OK;
}

static fv_status on_request(fv_rpc_call *c, grpc_byte_buffer *message) {
    request *r = fv_rpc_call_user(c);
    fv_relay *relay = r->relay;
    ProtobufCMessage *m;
    r->bytes = grpc_byte_buffer_length(message);
    relay->bytes += r->bytes;
    fv_status st = fv_rpc_unpack(&fovea__inference__v1__generate_request__descriptor, message,
                                 fv_rpc_call_arena(c), &m);
    if (st != FV_OK) return st == FV_EDATA ? FV_EINVAL : st;
    r->msg = (const request_message *)m;
    r->arrived_s = fv_clock_s();
    const fv_model_message *model = fv_members_model(relay->opt.members);
    if (!model) return FV_FAIL(FV_EIO, "no prefill worker has joined the fleet; try again later");
    FV_TRY(fv_admit(r->msg, model, &r->need));
    FV_TRY(check_waiting(r, r->arrived_s));
    if (r->msg->request_id[0] && find(relay, r->msg->request_id))
        return FV_FAIL(FV_EINVAL, "request_id %s runs already", r->msg->request_id);
    if (r->msg->request_id[0])
        snprintf(r->id, sizeof r->id, "%s", r->msg->request_id);
    else
        snprintf(r->id, sizeof r->id, "req-%08" PRIx32 "-%" PRIu64, (uint32_t)relay->random,
                 ++relay->n_request);
    set_state(r, QUEUED);
    fv_relay_dispatch(relay);
    return FV_OK;
}

static void on_writable(fv_rpc_call *c) {
    request *r = fv_rpc_call_user(c);
    if (r->state == OVER) return;
    if (r->decode) fv_rpc_call_resume(r->decode);
    maybe_finish(r);
}

static void on_cancel(fv_rpc_call *c) {
    request *r = fv_rpc_call_user(c);
    if (!r || r->state == OVER) return;
    FV_LOG(INFO, ROUTER, "req=%s event=cancelled tokens=%" PRIu32, r->id, r->n_tokens);
    end_work(r);
}

static void on_client_end(fv_rpc_call *c, const fv_rpc_end *end) {
    request *r = fv_rpc_call_user(c);
    (void)end;
    if (!r) return;
    end_work(r);
    r->relay->bytes -= r->bytes;
    r->msg = NULL;
    r->client = NULL;
    maybe_free(r);
}

const fv_rpc_events fv_generate_events = {.on_start = on_start,
                                          .on_message = on_request,
                                          .on_writable = on_writable,
                                          .on_cancel = on_cancel,
                                          .on_end = on_client_end};

/* ---- from outside ----------------------------------------------------------------------- */

void fv_relay_gone(fv_relay *relay, fv_member *w) {
    /* Nothing is freed in here: the calls end later. */
    for (request *r = relay->first; r; r = r->next)
        if (r->p == w || r->d == w)
            finish(r, FV_FAIL(FV_EIO, "%s worker %s was lost; send the request again",
                              r->p == w ? "prefill" : "decode", w->intro->name));
    fv_relay_dispatch(relay);
}

fv_status fv_relay_abort(fv_relay *relay, const char *id) {
    request *r = find(relay, id);
    if (!r) return FV_FAIL(FV_ENOTFOUND, "no request %s runs", id);
    finish(r, FV_FAIL(FV_ECANCELLED, "request %s was aborted", id));
    return FV_OK;
}

int32_t fv_relay_queued(const fv_relay *r) { return r->n_queued; }
int32_t fv_relay_running(const fv_relay *r) { return r->n_running; }
int32_t fv_relay_alive(const fv_relay *r) { return r->n_alive; }

fv_status fv_relay_open(const fv_relay_options *opt, fv_relay **out) {
    fv_relay *relay = calloc(1, sizeof *relay);
    if (!relay) return FV_FAIL(FV_ENOMEM, "no memory for requests");
    relay->opt = *opt;
    relay->tail = &relay->first;
    if (getrandom(&relay->random, sizeof relay->random, 0) != sizeof relay->random ||
        relay->random == 0)
        relay->random = 0x9e3779b97f4a7c15u;
    *out = relay;
    return FV_OK;
}

void fv_relay_close(fv_relay *relay) { free(relay); }
