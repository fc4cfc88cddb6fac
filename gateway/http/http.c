/* libmicrohttpd in its external mode: it has one epoll descriptor, which the loop watches, and runs when
 * that is readable or a time is over. A connection whose answer is not there yet is suspended; then it does
 * not look at the socket, and the loop does, to see it close. */
#include "gateway/http/http.h"

#include <gnutls/abstract.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/grow.h"
#include "common/log.h"
#include "gateway/http/tls.h"
#include "rpc/listen.h"

enum { TICK_MS = 1000, HEADERS_MAX = 8, REFUSE_AFTER = 2, ROUNDS_MAX = 8 };

/* A connection, from its first byte to its last. */
typedef struct visitor {
    struct visitor *next;
    int fd;
    double reading_s;                 /* since when a request is read; 0: one is answered */
    fv_http_credentials *credentials; /* NULL: plain text */
} visitor;

/* A handle outlives what it belongs to. */
typedef struct watch {
    uv_poll_t poll; /* first */
    fv_http_request *request;
} watch;

typedef struct header {
    char *name, *value;
} header;

struct fv_http_request {
    fv_http *http;
    fv_http_request *next;
    struct MHD_Connection *connection;
    visitor *visitor;
    void *user;
    char *method, *path, *body;
    size_t n_body, cap_body;
    unsigned refused; /* the status of a request that is not read on; 0: none */
    bool asked, suspended, gone;
    double read_s;
    /* the answer */
    header headers[HEADERS_MAX];
    int32_t n_header;
    struct MHD_Response *response;
    unsigned status;
    bool queued, was_full, ended, broken;
    char *waiting; /* [n_waiting] from `read` on */
    size_t read, n_waiting, cap_waiting;
    watch *watch;
};

struct fv_http {
    fv_http_options opt;
    fv_http_tls *tls; /* NULL: plain text */
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_timer_t timer, tick;
    char address[272];
    int listen_fd; /* -1: it has left */
    visitor *visitors;
    fv_http_request *requests;
    int32_t n_request, n_handle;
    size_t bodies; /* bytes */
    bool closing;
    void (*closed)(void *user);
    void *closed_user;
};

/* ---- running ---------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *t);

/* What is ready takes a few rounds. A handshake whose client lets it wait counts as ready all the time: the loop
 * has its turn between rounds, and a timer of 0 from a timer would not let it (libuv 1.44 runs that one at once). */
static void run(fv_http *h) {
    MHD_UNSIGNED_LONG_LONG ms = 0;
    bool waits = true;
    if (h->closing) return;
    for (int i = 0; i < ROUNDS_MAX && waits && ms == 0; i++) {
        MHD_run(h->daemon);
        waits = MHD_get_timeout(h->daemon, &ms) == MHD_YES;
    }
    if (waits)
        uv_timer_start(&h->timer, on_timer, ms ? ms : 1, 0);
    else
        uv_timer_stop(&h->timer);
}

static void on_timer(uv_timer_t *t) { run(t->data); }

static void on_poll(uv_poll_t *p, int status, int events) {
    (void)status;
    (void)events;
    run(p->data);
}

/* A client that sends a byte now and then is not idle, and reads nobody's time up. */
static void on_tick(uv_timer_t *t) {
    fv_http *h = t->data;
    double now_s = fv_clock_s();
    for (visitor *v = h->visitors; v; v = v->next)
        if (v->reading_s > 0 && now_s - v->reading_s > 1e-3 * h->opt.read_ms)
            shutdown(v->fd, SHUT_RDWR);
}

/* ---- waiting for an answer -------------------------------------------------------------- */

static void on_watch_closed(uv_handle_t *p) { free(p); }

static void unwatch(fv_http_request *r) {
    if (!r->watch) return;
    r->watch->request = NULL;
    uv_close((uv_handle_t *)&r->watch->poll, on_watch_closed);
    r->watch = NULL;
}

static void resume(fv_http_request *r) {
    if (!r->suspended) return;
    r->suspended = false;
    MHD_resume_connection(r->connection);
    uv_timer_start(&r->http->timer, on_timer, 0, 0);
}

