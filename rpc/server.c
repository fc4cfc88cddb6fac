/* The server: calls arrive at a few accepts that are always armed, are looked up in the method
 * tables, and run as fv_rpc_call. Loop thread.
 *
 *               arm                     path known
 *     (new) ----------> ARMED --accepted--> OPEN --finish--> FINISHING --last op--> on_end, freed
 *                         |                  |                  ^
 *                         | server stops     | cancelled -------'
 *                         v                  | (unknown, refused: finished at once)
 *                       freed
 *
 *     new -> ARMED         arm            OPEN -> FINISHING    fv_rpc_call_finish, on_closed
 *     ARMED -> OPEN        on_accepted    FINISHING -> freed   over
 *
 * The same accepts serve all methods. gRPC's registered methods are not used: they are no faster
 * here, and each would need accepts of its own. */
#include "rpc/server.h"

#include <assert.h>
#include <grpc/grpc_security.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/tsan.h"
#include "rpc/internal.h"
#include "rpc/listen.h"

enum {
    MESSAGE_MAX = 4 << 20,
    QUEUE_MAX = 1 << 20,
    N_ACCEPT = 16,
    PING_MS = 20000,
    AWAIT_LOOKS = 16, /* looks at waiting calls per first_message_ms */
    AWAIT_LOOK_MS_MIN = 10,
};

typedef struct method {
    const fv_rpc_method *m; /* borrowed */
    const fv_rpc_service *service;
    int32_t live; /* running calls */
} method;

typedef struct server_call server_call;

struct fv_rpc_server {
    fv_bridge *bridge; /* borrowed */
    fv_rpc_server_options opt;
    grpc_server *grpc;
    method *methods; /* [n_method] sorted by path */
    int32_t n_method, port;
    int32_t objects, calls;          /* calls with and without the armed ones */
    bool leaving, stopping, stopped; /* takes no new calls; will be freed; no call runs any more */
    fv_rpc_op stop;
    uv_timer_t grace;
    uv_timer_t await; /* looks at the calls below */
    /* Calls whose first message has not come, oldest first, which is the order of their time limits. */
    server_call *await_first, *await_last;
    void (*done)(void *user);
    void *user;
};

struct server_call {
    fv_rpc_call call; /* first, so that a call is its server call */
    fv_rpc_server *server;
    method *method; /* NULL: the call was refused before any handler saw it */
    fv_rpc_op accepted, closed;
    grpc_call_details details;
    int cancelled;
    char path[256];
    /* the wait for the first message, until await_until_ms by the loop's clock */
    bool awaiting;
    uint64_t await_until_ms;
    server_call *await_next, *await_previous;
    /* the end */
    bool finished, aborted;
    fv_rpc_end end;
    int64_t retry_ms;
    grpc_slice text;
    grpc_metadata trailer[FV_RPC_TRAILERS + 2]; /* the handler's, a retry hint and an origin */
    size_t n_trailer;
};

static const fv_rpc_events no_events;

/* ---- the time of the first message ------------------------------------------------------ */

static void await_end(server_call *sc) {
    fv_rpc_server *s = sc->server;
    if (!sc->awaiting) return;
    *(sc->await_previous ? &sc->await_previous->await_next : &s->await_first) = sc->await_next;
    *(sc->await_next ? &sc->await_next->await_previous : &s->await_last) = sc->await_previous;
    sc->awaiting = false;
    if (!s->await_first) uv_timer_stop(&s->await);
}

static void finish(server_call *sc, fv_status st, grpc_status_code code, const char *text);

static void on_await(uv_timer_t *t) {
    fv_rpc_server *s = t->data;
    uint64_t now = uv_now(fv_bridge_loop(s->bridge));
    while (s->await_first && s->await_first->await_until_ms <= now) {
        server_call *sc = s->await_first;
        fv_status st = FV_FAIL(FV_EDEADLINE, "%s: the message was not complete within %.3g s",
                               sc->path, 1e-3 * s->opt.limits.first_message_ms);
        await_end(sc);
        finish(sc, st, fv_rpc_code(st), fv_last_error());
    }
}

static void await_begin(server_call *sc) {
    fv_rpc_server *s = sc->server;
    int32_t ms = s->opt.limits.first_message_ms;
    if (ms == 0 || sc->finished) return;
    sc->awaiting = true;
    sc->await_until_ms = uv_now(fv_bridge_loop(s->bridge)) + (uint64_t)ms;
    sc->await_previous = s->await_last;
    *(s->await_last ? &s->await_last->await_next : &s->await_first) = sc;
    s->await_last = sc;
    uint64_t look = (uint64_t)ms / AWAIT_LOOKS;
    if (look < AWAIT_LOOK_MS_MIN) look = AWAIT_LOOK_MS_MIN;
    if (!uv_is_active((uv_handle_t *)&s->await)) uv_timer_start(&s->await, on_await, look, look);
}

