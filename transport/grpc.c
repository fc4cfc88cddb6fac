/* The sending side of a hand-off over gRPC. A transfer is shared by two threads, each with fields
 * of its own: the computing thread makes frames that point into the store's memory and posts them,
 * the loop thread sends them as the call accepts them. Shared data travels with the posts.
 *
 *                 begin              Grant: Push opens              PushReply
 *   loop side:   ------> OPENING -----------------------> PUSHING --------------> OVER
 *                           |  refused, lost                 |  refused, lost       ^
 *                           |  end                           |  end, silence        |
 *                           '--------------------------------'------> Release ------'
 *
 * While PUSHING a timer fires a few times per lease: without anything to send, the sender
 * sends a keep-alive; if there is something and nothing is taken for a whole lease, the hand-off is
 * lost.
 *
 * References to a transfer: the computing side's until it was told that everything is `gone`, the
 * loop side's until then and OVER, the timer's, one for each reply on its way. Loans of the
 * sender's memory: one while more frames may be posted (until `end` has reached the loop) and one
 * for each frame that gRPC or the loop still has; with the last, the memory belongs to the sender
 * again.
 *
 * The alternative, copying the KV, would avoid waiting for loans, but
 * each hand-off would need its size in memory twice. */
#include "transport/grpc.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auth/call_token.h"
#include "auth/role.h"
#include "common/clock.h"
#include "common/log.h"
#include "handoff.pb-c.h"
#include "rpc/client.h"
#include "transport/frame.h"
#include "transport/out_of_band_internal.h"

enum {
    OPEN_MS = 10000,
    RELEASE_MS = 5000,
    PUSH_MS = 3600000, /* silence ends it long before */
    QUEUE_MAX = 4 * FV_FRAME_MAX,
    TICKS = 3, /* in a lease */
};

typedef struct way {
    fv_transport base;
    fv_bridge *bridge;
    fv_jobs *jobs;
    fv_rpc_channel *channel;
    fv_peers *pairs;     /* borrowed; NULL: none */
    fv_peer_route *pair; /* NULL: likewise */
    char *target;
    int32_t open_ms;
    int32_t live; /* loop: transfers that are not over */
    bool closing;
    fv_rpc_op gone; /* says `closed` when nothing is live */
    void (*closed)(void *user);
    void *user;
} way;

typedef struct transfer transfer;

/* A frame, or the commit, on its way from the computing thread to the call. */
typedef struct frame {
    fv_rpc_op op;
    transfer *x;
    struct frame *next;
    grpc_byte_buffer *message; /* owned */
    fv_oob_frame *oob;         /* owned, instead: until it is put, it has no message */
    bool last;
} frame;

/* An answer on its way to the computing thread. */
typedef struct answer {
    fv_job job;
    fv_reply reply;
    fv_on_reply done;
    void *user;
    bool given; /* loop: posted */
} answer;

typedef enum phase { OPENING = 0, PUSHING, OVER } phase;

struct transfer {
    fv_transfer base;
    way *way; /* borrowed */
    atomic_int refs;
    fv_hello hello;   /* its policy is `policy` */
    fv_asking asking; /* its texts are the next ones */
    char *policy, *request_id, *tenant, *open_token, *pair_token;
    fv_peer_permit permit; /* `pair_token` */
    answer opened, closed;
    /* computing thread */
    bool ended;
    fv_ticket ticket;
    bool keep; /* with `end` */
    void (*gone)(void *user);
    void *gone_user;
    /* loop thread */
    fv_rpc_op begin, end, parted;
    phase phase;
    bool end_came, is_parted, last_came, received, stalled, committed;
    fv_rpc_call *call; /* Open's, then Push's */
    fv_grant grant;
    frame *first, **tail; /* frames that wait for the call */
    fv_oob_set oob;
    fv_peer_wait wait; /* for a pair, with the grant in hand */
    fv_reply broken;   /* why this side has cancelled the call, when its status is not FV_OK */
    uv_timer_t clock;
    uint64_t bytes_given, bytes_moved; /* to the call; by it, at the last tick */
    int32_t n_still;                   /* ticks in which nothing moved */
    /* both */
    atomic_bool lost; /* why it failed is in `why` and changes no more */
    fv_reply why;
    atomic_int loans;
    fv_job returned; /* the last loan */
};