static void on_disconnect(uv_poll_t *p, int status, int events) {
    fv_http_request *r = ((watch *)p)->request;
    (void)status;
    (void)events;
    if (!r) return;
    r->gone = true;
    unwatch(r);
    resume(r);
}

/* Without memory for it, the client's going is noticed when it is next written to. */
static void watch_client(fv_http_request *r) {
    watch *w = calloc(1, sizeof *w);
    if (!w || uv_poll_init(r->http->opt.loop, &w->poll, r->visitor->fd) != 0) {
        free(w);
        return;
    }
    w->request = r;
    r->watch = w;
    uv_poll_start(&w->poll, UV_DISCONNECT, on_disconnect);
}

static void suspend(fv_http_request *r) {
    r->suspended = true;
    MHD_suspend_connection(r->connection);
    if (!r->watch) watch_client(r); /* until it ends: an answer is suspended for each token */
}

/* ---- answers ---------------------------------------------------------------------------- */

static ssize_t read_waiting(void *user, uint64_t at, char *out, size_t max) {
    fv_http_request *r = user;
    (void)at;
    if (r->gone || r->broken) return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = r->n_waiting - r->read < max ? r->n_waiting - r->read : max;
    if (n) memcpy(out, r->waiting + r->read, n);
    r->read += n;
    if (r->read == r->n_waiting) r->read = r->n_waiting = 0;
    if (r->was_full && r->n_waiting - r->read < FV_HTTP_WAITING / 2) {
        r->was_full = false;
        r->http->opt.on_writable(r->http->opt.user, r);
    }
    if (n) return (ssize_t)n;
    if (r->ended) return MHD_CONTENT_READER_END_OF_STREAM;
    if (r->n_waiting == r->read) suspend(r);
    return 0;
}

static void set_response(fv_http_request *r, unsigned status, const char *type,
                         struct MHD_Response *response) {
    if (!response) {
        r->broken = true;
    } else {
        r->response = response;
        r->status = status;
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
        MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
        for (int32_t i = 0; i < r->n_header; i++)
            MHD_add_response_header(response, r->headers[i].name, r->headers[i].value);
    }
    resume(r);
}

void fv_http_add(fv_http_request *r, const char *name, const char *value) {
    header *h = &r->headers[r->n_header];
    if (r->n_header == HEADERS_MAX) return;
    *h = (header){strdup(name), strdup(value)};
    if (h->name && h->value) r->n_header++;
}

void fv_http_reply(fv_http_request *r, unsigned status, const char *type, const char *text,
                   size_t n) {
    set_response(
        r, status, type,
        MHD_create_response_from_buffer(n, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY));
}

void fv_http_stream(fv_http_request *r, const char *type) {
    set_response(
        r, MHD_HTTP_OK, type,
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, read_waiting, r, NULL));
}

void fv_http_write(fv_http_request *r, const char *text, size_t n) {
    if (r->broken) return;
    if (r->read) {
        memmove(r->waiting, r->waiting + r->read, r->n_waiting - r->read);
        r->n_waiting -= r->read;
        r->read = 0;
    }
    if (fv_grow(&r->waiting, &r->cap_waiting, r->n_waiting + n, 1) != FV_OK) {
        r->broken = true;
    } else {
        memcpy(r->waiting + r->n_waiting, text, n);
        r->n_waiting += n;
        r->was_full |= fv_http_full(r);
    }
    resume(r);
}

bool fv_http_full(const fv_http_request *r) { return r->n_waiting - r->read >= FV_HTTP_WAITING; }

void fv_http_end_stream(fv_http_request *r) {
    r->ended = true;
    resume(r);
}

/* ---- requests --------------------------------------------------------------------------- */

const char *fv_http_method(const fv_http_request *r) { return r->method; }

const char *fv_http_path(const fv_http_request *r) { return r->path; }

