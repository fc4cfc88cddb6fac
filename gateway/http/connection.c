/* A connection: reads and writes its socket, serves one request after the other, and closes.
 *
 * The socket is watched by uv_poll_t rather than uv_tcp_t, which does not notice a disconnect while
 * nothing is read. All work is done in fv_http_serve, which runs when the socket is ready, and in
 * the loop's next turn after a call by the user, so that no callback runs within that call. Nothing
 * is read while a request is answered, so pipelined requests wait in the socket. */
#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "gateway/http/internal.h"

enum {
    ROUNDS_MAX = 8,         /* requests of one connection before others get their turn */
    RECORD = 16 << 10,      /* bytes encrypted at once */
    PROGRESS = 16 << 10,    /* bytes that a client must take in write_ms, if as many wait */
    LINGER_S = 5,           /* without a byte from the client */
    DISCARD_MAX = 64 << 10, /* bytes beyond body_max */
};

/* ---- bytes to the socket ---------------------------------------------------------------- */

static size_t waiting(const fv_http_connection *c) {
    return fv_http_buffer_n(&c->out) + fv_http_buffer_n(&c->wire);
}

/* Encrypts at most one record of the answer, and collects the session's bytes for the socket. */
static void encrypt(fv_http_connection *c) {
    char bytes[RECORD + 1024];
    size_t n = fv_http_buffer_n(&c->out);
    if (fv_http_buffer_n(&c->wire) > 0) return;
    if (n > RECORD) n = RECORD;
    if (n > 0 && !fv_http_session_write(c->session, fv_http_buffer_at(&c->out), n)) c->gone = true;
    if (n > 0) fv_http_buffer_take(&c->out, n);
    while ((n = fv_http_session_take(c->session, bytes, sizeof bytes)) > 0)
        if (fv_http_buffer_put(&c->wire, bytes, n) != FV_OK) c->gone = true;
}

static void flush(fv_http_connection *c) {
    fv_http_buffer *b = c->session ? &c->wire : &c->out;
    while (!c->gone) {
        if (c->session) encrypt(c);
        size_t n = fv_http_buffer_n(b);
        if (n == 0) return;
        ssize_t k = send(c->fd, fv_http_buffer_at(b), n, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0 && errno != EAGAIN) c->gone = true;
        if (k <= 0) return;
        c->sent += (uint64_t)k;
        fv_http_buffer_take(b, (size_t)k);
    }
}

/* ---- requests --------------------------------------------------------------------------- */

static void set_idle(fv_http_connection *c, bool idle) {
    fv_http *h = c->http;
    if (idle == c->idle) return;
    TAILQ_REMOVE(c->idle ? &h->idle : &h->active, c, link);
    c->idle = idle;
    if (idle)
        TAILQ_INSERT_TAIL(&h->idle, c, link);
    else
        TAILQ_INSERT_TAIL(&h->active, c, link);
    c->idle_s = fv_clock_s();
}

/* Starts the clock for headers: bytes of a request or a handshake have arrived. */
static void wake(fv_http_connection *c) {
    if (!c->idle) return;
    set_idle(c, false);
    c->reading_s = c->answered ? c->idle_s : c->reading_s;
}

static void await_request(fv_http_connection *c) {
    fv_http_parser_begin(&c->parser);
    c->reading_s = 0;
    set_idle(c, true);
}

/* Ends the sending side, then waits for the client to close: closing now could reset the connection
 * before the client has read the answer. */
static void linger(fv_http_connection *c) {
    c->lingers = true;
    c->reading_s = 0;
    c->idle_s = c->heard_s = fv_clock_s();
    if (c->session) fv_http_session_end(c->session);
    flush(c);
}

static void end_request(fv_http_connection *c) {
    fv_http_request *r = c->request;
    fv_http *h = c->http;
    if (r->told) {
        h->n_told--;
        h->opt.on_end(h->opt.user, r);
    }
    fv_http_request_free(r);
    c->request = NULL;
    c->answered = true;
    fv_http_buffer_free(&c->out);
}

static void refuse(fv_http_connection *c, unsigned status, const char *why) {
    if (!c->request) c->request = fv_http_request_new(c, &(fv_http_head){0});
    c->reading_s = 0;
    if (c->request)
        fv_http_refuse(c->request, status, why);
    else
        c->gone = true;
}

static void begin_request(fv_http_connection *c) {
    fv_http_head head = fv_http_parser_take(&c->parser);
    c->request = fv_http_request_new(c, &head);
    if (c->request)
        fv_http_begin_request(c->request);
    else
        c->gone = true;
}

/* ---- bytes from the socket -------------------------------------------------------------- */

static bool parses(const fv_http_connection *c) {
    const fv_http_request *r = c->request;
    if (c->gone || c->lingers) return false;
    return !r || (r->reads && !r->complete && !r->status);
}

