/* The loop's side of an outgoing hand-off: Open, Push and Release (grpc_internal.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/call_token.h"
#include "common/clock.h"
#include "common/log.h"
#include "handoff.pb-c.h"
#include "rpc/client.h"
#include "transport/frame.h"
#include "transport/grpc_internal.h"

enum {
    RELEASE_MS = 5000,
    PUSH_MS = 3600000, /* silence ends it long before */
    QUEUE_MAX = 4 * FV_FRAME_MAX,
    TICKS = 3, /* per lease */
};
/* ---- answers --------------------------------------------------------------------------- */

static void deliver(fv_job *job) { /* computing thread */
    fv_grpc_transfer *x = job->owner;
    fv_grpc_answer *a = job == &x->opened.job ? &x->opened : &x->closed;
    if (!x->ended) {
        if (a == &x->opened) x->ticket = a->reply.grant.ticket;
        a->done(a->user, &a->reply);
    }
    fv_grpc_unref(x);
}

static void give_answer(fv_grpc_transfer *x, fv_grpc_answer *a, const fv_reply *reply) {
    if (a->given || x->end_came) return;
    a->given = true;
    a->reply = *reply;
    a->reply.at_s = fv_clock_s();
    a->job = (fv_job){.run = deliver, .owner = x};
    atomic_fetch_add(&x->refs, 1);
    fv_jobs_post_followup(x->way->jobs, &a->job);
}

/* ---- the end of a transfer -------------------------------------------------------------- */

static void drop_frames(fv_grpc_transfer *x) {
    while (x->first) {
        fv_grpc_frame *f = x->first;
        x->first = f->next;
        if (f->message) grpc_byte_buffer_destroy(f->message);
        if (f->oob) fv_oob_frame_free(&x->oob, f->oob);
        free(f);
    }
    x->tail = &x->first;
    fv_oob_drop(&x->oob);
}

/* Drops the loop's references if the transfer is OVER and its memory returned. */
static void finish(fv_grpc_transfer *x) {
    drop_frames(x);
    if (x->phase != OVER || !x->is_parted) return;
    fv_grpc_transport *w = x->way;
    fv_grpc_unref(x);
    fv_grpc_way_unref(w);
}

static void on_clock_closed(uv_handle_t *h) { fv_grpc_unref(h->data); }

static void stop_clock(fv_grpc_transfer *x) {
    if (x->phase == PUSHING) uv_close((uv_handle_t *)&x->clock, on_clock_closed);
}

static void end_phase(fv_grpc_transfer *x) {
    stop_clock(x);
    x->phase = OVER;
}

static void fail_transfer(fv_grpc_transfer *x, const fv_reply *why) {
    end_phase(x);
    x->why = *why;
    atomic_store(&x->lost, true);
    if (x->way->pair) fv_peer_route_unwait(x->way->pair, &x->wait);
    give_answer(x, &x->opened, why);
    if (x->last_came) give_answer(x, &x->closed, why);
    finish(x);
}

fv_reply fv_grpc_own_failure(fv_status st) {
    fv_reply r = {.status = st};
    snprintf(r.text, sizeof r.text, "%s", fv_last_error());
    return r;
}

/* Makes the reply for a refusal by the other side, or for a call that failed. */
static fv_reply peer_failure(const fv_grpc_transfer *x, const fv_rpc_call *c,
                             const fv_rpc_end *end) {
    const char *name;
    size_t n;
    fv_reply r = {.status = end->status};
    if (c && fv_rpc_call_metadata(c, FV_REFUSAL_KEY, &name, &n))
        r.refusal = fv_refusal_named(name, n);
    if (r.refusal != FV_REFUSED_NONE) r.status = fv_refusal_status(r.refusal);
    if (r.status == FV_EDEADLINE) r.status = FV_EIO; /* this call's deadline, not the request's */
    fv_rpc_end said = *end;
    if (end->status == FV_OK) {
        said.status = r.status = FV_EDATA;
        said.text = "ended the hand-off early with status OK";
    }
    char who[128];
    snprintf(who, sizeof who, "decode worker at %s", x->way->target);
    fv_rpc_end_status(&said, who);
    snprintf(r.text, sizeof r.text, "%s", fv_last_error());
    return r;
}

/* ---- open ------------------------------------------------------------------------------ */