const char *fv_http_header(const fv_http_request *r, const char *name) {
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

unsigned fv_http_status(const fv_http_request *r) { return r->status; }

double fv_http_read_s(const fv_http_request *r) { return r->read_s; }

const char *fv_http_argument(const fv_http_request *r, const char *name) {
    return MHD_lookup_connection_value(r->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *fv_http_body(const fv_http_request *r, size_t *n) {
    *n = r->n_body;
    return r->body ? r->body : "";
}

void fv_http_forget_body(fv_http_request *r) {
    r->http->bodies -= r->cap_body;
    free(r->body);
    r->body = NULL;
    r->n_body = r->cap_body = 0;
}

void *fv_http_user(const fv_http_request *r) { return r->user; }

void fv_http_set_user(fv_http_request *r, void *user) { r->user = user; }

static void free_request(fv_http_request *r) {
    unwatch(r);
    fv_http_forget_body(r);
    if (r->response) MHD_destroy_response(r->response);
    for (int32_t i = 0; i < r->n_header; i++) {
        free(r->headers[i].name);
        free(r->headers[i].value);
    }
    free(r->waiting);
    free(r->method);
    free(r->path);
    free(r);
}

static fv_http_request *new_request(fv_http *h, struct MHD_Connection *c, const char *url,
                                    const char *method) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    fv_http_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->http = h;
    r->connection = c;
    r->visitor = info ? info->socket_context : NULL;
    r->method = strdup(method);
    r->path = strdup(url);
    if (!r->visitor || !r->method || !r->path) {
        free_request(r);
        return NULL;
    }
    r->visitor->reading_s = fv_clock_s(); /* for the body there is as much time again */
    r->next = h->requests;
    h->requests = r;
    h->n_request++;
    return r;
}

/* A length that is announced is refused before it is sent. */
static void check_length(fv_http_request *r) {
    const char *length = fv_http_header(r, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (length && strtoull(length, NULL, 10) > r->http->opt.body_max)
        r->refused = MHD_HTTP_CONTENT_TOO_LARGE;
}

/* Memory for a body of `need` bytes: twice as much as before, but no more than a body may have, or than
 * the others leave, where that suffices. */
static size_t memory_for(const fv_http_request *r, size_t need) {
    const fv_http *h = r->http;
    size_t cap = 2 * r->cap_body, left = h->opt.bodies_max - (h->bodies - r->cap_body);
    if (need <= r->cap_body) return r->cap_body;
    if (cap > h->opt.body_max) cap = h->opt.body_max;
    if (cap > left) cap = left;
    return cap > need ? cap : need;
}

/* The body so far, as large as it may be; what is refused is read on for a while, because many clients
 * do not look for an answer before they have sent everything. */
static enum MHD_Result take_body(fv_http_request *r, const char *bytes, size_t n) {
    fv_http *h = r->http;
    size_t need = r->n_body + n, cap = memory_for(r, need);
    if (!r->refused && need > h->opt.body_max) r->refused = MHD_HTTP_CONTENT_TOO_LARGE;
    if (!r->refused && h->bodies - r->cap_body + cap > h->opt.bodies_max)
        r->refused = MHD_HTTP_SERVICE_UNAVAILABLE;
    if (r->refused) {
        if (r->body) fv_http_forget_body(r);
        r->n_body += n;
        return r->n_body > REFUSE_AFTER * h->opt.body_max ? MHD_NO : MHD_YES;
    }
    if (cap > r->cap_body) {
        char *body = realloc(r->body, cap);
        if (!body) return MHD_NO;
        h->bodies += cap - r->cap_body;
        r->body = body;
        r->cap_body = cap;
    }
    memcpy(r->body + r->n_body, bytes, n);
    r->n_body = need;
    return MHD_YES;
}

static enum MHD_Result queue(fv_http_request *r) {
    r->queued = true;
    return MHD_queue_response(r->connection, r->status, r->response);
}

static void refuse(fv_http_request *r) {
    static const char large[] = "{\"error\":{\"message\":\"the body is too large\",\"type\":"
                                "\"invalid_request_error\",\"param\":null,\"code\":\"too_large\"}}";
    static const char busy[] = "{\"error\":{\"message\":\"too many large requests are being read; "
                               "try again later\",\"type\":\"server_error\",\"param\":null,"
                               "\"code\":\"overloaded\"}}";
    bool is_large = r->refused == MHD_HTTP_CONTENT_TOO_LARGE;
    if (!is_large) fv_http_add(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    fv_http_add(r, MHD_HTTP_HEADER_CONNECTION, "close");
    fv_http_reply(r, r->refused, "application/json", is_large ? large : busy,
                  is_large ? sizeof large - 1 : sizeof busy - 1);
}

/* Comes when the headers are there, for each piece of the body, when all is there, and again when the
 * connection is resumed. */
static enum MHD_Result on_access(void *user, struct MHD_Connection *c, const char *url,
                                 const char *method, const char *version, const char *upload,
                                 size_t *n_upload, void **state) {
    fv_http *h = user;
    fv_http_request *r = *state;
    (void)version;
    if (!r) {
        *state = r = new_request(h, c, url, method);
        if (!r) return MHD_NO;
        check_length(r);
        if (!r->refused) return MHD_YES;
        refuse(r);
        return r->response ? queue(r) : MHD_NO;
    }
    if (r->gone || r->broken) return MHD_NO;
    if (*n_upload) {
        enum MHD_Result taken = take_body(r, upload, *n_upload);
        *n_upload = 0;
        return taken;
    }
    if (r->queued) return MHD_YES;
    if (!r->asked) {
        r->asked = true;
        r->read_s = fv_clock_s();
        r->visitor->reading_s = 0;
        if (r->refused)
            refuse(r);
        else
            h->opt.on_request(h->opt.user, r);
    }
    if (r->broken) return MHD_NO;
    if (r->response) return queue(r);
    suspend(r);
    return MHD_YES;
}

static void on_completed(void *user, struct MHD_Connection *c, void **state,
                         enum MHD_RequestTerminationCode why) {
    fv_http *h = user;
    fv_http_request *r = *state, **at = &h->requests;
    (void)c;
    (void)why;
    if (!r) return;
    *state = NULL;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    h->n_request--;
    r->visitor->reading_s = fv_clock_s();
    if (r->asked && !r->refused) h->opt.on_end(h->opt.user, r);
    free_request(r);
}

/* ---- connections ------------------------------------------------------------------------ */

static visitor *new_visitor(fv_http *h, struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *fd, *session = NULL;
    visitor *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (h->tls) session = MHD_get_connection_info(c, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (!fd || (h->tls && (!session || fv_http_tls_begin(h->tls, session->tls_session,
                                                         &v->credentials) != FV_OK))) {
        free(v);
        return NULL;
    }
    v->fd = fd->connect_fd;
    v->reading_s = fv_clock_s();
    return v;
}

static void on_connection(void *user, struct MHD_Connection *c, void **state,
                          enum MHD_ConnectionNotificationCode what) {
    fv_http *h = user;
    visitor *v = *state, **at = &h->visitors;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *state = v = new_visitor(h, c); /* NULL: its request is refused, or its handshake */
        if (!v) return;
        v->next = h->visitors;
        h->visitors = v;
        return;
    }
    if (!v) return;
    while (*at != v) at = &(*at)->next;
    *at = v->next;
    fv_http_credentials_unref(v->credentials);
    free(v);
}

/* What clients do wrong is theirs to know. */
static void on_message(void *user, const char *fmt, va_list ap) {
    char text[256];
    (void)user;
    vsnprintf(text, sizeof text, fmt, ap);
    text[strcspn(text, "\n")] = '\0';
    FV_LOG(DEBUG, WIRE, "event=http reason=\"%s\"", text);
}

/* ---- opening and closing ---------------------------------------------------------------- */

/* The default of a session; each has credentials of its own before its handshake. */
static int no_certificate(gnutls_session_t session, const gnutls_datum_t *ca, int n_ca,
                          const gnutls_pk_algorithm_t *algorithms, int n_algorithm,
                          gnutls_pcert_st **certificates, unsigned *n, gnutls_privkey_t *key) {
    (void)session, (void)ca, (void)n_ca, (void)algorithms, (void)n_algorithm;
    (void)certificates, (void)n, (void)key;
    return -1;
}

static fv_status start(fv_http *h) {
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, (void *)(uintptr_t)no_certificate},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (char *)"NORMAL:-VERS-TLS1.0:-VERS-TLS1.1"},
        {MHD_OPTION_END, 0, NULL}};
    h->daemon = MHD_start_daemon(
        (h->tls ? MHD_USE_TLS : 0) | MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG,
        0, NULL, NULL, on_access, h, MHD_OPTION_EXTERNAL_LOGGER, on_message, NULL,
        MHD_OPTION_LISTEN_SOCKET, h->listen_fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)h->opt.connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)h->opt.per_address, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)FV_HTTP_IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)FV_HTTP_HEADERS, MHD_OPTION_STRICT_FOR_CLIENT,
        1, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, h, MHD_OPTION_ARRAY, h->tls ? tls : tls + 2, MHD_OPTION_END);
    return h->daemon ? FV_OK : FV_FAIL(FV_EIO, "cannot serve HTTP on %s", h->address);
}

