/* Serves Handoff: Open, Push and Release. Messages become jobs for the receiver, and its results become
 * the answers. Frames are not unpacked on the way: a job holds a reference to the message, and the
 * receiver copies the rows from where gRPC put them.
 *
 * Each request here is shared by its call (loop thread) and by the jobs that are under way; the
 * loop thread counts both, and frees it when the last is back. */
#include <stdlib.h>
#include <string.h>

#include "auth/tenants.h"
#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "decode-worker/service/internal.h"
#include "decode-worker/service/push_take.h"
#include "handoff.pb-c.h"
#include "transport/frame.h"

enum {
    OPEN_MAX = 16 << 10, /* bytes of a message */
    PUSH_MAX = FV_FRAME_MAX + FV_RPC_FRAME_HEAD,
    CALLS_MAX = 1024,
    WINDOW = 8, /* frames of one hand-off that wait for the computing thread */
    /* Frames that wait for one over a pair: as many as may be ahead of it, and as many again in case
     * they all fall back to the stream. */
    HELD_MAX = 2 * FV_RPC_FRAME_AHEAD + WINDOW,
};

static fv_sink *sink_of(const fv_decode_worker *w) { return fv_receiver_sink(w->receiver); }

/* ---- Open, Release: one job there, one answer back --------------------------------------- */

typedef struct request {
    fv_open open; /* first, so that an open is its request */
    fv_job job, drop;
    fv_rpc_op back, dropped;
    fv_decode_worker *w;
    fv_rpc_call *call; /* NULL: over */
    fv_span span;      /* of Open only */
    int32_t refs;      /* the call, the job until it is back, the drop */
    char policy[FV_POLICY_TEXT_MAX + 1], tenant[FV_TENANT_NAME_MAX + 1];
    char adapter[FV_ADAPTER_DIGEST_MAX];
    fv_wire_link *link; /* owned; NULL: none */
    int32_t *tail;      /* owned; NULL: none */
    fv_ticket ticket;
    fv_grant grant;
    bool granted;
    fv_verdict verdict;
} request;

static void request_unref(request *r) {
    if (--r->refs > 0) return;
    free(r->link);
    free(r->tail);
    free(r);
}

static fv_status request_new(fv_rpc_call *c, void (*run)(fv_job *), fv_rpc_done back,
                             request **out) {
    request *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    r->w = fv_rpc_call_service(c);
    r->call = c;
    r->refs = 1;
    r->job = (fv_job){.run = run, .owner = r};
    r->back = (fv_rpc_op){.done = back, .owner = r};
    fv_rpc_call_set_user(c, r);
    *out = r;
    return FV_OK;
}

static void run_abort(fv_job *job) {
    request *r = job->owner;
    sink_of(r->w)->ops->abort(sink_of(r->w), &r->ticket);
    fv_scheduler_changed(r->w->answers);
    fv_bridge_post(r->w->bridge, &r->back, true);
}

/* The undelivered grant has been aborted. */
static void on_taken_back(fv_rpc_op *op, bool ok) {
    (void)ok;
    request_unref(op->owner);
}

/* Aborts a grant that was not delivered, which frees its memory. A closing worker frees all memory anyway. */
static void take_back(request *r) {
    fv_jobs *jobs = r->w->jobs;
    if (!jobs) return;
    r->ticket = r->grant.ticket;
    r->granted = false;
    r->job = (fv_job){.run = run_abort, .owner = r};
    r->back = (fv_rpc_op){.done = on_taken_back, .owner = r};
    r->refs++;
    fv_jobs_post_followup(jobs, &r->job);
}

/* fv_open's callback: memory was granted, or refused for good. */
static void on_resolved(fv_open *o, fv_status st, const fv_grant *grant) {
    request *r = (request *)o;
    r->verdict = fv_verdict_of(st);
    bool granted = st == FV_OK;
    r->granted = granted;
    if (granted) r->grant = *grant;
    fv_bridge_post(r->w->bridge, &r->back, true);
    if (granted) fv_failpoint_reached(FV_FAILPOINT_DECODE_GRANTED);
}

static void run_ask(fv_job *job) {
    request *r = job->owner;
    fv_opens_ask(&r->w->opens, &r->open);
}

static void run_drop(fv_job *job) {
    request *r = job->owner;
    fv_opens_drop(&r->w->opens, &r->open);
    fv_bridge_post(r->w->bridge, &r->dropped, true);
}

static void on_dropped(fv_rpc_op *op, bool ok) {
    (void)ok;
    request_unref(op->owner);
}

