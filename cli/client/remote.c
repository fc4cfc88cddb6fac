/* The client: its own loop and bridge, channels, and calls. */
#include "cli/client/remote.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "rpc/client.h"
#include "rpc/listen.h"
#include "serving/layout_message.h"

enum {
    SHORT_MS = 10000,
    /* Calls that a router accepts on one connection. gRPC makes further calls wait in the client,
     * where neither side would count the time, so many requests use several connections. */
    CALLS_PER_CHANNEL = 100,
    CHANNELS_MAX = 128,
    KEY_MAX = 8192, /* characters of an API key or a JWT */
};

typedef struct connection {
    fv_rpc_channel *channel; /* NULL: not needed yet */
    int32_t n_call;          /* running requests */
} connection;

struct fv_remote {
    uv_loop_t loop;
    fv_bridge *bridge;
    fv_tls *tls;                      /* NULL: plain text */
    char name[256];                   /* expected in the server's certificate; "": the target's
                                       * host */
    char authorization[KEY_MAX + 16]; /* "Bearer KEY"; "": no key */
    connection connections[CHANNELS_MAX];
    char target[256];
    char *model; /* owned */
};

/* ---- opening and closing ---------------------------------------------------------------- */

fv_remote_options fv_remote_options_of(const fv_options *o) {
    return (fv_remote_options){.target = fv_options_string(o, "to"),
                               .tls = {.cert = fv_options_string(o, "tls-cert"),
                                       .key = fv_options_string(o, "tls-key"),
                                       .ca = fv_options_string(o, "tls-ca")},
                               .name = fv_options_string(o, "tls-name"),
                               .key = fv_options_string(o, "api-key-file"),
                               .model = fv_options_string(o, "model")};
}

static fv_status open_tls(fv_remote *r, const fv_remote_options *opt) {
    fv_tls_files files = opt->tls;
    if (!files.ca && files.cert)
        return FV_FAIL(FV_EINVAL, "--tls-cert needs --tls-ca: whom to trust (or system)");
    if (!files.ca) return FV_OK;
    if (strcmp(files.ca, "system") == 0) files.ca = NULL;
    if (opt->name) snprintf(r->name, sizeof r->name, "%s", opt->name);
    return fv_tls_open(&files, &r->tls);
}

static fv_status read_key(fv_remote *r, const char *path) {
    char *text;
    size_t n;
    if (!path) return FV_OK;
    FV_TRY(fv_file_read(path, KEY_MAX, &text, &n));
    const char *key = text + strspn(text, " \t\r\n");
    snprintf(r->authorization, sizeof r->authorization, "Bearer %.*s", (int)strcspn(key, " \t\r\n"),
             key);
    memset(text, 0, n);
    free(text);
    return FV_OK;
}

/* Metadata of a call: the key, if there is one. */
static fv_rpc_metadata metadata_of(const fv_remote *r) {
    return (fv_rpc_metadata){"authorization", r->authorization};
}

static fv_status open_channel(fv_remote *r, fv_rpc_channel **out) {
    fv_rpc_channel_options opt = {.tls = r->tls, .server_name = r->name[0] ? r->name : NULL};
    return fv_rpc_channel_open(r->bridge, r->target, &opt, out);
}

fv_status fv_remote_open(const fv_remote_options *opt, fv_remote **out) {
    FV_TRY(fv_rpc_target_check(opt->target));
    fv_remote *r = calloc(1, sizeof *r);
    if (!r) return FV_FAIL(FV_ENOMEM, "no memory for a client");
    fv_status st;
    snprintf(r->target, sizeof r->target, "%s", opt->target);
    r->model = strdup(opt->model ? opt->model : "");
    if (!r->model) {
        free(r);
        return FV_FAIL(FV_ENOMEM, "no memory for a client");
    }
    FV_TRY_GOTO(read_key(r, opt->key), st, free_remote);
    FV_TRY_GOTO(open_tls(r, opt), st, free_remote);
    int err = uv_loop_init(&r->loop);
    if (err != 0) {
        st = FV_FAIL(FV_EIO, "cannot make an event loop: %s", uv_strerror(err));
        goto free_remote;
    }
    FV_TRY_GOTO(fv_bridge_open(&r->loop, &r->bridge), st, close_loop);
    FV_TRY_GOTO(open_channel(r, &r->connections[0].channel), st, close_bridge);
    *out = r;
    return FV_OK;
close_bridge:
    fv_bridge_close(r->bridge, NULL, NULL);
close_loop:
    uv_run(&r->loop, UV_RUN_DEFAULT);
    uv_loop_close(&r->loop);
free_remote:
    fv_tls_close(r->tls);
    free(r->model);
    free(r);
    return st;
}

