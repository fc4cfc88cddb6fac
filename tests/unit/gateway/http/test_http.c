/* gateway/http/http.h with clients that are slow, silent or gone. */
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
#include "gateway/http/http.h"

static uv_loop_t loop;
static fv_http *server;
static fv_http_request *seen; /* the last request */
static int32_t n_seen, n_ended;
static size_t written;
static bool floods, closed;

static char piece[4096];

static void flood(fv_http_request *r) {
    while (!fv_http_full(r)) {
        fv_http_write(r, piece, sizeof piece);
        written += sizeof piece;
    }
}

static void on_request(void *user, fv_http_request *r) {
    size_t n;
    const char *body = fv_http_body(r, &n);
    (void)user;
    seen = r;
    n_seen++;
    if (floods) {
        fv_http_stream(r, "text/plain");
        flood(r);
    } else if (strcmp(fv_http_path(r), "/echo") == 0) {
        fv_http_add(r, "X-Own", "yes");
        fv_http_reply(r, 200, "text/plain", body, n);
    }
}

static void on_writable(void *user, fv_http_request *r) {
    (void)user;
    flood(r);
}

static void on_end(void *user, fv_http_request *r) {
    (void)user;
    n_ended++;
    if (r == seen) seen = NULL;
}

static void open_with(int32_t read_ms) {
    fv_http_options opt = {.loop = &loop,
                           .listen = "127.0.0.1:0",
                           .body_max = 1 << 20,
                           .bodies_max = 3 << 19,
                           .connections = 16,
                           .read_ms = read_ms,
                           .on_request = on_request,
                           .on_writable = on_writable,
                           .on_end = on_end};
    memset(piece, 'x', sizeof piece);
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(fv_http_open(&opt, &server), FV_OK, "%s", fv_last_error());
}

/* Allows a busy machine a minute for a megabyte. */
static void open_server(void) { open_with(60000); }

static void on_closed(void *user) { *(bool *)user = true; }

static void close_server(void) {
    closed = false;
    fv_http_close(server, on_closed, &closed);
    while (!closed) uv_run(&loop, UV_RUN_ONCE);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
}

TestSuite(http, .init = open_server, .fini = close_server, .timeout = 240);

static int dial(const char *request) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    to.sin_port = htons((uint16_t)atoi(strrchr(fv_http_address(server), ':') + 1));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    cr_assert_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    return fd;
}

static void turn(void) {
    if (!uv_run(&loop, UV_RUN_NOWAIT)) cr_assert_fail("the loop has ended");
    usleep(200);
}

static void wait_for(const int32_t *count, int32_t at_least) {
    double until = fv_clock_s() + 60;
    while (*count < at_least) {
        cr_assert_lt(fv_clock_s(), until, "it never happens");
        turn();
    }
}

/* Reads until the text has arrived or, without one, the end. */
static void expect(int fd, const char *text) {
    static char got[1 << 16];
    size_t n = 0;
    double until = fv_clock_s() + 60;
    for (;;) {
        ssize_t k = read(fd, got + n, sizeof got - 1 - n);
        if (k == 0 && !text) return;
        cr_assert(k != 0, "the connection ended after: %.*s", (int)n, got);
        if (k > 0) got[n += (size_t)k] = '\0';
        if (k > 0 && text && strstr(got, text)) return;
        if (!text) n = 0;
        cr_assert(k > 0 || errno == EAGAIN || (!text && errno == ECONNRESET));
        if (k < 0 && errno == ECONNRESET) return;
        cr_assert_lt(fv_clock_s(), until, "it has only: %.*s", (int)n, got);
        turn();
    }
}

#define HOST "Host: x\r\n"

Test(http, answers_come_on_one_connection_after_each_other) {
    int fd = dial("POST /echo?q HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc");
    expect(fd, "\r\n\r\nabc");
    static const char chunked[] =
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\nde\r\n0\r\n\r\n";
    cr_assert_eq(write(fd, chunked, sizeof chunked - 1), (ssize_t)sizeof chunked - 1);
    expect(fd, "X-Own: yes");
    wait_for(&n_ended, 2);
    close(fd);
}