static fv_status read_grant(fv_rpc_call *c, grpc_byte_buffer *reply, fv_grant *out) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__grant__descriptor, reply, &m));
    const Fovea__Handoff__V1__Grant *g = (const Fovea__Handoff__V1__Grant *)m;
    if (!g->ticket || g->ticket->id.len != sizeof out->ticket.id || g->frame_max == 0 ||
        g->deadline_ms == 0)
        return FV_FAIL(FV_EDATA,
                       "the decode worker's grant lacks a ticket, a frame size or a deadline");
    memcpy(out->ticket.id, g->ticket->id.data, sizeof out->ticket.id);
    out->ticket.epoch = g->ticket->epoch;
    out->bytes = g->bytes;
    out->bytes_reserved = g->bytes_reserved;
    out->frame_max = g->frame_max;
    out->credits = g->credits;
    out->lease_s = 1e-3 * g->deadline_ms;
    out->n_kept = g->n_kept;
    out->n_kept_tail = g->n_kept_tail;
    out->rest_most = g->rest_most;
    return FV_OK;
}

static void release_grant(fv_grpc_transfer *x);
static fv_status begin_push(fv_grpc_transfer *x);

static void deliver_grant(fv_grpc_transfer *x) {
    fv_reply r = {.grant = x->grant};
    if (x->way->pair) atomic_store(&x->oob.usable, fv_peer_route_joined(x->way->pair));
    give_answer(x, &x->opened, &r);
}

static void on_pair_known(fv_peer_wait *wait) { deliver_grant(wait->owner); }

/* Delivers the grant, at once or after the peer link has joined or failed. */
static void answer_grant(fv_grpc_transfer *x) {
    x->wait = (fv_peer_wait){.known = on_pair_known, .owner = x};
    if (!x->way->pair || fv_peer_route_want(x->way->pair, &x->permit, &x->wait)) deliver_grant(x);
}

static void on_opened(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    fv_grpc_transfer *x = user;
    x->call = NULL;
    fv_reply r = {0};
    if (end->status != FV_OK)
        r = peer_failure(x, c, end);
    else if (read_grant(c, reply, &r.grant) != FV_OK)
        r = fv_grpc_own_failure(FV_EDATA);
    x->grant = r.grant;
    if (r.status == FV_OK && x->end_came) {
        release_grant(x);
        return;
    }
    fv_status st = r.status == FV_OK ? begin_push(x) : r.status;
    if (r.status == FV_OK && st != FV_OK) r = fv_grpc_own_failure(st);
    if (r.status == FV_OK)
        answer_grant(x);
    else
        fail_transfer(x, &r);
}

void fv_grpc_on_begin(fv_rpc_op *op, bool ok) {
    fv_grpc_transfer *x = op->owner;
    fv_grpc_transport *w = x->way;
    (void)ok;
    w->live++;
    if (w->pair) (void)fv_peer_route_want(w->pair, &x->permit, NULL);
    Fovea__Handoff__V1__OpenRequest m = FOVEA__HANDOFF__V1__OPEN_REQUEST__INIT;
    m.compat_hash = x->hello.compat.hash;
    m.compat = x->hello.compat.text;
    m.n_text = x->hello.n_text;
    m.n_visual = x->hello.n_visual;
    m.max_tokens = x->hello.max_tokens;
    m.bytes_visual = x->hello.bytes_visual;
    m.bytes_tables = x->hello.bytes_tables;
    m.n_reused_text = x->hello.n_reused_text;
    m.policy = x->policy;
    m.request_id = x->request_id;
    m.age_ms = x->asking.age_ms;
    m.wait_ms = x->asking.wait_ms;
    m.tenant = x->tenant;
    m.tenant_kv_bytes = x->asking.tenant_bytes;
    m.links = (ProtobufCBinaryData){(size_t)x->hello.n_link * FV_LINK_BYTES, x->links};
    m.n_names = x->n_name;
    m.names = x->names;
    m.n_tail = x->hello.n_tail;
    m.tail = x->ids;
    m.may_leave_rest = x->hello.may_leave_rest;
    m.reserve_all = x->asking.reserve_all;
    m.open_ended = x->asking.open_ended;
    m.n_replay = x->asking.n_replay;
    m.bytes_replay = x->asking.bytes_replay;
    m.adapter = x->adapter;
    fv_rpc_metadata token = {FV_CALL_TOKEN_KEY, x->open_token};
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Handoff/Open",
                               .deadline_ms = (int64_t)w->open_ms + x->asking.wait_ms,
                               .request = &m.base,
                               .metadata = &token,
                               .n_metadata = x->open_token[0] != '\0',
                               .trace = &x->asking.trace};
    fv_status st = fv_rpc_unary_with(w->channel, &opt, on_opened, x, &x->call);
    if (st == FV_OK) return;
    fv_reply r = fv_grpc_own_failure(st);
    fail_transfer(x, &r);
}