/* True where the request was answered before all of it was read: the rest is read and dropped,
 * because a client that sends everything before it reads would otherwise not see the answer. */
static bool discards(const fv_http_connection *c) {
    return c->lingers || (c->request && c->request->status && c->last);
}

/* Gives the bytes to parse: *at [the result]; 0: none are left. */
static size_t input(fv_http_connection *c, const char **at) {
    size_t n = fv_http_buffer_n(&c->in);
    *at = n ? fv_http_buffer_at(&c->in) : c->fresh;
    if (n || c->n_fresh || !c->session) return n ? n : c->n_fresh;
    int k = fv_http_session_read(c->session, c->http->scratch, sizeof c->http->scratch);
    if (k < 0) {
        flush(c); /* sends the TLS alert */
        c->eof = true;
    }
    c->n_fresh = k > 0 ? (size_t)k : 0;
    return (*at = c->fresh = c->http->scratch) ? c->n_fresh : 0;
}

static void use_input(fv_http_connection *c, size_t n) {
    if (fv_http_buffer_n(&c->in) > 0) {
        fv_http_buffer_take(&c->in, n);
        return;
    }
    c->fresh += n;
    c->n_fresh -= n;
}

static void parse(fv_http_connection *c) {
    while (parses(c)) {
        const char *bytes;
        size_t used, n = input(c, &bytes);
        if (n > 0) wake(c);
        fv_http_event event = fv_http_parse(&c->parser, bytes, n, &used);
        use_input(c, used);
        switch (event) {
        case FV_HTTP_HEAD: begin_request(c); break;
        case FV_HTTP_PIECE:
            fv_http_add_piece(c->request, c->parser.piece, c->parser.n_piece, c->parser.left);
            break;
        case FV_HTTP_DONE: fv_http_complete_request(c->request); break;
        case FV_HTTP_BAD: refuse(c, c->parser.status, c->parser.why); break;
        case FV_HTTP_MORE:
            if (n == 0) return;
        }
    }
}

/* Copies unparsed bytes to the connection's buffer: the scratch is shared by all connections. */
static void keep_fresh(fv_http_connection *c) {
    if (discards(c)) c->n_fresh = 0;
    if (fv_http_buffer_put(&c->in, c->fresh, c->n_fresh) != FV_OK) c->gone = true;
    c->n_fresh = 0;
    if (c->idle && fv_http_buffer_n(&c->in) == 0) fv_http_buffer_free(&c->in);
}

static void discard(fv_http_connection *c, size_t n) {
    c->discarded += n;
    if (c->discarded > c->http->opt.body_max + DISCARD_MAX) c->gone = true;
}

static void receive(fv_http_connection *c) {
    char *scratch = c->http->scratch;
    ssize_t n = recv(c->fd, scratch, FV_HTTP_SCRATCH, 0);
    if (n < 0) {
        c->gone = errno != EAGAIN && errno != EINTR;
        return;
    }
    c->heard_s = fv_clock_s();
    if (n == 0) {
        c->eof = true;
    } else if (discards(c)) {
        discard(c, (size_t)n);
    } else if (c->session) {
        wake(c);
        if (!fv_http_session_feed(c->session, scratch, (size_t)n)) c->gone = true;
    } else {
        c->fresh = scratch;
        c->n_fresh = (size_t)n;
    }
}

/* ---- serving ---------------------------------------------------------------------------- */

static void tell_writable(fv_http_connection *c) {
    fv_http_request *r = c->request;
    if (!r->was_full || r->ended || fv_http_buffer_n(&c->out) >= FV_HTTP_WAITING / 2) return;
    r->was_full = false;
    c->http->opt.on_writable(c->http->opt.user, r);
}

/* Closes the connection of a client that has left, unless its whole answer is ready to be sent. */
static void check_left(fv_http_connection *c) {
    if (c->eof && (!c->request || !c->request->ended || c->lingers)) c->gone = true;
}

/* Ends a request whose answer is in the socket, and goes on with the next one. */
static void maybe_end(fv_http_connection *c) {
    if (!c->request || !c->request->ended || waiting(c) > 0 || c->gone) return;
    end_request(c);
    if (c->last)
        linger(c);
    else
        await_request(c);
    c->again = true;
}

static void serve_once(fv_http_connection *c) {
    parse(c);
    flush(c);
    if (c->request && !c->gone) tell_writable(c);
    maybe_end(c);
    if (c->lingers && !c->shut && waiting(c) == 0) {
        c->shut = true;
        shutdown(c->fd, SHUT_WR);
    }
}

static void on_poll(uv_poll_t *p, int status, int events) {
    fv_http_connection *c = (fv_http_connection *)p;
    if (status < 0)
        c->gone = true;
    else if (events & UV_READABLE)
        receive(c);
    else if (events & UV_DISCONNECT)
        c->eof = true;
    fv_http_serve(c);
}