/* ---- ending a call ---------------------------------------------------------------------- */

static void add_trailer(server_call *sc, const char *key, const char *value) {
    sc->trailer[sc->n_trailer++] = (grpc_metadata){.key = grpc_slice_from_copied_string(key),
                                                   .value = grpc_slice_from_copied_string(value)};
}

void fv_rpc_call_trailer(fv_rpc_call *c, const char *key, const char *value) {
    server_call *sc = (server_call *)c;
    assert(c->side->server && sc->n_trailer < FV_RPC_TRAILERS);
    if (!sc->finished) add_trailer(sc, key, value);
}

void fv_rpc_call_retry_after(fv_rpc_call *c, int64_t ms) {
    assert(c->side->server);
    ((server_call *)c)->retry_ms = ms;
}

static void finish(server_call *sc, fv_status st, grpc_status_code code, const char *text) {
    if (sc->finished) return;
    fv_origin origin = st == FV_OK ? FV_ORIGIN_UNSTATED : fv_last_origin();
    await_end(sc);
    sc->finished = true;
    sc->end =
        (fv_rpc_end){.status = st, .code = code, .origin = origin, .retry_ms = -1, .text = ""};
    sc->text = grpc_slice_from_copied_string(text);
    if (st == FV_EBUSY) {
        char ms[24];
        sc->end.retry_ms = sc->retry_ms;
        snprintf(ms, sizeof ms, "%lld", (long long)sc->retry_ms);
        add_trailer(sc, FV_RPC_RETRY_KEY, ms);
    }
    if (origin != FV_ORIGIN_UNSTATED) add_trailer(sc, FV_RPC_ORIGIN_KEY, fv_origin_name(origin));
    sc->call.closing = true;
    sc->call.read_done = true; /* later messages are ignored */
    fv_rpc_call_send_next(&sc->call);
    fv_rpc_call_unref(&sc->call); /* no longer open */
}

void fv_rpc_call_finish(fv_rpc_call *c, fv_status st) {
    assert(c->side->server);
    finish((server_call *)c, st, fv_rpc_code(st), st == FV_OK ? "" : fv_last_error());
}

void fv_rpc_call_abort(fv_rpc_call *c, fv_status st) {
    assert(c->side->server && st != FV_OK);
    server_call *sc = (server_call *)c;
    char text[FV_RPC_TEXT_MAX];
    snprintf(text, sizeof text, "%s", fv_last_error());
    fv_origin origin = fv_last_origin();
    finish(sc, st, fv_rpc_code(st), text);
    sc->aborted = true;
    sc->end = (fv_rpc_end){
        .status = st, .code = fv_rpc_code(st), .origin = origin, .retry_ms = -1, .text = ""};
    /* The status would wait behind a message that the peer does not read. */
    if (c->in_send) grpc_call_cancel_with_status(c->rpc, fv_rpc_code(st), text, NULL);
}

static void fill_headers(fv_rpc_call *c, grpc_op *op) { (void)c, (void)op; }

static void fill_end(fv_rpc_call *c, grpc_op *op) {
    server_call *sc = (server_call *)c;
    op->op = GRPC_OP_SEND_STATUS_FROM_SERVER;
    op->data.send_status_from_server.status = sc->end.code;
    op->data.send_status_from_server.status_details = &sc->text;
    op->data.send_status_from_server.trailing_metadata = sc->trailer;
    op->data.send_status_from_server.trailing_metadata_count = sc->n_trailer;
}

static void read_done(fv_rpc_call *c) {
    server_call *sc = (server_call *)c;
    await_end(sc);
    if (c->one_message) {
        fv_rpc_call_finish(c, FV_FAIL(FV_EINVAL, "%s needs one message, got none", c->path));
        return;
    }
    if (!c->events->on_half_close || sc->finished) return;
    fv_status st = c->events->on_half_close(c);
    if (st != FV_OK) fv_rpc_call_finish(c, st);
}

static void maybe_free(fv_rpc_server *s);