static void unref(transfer *x) {
    if (atomic_fetch_sub(&x->refs, 1) != 1) return;
    free(x->policy);
    free(x->request_id);
    free(x->tenant);
    free(x->open_token);
    free(x->pair_token);
    free(x);
}

/* ---- answers --------------------------------------------------------------------------- */

static void deliver(fv_job *job) { /* computing thread */
    transfer *x = job->owner;
    answer *a = job == &x->opened.job ? &x->opened : &x->closed;
    if (!x->ended) {
        if (a == &x->opened) x->ticket = a->reply.grant.ticket;
        a->done(a->user, &a->reply);
    }
    unref(x);
}

static void give_answer(transfer *x, answer *a, const fv_reply *reply) {
    if (a->given || x->end_came) return;
    a->given = true;
    a->reply = *reply;
    a->reply.at_s = fv_clock_s();
    a->job = (fv_job){.run = deliver, .owner = x};
    atomic_fetch_add(&x->refs, 1);
    fv_jobs_follow(x->way->jobs, &a->job);
}

/* ---- the loop's side: how it ends ------------------------------------------------------- */

static void way_unref(way *w);

static void drop_frames(transfer *x) {
    while (x->first) {
        frame *f = x->first;
        x->first = f->next;
        if (f->message) grpc_byte_buffer_destroy(f->message);
        if (f->oob) fv_oob_frame_free(&x->oob, f->oob);
        free(f);
    }
    x->tail = &x->first;
    fv_oob_drop(&x->oob);
}

/* Nothing is under way for it any more. */
static void finish(transfer *x) {
    drop_frames(x);
    if (x->phase != OVER || !x->is_parted) return;
    way *w = x->way;
    unref(x);
    way_unref(w);
}

static void on_clock_closed(uv_handle_t *h) { unref(h->data); }

static void stop_clock(transfer *x) {
    if (x->phase == PUSHING) uv_close((uv_handle_t *)&x->clock, on_clock_closed);
}

static void become_over(transfer *x) {
    stop_clock(x);
    x->phase = OVER;
}

static void lose(transfer *x, const fv_reply *why) {
    become_over(x);
    x->why = *why;
    atomic_store(&x->lost, true);
    if (x->way->pair) fv_peer_route_unwait(x->way->pair, &x->wait);
    give_answer(x, &x->opened, why);
    if (x->last_came) give_answer(x, &x->closed, why);
    finish(x);
}

static fv_reply own_failure(fv_status st) {
    fv_reply r = {.status = st};
    snprintf(r.text, sizeof r.text, "%s", fv_last_error());
    return r;
}

