#include "tests/support/http_rig.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/support/certs.h"
#include "tests/support/tensor_file.h"

enum { WAIT_S = 60 };

static void ignore(void *user, fv_http_request *r) {
    (void)user;
    (void)r;
}

static void open_files(http_rig *g) {
    char dir[256], cert[300], key[300];
    scratch_dir(dir, sizeof dir);
    certs_authority(dir, "ca");
    certs_issue(dir, "ca", "server", "DNS:localhost", 1);
    snprintf(cert, sizeof cert, "%s", certs_path(dir, "server", "crt"));
    snprintf(key, sizeof key, "%s", certs_path(dir, "server", "key"));
    cr_assert_eq(fv_tls_open(&(fv_tls_files){.cert = cert, .key = key}, &g->files), FV_OK, "%s",
                 fv_last_error());
}

void http_rig_open(http_rig *g, const fv_http_options *opt, bool tls) {
    fv_http_options o = *opt;
    *g = (http_rig){0};
    cr_assert_eq(uv_loop_init(&g->loop), 0);
    if (tls) open_files(g);
    o.loop = &g->loop;
    o.listen = "127.0.0.1:0";
    o.tls = g->files;
    if (!o.body_max) o.body_max = 1 << 20;
    if (!o.bodies_max) o.bodies_max = 4 << 20;
    if (!o.connections) o.connections = 1000;
    if (!o.read_ms) o.read_ms = 600000;
    if (!o.on_writable) o.on_writable = ignore;
    if (!o.on_end) o.on_end = ignore;
    cr_assert_eq(fv_http_open(&o, &g->server), FV_OK, "%s", fv_last_error());
}

static void on_closed(void *user) { ((http_rig *)user)->closed = true; }

void http_rig_close(http_rig *g) {
    while (g->clients) http_client_close(g->clients);
    fv_http_close(g->server, on_closed, g);
    while (!g->closed) uv_run(&g->loop, UV_RUN_ONCE);
    uv_run(&g->loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&g->loop), 0);
    fv_tls_close(g->files);
}

void http_rig_turn(http_rig *g) {
    uv_run(&g->loop, UV_RUN_NOWAIT);
    usleep(100);
}

void http_rig_wait(http_rig *g, const int32_t *count, int32_t at_least) {
    for (double until = fv_clock_s() + WAIT_S; *count < at_least; http_rig_turn(g))
        cr_assert_lt(fv_clock_s(), until, "it never happens");
}

/* ---- clients ---------------------------------------------------------------------------- */

static void shake_hands(http_client *c) {
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    c->ssl = SSL_new(context);
    SSL_CTX_free(context);
    SSL_set_fd(c->ssl, c->fd);
    double until = fv_clock_s() + WAIT_S;
    while (SSL_connect(c->ssl) != 1) {
        cr_assert_lt(fv_clock_s(), until, "no handshake");
        http_rig_turn(c->rig);
    }
}

http_client *http_client_open(http_rig *g, const char *from) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_in own = {.sin_family = AF_INET};
    http_client *c = calloc(1, sizeof *c);
    c->rig = g;
    c->next = g->clients;
    g->clients = c;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, from ? from : "127.0.0.1", &own.sin_addr);
    cr_assert_eq(bind(c->fd, (struct sockaddr *)&own, sizeof own), 0);
    to.sin_port = htons((uint16_t)atoi(strrchr(fv_http_address(g->server), ':') + 1));
    cr_assert_eq(connect(c->fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    if (g->files) shake_hands(c);
    return c;
}

static ssize_t put(http_client *c, const char *bytes, size_t n) {
    return c->ssl ? SSL_write(c->ssl, bytes, (int)n) : send(c->fd, bytes, n, MSG_NOSIGNAL);
}

/* Sends until done, or until the server closes because it has read enough. */
void http_client_send(http_client *c, const void *bytes, size_t n) {
    double until = fv_clock_s() + WAIT_S;
    for (size_t at = 0; at < n; http_rig_turn(c->rig)) {
        ssize_t k = put(c, (const char *)bytes + at, n - at);
        if (k > 0) at += (size_t)k;
        if (k < 0 && !c->ssl && errno != EAGAIN) return;
        cr_assert_lt(fv_clock_s(), until, "the server does not read");
    }
}

void http_client_say(http_client *c, const char *text) { http_client_send(c, text, strlen(text)); }

bool http_client_read(http_client *c) {
    size_t room = sizeof c->got - 1 - c->n;
    cr_assert_gt(room, 0, "more is answered than a test expects");
    http_rig_turn(c->rig);
    errno = 0;
    ssize_t k =
        c->ssl ? SSL_read(c->ssl, c->got + c->n, (int)room) : recv(c->fd, c->got + c->n, room, 0);
    if (k > 0) c->n += (size_t)k;
    c->got[c->n] = '\0';
    if (k > 0) return true;
    if (c->ssl) return SSL_get_error(c->ssl, (int)k) == SSL_ERROR_WANT_READ;
    return k < 0 && errno == EAGAIN;
}

void http_client_expect(http_client *c, const char *text) {
    double until = fv_clock_s() + WAIT_S;
    while (!strstr(c->got, text)) {
        cr_assert(http_client_read(c), "the connection ended without %s: %s", text, c->got);
        cr_assert_lt(fv_clock_s(), until, "no %s: %s", text, c->got);
    }
}

void http_client_expect_end(http_client *c) {
    double until = fv_clock_s() + WAIT_S;
    while (http_client_read(c))
        cr_assert_lt(fv_clock_s(), until, "it stays open: %s: %s", c->what ? c->what : "", c->got);
}

int http_client_count(const http_client *c, const char *text) {
    int n = 0;
    for (const char *at = c->got; (at = strstr(at, text)); at += strlen(text)) n++;
    return n;
}

void http_client_close(http_client *c) {
    http_client **at = &c->rig->clients;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    SSL_free(c->ssl);
    close(c->fd);
    free(c);
}