static void watch(fv_http_connection *c) {
    bool reads = parses(c) && fv_http_buffer_n(&c->in) == 0;
    int events = c->eof ? 0 : UV_DISCONNECT;
    if (!c->eof && (reads || discards(c))) events |= UV_READABLE;
    if (waiting(c) > 0) events |= UV_WRITABLE;
    if (events == c->events) return;
    c->events = events;
    if (uv_poll_start(&c->poll, events, on_poll) != 0) c->gone = true;
}

void fv_http_serve(fv_http_connection *c) {
    c->busy = true;
    for (int i = 0; i < ROUNDS_MAX && !c->gone && (i == 0 || c->again); i++) {
        c->again = false;
        serve_once(c);
    }
    keep_fresh(c);
    check_left(c);
    c->busy = false;
    if (c->again) fv_http_due(c);
    if (!c->gone) watch(c);
    if (c->gone) fv_http_connection_close(c);
}

void fv_http_due(fv_http_connection *c) {
    fv_http *h = c->http;
    if (c->busy) {
        c->again = true;
    } else if (!c->due) {
        c->due = true;
        TAILQ_INSERT_TAIL(&h->due, c, due_link);
        fv_http_turn_soon(h);
    }
}

/* ---- time ------------------------------------------------------------------------------- */

/* Progress counts the bytes that the client has acknowledged, not those in the kernel's buffer. */
static bool stalls(fv_http_connection *c, double now_s) {
    int kept = 0;
    if (c->http->opt.write_ms == 0) return false;
    ioctl(c->fd, SIOCOUTQ, &kept);
    uint64_t taken = c->sent - (uint64_t)kept;
    if (waiting(c) == 0) {
        c->checked_s = 0;
    } else if (c->checked_s == 0 || taken - c->taken >= PROGRESS) {
        c->checked_s = now_s;
        c->taken = taken;
    }
    return c->checked_s > 0 && now_s - c->checked_s > 1e-3 * c->http->opt.write_ms;
}

static void end_stalled(fv_http_connection *c, double now_s) {
    static const struct linger at_once = {1, 0}; /* the kernel drops its buffer, too */
    const fv_http_request *r = c->request;
    FV_LOG(WARN, WIRE,
           "event=client-stalled client=%s path=%s waiting=%zu seconds=%.0f reason=\"%s\"",
           r ? r->client : c->peer, r && r->head.path ? r->head.path : "", waiting(c),
           now_s - c->checked_s, "the client does not read its answer");
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    fv_http_connection_close(c);
}

static bool is_over(const fv_http_connection *c, double now_s) {
    double read_s = 1e-3 * c->http->opt.read_ms;
    if (c->lingers) return now_s - c->heard_s > LINGER_S || now_s - c->idle_s > read_s;
    if (c->idle) return now_s - c->idle_s > (c->answered ? FV_HTTP_IDLE_S : read_s);
    return false;
}

void fv_http_connection_tick(fv_http_connection *c, double now_s) {
    if (stalls(c, now_s)) {
        end_stalled(c, now_s);
    } else if (is_over(c, now_s)) {
        fv_http_connection_close(c);
    } else if (c->reading_s > 0 && now_s - c->reading_s > 1e-3 * c->http->opt.read_ms) {
        if (!c->request && !c->parser.begun)
            c->gone = true; /* within a handshake */
        else
            refuse(c, 408, "the request did not arrive in time");
        fv_http_serve(c);
    }
}

/* ---- beginning and end ------------------------------------------------------------------ */

void fv_http_connection_begin(fv_http_connection *c) {
    fv_http *h = c->http;
    h->n_connection++;
    h->n_handle++;
    TAILQ_INSERT_TAIL(&h->active, c, link);
    await_request(c);
    c->reading_s = c->idle_s;
    watch(c);
}

static void on_closed(uv_handle_t *p) {
    fv_http *h = ((fv_http_connection *)p)->http;
    free(p);
    fv_http_handle_closed(h);
}

void fv_http_connection_close(fv_http_connection *c) {
    fv_http *h = c->http;
    c->gone = true;
    if (c->busy) return; /* fv_http_serve closes it */
    c->busy = true;
    if (c->request) end_request(c);
    TAILQ_REMOVE(c->idle ? &h->idle : &h->active, c, link);
    if (c->due) TAILQ_REMOVE(&h->due, c, due_link);
    fv_http_place_give(&h->peers, c->place);
    fv_http_session_close(c->session);
    fv_http_parser_free(&c->parser);
    fv_http_buffer_free(&c->in);
    fv_http_buffer_free(&c->out);
    fv_http_buffer_free(&c->wire);
    h->n_connection--;
    uv_close((uv_handle_t *)&c->poll, on_closed);
    close(c->fd);
}