void fv_remote_close(fv_remote *r) {
    if (!r) return;
    for (int32_t i = 0; i < CHANNELS_MAX && r->connections[i].channel; i++)
        fv_rpc_channel_close(r->connections[i].channel);
    fv_bridge_close(r->bridge, NULL, NULL);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    int left = uv_loop_close(&r->loop);
    assert(left == 0);
    (void)left;
    fv_tls_close(r->tls);
    free(r->model);
    free(r);
}

uv_loop_t *fv_remote_loop(fv_remote *r) { return &r->loop; }

/* ---- unary calls ------------------------------------------------------------------------ */

typedef struct question {
    fv_remote *r;
    const ProtobufCMessageDescriptor *descriptor;
    void (*take)(const ProtobufCMessage *m, void *user);
    void *user;
    fv_status status;
    bool over;
} question;

/* Returns whether this is one of gRPC's messages for a connection that ended. */
static bool connection_ended(const char *text) {
    static const char *const words[] = {"GOAWAY received", "Socket closed",        "recvmsg:",
                                        "sendmsg:",        "Cancelling all calls", FV_RPC_DROPPED};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strncmp(text, words[i], strlen(words[i])) == 0) return true;
    return false;
}

/* Error message "127.0.0.1:8000: UNAVAILABLE: there is no ..."; gRPC's own messages for failed or
 * ended connections do not help a user. */
static fv_status said(const fv_remote *r, const fv_rpc_end *end) {
    static const char no_connection[] = "failed to connect to all addresses";
    char who[320];
    if (strncmp(end->text, no_connection, sizeof no_connection - 1) == 0)
        return FV_FAIL(end->status, "no fleet at %s (%s); start one with `fovea up`", r->target,
                       fv_rpc_code_name(end->code));
    if (end->code == GRPC_STATUS_UNAVAILABLE && connection_ended(end->text))
        return FV_FAIL(end->status,
                       "%s: %s: the connection ended (%s): the fleet is shutting down or was "
                       "killed; ask again when it is up",
                       r->target, fv_rpc_code_name(end->code), end->text);
    snprintf(who, sizeof who, "%s: %s", r->target, fv_rpc_code_name(end->code));
    return fv_rpc_end_status(end, who);
}

static void on_reply(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    question *q = user;
    ProtobufCMessage *m;
    q->over = true;
    q->status = said(q->r, end);
    if (q->status == FV_OK) q->status = fv_rpc_call_unpack(c, q->descriptor, reply, &m);
    if (q->status == FV_OK) q->take(m, q->user);
}

static fv_status ask_one(question *q, const char *path, const ProtobufCMessage *request) {
    fv_rpc_metadata key = metadata_of(q->r);
    fv_rpc_call_options opt = {.path = path,
                               .request = request,
                               .deadline_ms = SHORT_MS,
                               .metadata = &key,
                               .n_metadata = q->r->authorization[0] != '\0'};
    FV_TRY(fv_rpc_unary_with(q->r->connections[0].channel, &opt, on_reply, q, NULL));
    while (!q->over) uv_run(&q->r->loop, UV_RUN_ONCE);
    return q->status;
}

static void take_model(const ProtobufCMessage *m, void *user) {
    const Fovea__Inference__V1__Model *model = (const Fovea__Inference__V1__Model *)m;
    fv_remote_model *out = user;
    snprintf(out->fingerprint, sizeof out->fingerprint, "%s", model->fingerprint);
    out->keep_ms_max = model->limits ? model->limits->keep_ms_max : 0;
    out->n_kv = (int32_t)model->n_kv;
    /* an unknown layout cannot be drawn; drawing reports that */
    if (fv_layout_from_message(model->image_layout, &out->layout) != FV_OK)
        out->layout = (fv_layout_config){0};
}

fv_status fv_remote_get_model(fv_remote *r, fv_remote_model *out) {
    fv_remote_model model = {0};
    Fovea__Inference__V1__GetModelRequest m = FOVEA__INFERENCE__V1__GET_MODEL_REQUEST__INIT;
    question q = {.r = r,
                  .descriptor = &fovea__inference__v1__model__descriptor,
                  .take = take_model,
                  .user = &model};
    m.model = r->model;
    FV_TRY(ask_one(&q, "/fovea.inference.v1.Inference/GetModel", &m.base));
    *out = model;
    return FV_OK;
}

static void take_fleet(const ProtobufCMessage *m, void *user) {
    const Fovea__Inference__V1__FleetState *s = (const Fovea__Inference__V1__FleetState *)m;
    fv_fleet_count *count = user;
    for (size_t i = 0; i < s->n_workers; i++) {
        if (s->workers[i]->state != FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY)
            continue;
        count->n_prefill += s->workers[i]->role == FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL;
        count->n_decode += s->workers[i]->role == FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
        const Fovea__Inference__V1__Load *load = s->workers[i]->load;
        if (load) count->bytes_used += load->bytes_granted + load->bytes_held;
    }
    count->n_queued = (int32_t)s->n_queued;
    count->n_running = (int32_t)s->n_running;
}