Test(http, a_reader_that_is_slow_costs_bounded_memory) {
    floods = true;
    int fd = dial("GET / HTTP/1.1\r\n" HOST "\r\n");
    wait_for(&n_seen, 1);
    size_t before = 0;
    /* Until nothing moves: the bytes are in the kernel's buffers and the server's. */
    for (int still = 0; still < 300; still = before == written ? still + 1 : 0) {
        before = written;
        turn();
    }
    cr_assert_lt(written, (size_t)32 << 20);
    static char got[1 << 16];
    for (double until = fv_clock_s() + 60; written == before; turn()) {
        cr_assert_lt(fv_clock_s(), until, "nothing more is written to a reader that reads again");
        (void)!read(fd, got, sizeof got);
    }
    close(fd);
    wait_for(&n_ended, 1);
}

Test(http, a_client_that_goes_is_noticed_while_its_answer_is_awaited) {
    int fd = dial("GET /never HTTP/1.1\r\n" HOST "\r\n");
    wait_for(&n_seen, 1);
    cr_assert_eq(n_ended, 0);
    close(fd);
    wait_for(&n_ended, 1);
    floods = true;
    fd = dial("GET / HTTP/1.1\r\n" HOST "\r\n");
    wait_for(&n_seen, 2);
    close(fd);
    wait_for(&n_ended, 2);
}

static int send_body(size_t bytes, size_t piece_bytes) {
    static char body[1 << 20];
    char head[128];
    memset(body, 'b', sizeof body);
    snprintf(head, sizeof head, "POST /never HTTP/1.1\r\n" HOST "Content-Length: %zu\r\n\r\n",
             bytes);
    int fd = dial(head);
    for (size_t n = 0; n < bytes;) {
        ssize_t k = write(fd, body + n, bytes - n < piece_bytes ? bytes - n : piece_bytes);
        if (k > 0) n += (size_t)k;
        turn();
    }
    return fd;
}

Test(http, bodies_have_a_limit_each_and_all_together) {
    int large = dial("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1048577\r\n\r\n");
    expect(large, "413");
    int first = send_body(1 << 20, 1 << 20);
    wait_for(&n_seen, 1);
    int second = send_body(1 << 20, 1 << 20);
    expect(second, "503");
    cr_assert_eq(n_seen, 1);
    fv_http_forget_body(seen);
    close(first);
    close(second);
    close(large);
}

/* Doubling from 800 bytes reaches 819 200, and the next step would be more than bodies_max. */
Test(http, a_body_in_small_pieces_needs_no_more_memory_than_it_may_have) {
    int fd = send_body(1 << 20, 800);
    wait_for(&n_seen, 1);
    size_t n;
    fv_http_body(seen, &n);
    cr_assert_eq(n, 1 << 20);
    int half = send_body(1 << 19, 1 << 19); /* the rest of bodies_max */
    wait_for(&n_seen, 2);
    close(half);
    close(fd);
}

Test(http, a_request_that_is_never_complete_ends) {
    close_server();
    open_with(1500);
    int fd = dial("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\na");
    expect(fd, NULL);
    cr_assert_eq(n_seen, 0);
    close(fd);
}

Test(http, closing_ends_what_runs) {
    floods = true;
    int stream = dial("GET / HTTP/1.1\r\n" HOST "\r\n");
    wait_for(&n_seen, 1);
    floods = false;
    int waiting = dial("GET /never HTTP/1.1\r\n" HOST "\r\n");
    wait_for(&n_seen, 2);
    fv_http_leave(server);
    cr_assert_eq(fv_http_requests(server), 2);
    /* The suite's end closes the server; sockets are closed with the process. */
    (void)stream;
    (void)waiting;
}
