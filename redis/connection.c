/* A connection over libuv. Bytes that are sent before it is open wait in a buffer. The object lives until libuv has let go
 * of its handle and of the name's resolution. */
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "redis/internal.h"

enum { CHUNK = 64 << 10 };

struct fv_connection {
    uv_tcp_t tcp; /* first */
    uv_getaddrinfo_t name;
    uv_connect_t connect;
    struct addrinfo *addresses, *next; /* next: to try */
    const fv_connection_events *events;
    void *user;
    fv_redis_session *session; /* NULL: plain, or none yet */
    fv_redis_url url;
    fv_redis_tls *tls;
    bool open, closed, resolving;
    bool handle;   /* libuv has the handle */
    char *waiting; /* [n] to be sent when it is open */
    size_t n, cap;
    char in[CHUNK], plain[CHUNK];
};

typedef struct sending {
    uv_write_t write; /* first */
    char bytes[];
} sending;

static void free_unused(fv_connection *c) {
    if (!c->closed || c->resolving || c->handle) return;
    uv_freeaddrinfo(c->addresses);
    fv_redis_session_close(c->session);
    free(c->waiting);
    free(c);
}

static void on_closed(uv_handle_t *h) {
    fv_connection *c = h->data;
    c->handle = false;
    free_unused(c);
}

void fv_connection_close(fv_connection *c) {
    if (!c || c->closed) return;
    c->closed = true;
    if (c->resolving) uv_cancel((uv_req_t *)&c->name);
    if (c->handle && !uv_is_closing((uv_handle_t *)&c->tcp))
        uv_close((uv_handle_t *)&c->tcp, on_closed);
    free_unused(c);
}

/* Reports the end. */
static void lose(fv_connection *c) {
    if (!c->closed) c->events->lost(c->user);
}

static void lose_by(fv_connection *c, int error) {
    (void)FV_FAIL(FV_EIO, "%s", uv_strerror(error));
    lose(c);
}

/* ---- sending ----------------------------------------------------------------------------- */

static void on_written(uv_write_t *w, int status) {
    fv_connection *c = w->handle->data;
    free(w);
    if (status < 0 && status != UV_ECANCELED && !c->closed) lose_by(c, status);
}

static fv_status write_wire(fv_connection *c, const char *bytes, size_t n) {
    sending *w = malloc(sizeof *w + n);
    if (!w) return FV_FAIL(FV_ENOMEM, "out of memory for a message to Redis");
    memcpy(w->bytes, bytes, n);
    uv_buf_t buf = uv_buf_init(w->bytes, (unsigned)n);
    const int error = uv_write(&w->write, (uv_stream_t *)&c->tcp, &buf, 1, on_written);
    if (error == 0) return FV_OK;
    free(w);
    return FV_FAIL(FV_EIO, "%s", uv_strerror(error));
}

static fv_status write_session(fv_connection *c) {
    char wire[CHUNK];
    for (size_t n; (n = fv_redis_session_take(c->session, wire, sizeof wire)) > 0;)
        FV_TRY(write_wire(c, wire, n));
    return FV_OK;
}

fv_status fv_connection_send(fv_connection *c, const char *bytes, size_t n) {
    if (!c->open) {
        FV_TRY(fv_grow(&c->waiting, &c->cap, c->n + n, 1));
        memcpy(c->waiting + c->n, bytes, n);
        c->n += n;
        return FV_OK;
    }
    if (!c->session) return write_wire(c, bytes, n);
    if (!fv_redis_session_write(c->session, bytes, n))
        return FV_FAIL(FV_EIO, "the TLS session has failed");
    return write_session(c);
}