static void over(fv_rpc_call *c) {
    server_call *sc = (server_call *)c;
    fv_rpc_server *s = sc->server;
    if (sc->method) {
        if (sc->cancelled && !sc->aborted)
            sc->end = (fv_rpc_end){
                .status = FV_ECANCELLED, .code = GRPC_STATUS_CANCELLED, .retry_ms = -1, .text = ""};
        if (c->events->on_end) c->events->on_end(c, &sc->end);
        sc->method->live--;
    }
    if (c->rpc) s->calls--;
    s->objects--;
    grpc_slice_unref(sc->text);
    for (size_t i = 0; i < sc->n_trailer; i++) {
        grpc_slice_unref(sc->trailer[i].key);
        grpc_slice_unref(sc->trailer[i].value);
    }
    grpc_call_details_destroy(&sc->details);
    fv_rpc_call_fini(c);
    free(sc);
    maybe_free(s);
}

static void message_came(fv_rpc_call *c) { await_end((server_call *)c); }

static const fv_rpc_side side = {.server = true,
                                 .fill_headers = fill_headers,
                                 .fill_end = fill_end,
                                 .fail = fv_rpc_call_finish,
                                 .message_came = message_came,
                                 .read_done = read_done,
                                 .over = over};

/* Handles the end of a call for gRPC: the client has gone, the deadline has passed, or the status was sent. */
static void on_closed(fv_rpc_op *op, bool ok) {
    server_call *sc = op->owner;
    fv_rpc_call *c = &sc->call;
    (void)ok; /* this op always succeeds */
    if (sc->cancelled) {
        fv_rpc_call_drop_queue(c);
        if (!sc->finished && c->events->on_cancel) c->events->on_cancel(c);
        finish(sc, FV_ECANCELLED, GRPC_STATUS_CANCELLED, "");
    }
    fv_rpc_call_unref(c);
}

/* ---- beginning a call ------------------------------------------------------------------- */

static int compare_path(const void *key, const void *m) {
    return strcmp(key, ((const method *)m)->m->path);
}

/* Finds the method and starts the call, or refuses it. */
static void begin(server_call *sc) {
    fv_rpc_server *s = sc->server;
    fv_rpc_call *c = &sc->call;
    method *m =
        bsearch(sc->path, s->methods, (size_t)s->n_method, sizeof *s->methods, compare_path);
    if (!m) {
        fv_rpc_call_finish(c, FV_FAIL(FV_EUNSUPPORTED, "unknown method %s", sc->path));
        return;
    }
    fv_status st = s->opt.admit ? s->opt.admit(s->opt.user, c, m->m) : FV_OK;
    if (st != FV_OK) {
        fv_rpc_call_finish(c, st);
        return;
    }
    if (m->m->calls_max && m->live >= m->m->calls_max) {
        fv_rpc_call_finish(c, FV_FAIL(FV_EBUSY, "%s: %d calls run already", sc->path, m->live));
        return;
    }
    m->live++;
    sc->method = m;
    c->events = &m->m->events;
    if (m->m->queue_max) c->queue_max = m->m->queue_max;
    if (m->m->message_max) c->message_max = m->m->message_max;
    c->one_message = m->m->kind == FV_RPC_UNARY || m->m->kind == FV_RPC_SERVER_STREAM;
    st = c->events->on_start ? c->events->on_start(c) : FV_OK;
    if (st != FV_OK) fv_rpc_call_finish(c, st);
    await_begin(sc);
    fv_rpc_call_read_next(c);
}

static void arm(fv_rpc_server *s);

static void on_accepted(fv_rpc_op *op, bool ok) {
    server_call *sc = op->owner;
    fv_rpc_call *c = &sc->call;
    if (!ok) { /* the server stops */
        fv_rpc_call_unref(c);
        return;
    }
    arm(sc->server);
    sc->server->calls++;
    c->deadline = sc->details.deadline;
    /* A path that is longer than any of ours is truncated, and then unknown. */
    size_t n = GRPC_SLICE_LENGTH(sc->details.method);
    if (n >= sizeof sc->path) n = sizeof sc->path - 1;
    memcpy(sc->path, GRPC_SLICE_START_PTR(sc->details.method), n);
    /* A batch of its own, because this op makes others in its batch look successful. */
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &sc->cancelled;
    fv_rpc_call_start(c, &close, 1, &sc->closed, on_closed);
    begin(sc);
}