static void send_grant(request *r) {
    Fovea__Handoff__V1__Ticket t = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Handoff__V1__Grant m = FOVEA__HANDOFF__V1__GRANT__INIT;
    t.id = (ProtobufCBinaryData){sizeof r->grant.ticket.id, r->grant.ticket.id};
    t.epoch = r->grant.ticket.epoch;
    m.ticket = &t;
    m.bytes = r->grant.bytes;
    m.bytes_reserved = r->open.bytes;
    m.frame_max = r->grant.frame_max;
    m.credits = r->grant.credits;
    m.deadline_ms = (uint32_t)(1e3 * r->grant.lease_s);
    m.n_kept = r->grant.n_kept;
    m.n_kept_tail = r->grant.n_kept_tail;
    m.rest_most = r->grant.rest_most;
    fv_rpc_call_finish(r->call, fv_rpc_call_send(r->call, &m.base));
}

static void on_offered(fv_rpc_op *op, bool ok) {
    request *r = op->owner;
    (void)ok;
    if (!r->call && r->granted)
        take_back(r);
    else if (r->call && r->granted)
        send_grant(r);
    else if (r->call)
        fv_verdict_finish(&r->verdict, r->call);
    request_unref(r);
}

static fv_status read_links(request *r, const Fovea__Handoff__V1__OpenRequest *q) {
    const ProtobufCBinaryData *links = &q->links;
    if (q->n_names && q->n_names * FV_LINK_BYTES != links->len)
        return FV_FAIL(FV_EINVAL, "the prompt has %zu names of links, and %zu bytes of links",
                       q->n_names, links->len);
    if (links->len == 0) return FV_OK;
    r->link = malloc(FV_LINKS_MAX * sizeof *r->link);
    if (!r->link) return FV_FAIL(FV_ENOMEM, "out of memory for the links of a prompt");
    r->open.hello.link = r->link;
    FV_TRY(fv_links_get(links->data, links->len, r->link, &r->open.hello.n_link));
    for (size_t i = 0; i < q->n_names; i++) r->link[i].name = q->names[i];
    return FV_OK;
}

static fv_status read_tail(request *r, const uint32_t *id, size_t n) {
    if (n == 0) return FV_OK;
    if (n > FV_TAIL_MAX) return FV_FAIL(FV_EINVAL, "tail has %zu ids; at most %d", n, FV_TAIL_MAX);
    r->tail = malloc(n * sizeof *r->tail);
    if (!r->tail) return FV_FAIL(FV_ENOMEM, "out of memory for the ids of a prompt");
    for (size_t i = 0; i < n; i++) r->tail[i] = id[i] <= INT32_MAX ? (int32_t)id[i] : -1;
    r->open.hello.tail = r->tail;
    r->open.hello.n_tail = (uint32_t)n;
    return FV_OK;
}

static fv_status open_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    const fv_decode_worker *w = fv_rpc_call_service(c);
    request *r;
    fv_caller who;
    ProtobufCMessage *m;
    FV_TRY(fv_caller_identify(w->opt.callers, c, &who));
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__open_request__descriptor, message, &m));
    const Fovea__Handoff__V1__OpenRequest *q = (const Fovea__Handoff__V1__OpenRequest *)m;
    FV_TRY(fv_caller_check_request(&who, q->request_id, NULL));
    if (strlen(q->compat) >= FV_COMPAT_MAX)
        return FV_FAIL(FV_EINVAL, "compat has %zu bytes; the maximum is %d", strlen(q->compat),
                       FV_COMPAT_MAX - 1);
    if (strlen(q->policy) > FV_POLICY_TEXT_MAX)
        return FV_FAIL(FV_EINVAL, "the policy's text is too long");
    if (strlen(q->tenant) > FV_TENANT_NAME_MAX)
        return FV_FAIL(FV_EINVAL, "the tenant's name is too long");
    if (strlen(q->adapter) >= FV_ADAPTER_DIGEST_MAX)
        return FV_FAIL(FV_EINVAL, "the adapter's digest is too long");
    FV_TRY(request_new(c, run_ask, on_offered, &r));
    fv_hello *hello = &r->open.hello;
    fv_trace_context trace = fv_rpc_call_trace(c);
    r->span = fv_span_begin("Open", FV_SPAN_SERVER, &trace, fv_clock_s());
    strcpy(r->policy, q->policy);
    strcpy(r->tenant, q->tenant);
    strcpy(r->adapter, q->adapter);
    strcpy(hello->compat.text, q->compat);
    hello->compat.hash = q->compat_hash;
    hello->n_text = q->n_text;
    hello->n_visual = q->n_visual;
    hello->max_tokens = q->max_tokens;
    hello->bytes_visual = q->bytes_visual;
    hello->bytes_tables = q->bytes_tables;
    hello->n_reused_text = q->n_reused_text;
    hello->policy = r->policy;
    hello->owner = r->tenant;
    hello->adapter = r->adapter;
    r->open.owner_bytes = q->tenant_kv_bytes;
    r->open.reserve_all = q->reserve_all;
    r->open.open_ended = q->open_ended;
    r->open.n_replay = q->n_replay < INT32_MAX ? (int32_t)q->n_replay : INT32_MAX;
    r->open.bytes_replay = q->bytes_replay;
    r->open.age_s = 1e-3 * q->age_ms;
    r->open.wait_s = 1e-3 * q->wait_ms;
    r->open.resolved = on_resolved;
    hello->may_leave_rest = q->may_leave_rest;
    FV_TRY(read_links(r, q)); /* the end of the call frees r */
    FV_TRY(read_tail(r, q->tail, q->n_tail));
    r->refs++;
    fv_status st = fv_jobs_post(r->w->jobs, &r->job);
    if (st != FV_OK) r->refs--;
    return st;
}