/* ---- push ------------------------------------------------------------------------------ */

/* Cancels the call after a failure on this side, which fv_last_error describes. */
static void cancel_after_own_failure(fv_grpc_transfer *x) {
    x->broken = fv_grpc_own_failure(FV_EIO);
    fv_rpc_call_cancel(x->call); /* push_end then reports the loss */
}

static fv_status send_message(fv_grpc_transfer *x, grpc_byte_buffer *message) {
    x->bytes_given += grpc_byte_buffer_length(message);
    return fv_rpc_call_send_buffer(x->call, message);
}

/* Whether the first frame has a message and may be sent. An out-of-band frame gets its message here, perhaps
 * later; the commit waits until all out-of-band frames have arrived. */
static bool first_is_due(fv_grpc_transfer *x) {
    fv_grpc_frame *f = x->first;
    if (f->last) return !fv_oob_pending(&x->oob);
    if (!fv_oob_may_send(&x->oob)) return false;
    if (f->oob) {
        fv_oob_frame *b = f->oob;
        f->oob = NULL;
        if (fv_oob_put(&x->oob, b, &f->message) != FV_OK) cancel_after_own_failure(x);
    }
    return f->message != NULL;
}

static void send_frames(fv_grpc_transfer *x) {
    while (x->first && x->call && fv_rpc_call_writable(x->call) && first_is_due(x)) {
        fv_grpc_frame *f = x->first;
        bool last = f->last;
        fv_oob_sent(&x->oob);
        x->first = f->next;
        if (!x->first) x->tail = &x->first;
        fv_status st = send_message(x, f->message);
        free(f);
        if (st != FV_OK) { /* the call has ended, and push_end will report it */
            fv_rpc_call_cancel(x->call);
            return;
        }
        if (last) fv_rpc_call_close_send(x->call);
    }
}

/* fv_oob_set.send: sends an out-of-band frame that falls back to the stream. */
static void on_oob_message(void *user, grpc_byte_buffer *message, bool in_turn) {
    fv_grpc_transfer *x = user;
    if (in_turn && x->first)
        x->first->message = message;
    else if (send_message(x, message) != FV_OK)
        fv_rpc_call_cancel(x->call);
    send_frames(x);
}

static void on_oob_changed(void *user) { send_frames(user); }

static void on_oob_failed(void *user) { cancel_after_own_failure(user); }

void fv_grpc_init_oob(fv_grpc_transfer *x) {
    fv_grpc_transport *w = x->way;
    x->oob = (fv_oob_set){.way = w->pair,
                          .bridge = w->bridge,
                          .jobs = w->jobs,
                          .user = x,
                          .send = on_oob_message,
                          .changed = on_oob_changed,
                          .failed = on_oob_failed};
}

static void push_writable(fv_rpc_call *c) { send_frames(fv_rpc_call_user(c)); }

static fv_status push_reply(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_grpc_transfer *x = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__push_reply__descriptor, message, &m));
    x->received = true;
    return FV_OK;
}

static fv_reply stall_failure(const fv_grpc_transfer *x) {
    return fv_grpc_own_failure(FV_FAIL(FV_EIO,
                                       "decode worker at %s has accepted no data for %.0f s",
                                       x->way->target, x->grant.lease_s));
}

static void push_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_grpc_transfer *x = fv_rpc_call_user(c);
    x->call = NULL;
    if (end->status == FV_OK && x->received && x->last_came) {
        fv_reply r = {.grant = x->grant};
        x->committed = true;
        end_phase(x);
        give_answer(x, &x->closed, &r);
        if (x->end_came && !x->keep)
            release_grant(x);
        else
            finish(x);
    } else if (x->end_came) { /* the other side may never have seen the cancelled call */
        release_grant(x);
    } else {
        fv_reply r = x->broken.status != FV_OK ? x->broken
                     : x->stalled              ? stall_failure(x)
                                               : peer_failure(x, c, end);
        fail_transfer(x, &r);
    }
}

/* Sends a keep-alive. */
static void send_keep_alive(fv_grpc_transfer *x) {
    grpc_byte_buffer *message;
    if (fv_rpc_frame_alive(&x->grant.ticket, &message) == FV_OK) (void)send_message(x, message);
}

