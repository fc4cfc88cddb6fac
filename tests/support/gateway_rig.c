#include "tests/support/gateway_rig.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/support/tensor_file.h"

enum { WAIT_S = 60, BYTES = 1 << 20 };

static void keep_log(gateway_rig *g) {
    char dir[256];
    scratch_dir(dir, sizeof dir);
    snprintf(g->log, sizeof g->log, "%s/stderr", dir);
    const int fd = open(g->log, O_CREAT | O_WRONLY | O_APPEND, 0600);
    cr_assert_geq(fd, 0);
    g->said = dup(STDERR_FILENO);
    dup2(fd, STDERR_FILENO);
    close(fd);
}

void gateway_rig_open(gateway_rig *g, const fv_gateway_options *opt) {
    fv_gateway_options o = *opt;
    router_rig_with_workers(&g->router, NULL);
    o.bridge = g->router.bridge;
    o.listen = "127.0.0.1:0";
    o.router = g->router.target;
    if (!o.body_max) o.body_max = BYTES;
    if (!o.bodies_max) o.bodies_max = BYTES;
    if (!o.json_max) o.json_max = BYTES;
    if (!o.connections) o.connections = 64;
    if (!o.read_ms) o.read_ms = 1000 * WAIT_S;
    if (!o.deadline_ms) o.deadline_ms = 1000 * WAIT_S;
    cr_assert_eq(fv_gateway_open(&o, &g->gateway), FV_OK, "%s", fv_last_error());
    keep_log(g);
}

static void on_closed(void *user) { ((gateway_rig *)user)->closed = true; }

void gateway_rig_close(gateway_rig *g) {
    fv_gateway_close(g->gateway, on_closed, g);
    while (!g->closed) uv_run(&g->router.loop, UV_RUN_ONCE);
    router_rig_close(&g->router);
    dup2(g->said, STDERR_FILENO);
    close(g->said);
}

const char *gateway_rig_log(const gateway_rig *g) {
    static char text[1 << 16];
    FILE *f = fopen(g->log, "r");
    cr_assert(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* ---- clients ----------------------------------------------------------------------------- */

void gateway_raw(gateway_client *c, gateway_rig *g, const char *text) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->rig = g;
    c->n = 0;
    c->got[0] = '\0';
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_port = htons((uint16_t)atoi(strrchr(fv_gateway_address(g->gateway), ':') + 1));
    cr_assert_eq(connect(c->fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    cr_assert_eq(write(c->fd, text, strlen(text)), (ssize_t)strlen(text));
}

void gateway_send(gateway_client *c, gateway_rig *g, const char *method, const char *path,
                  const char *lines, const char *body) {
    static char text[1 << 16];
    char length[64] = "";
    if (body) snprintf(length, sizeof length, "Content-Length: %zu\r\n", strlen(body));
    snprintf(text, sizeof text, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s%s\r\n%s", method, path,
             lines, length, body ? body : "");
    gateway_raw(c, g, text);
}

/* Runs the loop once and reads what is there; false: the connection has closed. */
static bool turn(gateway_client *c) {
    uv_run(&c->rig->router.loop, UV_RUN_NOWAIT);
    ssize_t k = read(c->fd, c->got + c->n, sizeof c->got - 1 - c->n);
    cr_assert(k >= 0 || errno == EAGAIN || errno == ECONNRESET, "%s", strerror(errno));
    if (k > 0) c->n += (size_t)k;
    c->got[c->n] = '\0';
    usleep(100);
    return k > 0 || (k < 0 && errno == EAGAIN);
}

void gateway_await(gateway_client *c, const char *text) {
    const double until_s = fv_clock_s() + WAIT_S;
    while (!strstr(c->got, text)) {
        cr_assert(turn(c), "the connection has closed without '%s': %s", text, c->got);
        cr_assert_lt(fv_clock_s(), until_s, "'%s' does not come: %s", text, c->got);
    }
}

void gateway_await_end(gateway_client *c) {
    const double until_s = fv_clock_s() + WAIT_S;
    while (turn(c)) cr_assert_lt(fv_clock_s(), until_s, "it does not end: %s", c->got);
}

void gateway_turn(gateway_client *c, int32_t ms) {
    const double until_s = fv_clock_s() + 1e-3 * ms;
    while (fv_clock_s() < until_s) turn(c);
}

int gateway_count(const gateway_client *c, const char *text) {
    int n = 0;
    for (const char *at = c->got; (at = strstr(at, text)); at++) n++;
    return n;
}

void gateway_leave(gateway_client *c) { close(c->fd); }

void gateway_ask(gateway_client *c, gateway_rig *g, const char *method, const char *path,
                 const char *lines, const char *body) {
    char more[2048];
    snprintf(more, sizeof more, "Connection: close\r\n%s", lines);
    gateway_send(c, g, method, path, more, body);
    gateway_await_end(c);
    gateway_leave(c);
}
