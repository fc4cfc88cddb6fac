/* The sending side of peer links: calls of Handoff.Pair, and their link threads. One timer checks
 * all routes, several times within the shortest deadline. */
#include "transport/peer_out.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "auth/call_token.h"
#include "common/clock.h"
#include "common/log.h"
#include "handoff.pb-c.h"

typedef Fovea__Handoff__V1__PairRequest word_message;
typedef Fovea__Handoff__V1__PairReply reply_message;

enum { CALL_MS = 24 * 3600 * 1000, RETRY_MOST = 60, TICK_MS_MAX = 500 };

typedef enum phase { APART = 0, JOINING, JOINED, PARTING } phase;

struct fv_peers {
    fv_peers_options opt;
    fv_peers_counters count;
    fv_peer_route *ways;
    uv_timer_t clock;
    void (*closed)(void *user);
    void *closed_user;
};

struct fv_peer_route {
    fv_peers *all;
    fv_rpc_channel *channel; /* borrowed */
    char *target;
    fv_peer_route *next;
    phase phase;
    fv_rpc_call *call;    /* NULL: it has ended */
    fv_link_thread *line; /* NULL: it is closed */
    bool here, there;     /* this side has joined; the other side has */
    uint64_t number, next_turn;
    uint32_t places, n_flying;
    fv_peer_turn *waiting, **last_waiting; /* not yet sent */
    fv_peer_turn *flying, **last_flying;   /* sent, but not over */
    fv_peer_wait *waits;
    double began_s, used_s, retry_at_s, retry_s;
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

static double or_else(double x, double otherwise) { return x > 0 ? x : otherwise; }

/* ---- waiting for a link ----------------------------------------------------------------- */

static void notify_waiters(fv_peer_route *w) {
    while (w->waits) {
        fv_peer_wait *wait = w->waits;
        w->waits = wait->next;
        wait->known(wait);
    }
}

void fv_peer_route_unwait(fv_peer_route *w, fv_peer_wait *wait) {
    for (fv_peer_wait **at = &w->waits; *at; at = &(*at)->next)
        if (*at == wait) {
            *at = wait->next;
            return;
        }
}

bool fv_peer_route_joined(const fv_peer_route *w) { return w->phase == JOINED; }

/* ---- the end of a link ------------------------------------------------------------------ */

static void fail_turns(fv_peer_route *w) {
    fv_peer_turn *t = w->flying;
    *w->last_flying = w->waiting;
    t = w->flying;
    w->flying = w->waiting = NULL;
    w->last_flying = &w->flying;
    w->last_waiting = &w->waiting;
    w->n_flying = 0;
    for (fv_peer_turn *next; t; t = next) {
        next = t->next;
        t->over(t, false);
    }
}

static void way_free(fv_peer_route *w) {
    void (*closed)(void *) = w->closed;
    void *user = w->closed_user;
    fv_peer_route **at = &w->all->ways;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    free(w->target);
    free(w);
    if (closed) closed(user);
}

static void maybe_ended(fv_peer_route *w) {
    if (w->call || w->line || w->phase == APART) return;
    w->phase = APART;
    w->all->count.n_now--;
    fail_turns(w);
    notify_waiters(w);
    if (w->closing) way_free(w);
}

/* Ends the link; why: the failure, or NULL for a regular end. */
static void end_link(fv_peer_route *w, const char *why) {
    if (w->phase == APART || w->phase == PARTING) return;
    w->phase = PARTING;
    w->retry_at_s = 0;
    if (why) {
        w->all->count.n_failed++;
        w->retry_s = w->retry_s > 0 ? 2 * w->retry_s : or_else(w->all->opt.retry_s, 1);
        if (w->retry_s > RETRY_MOST) w->retry_s = RETRY_MOST;
        w->retry_at_s = fv_clock_s() + w->retry_s;
        FV_LOG(WARN, WIRE, "event=pair-failed kind=%s peer=%s reason=\"%s\"", w->all->opt.ops->name,
               w->target, why);
    }
    if (w->call) fv_rpc_call_cancel(w->call);
    if (w->line) fv_link_thread_close(w->line);
    notify_waiters(w);
    maybe_ended(w);
}

/* ---- turns ----------------------------------------------------------------------------- */

static fv_status send_request(fv_peer_route *w, word_message *m) {
    return w->call ? fv_rpc_call_send(w->call, &m->base) : FV_ECANCELLED;
}

static fv_status announce(fv_peer_route *w, uint64_t bytes) {
    word_message m = FOVEA__HANDOFF__V1__PAIR_REQUEST__INIT;
    m.request_case = FOVEA__HANDOFF__V1__PAIR_REQUEST__REQUEST_BYTES;
    m.bytes = bytes;
    return send_request(w, &m);
}

/* Sends waiting turns while the other side has free slots. */
static void send_turns(fv_peer_route *w) {
    fv_status st = FV_OK;
    while (w->phase == JOINED && w->waiting && st == FV_OK) {
        fv_peer_turn *t = w->waiting;
        if (!t->left_out && w->n_flying >= w->places) return;
        w->waiting = t->next;
        if (!w->waiting) w->last_waiting = &w->waiting;
        t->next = NULL;
        st = announce(w, t->left_out ? 0 : t->move.bytes);
        if (t->left_out) {
            t->over(t, false);
            continue;
        }
        *w->last_flying = t;
        w->last_flying = &t->next;
        w->n_flying++;
        t->sent_s = fv_clock_s();
        fv_link_thread_begin(w->line, &t->move);
    }
    if (st != FV_OK) end_link(w, "the Pair call is closed");
}

/* Ends a turn if the other side has taken it and this side has sent all of it. */
static void maybe_over(fv_peer_route *w, fv_peer_turn *t) {
    if (!t->taken || !t->sent_whole) return;
    fv_peer_turn **at = &w->flying;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    if (!*at) w->last_flying = at;
    w->n_flying--;
    w->used_s = fv_clock_s();
    w->retry_s = 0; /* the link works, so the next failure starts a new back-off */
    t->over(t, true);
    send_turns(w);
}

static void on_line_over(void *user, fv_link_thread_move *m) {
    fv_peer_turn *t = m->owner;
    t->sent_whole = true;
    maybe_over(user, t);
}

void fv_peer_route_send(fv_peer_route *w, fv_peer_turn *t) {
    assert(w->phase == JOINED);
    t->move.owner = t;
    t->pair = w->number;
    t->number = w->next_turn++;
    t->next = NULL;
    *w->last_waiting = t;
    w->last_waiting = &t->next;
    w->used_s = fv_clock_s();
    send_turns(w);
}

void fv_peer_route_forget(fv_peer_route *w, fv_peer_turn *t) {
    word_message m = FOVEA__HANDOFF__V1__PAIR_REQUEST__INIT;
    if (t->sent_s == 0) {
        t->left_out = true;
        return;
    }
    m.request_case = FOVEA__HANDOFF__V1__PAIR_REQUEST__REQUEST_FORGET;
    m.forget = t->number;
    if (w->phase == JOINED && send_request(w, &m) != FV_OK) end_link(w, "the Pair call is closed");
}

/* ---- joining --------------------------------------------------------------------------- */

static void maybe_joined(fv_peer_route *w) {
    if (w->phase != JOINING || !w->here || !w->there) return;
    w->phase = JOINED;
    w->used_s = fv_clock_s();
    FV_LOG(INFO, WIRE, "event=pair-joined kind=%s peer=%s seconds=%.3f", w->all->opt.ops->name,
           w->target, w->used_s - w->began_s);
    notify_waiters(w);
}

static void on_line_joined(void *user) {
    fv_peer_route *w = user;
    w->here = true;
    maybe_joined(w);
}

static void on_line_failed(void *user, const char *text) { end_link(user, text); }

static void on_line_closed(void *user) {
    fv_peer_route *w = user;
    w->line = NULL;
    maybe_ended(w);
}

static fv_status take_taken(fv_peer_route *w, uint64_t number) {
    for (fv_peer_turn *t = w->flying; t; t = t->next)
        if (t->number == number && !t->taken) {
            t->taken = true;
            maybe_over(w, t);
            return FV_OK;
        }
    return FV_FAIL(FV_EDATA, "the peer confirmed turn %llu, which was not sent",
                   (unsigned long long)number);
}

static fv_status on_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_peer_route *w = fv_rpc_call_user(c);
    ProtobufCMessage *base;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__pair_reply__descriptor, message, &base));
    const reply_message *m = (const reply_message *)base;
    if (w->phase == PARTING) return FV_OK;
    switch (m->reply_case) {
    case FOVEA__HANDOFF__V1__PAIR_REPLY__REPLY_OFFER:
        if (w->number || m->offer->number == 0 || m->offer->slots == 0) break;
        w->number = m->offer->number;
        w->places = m->offer->slots;
        return FV_OK;
    case FOVEA__HANDOFF__V1__PAIR_REPLY__REPLY_JOINED:
        if (w->number == 0) break;
        w->there = true;
        maybe_joined(w);
        return FV_OK;
    case FOVEA__HANDOFF__V1__PAIR_REPLY__REPLY_TAKEN: return take_taken(w, m->taken);
    default: break;
    }
    return FV_FAIL(FV_EDATA, "unexpected message on a peer link");
}

