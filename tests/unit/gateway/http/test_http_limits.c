/* gateway/http/http.h: addresses that take many connections, proxies with many clients, and clients
 * that do not read. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "tests/support/http_rig.h"

enum { MANY = 400, MOST = 50 };

static http_rig rig;
static fv_trusted *trusted;
static int32_t n_ended, n_running;
static bool floods;
static char client[FV_CLIENT_ADDRESS_MAX], piece[4096];

static void flood(void *user, fv_http_request *r) {
    (void)user;
    while (floods && !fv_http_full(r)) fv_http_write(r, piece, sizeof piece);
}

static void on_request(void *user, fv_http_request *r) {
    n_running++;
    snprintf(client, sizeof client, "%s", fv_http_client(r));
    if (strcmp(fv_http_path(r), "/wait") == 0) return;
    if (strcmp(fv_http_path(r), "/flood") == 0) {
        fv_http_stream(r, "text/plain");
        flood(user, r);
        return;
    }
    fv_http_reply(r, 200, "text/plain", client, strlen(client));
}

/* Requests that the server itself refuses end, too; only they have an error here. */
static void on_end(void *user, fv_http_request *r) {
    (void)user;
    if (fv_http_error(r)) return;
    n_running--;
    n_ended++;
}

static void open_with(const fv_http_options *opt) {
    static const char *const proxies[] = {"127.0.0.8/30"};
    fv_http_options o = *opt;
    cr_assert_eq(fv_trusted_open(proxies, 1, &trusted), FV_OK, "%s", fv_last_error());
    o.on_request = on_request;
    o.on_writable = flood;
    o.on_end = on_end;
    o.trusted = trusted;
    http_rig_open(&rig, &o, false);
}

static void close_rig(void) {
    http_rig_close(&rig);
    fv_trusted_close(trusted);
}

TestSuite(http_limits, .fini = close_rig, .timeout = 300);

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n"

static void expect_answer(const char *from) {
    http_client *c = http_client_open(&rig, from);
    http_client_say(c, GET("/") "\r\n");
    http_client_expect(c, "HTTP/1.1 200 OK\r\n");
    http_client_close(c);
}

Test(http_limits, idle_connections_of_one_address_leave_room_for_others) {
    static http_client *idle[MANY];
    int32_t n_open = 0;
    open_with(&(fv_http_options){.per_address = MOST, .connections = 2 * MOST});
    for (int i = 0; i < MANY; i++) {
        idle[i] = http_client_open(&rig, "127.0.0.2");
        http_rig_turn(&rig);
        expect_answer("127.0.0.1");
    }
    for (int i = 0; i < MANY; i++) n_open += http_client_read(idle[i]);
    cr_assert_eq(n_open, MOST);
    for (int i = 0; i < MANY; i++) http_client_close(idle[i]);
    for (int i = 0; i < 100; i++) http_rig_turn(&rig);
    expect_answer("127.0.0.2");
}

Test(http_limits, the_one_idle_for_longest_makes_room) {
    char from[32];
    http_client *many[MOST], *busy;
    open_with(&(fv_http_options){.connections = MOST});
    busy = http_client_open(&rig, "127.0.0.2");
    http_client_say(busy, GET("/wait") "\r\n");
    http_rig_wait(&rig, &n_running, 1);
    for (int i = 0; i < MOST; i++) {
        snprintf(from, sizeof from, "127.0.1.%d", i + 1);
        many[i] = http_client_open(&rig, from);
        http_rig_turn(&rig);
    }
    http_client_expect_end(many[0]);
    expect_answer("127.0.0.3");
    http_client_expect_end(many[1]);
    cr_assert(http_client_read(many[MOST - 1]));
    cr_assert(http_client_read(busy), "one with a request stays");
    cr_assert_eq(n_ended, 1);
}

Test(http_limits, a_connection_beyond_all_that_have_requests_is_closed) {
    http_client *busy[4];
    open_with(&(fv_http_options){.connections = 4});
    for (int i = 0; i < 4; i++) {
        busy[i] = http_client_open(&rig, NULL);
        http_client_say(busy[i], GET("/wait") "\r\n");
    }
    http_rig_wait(&rig, &n_running, 4);
    http_client *c = http_client_open(&rig, NULL);
    http_client_expect_end(c);
    cr_assert_eq(n_running, 4);
}

static http_client *ask_as(const char *forwarded) {
    char text[256];
    http_client *c = http_client_open(&rig, "127.0.0.9");
    snprintf(text, sizeof text, GET("/wait") "%s\r\n", forwarded);
    http_client_say(c, text);
    return c;
}