fv_status fv_remote_fleet(fv_remote *r, fv_fleet_count *out) {
    Fovea__Inference__V1__GetFleetRequest m = FOVEA__INFERENCE__V1__GET_FLEET_REQUEST__INIT;
    fv_fleet_count count = {0};
    question q = {.r = r,
                  .descriptor = &fovea__inference__v1__fleet_state__descriptor,
                  .take = take_fleet,
                  .user = &count};
    FV_TRY(ask_one(&q, "/fovea.inference.v1.Inference/GetFleet", &m.base));
    *out = count;
    return FV_OK;
}

/* ---- streaming calls ---------------------------------------------------------------------- */

typedef struct generation {
    fv_remote *r;
    connection *connection;
    const fv_remote_events *events;
    void *user;
    uint32_t n_token;
    bool finished;
    fv_status failed; /* status from the events' callbacks, not a failure of the fleet */
    char why[1024];
} generation;

static fv_status taken(generation *g, fv_status st) {
    g->failed = st;
    if (st != FV_OK) snprintf(g->why, sizeof g->why, "%s", fv_last_error());
    return st;
}

static fv_status take_tokens(generation *g, const Fovea__Inference__V1__Tokens *t) {
    if (t->index != g->n_token)
        return FV_FAIL(FV_EDATA, "%s: received token %u, expected %u", g->r->target, t->index,
                       g->n_token);
    g->n_token += (uint32_t)t->n_tokens;
    return taken(g, g->events->tokens(g->user, t));
}

static fv_status take_finished(generation *g, const Fovea__Inference__V1__Finished *f) {
    if (g->finished) return FV_FAIL(FV_EDATA, "%s: the answer ended twice", g->r->target);
    g->finished = true;
    return taken(g, g->events->finished(g->user, f));
}

static fv_status on_event(fv_rpc_call *c, grpc_byte_buffer *message) {
    generation *g = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__generate_event__descriptor, message, &m));
    const Fovea__Inference__V1__GenerateEvent *e = (const Fovea__Inference__V1__GenerateEvent *)m;
    switch (e->event_case) {
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED:
        if (g->events->accepted) g->events->accepted(g->user, e->accepted);
        return FV_OK;
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS: return take_tokens(g, e->tokens);
    case FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED: return take_finished(g, e->finished);
    default: return FV_OK;
    }
}

static void on_end(fv_rpc_call *c, const fv_rpc_end *end) {
    generation *g = fv_rpc_call_user(c);
    fv_status st = g->failed == FV_OK ? said(g->r, end) : FV_FAIL(g->failed, "%s", g->why);
    if (st == FV_OK && !g->finished)
        st = FV_FAIL(FV_EDATA, "%s: the answer ended without Finished", g->r->target);
    g->connection->n_call--;
    g->events->over(g->user, st, end);
    free(g);
}

/* Chooses the first connection with space; the last one takes any number. */
static fv_status choose_connection(fv_remote *r, connection **out) {
    connection *c = r->connections, *last = c + CHANNELS_MAX - 1;
    while (c < last && c->n_call >= CALLS_PER_CHANNEL) c++;
    if (!c->channel) FV_TRY(open_channel(r, &c->channel));
    *out = c;
    return FV_OK;
}

fv_status fv_remote_begin(fv_remote *r, const Fovea__Inference__V1__GenerateRequest *request,
                          int64_t deadline_ms, const fv_remote_events *events, void *user) {
    static const fv_rpc_events call_events = {.on_message = on_event, .on_end = on_end};
    connection *c;
    FV_TRY(choose_connection(r, &c));
    generation *g = calloc(1, sizeof *g);
    if (!g) return FV_FAIL(FV_ENOMEM, "out of memory for a request");
    *g = (generation){.r = r, .connection = c, .events = events, .user = user};
    fv_rpc_metadata key = metadata_of(r);
    Fovea__Inference__V1__GenerateRequest m = *request;
    if (!m.model[0]) m.model = r->model;
    fv_rpc_call_options opt = {.path = "/fovea.inference.v1.Inference/Generate",
                               .metadata = &key,
                               .n_metadata = r->authorization[0] != '\0',
                               .events = &call_events,
                               .user = g,
                               .deadline_ms = deadline_ms,
                               .request = &m.base,
                               .half_close = true};
    fv_rpc_call *call;
    fv_status st = fv_rpc_call_open(c->channel, &opt, &call);
    if (st != FV_OK)
        free(g);
    else
        c->n_call++;
    return st;
}