/* Cancels an Open that may still wait for memory. */
static void drop(request *r) {
    r->drop = (fv_job){.run = run_drop, .owner = r};
    r->dropped = (fv_rpc_op){.done = on_dropped, .owner = r};
    r->refs++;
    fv_jobs_post_followup(r->w->jobs, &r->drop);
}

static void open_end(fv_rpc_call *c, const fv_rpc_end *end) {
    request *r = fv_rpc_call_user(c);
    if (!r) return;
    bool answered = r->refs == 1; /* the job is back */
    const fv_span_field granted[] = {
        {"fovea.kv_granted_bytes", .number = answered ? (int64_t)r->grant.bytes : 0}};
    fv_span_end(&r->span, fv_clock_s(), (int)end->code, FV_SPAN_FIELDS(granted));
    r->call = NULL;
    if (answered && r->granted && end->status != FV_OK) take_back(r);
    if (!answered) drop(r);
    request_unref(r);
}

static void on_released(fv_rpc_op *op, bool ok) {
    request *r = op->owner;
    Fovea__Handoff__V1__ReleaseReply m = FOVEA__HANDOFF__V1__RELEASE_REPLY__INIT;
    (void)ok;
    if (r->call) fv_rpc_call_finish(r->call, fv_rpc_call_send(r->call, &m.base));
    request_unref(r);
}

static fv_status release_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    request *r;
    fv_ticket ticket;
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__release_request__descriptor, message, &m));
    const Fovea__Handoff__V1__ReleaseRequest *q = (const Fovea__Handoff__V1__ReleaseRequest *)m;
    if (!q->ticket) return FV_FAIL(FV_EINVAL, "ticket is missing");
    FV_TRY(fv_ticket_read(&q->ticket->id, q->ticket->epoch, &ticket));
    FV_TRY(request_new(c, run_abort, on_released, &r));
    r->ticket = ticket;
    r->refs++;
    fv_jobs_post_followup(r->w->jobs, &r->job);
    return FV_OK;
}

static void release_end(fv_rpc_call *c, const fv_rpc_end *end) {
    request *r = fv_rpc_call_user(c);
    (void)end;
    if (!r) return;
    r->call = NULL;
    request_unref(r);
}

/* ---- Push: frames ----------------------------------------------------------------------- */

typedef struct fv_push {
    fv_decode_worker *w;
    struct fv_push *next; /* in the worker's list */
    fv_rpc_call *call;    /* NULL: over */
    fv_span span;
    uint64_t bytes; /* bytes committed */
    int32_t refs;   /* the call, and each frame under way */
    int32_t in_flight;
    bool paused;
    struct frame *held, **last_held; /* frames behind one that comes over a pair */
    int32_t n_held;
    fv_push_state state; /* computing thread */
} push;

/* A message on its way to the receiver, or (message NULL) the end of the stream. */
typedef struct frame {
    fv_job job;
    fv_rpc_op back;
    push *p;
    grpc_byte_buffer *message; /* a reference, owned */
    bool broken;               /* the stream ended because the peer is gone */
    bool oob;                  /* its bytes come over `pair`, as frame `turn` there */
    uint64_t seq, pair, turn;
    fv_link_slot *place; /* the slot in which they have arrived */
    struct frame *next;  /* in the list of held frames */
    fv_verdict verdict;
    uint64_t committed; /* number of frames, if this was the commit and it succeeded */
} frame;

static void push_unref(push *p) {
    if (--p->refs > 0) return;
    push **at = &p->w->pushes;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    free(p);
}

