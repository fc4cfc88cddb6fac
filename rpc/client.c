/* The client: channels, and calls made on them. Loop thread.
 *
 *     fv_rpc_call_open --> OPEN --status came, last op done--> on_end, freed
 *
 * The status op is in flight from the beginning: whatever happens to a call, that op completes, after
 * all messages were read. gRPC's own retries are off: they keep a copy of sent messages, and the
 * router knows better what may be sent again. */
#include "rpc/client.h"

#include <assert.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/internal.h"
#include "rpc/message.h"

enum { MESSAGE_MAX = 4 << 20, QUEUE_MAX = 1 << 20, PING_MS = 10000, N_METADATA = 9 };

/* One of gRPC's channels. It lasts while it is the current one of a channel, or has calls. */
typedef struct connection {
    grpc_channel *grpc;
    uint64_t tls_version;
    int32_t refs;
} connection;

struct fv_rpc_channel {
    fv_bridge *bridge;          /* borrowed */
    fv_rpc_channel_options opt; /* but with `server_name` below */
    char *target, *server_name;
    connection *now;
};

typedef struct client_call {
    fv_rpc_call call; /* first, so that a call is its client call */
    connection *on;   /* referenced */
    fv_rpc_op status, headers;
    grpc_metadata_array initial;
    grpc_metadata metadata[N_METADATA]; /* to send; freed at the end */
    size_t n_metadata;
    grpc_status_code code;
    grpc_slice text;
    char sentence[FV_RPC_TEXT_MAX]; /* `text`, terminated */
    fv_error failed;                /* on this side; takes precedence over the peer's status */
    fv_rpc_end end;
} client_call;

/* ---- channels --------------------------------------------------------------------------- */

static void unref_connection(connection *n) {
    if (!n || --n->refs > 0) return;
    grpc_channel_destroy(n->grpc);
    free(n);
}