/* What the other side said, or what kept it from saying anything. */
static fv_reply peer_failure(const transfer *x, const fv_rpc_call *c, const fv_rpc_end *end) {
    const char *name;
    size_t n;
    fv_reply r = {.status = end->status};
    if (c && fv_rpc_call_metadata(c, FV_REFUSAL_KEY, &name, &n))
        r.refusal = fv_refusal_named(name, n);
    if (r.refusal != FV_REFUSED_NONE) r.status = fv_refusal_status(r.refusal);
    if (r.status == FV_EDEADLINE) r.status = FV_EIO; /* ours, not the caller's */
    fv_rpc_end said = *end;
    if (end->status == FV_OK) {
        said.status = r.status = FV_EDATA;
        said.text = "it ended the hand-off early, with status OK";
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
        return FV_FAIL(FV_EDATA, "a grant without a ticket, a frame size or a deadline");
    memcpy(out->ticket.id, g->ticket->id.data, sizeof out->ticket.id);
    out->ticket.epoch = g->ticket->epoch;
    out->bytes = g->bytes;
    out->frame_max = g->frame_max;
    out->credits = g->credits;
    out->lease_s = 1e-3 * g->deadline_ms;
    return FV_OK;
}

static void release_grant(transfer *x);
static fv_status begin_push(transfer *x);

static void say_granted(transfer *x) {
    fv_reply r = {.grant = x->grant};
    if (x->way->pair) atomic_store(&x->oob.usable, fv_peer_route_joined(x->way->pair));
    give_answer(x, &x->opened, &r);
}

static void on_pair_known(fv_peer_wait *wait) { say_granted(wait->owner); }

/* At once, or when it is known whether frames can go from device to device. */
static void answer_grant(transfer *x) {
    x->wait = (fv_peer_wait){.known = on_pair_known, .owner = x};
    if (!x->way->pair || fv_peer_route_want(x->way->pair, &x->permit, &x->wait)) say_granted(x);
}

static void on_opened(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    transfer *x = user;
    x->call = NULL;
    fv_reply r = {0};
    if (end->status != FV_OK)
        r = peer_failure(x, c, end);
    else if (read_grant(c, reply, &r.grant) != FV_OK)
        r = own_failure(FV_EDATA);
    x->grant = r.grant;
    if (r.status == FV_OK && x->end_came) {
        release_grant(x);
        return;
    }
    fv_status st = r.status == FV_OK ? begin_push(x) : r.status;
    if (r.status == FV_OK && st != FV_OK) r = own_failure(st);
    if (r.status == FV_OK)
        answer_grant(x);
    else
        lose(x, &r);
}

static void on_begin(fv_rpc_op *op, bool ok) {
    transfer *x = op->owner;
    way *w = x->way;
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
    fv_rpc_metadata token = {FV_CALL_TOKEN_KEY, x->open_token};
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Handoff/Open",
                               .deadline_ms = (int64_t)w->open_ms + x->asking.wait_ms,
                               .request = &m.base,
                               .metadata = &token,
                               .n_metadata = x->open_token[0] != '\0',
                               .trace = &x->asking.trace};
    fv_status st = fv_rpc_unary_with(w->channel, &opt, on_opened, x, &x->call);
    if (st == FV_OK) return;
    fv_reply r = own_failure(st);
    lose(x, &r);
}

/* ---- push ------------------------------------------------------------------------------ */

/* This side cannot go on: fv_last_error says why. */
static void break_off(transfer *x) {
    x->broken = own_failure(FV_EIO);
    fv_rpc_call_cancel(x->call); /* and push_end loses it */
}

static fv_status send_message(transfer *x, grpc_byte_buffer *message) {
    x->bytes_given += grpc_byte_buffer_length(message);
    return fv_rpc_call_send_buffer(x->call, message);
}

/* The first frame has a message and may go. One beside the stream gets its message here, perhaps
 * later; the commit waits until all of those have arrived. */
static bool first_is_due(transfer *x) {
    frame *f = x->first;
    if (f->last) return !fv_oob_pending(&x->oob);
    if (!fv_oob_may_send(&x->oob)) return false;
    if (f->oob) {
        fv_oob_frame *b = f->oob;
        f->oob = NULL;
        if (fv_oob_put(&x->oob, b, &f->message) != FV_OK) break_off(x);
    }
    return f->message != NULL;
}

static void send_frames(transfer *x) {
    while (x->first && x->call && fv_rpc_call_writable(x->call) && first_is_due(x)) {
        frame *f = x->first;
        bool last = f->last;
        fv_oob_sent(&x->oob);
        x->first = f->next;
        if (!x->first) x->tail = &x->first;
        fv_status st = send_message(x, f->message);
        free(f);
        if (st != FV_OK) { /* the call is over and will say so */
            fv_rpc_call_cancel(x->call);
            return;
        }
        if (last) fv_rpc_call_close_send(x->call);
    }
}

/* Of fv_oob_set. A frame that was to go beside the stream comes on it. */
static void on_oob_message(void *user, grpc_byte_buffer *message, bool in_turn) {
    transfer *x = user;
    if (in_turn && x->first)
        x->first->message = message;
    else if (send_message(x, message) != FV_OK)
        fv_rpc_call_cancel(x->call);
    send_frames(x);
}

static void on_oob_changed(void *user) { send_frames(user); }

static void on_oob_failed(void *user) { break_off(user); }

static void push_writable(fv_rpc_call *c) { send_frames(fv_rpc_call_user(c)); }

static fv_status push_reply(fv_rpc_call *c, grpc_byte_buffer *message) {
    transfer *x = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__push_reply__descriptor, message, &m));
    x->received = true;
    return FV_OK;
}

static fv_reply silence(const transfer *x) {
    return own_failure(FV_FAIL(FV_EIO, "decode worker at %s: it has read nothing for %.0f s",
                               x->way->target, x->grant.lease_s));
}