Test(http_limits, behind_a_trusted_proxy_requests_are_counted_by_client) {
    open_with(&(fv_http_options){.per_address = 2});
    http_client *c[4];
    c[0] = ask_as("X-Forwarded-For: 198.51.100.1\r\n");
    c[1] = ask_as("X-Forwarded-For: 1.1.1.1, 198.51.100.1, 127.0.0.10\r\n");
    http_rig_wait(&rig, &n_running, 2);
    cr_assert_str_eq(client, "198.51.100.1");
    c[2] = ask_as("X-Forwarded-For: 2.2.2.2\r\nX-Forwarded-For: 198.51.100.1\r\n");
    http_client_expect(c[2], "HTTP/1.1 429 Too Many Requests\r\n");
    cr_assert(strstr(c[2]->got, "Retry-After: 1\r\n") && strstr(c[2]->got, "rate_limit_error"));
    c[3] = ask_as("X-Forwarded-For: 198.51.100.2\r\n");
    http_rig_wait(&rig, &n_running, 3);
    cr_assert_str_eq(client, "198.51.100.2");
    http_client_close(c[0]);
    http_rig_wait(&rig, &n_ended, 1);
    ask_as("X-Forwarded-For: 198.51.100.1\r\n");
    http_rig_wait(&rig, &n_running, 3);
    /* A proxy's connection counts for none of its clients. */
    for (int i = 0; i < 10; i++) expect_answer("127.0.0.9");
}

Test(http_limits, nobody_else_speaks_for_others) {
    open_with(&(fv_http_options){0});
    http_client *c = http_client_open(&rig, "127.0.0.2");
    http_client_say(c, GET("/") "X-Forwarded-For: 198.51.100.1\r\n\r\n");
    http_client_expect(c, "\r\n\r\n127.0.0.2");
    http_client_close(c);
}

Test(http_limits, one_who_does_not_read_is_ended) {
    open_with(&(fv_http_options){.write_ms = 1000});
    memset(piece, 'x', sizeof piece);
    floods = true;
    http_client *c = http_client_open(&rig, NULL);
    int small = 4096;
    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    http_client_say(c, GET("/flood") "\r\n");
    http_rig_wait(&rig, &n_ended, 1);
    http_client_close(c);
}

/* The client reads slowly but fast enough: 64 KiB a second, where 16 KiB in eight seconds are
 * required. */
Test(http_limits, one_who_reads_slowly_is_not) {
    static char got[8192];
    size_t n = 0;
    open_with(&(fv_http_options){.write_ms = 8000});
    memset(piece, 'x', sizeof piece);
    floods = true;
    http_client *c = http_client_open(&rig, NULL);
    int small = 8192;
    setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    http_client_say(c, GET("/flood") "\r\n");
    for (double begun = fv_clock_s(); fv_clock_s() - begun < 10; http_rig_turn(&rig)) {
        bool behind = (double)n < (fv_clock_s() - begun) * 65536;
        ssize_t k = behind ? recv(c->fd, got, sizeof got, 0) : 0;
        if (k > 0) n += (size_t)k;
    }
    cr_assert_eq(n_ended, 0);
    http_client_close(c);
}

Test(http_limits, one_who_does_not_finish_its_headers_is_told) {
    open_with(&(fv_http_options){.read_ms = 1000});
    http_client *c = http_client_open(&rig, NULL), *silent = http_client_open(&rig, NULL);
    http_client_say(c, GET("/") "X: ");
    http_client_expect_end(c);
    cr_assert_eq(strncmp(c->got, "HTTP/1.1 408 Request Timeout\r\n", 30), 0, "%s", c->got);
    http_client_expect_end(silent);
    cr_assert_eq(silent->n, 0);
}

/* A client that connects while no file is left waits, but the loop goes on. */
Test(http_limits, without_a_file_for_a_connection_it_waits_for_one) {
    static int files[1024];
    int n = 0;
    open_with(&(fv_http_options){0});
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){512, 1024}), 0);
    while (n < 1024 && (files[n] = dup(0)) >= 0) n++;
    cr_assert(n > 0 && n < 1024);
    close(files[--n]);
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, GET("/") "\r\n");
    for (int i = 0; i < 300; i++) cr_assert(http_client_read(c));
    cr_assert_eq(c->n, 0);
    while (n > 0) close(files[--n]);
    http_client_expect(c, "HTTP/1.1 200 OK\r\n");
}