/* The call has ended. A refusal is not a failure: there is just no link. */
static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    fv_peer_route *w = fv_rpc_call_user(c);
    bool refused = w->phase == JOINING && w->number == 0 &&
                   (end->status == FV_EUNSUPPORTED || end->status == FV_EBUSY);
    w->call = NULL;
    if (refused)
        FV_LOG(INFO, WIRE, "event=pair-refused peer=%s reason=\"%s\"", w->target, end->text);
    bool peace = refused || end->status == FV_OK;
    end_link(w, peace ? NULL : end->text);
    if (refused) w->retry_at_s = fv_clock_s() + (end->status == FV_EBUSY ? 1 : RETRY_MOST);
    maybe_ended(w);
}

static fv_status begin_call(fv_peer_route *w, const fv_peer_permit *permit,
                            uint8_t id[FV_PEER_ID_BYTES]) {
    static const fv_rpc_events events = {.on_message = on_message, .on_end = on_end};
    word_message m = FOVEA__HANDOFF__V1__PAIR_REQUEST__INIT;
    Fovea__Handoff__V1__PairJoin join = FOVEA__HANDOFF__V1__PAIR_JOIN__INIT;
    join.kind = (char *)(uintptr_t)w->all->opt.ops->name;
    uint8_t device[FV_PEER_DEVICE_BYTES];
    w->all->opt.ops->identity(w->all->opt.device, device);
    join.id = (ProtobufCBinaryData){FV_PEER_ID_BYTES, id};
    join.device = (ProtobufCBinaryData){sizeof device, device};
    m.request_case = FOVEA__HANDOFF__V1__PAIR_REQUEST__REQUEST_JOIN;
    m.join = &join;
    fv_rpc_metadata token = {FV_CALL_TOKEN_KEY, permit->token};
    fv_rpc_call_options opt = {.path = "/fovea.handoff.v1.Handoff/Pair",
                               .metadata = &token,
                               .n_metadata = permit->token && permit->token[0],
                               .events = &events,
                               .user = w,
                               .deadline_ms = CALL_MS,
                               .request = &m.base};
    return fv_rpc_call_open(w->channel, &opt, &w->call);
}