static fv_status take(frame *f) {
    push *p = f->p;
    uint64_t before = p->state.bytes;
    if (!f->message) return fv_push_end(sink_of(p->w), &p->state, f->broken);
    const fv_link_thread_move *move = f->place ? &f->place->move : NULL;
    fv_push_came came = {0};
    if (move) came = (fv_push_came){move->data, move->bytes, move->crc};
    fv_status st =
        fv_push_take(sink_of(p->w), &p->state, f->message, move ? &came : NULL, &f->committed);
    if (p->state.bytes > before) fv_failpoint_reached(FV_FAILPOINT_DECODE_RECEIVING);
    return st;
}

static void run_frame(fv_job *job) {
    frame *f = job->owner;
    push *p = f->p;
    fv_status st = take(f);
    f->verdict = fv_verdict_of(st);
    if (p->state.over) fv_scheduler_changed(p->w->answers);
    bool committed = f->committed != 0;
    fv_bridge_post(p->w->bridge, &f->back, true);
    if (committed) fv_failpoint_reached(FV_FAILPOINT_DECODE_COMMITTED);
}

static void frame_free(frame *f) {
    push *p = f->p;
    if (f->message) grpc_byte_buffer_destroy(f->message);
    free(f);
    push_unref(p);
}

static void send_reply(push *p, const frame *f) {
    Fovea__Handoff__V1__PushReply m = FOVEA__HANDOFF__V1__PUSH_REPLY__INIT;
    m.n_frames = f->committed;
    m.bytes = p->bytes = p->state.bytes; /* the computing thread is done with this hand-off */
    fv_rpc_call_finish(p->call, fv_rpc_call_send(p->call, &m.base));
}

static void on_frame_done(fv_rpc_op *op, bool ok) {
    frame *f = op->owner;
    push *p = f->p;
    (void)ok;
    p->in_flight--;
    if (p->call && f->verdict.fault.status != FV_OK) {
        FV_LOG(INFO, DECODE, "handoff=refused peer=%s reason=%s text=\"%s\"",
               fv_rpc_call_peer(p->call), fv_refusal_name(f->verdict.refusal),
               f->verdict.fault.text);
        fv_verdict_finish(&f->verdict, p->call);
    } else if (p->call && f->committed)
        send_reply(p, f);
    else if (p->call && p->paused && p->n_held < HELD_MAX) {
        p->paused = false;
        fv_rpc_call_resume(p->call);
    }
    if (f->place) fv_link_free_slot(f->place);
    frame_free(f);
}

static void follow(frame *f) {
    f->job = (fv_job){.run = run_frame, .owner = f};
    f->back = (fv_rpc_op){.done = on_frame_done, .owner = f};
    f->p->in_flight++;
    fv_jobs_post_followup(f->p->w->jobs, &f->job);
}

/* Passes held frames on in their order, up to the first whose bytes have not arrived. */
static void follow_held(push *p) {
    while (p->held) {
        frame *f = p->held;
        if (f->oob) f->place = fv_link_frame(&p->w->pairs, f->pair, f->turn);
        if (f->oob && !f->place) return;
        p->held = f->next;
        if (!p->held) p->last_held = &p->held;
        p->n_held--;
        follow(f);
    }
}

void fv_pushes_look(fv_decode_worker *w) {
    for (push *p = w->pushes; p; p = p->next) follow_held(p);
}

static void drop_held(push *p) {
    while (p->held) {
        frame *f = p->held;
        p->held = f->next;
        p->n_held--;
        frame_free(f);
    }
    p->last_held = &p->held;
}

/* Returns NULL if out of memory. */
static frame *frame_new(push *p, grpc_byte_buffer *message) {
    frame *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    f->p = p;
    f->message = message ? grpc_byte_buffer_copy(message) : NULL; /* no bytes are copied */
    p->refs++;
    return f;
}

/* Adds a frame after those held, and passes on as many as possible. */
static void add_frame(push *p, frame *f) {
    *p->last_held = f;
    p->last_held = &f->next;
    p->n_held++;
    follow_held(p);
}

/* Takes a frame from the stream that was announced over a pair. If it is not held, it has arrived over
 * the pair and was passed on. */
static void take_after_all(push *p, grpc_byte_buffer *message, uint64_t seq) {
    frame *f = p->held;
    while (f && (!f->oob || f->seq != seq)) f = f->next;
    if (!f) return;
    grpc_byte_buffer_destroy(f->message);
    f->message = grpc_byte_buffer_copy(message);
    f->oob = false;
    atomic_fetch_add(&p->w->n_fallback, 1);
    follow_held(p);
}