static void push_end(fv_rpc_call *c, const fv_rpc_end *end) {
    transfer *x = fv_rpc_call_user(c);
    x->call = NULL;
    if (end->status == FV_OK && x->received && x->last_came) {
        fv_reply r = {.grant = x->grant};
        x->committed = true;
        become_over(x);
        give_answer(x, &x->closed, &r);
        if (x->end_came && !x->keep)
            release_grant(x);
        else
            finish(x);
    } else if (x->end_came) { /* it may have been cancelled before it was heard of */
        release_grant(x);
    } else {
        fv_reply r = x->broken.status != FV_OK ? x->broken
                     : x->stalled              ? silence(x)
                                               : peer_failure(x, c, end);
        lose(x, &r);
    }
}

/* The sender has nothing to send yet, and is there. */
static void say_alive(transfer *x) {
    grpc_byte_buffer *message;
    if (fv_rpc_frame_alive(&x->grant.ticket, &message) == FV_OK) (void)send_message(x, message);
}

static void on_tick(uv_timer_t *clock) {
    transfer *x = clock->data;
    if (!x->call) return;
    size_t queued = fv_rpc_call_bytes_queued(x->call);
    /* What goes beside the stream has its own deadline, and until then the stream is alive. */
    bool waits = !fv_oob_pending(&x->oob) && (x->first || x->last_came || queued > 0);
    x->n_still = waits && x->bytes_given - queued == x->bytes_moved ? x->n_still + 1 : 0;
    x->bytes_moved = x->bytes_given - queued;
    if (!waits) {
        say_alive(x);
    } else if (x->n_still >= TICKS && !x->stalled) {
        x->stalled = true;
        fv_rpc_call_cancel(x->call); /* and push_end loses it */
    }
}

static void start_clock(transfer *x) {
    uint64_t ms = (uint64_t)(1e3 * x->grant.lease_s / TICKS) + 1;
    uv_timer_init(fv_bridge_loop(x->way->bridge), &x->clock);
    x->clock.data = x;
    atomic_fetch_add(&x->refs, 1);
    uv_timer_start(&x->clock, on_tick, ms, ms);
}

/* The other side knows by it whose death would end the hand-off. */
static fv_status begin_push(transfer *x) {
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
    say_alive(x);
    return FV_OK;
}

static void on_frame(fv_rpc_op *op, bool ok) {
    frame *f = op->owner;
    transfer *x = f->x;
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
    transfer *x = user;
    (void)c, (void)reply;
    if (end->status != FV_OK)
        FV_LOG(INFO, WIRE, "event=release-failed target=%s text=\"%s\"", x->way->target, end->text);
    x->phase = OVER;
    finish(x);
}

/* The other side may not know that the hand-off is cancelled. */
static void release_grant(transfer *x) {
    Fovea__Handoff__V1__Ticket t = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Handoff__V1__ReleaseRequest m = FOVEA__HANDOFF__V1__RELEASE_REQUEST__INIT;
    stop_clock(x);
    x->phase = OPENING; /* an answer is waited for */
    t.id = (ProtobufCBinaryData){sizeof x->grant.ticket.id, x->grant.ticket.id};
    t.epoch = x->grant.ticket.epoch;
    m.ticket = &t;
    if (fv_rpc_unary(x->way->channel, "/fovea.handoff.v1.Handoff/Release", &m.base, RELEASE_MS,
                     on_released, x, NULL) == FV_OK)
        return;
    x->phase = OVER;
    finish(x);
}

static void give_back(void *user);

static void on_ended(fv_rpc_op *op, bool ok) {
    transfer *x = op->owner;
    (void)ok;
    x->end_came = true;
    drop_frames(x);
    if (x->phase == PUSHING && x->call)
        fv_rpc_call_cancel(x->call); /* its end comes to push_end */
    else if (x->phase == OVER && x->committed && !x->keep)
        release_grant(x);
    else if (x->phase == OPENING && x->call && x->asking.wait_ms)
        fv_rpc_call_cancel(x->call); /* it may wait for long, and keep others waiting */
    /* OPENING without such patience: the answer comes soon, and on_opened gives its grant back.
     * Cancelling could cross a grant, whose memory would be held until the lease runs out. */
    give_back(x); /* no more frames are posted */
}