static fv_status begin(fv_peer_route *w, fv_peer_permit *permit) {
    fv_link_thread_options line = {.bridge = w->all->opt.bridge,
                                   .ops = w->all->opt.ops,
                                   .device = w->all->opt.device,
                                   .user = w,
                                   .joined = on_line_joined,
                                   .over = on_line_over,
                                   .failed = on_line_failed,
                                   .closed = on_line_closed};
    FV_TRY(w->all->opt.ops->new_id(line.id));
    FV_TRY(fv_link_thread_open(&line, &w->line));
    w->phase = JOINING;
    w->all->count.n_now++;
    w->here = w->there = false;
    w->number = w->next_turn = 0;
    w->began_s = fv_clock_s();
    permit->used = true;
    fv_status st = begin_call(w, permit, line.id);
    if (st != FV_OK) end_link(w, fv_last_error());
    return FV_OK;
}

static bool idle(const fv_peer_route *w) { return w->phase == JOINED && !w->waiting && !w->flying; }

/* Ends the link that was idle for longest if all slots are taken; true: a slot is free now. */
static bool evict_idle_link(fv_peers *p) {
    fv_peer_route *oldest = NULL;
    if (p->count.n_now < (uint32_t)p->opt.most) return true;
    for (fv_peer_route *w = p->ways; w; w = w->next)
        if (idle(w) && (!oldest || w->used_s < oldest->used_s)) oldest = w;
    if (oldest) end_link(oldest, NULL);
    return p->count.n_now < (uint32_t)p->opt.most;
}