static void arm(fv_rpc_server *s) {
    if (s->leaving) return;
    server_call *sc = calloc(1, sizeof *sc);
    if (!sc) { /* one accept fewer; the others remain */
        FV_LOG(ERROR, WIRE, "event=accept-lost reason=no-memory");
        return;
    }
    sc->server = s;
    sc->text = grpc_empty_slice();
    sc->retry_ms = FV_RPC_RETRY_MS;
    fv_rpc_call_init(&sc->call, &side, s->bridge, &no_events, QUEUE_MAX, MESSAGE_MAX);
    sc->call.path = sc->path;
    grpc_call_details_init(&sc->details);
    s->objects++;
    sc->accepted = (fv_rpc_op){.done = on_accepted, .owner = sc};
    FV_TSAN_RELEASE(&sc->accepted);
    grpc_completion_queue *q = fv_bridge_queue(s->bridge);
    grpc_call_error err = grpc_server_request_call(s->grpc, &sc->call.rpc, &sc->details,
                                                   &sc->call.metadata, q, q, &sc->accepted);
    if (err != GRPC_CALL_OK) {
        FV_LOG(ERROR, WIRE, "event=accept-lost reason=%s", grpc_call_error_to_string(err));
        fv_rpc_call_unref(&sc->call);
    }
}

void *fv_rpc_call_service(const fv_rpc_call *c) {
    const server_call *sc = (const server_call *)c;
    assert(c->side->server && sc->method);
    return sc->method->service->state;
}

/* ---- opening ---------------------------------------------------------------------------- */

static int compare_methods(const void *a, const void *b) {
    return strcmp(((const method *)a)->m->path, ((const method *)b)->m->path);
}

static fv_status collect_methods(fv_rpc_server *s) {
    const fv_rpc_server_options *opt = &s->opt;
    size_t n = 0;
    for (int32_t i = 0; i < opt->n_service; i++) n += (size_t)opt->services[i].n_method;
    s->methods = calloc(n + 1, sizeof *s->methods);
    if (!s->methods) return FV_FAIL(FV_ENOMEM, "no memory for %zu methods", n);
    for (int32_t i = 0; i < opt->n_service; i++)
        for (int32_t j = 0; j < opt->services[i].n_method; j++)
            s->methods[s->n_method++] =
                (method){.m = &opt->services[i].methods[j], .service = &opt->services[i]};
    qsort(s->methods, n, sizeof *s->methods, compare_methods);
    for (size_t i = 1; i < n; i++)
        if (compare_methods(&s->methods[i - 1], &s->methods[i]) == 0)
            return FV_FAIL(FV_EINVAL, "two services have the method %s", s->methods[i].m->path);
    return FV_OK;
}

/* The largest message that any method takes: gRPC refuses larger ones before they are in memory. */
static int largest_message(const fv_rpc_server *s) {
    size_t max = MESSAGE_MAX;
    for (int32_t i = 0; i < s->n_method; i++)
        if (s->methods[i].m->message_max > max) max = s->methods[i].m->message_max;
    return max < INT32_MAX ? (int)max : INT32_MAX;
}

enum { N_ARG_MAX = 12 };

typedef struct arguments {
    grpc_arg all[N_ARG_MAX];
    size_t n;
} arguments;

static void add_number(arguments *a, const char *key, int value) {
    assert(a->n < N_ARG_MAX);
    a->all[a->n++] = (grpc_arg){GRPC_ARG_INTEGER, (char *)key, {.integer = value}};
}

static void add_limits(arguments *a, const fv_rpc_limits *limits, grpc_resource_quota *quota) {
    if (limits->streams) add_number(a, GRPC_ARG_MAX_CONCURRENT_STREAMS, limits->streams);
    if (limits->metadata) add_number(a, GRPC_ARG_MAX_METADATA_SIZE, (int)limits->metadata);
    if (limits->age_ms) add_number(a, GRPC_ARG_MAX_CONNECTION_AGE_MS, limits->age_ms);
    if (limits->age_ms) add_number(a, GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, limits->age_ms);
    if (!quota) return;
    grpc_resource_quota_resize(quota, limits->memory);
    assert(a->n < N_ARG_MAX);
    a->all[a->n++] = (grpc_arg){GRPC_ARG_POINTER,
                                (char *)GRPC_ARG_RESOURCE_QUOTA,
                                {.pointer = {quota, grpc_resource_quota_arg_vtable()}}};
}