/* ---- receiving --------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf) {
    fv_connection *c = h->data;
    (void)suggested;
    *buf = uv_buf_init(c->in, sizeof c->in);
}

static void on_decrypted(fv_connection *c) {
    int n;
    while (!c->closed && (n = fv_redis_session_read(c->session, c->plain, sizeof c->plain)) > 0)
        c->events->received(c->user, c->plain, (size_t)n);
    if (c->closed) return;
    if (n < 0 || write_session(c) != FV_OK) lose(c);
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf) {
    fv_connection *c = s->data;
    if (n == 0 || c->closed) return;
    if (n < 0) {
        if (n == UV_EOF)
            (void)FV_FAIL(FV_EIO, "the server has closed the connection");
        else
            (void)FV_FAIL(FV_EIO, "%s", uv_strerror((int)n));
        lose(c);
    } else if (!c->session) {
        c->events->received(c->user, buf->base, (size_t)n);
    } else if (fv_redis_session_feed(c->session, buf->base, (size_t)n)) {
        on_decrypted(c);
    } else {
        (void)FV_FAIL(FV_ENOMEM, "out of memory for TLS");
        lose(c);
    }
}

/* ---- opening ----------------------------------------------------------------------------- */

static fv_status begin_stream(fv_connection *c) {
    uv_tcp_nodelay(&c->tcp, 1);
    c->open = true;
    if (c->tls) FV_TRY(fv_redis_session_open(c->tls, c->url.host, &c->session));
    if (uv_read_start((uv_stream_t *)&c->tcp, on_alloc, on_read) != 0)
        return FV_FAIL(FV_EIO, "the socket cannot be read");
    if (c->session && fv_redis_session_read(c->session, c->plain, 1) < 0)
        return FV_EIO; /* its first message */
    if (c->n) FV_TRY(fv_connection_send(c, c->waiting, c->n));
    c->n = 0;
    return c->session ? write_session(c) : FV_OK;
}

static void try_next(fv_connection *c);

static void on_connect(uv_connect_t *q, int status) {
    fv_connection *c = q->handle->data;
    if (c->closed) return;
    if (status < 0 && c->next)
        try_next(c);
    else if (status < 0)
        lose_by(c, status);
    else if (begin_stream(c) != FV_OK)
        lose(c);
}

/* A handle whose connection failed cannot be used again, so the next address needs a new one. */
static void on_closed_to_retry(uv_handle_t *h) {
    fv_connection *c = h->data;
    c->handle = false;
    if (c->closed)
        free_unused(c);
    else
        try_next(c);
}

static void try_next(fv_connection *c) {
    struct addrinfo *a = c->next;
    if (c->handle) {
        uv_close((uv_handle_t *)&c->tcp, on_closed_to_retry);
        return;
    }
    c->next = a->ai_next;
    uv_tcp_init(c->name.loop, &c->tcp);
    c->tcp.data = c;
    c->handle = true;
    const int error = uv_tcp_connect(&c->connect, &c->tcp, a->ai_addr, on_connect);
    if (error != 0 && c->next)
        try_next(c);
    else if (error != 0)
        lose_by(c, error);
}

static void on_name(uv_getaddrinfo_t *q, int status, struct addrinfo *found) {
    fv_connection *c = q->data;
    c->resolving = false;
    c->addresses = c->next = found;
    if (c->closed)
        free_unused(c);
    else if (status < 0 || !found)
        lose_by(c, status < 0 ? status : UV_EAI_NONAME);
    else
        try_next(c);
}

fv_status fv_connection_open(uv_loop_t *loop, const fv_redis_url *url, fv_redis_tls *tls,
                             const fv_connection_events *events, void *user, fv_connection **out) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    fv_connection *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "out of memory for a connection");
    c->events = events;
    c->user = user;
    c->url = *url;
    c->tls = tls;
    c->name.data = c;
    const int error = uv_getaddrinfo(loop, &c->name, on_name, url->host, url->port, &hints);
    if (error != 0) {
        free(c);
        return FV_FAIL(FV_EIO, "%s", uv_strerror(error));
    }
    c->resolving = true;
    *out = c;
    return FV_OK;
}