fv_status fv_http_open(const fv_http_options *opt, fv_http **out) {
    int port;
    fv_http *h = calloc(1, sizeof *h);
    if (!h) return FV_FAIL(FV_ENOMEM, "out of memory for an HTTP server");
    fv_status st;
    h->opt = *opt;
    snprintf(h->address, sizeof h->address, "%.255s", opt->listen);
    if (opt->tls) FV_TRY_GOTO(fv_http_tls_open(opt->tls, &h->tls), st, free_http);
    FV_TRY_GOTO(fv_rpc_listen_socket(h->address, &h->listen_fd, &port), st, free_http);
    snprintf(strrchr(h->address, ':'), 8, ":%d", port);
    FV_TRY_GOTO(start(h), st, close_socket);
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    uv_poll_init(opt->loop, &h->poll, info->epoll_fd);
    uv_timer_init(opt->loop, &h->timer);
    uv_timer_init(opt->loop, &h->tick);
    h->poll.data = h->timer.data = h->tick.data = h;
    uv_poll_start(&h->poll, UV_READABLE, on_poll);
    uv_timer_start(&h->tick, on_tick, TICK_MS, TICK_MS);
    *out = h;
    return FV_OK;
close_socket:
    close(h->listen_fd);
free_http:
    fv_http_tls_close(h->tls);
    free(h);
    return st;
}