bool fv_peer_route_want(fv_peer_route *w, fv_peer_permit *permit, fv_peer_wait *wait) {
    if (w->phase == APART && !permit->used && fv_clock_s() >= w->retry_at_s &&
        evict_idle_link(w->all) && begin(w, permit) != FV_OK) {
        FV_LOG(WARN, WIRE, "event=pair-failed peer=%s reason=\"%s\"", w->target, fv_last_error());
        w->retry_at_s = fv_clock_s() + RETRY_MOST;
    }
    if (w->phase != JOINING || !w->all->opt.wait || !wait) return true;
    wait->next = w->waits;
    w->waits = wait;
    return false;
}

/* ---- the clock ------------------------------------------------------------------------- */

static void check_deadlines(fv_peer_route *w, double now) {
    const fv_peers_options *o = &w->all->opt;
    if (w->phase == JOINING && now - w->began_s > o->join_s)
        end_link(w, "joining timed out");
    else if (w->phase == JOINED && w->flying && now - w->flying->sent_s > o->late_s)
        end_link(w, "what was sent was not taken in time");
    else if (idle(w) && now - w->used_s > o->idle_s)
        end_link(w, NULL);
}

static void on_clock(uv_timer_t *clock) {
    fv_peers *p = clock->data;
    double now = fv_clock_s();
    for (fv_peer_route *w = p->ways, *next; w; w = next) {
        next = w->next; /* look_at may free a closed route */
        check_deadlines(w, now);
    }
}

/* ---- opening and closing --------------------------------------------------------------- */

fv_status fv_peers_open(const fv_peers_options *opt, fv_peers **out) {
    fv_peers *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for pairs");
    fv_peers_options *o = &p->opt;
    *o = *opt;
    if (o->most == 0) o->most = 8;
    o->join_s = or_else(o->join_s, 20);
    o->late_s = or_else(o->late_s, 10);
    o->idle_s = or_else(o->idle_s, 300);
    double least = o->late_s < o->idle_s ? o->late_s : o->idle_s;
    least = o->join_s < least ? o->join_s : least;
    uint64_t ms = (uint64_t)(250 * least) + 1;
    if (ms > TICK_MS_MAX) ms = TICK_MS_MAX;
    uv_timer_init(fv_bridge_loop(o->bridge), &p->clock);
    p->clock.data = p;
    uv_timer_start(&p->clock, on_clock, ms, ms);
    *out = p;
    return FV_OK;
}

static void on_clock_closed(uv_handle_t *h) {
    fv_peers *p = h->data;
    void (*closed)(void *) = p->closed;
    void *user = p->closed_user;
    free(p);
    closed(user);
}

void fv_peers_close(fv_peers *p, void (*closed)(void *user), void *user) {
    if (!p) {
        closed(user);
        return;
    }
    assert(!p->ways);
    p->closed = closed;
    p->closed_user = user;
    uv_close((uv_handle_t *)&p->clock, on_clock_closed);
}

const fv_peer_ops *fv_peers_ops(const fv_peers *p) { return p->opt.ops; }

fv_peers_counters fv_peers_count(const fv_peers *p) { return p->count; }

fv_status fv_peer_route_open(fv_peers *p, fv_rpc_channel *channel, const char *target,
                             fv_peer_route **out) {
    fv_peer_route *w = calloc(1, sizeof *w);
    if (w) w->target = strdup(target);
    if (!w || !w->target) {
        free(w);
        return FV_FAIL(FV_ENOMEM, "out of memory for a pair");
    }
    w->all = p;
    w->channel = channel;
    w->last_waiting = &w->waiting;
    w->last_flying = &w->flying;
    w->next = p->ways;
    p->ways = w;
    *out = w;
    return FV_OK;
}

void fv_peer_route_close(fv_peer_route *w, void (*closed)(void *user), void *user) {
    w->closing = true;
    w->closed = closed;
    w->closed_user = user;
    if (w->phase == APART)
        way_free(w);
    else
        end_link(w, NULL);
}