static void on_tick(uv_timer_t *clock) {
    fv_grpc_transfer *x = clock->data;
    if (!x->call) return;
    size_t queued = fv_rpc_call_bytes_queued(x->call);
    /* out-of-band frames have their own deadline; until then keep-alives are sent */
    bool waits = !fv_oob_pending(&x->oob) && (x->first || x->last_came || queued > 0);
    x->n_still = waits && x->bytes_given - queued == x->bytes_moved ? x->n_still + 1 : 0;
    x->bytes_moved = x->bytes_given - queued;
    if (!waits) {
        send_keep_alive(x);
    } else if (x->n_still >= TICKS && !x->stalled) {
        x->stalled = true;
        fv_rpc_call_cancel(x->call); /* push_end then reports the loss */
    }
}

static void start_clock(fv_grpc_transfer *x) {
    uint64_t ms = (uint64_t)(1e3 * x->grant.lease_s / TICKS) + 1;
    uv_timer_init(fv_bridge_loop(x->way->bridge), &x->clock);
    x->clock.data = x;
    atomic_fetch_add(&x->refs, 1);
    uv_timer_start(&x->clock, on_tick, ms, ms);
}

/* Opens the stream at once, so that the other side notices if this sender dies. */
static fv_status begin_push(fv_grpc_transfer *x) {
    static const fv_rpc_events events = {
        .on_message = push_reply, .on_writable = push_writable, .on_end = push_end};
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Handoff/Push",
                               .events = &events,
                               .user = x,
                               .deadline_ms = PUSH_MS,
                               .trace = &x->asking.trace,
                               .queue_max = QUEUE_MAX};
    FV_TRY(fv_rpc_call_open(x->way->channel, &opt, &x->call));
    x->phase = PUSHING;
    start_clock(x);
    send_keep_alive(x);
    return FV_OK;
}

void fv_grpc_on_frame(fv_rpc_op *op, bool ok) {
    fv_grpc_frame *f = op->owner;
    fv_grpc_transfer *x = f->x;
    (void)ok;
    x->last_came = x->last_came || f->last;
    f->next = NULL;
    *x->tail = f;
    x->tail = &f->next;
    if (x->phase == PUSHING && x->call) {
        send_frames(x);
        return;
    }
    drop_frames(x);
    if (x->last_came) give_answer(x, &x->closed, &x->why);
}

/* ---- end ------------------------------------------------------------------------------- */

static void on_released(void *user, const fv_rpc_end *end, fv_rpc_call *c,
                        grpc_byte_buffer *reply) {
    fv_grpc_transfer *x = user;
    (void)c, (void)reply;
    if (end->status != FV_OK)
        FV_LOG(INFO, WIRE, "event=release-failed target=%s text=\"%s\"", x->way->target, end->text);
    x->phase = OVER;
    finish(x);
}

/* Releases the grant explicitly, because the other side may not learn of the cancelled call. */
static void release_grant(fv_grpc_transfer *x) {
    Fovea__Handoff__V1__Ticket t = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Handoff__V1__ReleaseRequest m = FOVEA__HANDOFF__V1__RELEASE_REQUEST__INIT;
    stop_clock(x);
    x->phase = OPENING; /* waits for an answer again */
    t.id = (ProtobufCBinaryData){sizeof x->grant.ticket.id, x->grant.ticket.id};
    t.epoch = x->grant.ticket.epoch;
    m.ticket = &t;
    if (fv_rpc_unary(x->way->channel, "/fovea.handoff.v1.Handoff/Release", &m.base, RELEASE_MS,
                     on_released, x, NULL) == FV_OK)
        return;
    x->phase = OVER;
    finish(x);
}

void fv_grpc_on_ended(fv_rpc_op *op, bool ok) {
    fv_grpc_transfer *x = op->owner;
    (void)ok;
    x->end_came = true;
    drop_frames(x);
    if (x->phase == PUSHING && x->call)
        fv_rpc_call_cancel(x->call); /* leads to push_end */
    else if (x->phase == OVER && x->committed && !x->keep)
        release_grant(x);
    else if (x->phase == OPENING && x->call && x->asking.wait_ms)
        fv_rpc_call_cancel(x->call); /* a long wait for memory would delay other requests */
    /* OPENING without a wait for memory: the answer comes soon, and on_opened releases its grant. Cancelling
     * could cross a grant, whose memory would be held until the lease runs out. */
    fv_grpc_give_back(x); /* no more frames are posted */
}

void fv_grpc_on_memory_returned(fv_rpc_op *op, bool ok) {
    fv_grpc_transfer *x = op->owner;
    (void)ok;
    x->is_parted = true;
    finish(x);
}