/* Puts a message into the order of frames. Without pairs, all messages follow at once. Malformed
 * messages are passed on, because the computing thread reports them. */
static fv_status sort_message(push *p, grpc_byte_buffer *message) {
    fv_rpc_frame in = {0};
    bool read = p->w->pairs.ops && fv_rpc_frame_read(message, &in) == FV_OK;
    if (read && in.pair && in.bytes) {
        take_after_all(p, message, in.seq);
        return FV_OK;
    }
    frame *f = frame_new(p, message);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    if (read && in.alive) { /* a sign of life passes held frames */
        follow(f);
        return FV_OK;
    }
    f->oob = in.pair != 0;
    f->seq = in.seq;
    f->pair = in.pair;
    f->turn = in.turn;
    add_frame(p, f);
    return FV_OK;
}

static fv_status push_start(fv_rpc_call *c) {
    push *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    p->w = fv_rpc_call_service(c);
    p->call = c;
    p->refs = 1;
    p->last_held = &p->held;
    fv_trace_context trace = fv_rpc_call_trace(c);
    p->span = fv_span_begin("Push", FV_SPAN_SERVER, &trace, fv_clock_s());
    p->next = p->w->pushes;
    p->w->pushes = p;
    fv_rpc_call_set_user(c, p);
    return FV_OK;
}

static fv_status push_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    push *p = fv_rpc_call_user(c);
    FV_TRY(sort_message(p, message));
    p->paused = p->in_flight >= WINDOW || p->n_held >= HELD_MAX;
    if (p->paused) fv_rpc_call_pause(c);
    return FV_OK;
}

static fv_status push_half_close(fv_rpc_call *c) {
    push *p = fv_rpc_call_user(c);
    frame *f = frame_new(p, NULL);
    if (!f) return FV_FAIL(FV_ENOMEM, "out of memory for a frame");
    add_frame(p, f);
    return FV_OK;
}

/* Posts the end of a stream whose peer is gone. */
static void push_broken(push *p) {
    frame *f = frame_new(p, NULL);
    if (!f) return;
    f->broken = true;
    follow(f);
}

/* Ends a call. If it did not end well, its hand-off is aborted; if there is no memory even for that,
 * the lease expires. */
static void push_end(fv_rpc_call *c, const fv_rpc_end *end) {
    push *p = fv_rpc_call_user(c);
    if (!p) return;
    const fv_span_field received[] = {{"fovea.kv_received_bytes", .number = (int64_t)p->bytes}};
    fv_span_end(&p->span, fv_clock_s(), (int)end->code, FV_SPAN_FIELDS(received));
    p->call = NULL;
    drop_held(p);
    if (end->status != FV_OK) push_broken(p);
    push_unref(p);
}

/* ---- the table -------------------------------------------------------------------------- */

static void on_stop(void *w) { fv_peers_end(&((fv_decode_worker *)w)->pairs); }

fv_rpc_service fv_handoff_service(fv_decode_worker *w) {
    static const fv_rpc_method methods[] = {
        {.path = "/fovea.handoff.v1.Handoff/Open",
         .peers = FV_MEMBER_PREFILL,
         .kind = FV_RPC_UNARY,
         .message_max = OPEN_MAX,
         .calls_max = CALLS_MAX,
         .events = {.on_message = open_message, .on_end = open_end}},
        {.path = "/fovea.handoff.v1.Handoff/Push",
         .peers = FV_MEMBER_PREFILL,
         .kind = FV_RPC_CLIENT_STREAM,
         .message_max = PUSH_MAX,
         .calls_max = CALLS_MAX,
         .events = {.on_start = push_start,
                    .on_message = push_message,
                    .on_half_close = push_half_close,
                    .on_end = push_end}},
        {.path = "/fovea.handoff.v1.Handoff/Release",
         .peers = FV_MEMBER_PREFILL,
         .kind = FV_RPC_UNARY,
         .message_max = OPEN_MAX,
         .calls_max = CALLS_MAX,
         .events = {.on_message = release_message, .on_end = release_end}},
        {.path = "/fovea.handoff.v1.Handoff/Pair",
         .peers = FV_MEMBER_PREFILL,
         .kind = FV_RPC_BIDI,
         .message_max = OPEN_MAX,
         .events = {.on_start = fv_peer_on_start,
                    .on_message = fv_peer_on_message,
                    .on_half_close = fv_peer_on_half_close,
                    .on_end = fv_peer_on_end}},
    };
    return (fv_rpc_service){methods, sizeof methods / sizeof methods[0], w, on_stop};
}
