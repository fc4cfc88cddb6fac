/* The health service: a short list of services and their state, and the calls that watch it.
 * Loop thread. */
#include "rpc/health.h"

#include <stdlib.h>
#include <string.h>

#include "grpc/health/v1/health.pb-c.h"

typedef Grpc__Health__V1__HealthCheckRequest request;
typedef Grpc__Health__V1__HealthCheckResponse response;
enum { SERVICE_UNKNOWN = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN };

typedef struct entry {
    struct entry *next;
    int32_t state;
    char name[];
} entry;

typedef struct watcher {
    struct watcher *next;
    fv_rpc_call *call;
    int32_t sent; /* the last state that was sent; negative: none */
    char name[];
} watcher;

struct fv_health {
    entry *entries;
    watcher *watchers; /* each lives in its call's arena */
    bool stopping;
};

static entry *find(const fv_health *h, const char *name) {
    entry *e = h->entries;
    while (e && strcmp(e->name, name) != 0) e = e->next;
    return e;
}

/* Sends a watcher the state if it has changed. Only the last state matters: a slow watcher gets it when its queue
 * has room again. */
static void tell(const fv_health *h, watcher *w) {
    const entry *e = find(h, w->name);
    int32_t state = e ? e->state : SERVICE_UNKNOWN;
    if (state == w->sent || !fv_rpc_call_writable(w->call)) return;
    response m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    m.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)state;
    if (fv_rpc_call_send(w->call, &m.base) == FV_OK) w->sent = state;
}

fv_status fv_health_set(fv_health *h, const char *service, fv_health_state state) {
    entry *e = find(h, service);
    if (!e) {
        size_t n = strlen(service) + 1;
        e = malloc(sizeof *e + n);
        if (!e) return FV_FAIL(FV_ENOMEM, "no memory for the health of %s", service);
        memcpy(e->name, service, n);
        e->next = h->entries;
        h->entries = e;
    }
    e->state = state;
    for (watcher *w = h->watchers; w; w = w->next) tell(h, w);
    return FV_OK;
}

void fv_health_drain(fv_health *h) {
    for (entry *e = h->entries; e; e = e->next) e->state = FV_HEALTH_NOT_SERVING;
    for (watcher *w = h->watchers; w; w = w->next) tell(h, w);
}

/* ---- Check ------------------------------------------------------------------------------ */

static fv_status unpack(fv_rpc_call *c, grpc_byte_buffer *message, request **out) {
    ProtobufCMessage *m;
    FV_TRY(fv_rpc_call_unpack(c, &grpc__health__v1__health_check_request__descriptor, message, &m));
    *out = (request *)m;
    return FV_OK;
}

static fv_status on_check(fv_rpc_call *c, grpc_byte_buffer *message) {
    const fv_health *h = fv_rpc_call_service(c);
    request *r;
    FV_TRY(unpack(c, message, &r));
    const entry *e = find(h, r->service);
    if (!e) return FV_FAIL(FV_ENOTFOUND, "this server has no service '%s'", r->service);
    response m = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    m.status = (Grpc__Health__V1__HealthCheckResponse__ServingStatus)e->state;
    FV_TRY(fv_rpc_call_send(c, &m.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

/* ---- Watch ------------------------------------------------------------------------------ */

static fv_status on_watch(fv_rpc_call *c, grpc_byte_buffer *message) {
    fv_health *h = fv_rpc_call_service(c);
    request *r;
    FV_TRY(unpack(c, message, &r));
    size_t n = strlen(r->service) + 1;
    void *p;
    FV_TRY(fv_arena_alloc(fv_rpc_call_arena(c), sizeof(watcher) + n, &p));
    watcher *w = p;
    w->call = c;
    w->sent = -1;
    memcpy(w->name, r->service, n);
    w->next = h->watchers;
    h->watchers = w;
    fv_rpc_call_set_user(c, w);
    tell(h, w);
    return h->stopping ? FV_FAIL(FV_EIO, "the server is shutting down") : FV_OK;
}

static void on_watch_writable(fv_rpc_call *c) {
    if (fv_rpc_call_user(c)) tell(fv_rpc_call_service(c), fv_rpc_call_user(c));
}

static void on_watch_end(fv_rpc_call *c, const fv_rpc_end *end) {
    (void)end;
    fv_health *h = fv_rpc_call_service(c);
    watcher **at = &h->watchers, *w = fv_rpc_call_user(c);
    while (*at && *at != w) at = &(*at)->next;
    if (*at) *at = w->next;
}

static void on_stop(void *state) {
    fv_health *h = state;
    h->stopping = true;
    fv_health_drain(h);
    for (watcher *w = h->watchers; w; w = w->next)
        fv_rpc_call_finish(w->call, FV_FAIL(FV_EIO, "the server is shutting down"));
}

static const fv_rpc_method methods[] = {
    {.path = "/grpc.health.v1.Health/Check",
     .peers = UINT32_MAX,
     .kind = FV_RPC_UNARY,
     .message_max = 4096,
     .events = {.on_message = on_check}},
    {.path = "/grpc.health.v1.Health/Watch",
     .peers = UINT32_MAX,
     .kind = FV_RPC_SERVER_STREAM,
     .message_max = 4096,
     .queue_max = 64,
     .calls_max = 256,
     .events = {.on_message = on_watch, .on_writable = on_watch_writable, .on_end = on_watch_end}},
};

fv_rpc_service fv_health_service(fv_health *h) {
    return (fv_rpc_service){methods, sizeof methods / sizeof methods[0], h, on_stop};
}

fv_status fv_health_open(fv_health **out) {
    fv_health *h = calloc(1, sizeof *h);
    if (!h) return FV_FAIL(FV_ENOMEM, "no memory for the health service");
    *out = h;
    return FV_OK;
}

void fv_health_close(fv_health *h) {
    if (!h) return;
    while (h->entries) {
        entry *next = h->entries->next;
        free(h->entries);
        h->entries = next;
    }
    free(h);
}