static grpc_channel *create_channel(const fv_rpc_channel *ch,
                                    grpc_channel_credentials *credentials) {
    int ping = ch->opt.ping_ms ? ch->opt.ping_ms : PING_MS;
    int max = ch->opt.message_max < INT32_MAX ? (int)ch->opt.message_max : INT32_MAX;
    grpc_arg args[16];
    size_t n = 0;
#define ARG(name, number)                                                                          \
    args[n++] = (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (name), .value.integer = (number)}
    ARG(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, max);
    ARG(GRPC_ARG_ENABLE_RETRIES, 0);
    ARG(GRPC_ARG_ENABLE_HTTP_PROXY, 0); /* members of a fleet are not behind a web proxy */
    ARG(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    ARG(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1); /* channels share no connection */
    /* Finds a restarted worker soon. */
    ARG(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    ARG(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000); /* also the time to connect, on a busy machine */
    ARG(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
    /* Limits what a paused call receives. gRPC's own estimate of bandwidth x delay grows to megabytes for each
     * call on a busy machine, but clients here receive tokens and text. */
    ARG(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    ARG(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 10);
    /* Pings the server while calls wait, because a machine that vanished sends nothing. */
    ARG(GRPC_ARG_KEEPALIVE_TIME_MS, ping);
    ARG(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ping);
    ARG(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
#undef ARG
    if (ch->server_name)
        args[n++] = (grpc_arg){.type = GRPC_ARG_STRING,
                               .key = GRPC_SSL_TARGET_NAME_OVERRIDE_ARG,
                               .value.string = ch->server_name};
    grpc_channel_args list = {n, args};
    return grpc_channel_create(ch->target, credentials, &list);
}

fv_status fv_rpc_channel_renew(fv_rpc_channel *ch) {
    connection *next = calloc(1, sizeof *next);
    if (!next) return FV_FAIL(FV_ENOMEM, "no memory for a connection");
    grpc_channel_credentials *c = ch->opt.tls
                                      ? fv_tls_channel_credentials(ch->opt.tls, &next->tls_version)
                                      : grpc_insecure_credentials_create();
    next->grpc = create_channel(ch, c);
    next->refs = 1;
    grpc_channel_credentials_release(c);
    unref_connection(ch->now);
    ch->now = next;
    return FV_OK;
}

/* Renews the connection if the certificates have changed since it was made. */
static fv_status refresh(fv_rpc_channel *ch) {
    if (!ch->opt.tls || fv_tls_version(ch->opt.tls) == ch->now->tls_version) return FV_OK;
    return fv_rpc_channel_renew(ch);
}

fv_status fv_rpc_channel_open(fv_bridge *bridge, const char *target,
                              const fv_rpc_channel_options *opt, fv_rpc_channel **out) {
    fv_rpc_channel *ch = calloc(1, sizeof *ch);
    if (!ch) return FV_FAIL(FV_ENOMEM, "no memory for a channel");
    ch->bridge = bridge;
    if (opt) ch->opt = *opt;
    if (!ch->opt.message_max) ch->opt.message_max = MESSAGE_MAX;
    ch->target = strdup(target);
    ch->server_name = ch->opt.server_name ? strdup(ch->opt.server_name) : NULL;
    fv_status st = !ch->target || (ch->opt.server_name && !ch->server_name)
                       ? FV_FAIL(FV_ENOMEM, "no memory for a channel")
                       : fv_rpc_channel_renew(ch);
    if (st != FV_OK) {
        fv_rpc_channel_close(ch);
        return st;
    }
    *out = ch;
    return FV_OK;
}

void fv_rpc_channel_close(fv_rpc_channel *ch) {
    if (!ch) return;
    unref_connection(ch->now);
    free(ch->target);
    free(ch->server_name);
    free(ch);
}

/* ---- calls ------------------------------------------------------------------------------ */

static void add_metadata(client_call *cc, const char *key, const char *value) {
    cc->metadata[cc->n_metadata++] = (grpc_metadata){.key = grpc_slice_from_copied_string(key),
                                                     .value = grpc_slice_from_copied_string(value)};
}

static void free_metadata(client_call *cc) {
    for (size_t i = 0; i < cc->n_metadata; i++) {
        grpc_slice_unref(cc->metadata[i].key);
        grpc_slice_unref(cc->metadata[i].value);
    }
    cc->n_metadata = 0;
}

static void fill_headers(fv_rpc_call *c, grpc_op *op) {
    client_call *cc = (client_call *)c;
    op->data.send_initial_metadata.count = cc->n_metadata;
    op->data.send_initial_metadata.metadata = cc->metadata;
}

static void fill_end(fv_rpc_call *c, grpc_op *op) {
    (void)c;
    op->op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
}

/* Cancels the call with a failure of this side, with which it ends even if the peer has ended it with OK by now. */
static void fail(fv_rpc_call *c, fv_status st) {
    client_call *cc = (client_call *)c;
    if (cc->failed.status == FV_OK) fv_error_take(&cc->failed, st);
    c->cancelled = true;
    c->read_done = true;
    fv_rpc_call_drop_queue(c);
    grpc_call_cancel_with_status(c->rpc, fv_rpc_code(st), fv_last_error(), NULL);
}

static void read_done(fv_rpc_call *c) {
    if (!c->events->on_half_close) return;
    fv_status st = c->events->on_half_close(c);
    if (st != FV_OK) fail(c, st);
}

static int64_t retry_hint(const fv_rpc_call *c) {
    const char *value;
    size_t n;
    char number[24] = "";
    if (!fv_rpc_call_metadata(c, FV_RPC_RETRY_KEY, &value, &n) || n == 0 || n >= sizeof number)
        return -1;
    memcpy(number, value, n);
    char *end;
    long long ms = strtoll(number, &end, 10);
    return *end == '\0' && ms >= 0 ? ms : -1;
}

static fv_origin stated_origin(const fv_rpc_call *c) {
    const char *value;
    size_t n;
    return fv_rpc_call_metadata(c, FV_RPC_ORIGIN_KEY, &value, &n) ? fv_origin_named(value, n)
                                                                  : FV_ORIGIN_UNSTATED;
}

static void over(fv_rpc_call *c) {
    client_call *cc = (client_call *)c;
    const fv_error *f = &cc->failed;
    if (f->status != FV_OK)
        cc->end = (fv_rpc_end){.status = f->status,
                               .code = fv_rpc_code(f->status),
                               .origin = f->origin,
                               .retry_ms = -1,
                               .text = f->text};
    if (c->events->on_end) c->events->on_end(c, &cc->end);
    free_metadata(cc);
    grpc_slice_unref(cc->text);
    fv_rpc_call_fini(c);
    grpc_metadata_array_destroy(&cc->initial);
    unref_connection(cc->on);
    free(cc);
}

static const fv_rpc_side side = {.server = false,
                                 .fill_headers = fill_headers,
                                 .fill_end = fill_end,
                                 .fail = fail,
                                 .read_done = read_done,
                                 .over = over};

static void on_status(fv_rpc_op *op, bool ok) {
    client_call *cc = op->owner;
    (void)ok; /* this op always succeeds */
    size_t n = GRPC_SLICE_LENGTH(cc->text);
    if (n >= sizeof cc->sentence) n = sizeof cc->sentence - 1;
    memcpy(cc->sentence, GRPC_SLICE_START_PTR(cc->text), n);
    int64_t retry_ms = retry_hint(&cc->call);
    /* Not cancelled by this side: a stopping server drops calls that it has not looked at, or that outlast its
     * grace period, and such work can be done elsewhere. */
    if (cc->code == GRPC_STATUS_CANCELLED && !cc->call.cancelled) {
        cc->code = GRPC_STATUS_UNAVAILABLE;
        snprintf(cc->sentence, sizeof cc->sentence, FV_RPC_DROPPED);
    }
    fv_status status = fv_rpc_status(cc->code, retry_ms);
    cc->end = (fv_rpc_end){.status = status,
                           .code = cc->code,
                           .origin = stated_origin(&cc->call),
                           .retry_ms = retry_ms,
                           .text = cc->sentence};
    fv_rpc_call_drop_queue(&cc->call); /* the peer is gone */
    fv_rpc_call_unref(&cc->call);      /* the op's reference */
    fv_rpc_call_unref(&cc->call);      /* no longer open */
}

static void on_headers(fv_rpc_op *op, bool ok) {
    (void)ok;
    fv_rpc_call_unref(op->owner);
}

static void start_receiving(client_call *cc) {
    grpc_op headers = {.op = GRPC_OP_RECV_INITIAL_METADATA};
    headers.data.recv_initial_metadata.recv_initial_metadata = &cc->initial;
    fv_rpc_call_start(&cc->call, &headers, 1, &cc->headers, on_headers);
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    status.data.recv_status_on_client.trailing_metadata = &cc->call.metadata;
    status.data.recv_status_on_client.status = &cc->code;
    status.data.recv_status_on_client.status_details = &cc->text;
    fv_rpc_call_start(&cc->call, &status, 1, &cc->status, on_status);
    fv_rpc_call_read_next(&cc->call);
}

static fv_status queue_request(fv_rpc_call *c, const ProtobufCMessage *m) {
    grpc_byte_buffer *b;
    FV_TRY(fv_rpc_pack(m, &b));
    return fv_rpc_call_queue(c, b);
}

fv_status fv_rpc_call_open(fv_rpc_channel *ch, const fv_rpc_call_options *opt, fv_rpc_call **out) {
    assert(opt->deadline_ms > 0 && opt->n_metadata < N_METADATA - 1);
    FV_TRY(refresh(ch));
    client_call *cc = calloc(1, sizeof *cc);
    if (!cc) return FV_FAIL(FV_ENOMEM, "no memory for a call");
    fv_rpc_call *c = &cc->call;
    fv_rpc_call_init(c, &side, ch->bridge, opt->events, opt->queue_max ? opt->queue_max : QUEUE_MAX,
                     ch->opt.message_max);
    fv_status st = opt->request ? queue_request(c, opt->request) : FV_OK;
    if (st != FV_OK) {
        fv_rpc_call_fini(c);
        free(cc);
        return st;
    }
    c->closing = opt->half_close;
    c->path = opt->path;
    c->user = opt->user;
    cc->text = grpc_empty_slice();
    grpc_metadata_array_init(&cc->initial);
    for (int32_t i = 0; i < opt->n_metadata; i++)
        add_metadata(cc, opt->metadata[i].key, opt->metadata[i].value);
    if (opt->forwarded_for) add_metadata(cc, "x-forwarded-for", opt->forwarded_for);
    if (opt->trace && fv_trace_known(opt->trace)) {
        char text[FV_TRACE_TEXT + 1];
        fv_trace_print(opt->trace, text);
        add_metadata(cc, FV_TRACE_KEY, text);
    }
    int64_t left_ms = opt->deadline_ms;
    if (opt->parent) {
        int64_t parent_ms = fv_rpc_call_left_ms(opt->parent);
        if (parent_ms < left_ms) left_ms = parent_ms;
        fv_rpc_call_adopt(opt->parent, c);
    }
    c->deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(left_ms, GPR_TIMESPAN));
    grpc_slice path = grpc_slice_from_copied_string(opt->path);
    cc->on = ch->now;
    cc->on->refs++;
    c->rpc = grpc_channel_create_call(cc->on->grpc, NULL, 0, fv_bridge_queue(ch->bridge), path,
                                      NULL, c->deadline, NULL);
    grpc_slice_unref(path);
    start_receiving(cc);
    fv_rpc_call_send_next(c); /* headers, the request and the half-close in one batch */
    *out = c;
    return FV_OK;
}

void fv_rpc_call_close_send(fv_rpc_call *c) {
    assert(!c->side->server);
    c->closing = true;
    fv_rpc_call_send_next(c);
}

void fv_rpc_call_cancel(fv_rpc_call *c) {
    assert(!c->side->server);
    c->cancelled = true;
    c->read_done = true; /* no message is delivered any more */
    fv_rpc_call_drop_queue(c);
    grpc_call_cancel(c->rpc, NULL);
}

/* ---- unary calls ------------------------------------------------------------------------- */

typedef struct unary {
    fv_rpc_on_reply done;
    void *user;
    grpc_byte_buffer *reply; /* owned */
} unary;

static fv_status unary_message(fv_rpc_call *c, grpc_byte_buffer *message) {
    unary *u = c->user;
    if (u->reply) return FV_FAIL(FV_EDATA, "%s answered more than once", c->path);
    u->reply = grpc_byte_buffer_copy(message); /* references, no bytes */
    return FV_OK;
}

static void unary_end(fv_rpc_call *c, const fv_rpc_end *end) {
    unary *u = c->user;
    fv_rpc_end mute = {.status = FV_EDATA,
                       .code = GRPC_STATUS_DATA_LOSS,
                       .retry_ms = -1,
                       .text = "the server said OK and sent no answer"};
    if (end->status == FV_OK && !u->reply) end = &mute;
    u->done(u->user, end, c, end->status == FV_OK ? u->reply : NULL);
    if (u->reply) grpc_byte_buffer_destroy(u->reply);
    free(u);
}

static const fv_rpc_events unary_events = {.on_message = unary_message, .on_end = unary_end};

fv_status fv_rpc_unary_with(fv_rpc_channel *ch, const fv_rpc_call_options *opt,
                            fv_rpc_on_reply done, void *user, fv_rpc_call **out) {
    unary *u = malloc(sizeof *u);
    if (!u) return FV_FAIL(FV_ENOMEM, "no memory for a call");
    *u = (unary){.done = done, .user = user};
    fv_rpc_call *call;
    fv_rpc_call_options own = *opt;
    own.events = &unary_events;
    own.user = u;
    own.half_close = true;
    fv_status st = fv_rpc_call_open(ch, &own, &call);
    if (st != FV_OK) {
        free(u);
        return st;
    }
    if (out) *out = call;
    return FV_OK; // cppcheck-suppress memleak ; the call has u, and unary_end frees it
}

fv_status fv_rpc_unary(fv_rpc_channel *ch, const char *path, const ProtobufCMessage *request,
                       int64_t deadline_ms, fv_rpc_on_reply done, void *user, fv_rpc_call **out) {
    fv_rpc_call_options opt = {.path = path, .deadline_ms = deadline_ms, .request = request};
    return fv_rpc_unary_with(ch, &opt, done, user, out);
}