static void on_parted(fv_rpc_op *op, bool ok) {
    transfer *x = op->owner;
    (void)ok;
    x->is_parted = true;
    finish(x);
}

/* ---- the computing thread's side -------------------------------------------------------- */

static char *copy(const char *text) { return strdup(text ? text : ""); }

static fv_status grpc_open(fv_transport *t, const fv_hello *hello, const fv_asking *asking,
                           fv_on_reply done, void *user, fv_transfer **out) {
    static const fv_asking nobody = {0};
    way *w = (way *)t;
    if (!asking) asking = &nobody;
    transfer *x = calloc(1, sizeof *x);
    if (!x) return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    *x = (transfer){.base.ops = t->ops, .way = w, .hello = *hello, .asking = *asking};
    x->policy = strdup(hello->policy);
    x->request_id = copy(asking->request_id);
    x->tenant = copy(asking->tenant);
    x->open_token = copy(asking->open_token);
    x->pair_token = copy(asking->pair_token);
    if (!x->policy || !x->request_id || !x->tenant || !x->open_token || !x->pair_token) {
        atomic_store(&x->refs, 1);
        unref(x);
        return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    }
    x->asking.request_id = x->request_id;
    x->asking.tenant = x->tenant;
    x->asking.open_token = x->open_token;
    x->asking.pair_token = x->permit.token = x->pair_token;
    x->hello.policy = x->policy;
    x->tail = &x->first;
    x->oob = (fv_oob_set){.way = w->pair,
                          .bridge = w->bridge,
                          .jobs = w->jobs,
                          .user = x,
                          .send = on_oob_message,
                          .changed = on_oob_changed,
                          .failed = on_oob_failed};
    x->opened.done = done;
    x->opened.user = user;
    atomic_init(&x->refs, 2); /* both sides */
    atomic_init(&x->loans, 1);
    x->begin = (fv_rpc_op){.done = on_begin, .owner = x};
    fv_bridge_post(w->bridge, &x->begin, true);
    *out = &x->base;
    return FV_OK;
}

/* The last loan came back. Computing thread. */
static void on_returned(fv_job *job) {
    transfer *x = job->owner;
    way *w = x->way;
    if (x->gone) x->gone(x->gone_user);
    x->parted = (fv_rpc_op){.done = on_parted, .owner = x};
    fv_bridge_post(w->bridge, &x->parted, true);
    unref(x);
}

/* gRPC needs a frame's bytes no more. Any thread. */
static void give_back(void *user) {
    transfer *x = user;
    if (atomic_fetch_sub(&x->loans, 1) != 1) return;
    x->returned = (fv_job){.run = on_returned, .owner = x};
    fv_jobs_follow(x->way->jobs, &x->returned);
}

static void post_frame(transfer *x, frame *f, grpc_byte_buffer *message, bool last) {
    *f = (frame){.op = {.done = on_frame, .owner = f}, .x = x, .message = message, .last = last};
    fv_bridge_post(x->way->bridge, &f->op, true);
}

static fv_status grpc_push(fv_transfer *t, uint64_t seq, const fv_piece *piece, int32_t n_piece) {
    transfer *x = (transfer *)t;
    if (atomic_load(&x->lost)) return FV_FAIL(x->why.status, "%s", x->why.text);
    frame *f = malloc(sizeof *f);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    grpc_byte_buffer *message;
    atomic_fetch_add(&x->loans, 1);
    fv_status st = fv_rpc_frame_lend(&x->ticket, seq, piece, n_piece, give_back, x, &message);
    if (st != FV_OK) {
        give_back(x);
        free(f);
        return st;
    }
    post_frame(x, f, message, false);
    return FV_OK;
}

static const fv_peer_ops *grpc_beside(fv_transfer *t) {
    transfer *x = (transfer *)t;
    return atomic_load(&x->oob.usable) ? fv_peers_ops(x->way->pairs) : NULL;
}

