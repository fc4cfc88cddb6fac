/* The server: listens, keeps the lists of connections, and closes. */
#include "gateway/http/http.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "gateway/http/internal.h"
#include "rpc/listen.h"

enum { TICK_MS = 500, ACCEPTS_MAX = 64 };

/* ---- connections ------------------------------------------------------------------------ */

static bool somebody_waits(const fv_http *h) {
    struct pollfd p = {.fd = h->listen_fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* Frees a file by closing the connection that has been idle longest. Without one, stops accepting
 * until the next tick, as a readable listening socket would keep the loop busy. Returns false when
 * nothing can be accepted now. */
static bool find_file(fv_http *h) {
    if (!somebody_waits(h)) return false; /* accept4 may lack a file even if no client waits */
    (void)FV_FAIL(FV_EIO, "out of file descriptors: raise the limit of open files (ulimit -n)");
    fv_http_log_refused(h, "");
    h->deaf = TAILQ_EMPTY(&h->idle);
    if (h->deaf)
        uv_poll_stop(&h->poll);
    else
        fv_http_connection_close(TAILQ_FIRST(&h->idle));
    return !h->deaf;
}

static void on_listen(uv_poll_t *p, int status, int events) {
    fv_http *h = p->data;
    (void)status, (void)events;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage from = {0};
        socklen_t n = sizeof from;
        int fd = accept4(h->listen_fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
        bool lacks_file =
            fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
        if (fd >= 0)
            fv_http_connection_open(h, fd, (struct sockaddr *)&from);
        else if (errno == EAGAIN || (lacks_file && !find_file(h)))
            return;
    }
}

static void tick_all(struct fv_http_list *list, double now_s) {
    fv_http_connection *c = TAILQ_FIRST(list), *next;
    for (; c; c = next) {
        next = TAILQ_NEXT(c, link);
        fv_http_connection_tick(c, now_s);
    }
}

static void on_tick(uv_timer_t *t) {
    fv_http *h = t->data;
    double now_s = fv_clock_s();
    tick_all(&h->idle, now_s);
    tick_all(&h->active, now_s);
    if (h->deaf && h->listen_fd >= 0) uv_poll_start(&h->poll, UV_READABLE, on_listen);
    h->deaf = false;
}

/* Serves the connections that are due; those that become due meanwhile wait for the next turn. */
static void on_turn(uv_idle_t *t) {
    fv_http *h = t->data;
    fv_http_connection *c;
    int32_t n = 0;
    TAILQ_FOREACH(c, &h->due, due_link) n++;
    for (; n > 0 && (c = TAILQ_FIRST(&h->due)); n--) {
        TAILQ_REMOVE(&h->due, c, due_link);
        c->due = false;
        fv_http_serve(c);
    }
    if (TAILQ_EMPTY(&h->due)) uv_idle_stop(t);
}

void fv_http_turn_soon(fv_http *h) {
    if (!h->closing) uv_idle_start(&h->turn, on_turn);
}

/* ---- opening and closing ---------------------------------------------------------------- */

static fv_status open_socket(fv_http *h) {
    int port;
    FV_TRY(fv_rpc_listen_socket(h->address, &h->listen_fd, &port));
    snprintf(strrchr(h->address, ':'), 8, ":%d", port);
    if (uv_poll_init(h->opt.loop, &h->poll, h->listen_fd) == 0) return FV_OK;
    close(h->listen_fd);
    return FV_FAIL(FV_EIO, "cannot serve HTTP on %s", h->address);
}

fv_status fv_http_open(const fv_http_options *opt, fv_http **out) {
    fv_http *h = calloc(1, sizeof *h);
    if (!h) return FV_FAIL(FV_ENOMEM, "out of memory for an HTTP server");
    fv_status st;
    h->opt = *opt;
    snprintf(h->address, sizeof h->address, "%.255s", opt->listen);
    TAILQ_INIT(&h->active);
    TAILQ_INIT(&h->idle);
    TAILQ_INIT(&h->due);
    if (opt->tls) FV_TRY_GOTO(fv_http_tls_open(opt->tls, &h->tls), st, free_http);
    FV_TRY_GOTO(open_socket(h), st, free_http);
    uv_timer_init(opt->loop, &h->tick);
    uv_idle_init(opt->loop, &h->turn);
    h->poll.data = h->tick.data = h->turn.data = h;
    h->n_handle = 3;
    uv_poll_start(&h->poll, UV_READABLE, on_listen);
    uv_timer_start(&h->tick, on_tick, TICK_MS, TICK_MS);
    *out = h;
    return FV_OK;
free_http:
    fv_http_tls_close(h->tls);
    free(h);
    return st;
}

const char *fv_http_address(const fv_http *h) { return h->address; }

int32_t fv_http_requests(const fv_http *h) { return h->n_told; }

void fv_http_end_keep_alive(fv_http *h) { h->ends_keep_alive = true; }

void fv_http_leave(fv_http *h) {
    if (h->listen_fd < 0) return;
    fv_http_end_keep_alive(h);
    uv_poll_stop(&h->poll);
    close(h->listen_fd);
    h->listen_fd = -1;
}

void fv_http_handle_closed(fv_http *h) {
    if (--h->n_handle > 0) return;
    void (*closed)(void *) = h->closed;
    void *user = h->closed_user;
    free(h);
    closed(user);
}

static void on_handle_closed(uv_handle_t *p) { fv_http_handle_closed(p->data); }

static void close_all(struct fv_http_list *list) {
    fv_http_connection *c = TAILQ_FIRST(list), *next;
    for (; c; c = next) {
        next = TAILQ_NEXT(c, link);
        fv_http_connection_close(c);
    }
}

void fv_http_close(fv_http *h, void (*closed)(void *user), void *user) {
    if (!h) {
        closed(user);
        return;
    }
    h->closed = closed;
    h->closed_user = user;
    h->closing = true;
    fv_http_leave(h);
    close_all(&h->idle);
    close_all(&h->active);
    fv_http_tls_close(h->tls);
    uv_close((uv_handle_t *)&h->poll, on_handle_closed);
    uv_close((uv_handle_t *)&h->tick, on_handle_closed);
    uv_close((uv_handle_t *)&h->turn, on_handle_closed);
}