static grpc_server *create_server(const fv_rpc_server *s) {
    const fv_rpc_limits *limits = &s->opt.limits;
    int ping = s->opt.ping_ms ? s->opt.ping_ms : PING_MS;
    arguments a = {0};
    /* By default a second server could listen on the same port and get half of the calls. */
    add_number(&a, GRPC_ARG_ALLOW_REUSEPORT, 0);
    add_number(&a, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, largest_message(s));
    add_number(&a, GRPC_ARG_KEEPALIVE_TIME_MS, ping);
    add_number(&a, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ping);
    /* Our clients ping a silent server; by default gRPC would disconnect them for pinging too often. */
    add_number(&a, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
    /* gRPC inflates a message before it looks at its size, so that 2 MB could become 2 GB. With identity as the
     * only algorithm, a call that announces another one ends before a message is read, and a message that claims to
     * be compressed nevertheless is not inflated either. */
    add_number(&a, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
    add_number(&a, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    grpc_resource_quota *quota = limits->memory ? grpc_resource_quota_create(s->opt.listen) : NULL;
    add_limits(&a, limits, quota);
    grpc_channel_args list = {a.n, a.all};
    grpc_server *grpc = grpc_server_create(&list, NULL);
    if (quota) grpc_resource_quota_unref(quota); /* the server has its own reference */
    return grpc;
}

fv_status fv_rpc_server_open(fv_bridge *bridge, const fv_rpc_server_options *opt,
                             fv_rpc_server **out) {
    FV_TRY(fv_rpc_listen_check(opt->listen));
    fv_rpc_server *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "no memory for a server");
    s->bridge = bridge;
    s->opt = *opt;
    fv_status st;
    FV_TRY_GOTO(collect_methods(s), st, free_server);
    s->grpc = create_server(s);
    grpc_server_register_completion_queue(s->grpc, fv_bridge_queue(bridge), NULL);
    grpc_server_credentials *c =
        opt->tls ? fv_tls_server_credentials(opt->tls) : grpc_insecure_server_credentials_create();
    if (c) s->port = grpc_server_add_http2_port(s->grpc, opt->listen, c);
    if (c) grpc_server_credentials_release(c);
    if (s->port == 0) {
        st = fv_rpc_listen_error(opt->listen);
        goto destroy_server;
    }
    uv_timer_init(fv_bridge_loop(bridge), &s->grace);
    s->grace.data = s;
    uv_timer_init(fv_bridge_loop(bridge), &s->await);
    s->await.data = s;
    grpc_server_start(s->grpc);
    int32_t n_accept = opt->n_accept ? opt->n_accept : N_ACCEPT;
    for (int32_t i = 0; i < n_accept; i++) arm(s);
    *out = s;
    return FV_OK;
destroy_server:
    grpc_server_destroy(s->grpc);
free_server:
    free(s->methods);
    free(s);
    return st;
}

int32_t fv_rpc_server_port(const fv_rpc_server *s) { return s->port; }

int32_t fv_rpc_server_calls(const fv_rpc_server *s) { return s->calls; }

/* ---- stopping --------------------------------------------------------------------------- */

static void on_grace_closed(uv_handle_t *h) {
    fv_rpc_server *s = h->data;
    void (*done)(void *) = s->done;
    void *user = s->user;
    free(s->methods);
    free(s);
    if (done) done(user);
}

static void on_await_closed(uv_handle_t *h) {
    fv_rpc_server *s = h->data;
    uv_close((uv_handle_t *)&s->grace, on_grace_closed);
}

static void maybe_free(fv_rpc_server *s) {
    if (!s->stopping || !s->stopped || s->objects > 0) return;
    grpc_server_destroy(s->grpc);
    uv_close((uv_handle_t *)&s->await, on_await_closed);
}

static void on_stopped(fv_rpc_op *op, bool ok) {
    fv_rpc_server *s = op->owner;
    (void)ok;
    s->stopped = true;
    uv_timer_stop(&s->grace);
    maybe_free(s);
}

static void on_grace_over(uv_timer_t *t) {
    fv_rpc_server *s = t->data;
    if (s->calls > 0) FV_LOG(WARN, WIRE, "event=grace-over calls=%d action=cancel", s->calls);
    grpc_server_cancel_all_calls(s->grpc);
}

void fv_rpc_server_close_listener(fv_rpc_server *s) {
    if (s->leaving) return;
    s->leaving = true;
    s->stop = (fv_rpc_op){.done = on_stopped, .owner = s};
    FV_TSAN_RELEASE(&s->stop);
    grpc_server_shutdown_and_notify(s->grpc, fv_bridge_queue(s->bridge), &s->stop);
}

void fv_rpc_server_stop(fv_rpc_server *s, int32_t grace_ms, void (*done)(void *user), void *user) {
    assert(!s->stopping);
    s->stopping = true;
    s->done = done;
    s->user = user;
    for (int32_t i = 0; i < s->opt.n_service; i++)
        if (s->opt.services[i].on_stop) s->opt.services[i].on_stop(s->opt.services[i].state);
    fv_rpc_server_close_listener(s);
    if (!s->stopped)
        uv_timer_start(&s->grace, on_grace_over, grace_ms > 0 ? (uint64_t)grace_ms : 0, 0);
    maybe_free(s);
}