static fv_status grpc_push_beside(fv_transfer *t, uint64_t seq, fv_buf buf) {
    transfer *x = (transfer *)t;
    fv_oob_frame *b;
    frame *f = atomic_load(&x->lost) ? NULL : malloc(sizeof *f);
    if (!f) {
        fv_buf_free(&buf);
        return atomic_load(&x->lost) ? FV_FAIL(x->why.status, "%s", x->why.text)
                                     : FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    }
    fv_status st = fv_oob_frame_new(&x->oob, &x->ticket, seq, buf, &b);
    if (st != FV_OK) {
        free(f);
        return st;
    }
    *f = (frame){.op = {.done = on_frame, .owner = f}, .x = x, .oob = b};
    fv_bridge_post(x->way->bridge, &f->op, true);
    return FV_OK;
}

static fv_transfer_ways grpc_ways(const fv_transfer *t) {
    const transfer *x = (const transfer *)t;
    return (fv_transfer_ways){.bytes_oob = atomic_load(&x->oob.bytes),
                              .n_fallback = atomic_load(&x->oob.n_fallback)};
}

static void grpc_commit(fv_transfer *t, uint64_t n_frame, fv_on_reply done, void *user) {
    transfer *x = (transfer *)t;
    grpc_byte_buffer *message = NULL;
    x->closed.done = done;
    x->closed.user = user;
    frame *f = malloc(sizeof *f);
    fv_status st = f ? fv_rpc_frame_commit(&x->ticket, n_frame, &message)
                     : FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    if (st == FV_OK) {
        post_frame(x, f, message, true);
        return;
    }
    free(f);
    fv_reply r = own_failure(st);
    done(user, &r);
}

static void grpc_end(fv_transfer *t, bool keep, void (*gone)(void *), void *user) {
    transfer *x = (transfer *)t;
    x->ended = true;
    x->keep = keep;
    x->gone = gone;
    x->gone_user = user;
    x->end = (fv_rpc_op){.done = on_ended, .owner = x};
    fv_bridge_post(x->way->bridge, &x->end, true);
}

/* ---- the way --------------------------------------------------------------------------- */

static void on_pair_closed(void *user) {
    way *w = user;
    void (*closed)(void *) = w->closed;
    user = w->user;
    fv_rpc_channel_close(w->channel);
    free(w->target);
    free(w);
    if (closed) closed(user);
}

static void on_gone(fv_rpc_op *op, bool ok) {
    way *w = op->owner;
    (void)ok;
    if (w->pair)
        fv_peer_route_close(w->pair, on_pair_closed, w);
    else
        on_pair_closed(w);
}

static void way_unref(way *w) {
    if (--w->live > 0) return;
    assert(w->closing);
    fv_bridge_post(w->bridge, &w->gone, true); /* after the current work */
}

static void grpc_close(fv_transport *t, void (*closed)(void *), void *user) {
    way *w = (way *)t;
    w->closing = true;
    w->closed = closed;
    w->user = user;
    w->gone = (fv_rpc_op){.done = on_gone, .owner = w};
    way_unref(w); /* its own: it is open no more */
}

fv_status fv_transport_grpc(const fv_transport_grpc_options *opt, fv_transport **out) {
    static const fv_transport_ops ops = {.name = "grpc",
                                         .open = grpc_open,
                                         .push = grpc_push,
                                         .oob = grpc_beside,
                                         .push_oob = grpc_push_beside,
                                         .ways = grpc_ways,
                                         .commit = grpc_commit,
                                         .end = grpc_end,
                                         .close = grpc_close};
    fv_rpc_channel_options to = {.ping_ms = opt->ping_ms,
                                 .tls = opt->tls,
                                 .server_name = opt->tls ? fv_role_name(FV_MEMBER_DECODE) : NULL};
    way *w = calloc(1, sizeof *w);
    char *target = strdup(opt->target);
    fv_status st = w && target ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a transport");
    if (st == FV_OK) st = fv_rpc_channel_open(opt->bridge, target, &to, &w->channel);
    if (st == FV_OK && opt->pairs)
        st = fv_peer_route_open(opt->pairs, w->channel, target, &w->pair);
    if (st != FV_OK) {
        if (w) fv_rpc_channel_close(w->channel);
        free(target);
        free(w);
        return st;
    }
    w->base.ops = &ops;
    w->bridge = opt->bridge;
    w->jobs = opt->jobs;
    w->pairs = opt->pairs;
    w->target = target;
    w->open_ms = opt->open_ms ? opt->open_ms : OPEN_MS;
    w->live = 1;
    *out = &w->base;
    return FV_OK;
}