const char *fv_http_address(const fv_http *h) { return h->address; }

int32_t fv_http_requests(const fv_http *h) {
    int32_t n = 0;
    for (const fv_http_request *r = h->requests; r; r = r->next) n += r->asked;
    return n;
}

void fv_http_leave(fv_http *h) {
    if (h->listen_fd < 0) return;
    int fd = MHD_quiesce_daemon(h->daemon);
    if (fd >= 0) close(fd);
    h->listen_fd = -1;
}

static void on_handle_closed(uv_handle_t *p) {
    fv_http *h = p->data;
    if (--h->n_handle > 0) return;
    void (*closed)(void *) = h->closed;
    void *user = h->closed_user;
    free(h);
    closed(user);
}

void fv_http_close(fv_http *h, void (*closed)(void *user), void *user) {
    if (!h) {
        closed(user);
        return;
    }
    h->closed = closed;
    h->closed_user = user;
    fv_http_leave(h);
    for (fv_http_request *r = h->requests; r; r = r->next) {
        r->gone = true;
        resume(r);
    }
    h->closing = true;
    MHD_run(h->daemon); /* takes up those that were suspended */
    MHD_stop_daemon(h->daemon);
    fv_http_tls_close(h->tls);
    uv_handle_t *handles[] = {(uv_handle_t *)&h->poll, (uv_handle_t *)&h->timer,
                              (uv_handle_t *)&h->tick};
    h->n_handle = sizeof handles / sizeof *handles;
    for (int32_t i = 0; i < h->n_handle; i++) uv_close(handles[i], on_handle_closed);
}
