/* gateway/http/http.h: on_headers before the body is read, and bodies in pieces. */
#include <criterion/criterion.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "tests/support/http_rig.h"

static http_rig rig;
static fv_http_request *seen;
static int32_t n_headers, n_request, n_ended, n_piece;
static size_t n_byte, length;
static unsigned answer_at_once; /* a status; 0: none */
static bool reads, pauses;

static void on_body(void *user, fv_http_request *r, const char *bytes, size_t n) {
    (void)user;
    cr_assert(n > 0 && bytes[0] == 'b');
    n_piece++;
    n_byte += n;
    if (pauses) fv_http_pause_body(r);
}

static void on_headers(void *user, fv_http_request *r) {
    (void)user;
    n_headers++;
    seen = r;
    length = fv_http_body_length(r);
    if (answer_at_once) fv_http_reply(r, answer_at_once, "text/plain", "no", 2);
    if (strcmp(fv_http_path(r), "/pieces") == 0) fv_http_take_body(r, on_body);
    if (reads) fv_http_read_body(r);
}

static void on_request(void *user, fv_http_request *r) {
    size_t n;
    const char *body = fv_http_body(r, &n);
    (void)user;
    n_request++;
    fv_http_reply(r, 200, "text/plain", body, n);
}

static void on_end(void *user, fv_http_request *r) {
    (void)user;
    n_ended++;
    if (r == seen) seen = NULL;
}

static void open_rig(void) {
    http_rig_open(&rig,
                  &(fv_http_options){.body_max = 8 << 20,
                                     .on_headers = on_headers,
                                     .on_request = on_request,
                                     .on_end = on_end},
                  false);
}

static void close_rig(void) { http_rig_close(&rig); }

TestSuite(http_bodies, .init = open_rig, .fini = close_rig, .timeout = 300);

/* Asserts that nothing happens for a while. */
static void wait_in_vain(const int32_t *count) {
    int32_t before = *count;
    for (int i = 0; i < 300; i++) http_rig_turn(&rig);
    cr_assert_eq(*count, before);
}

#define HOST " HTTP/1.1\r\nHost: x\r\n"

Test(http_bodies, a_body_is_read_when_somebody_wants_it) {
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /a" HOST "Content-Length: 4\r\n\r\nbody");
    http_rig_wait(&rig, &n_headers, 1);
    cr_assert_eq(length, 4);
    wait_in_vain(&n_request);
    fv_http_read_body(seen);
    http_client_expect(c, "\r\n\r\nbody");
    http_rig_wait(&rig, &n_ended, 1);
    http_client_say(c, "POST /a" HOST "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n");
    http_rig_wait(&rig, &n_headers, 2);
    cr_assert_eq(length, SIZE_MAX);
    fv_http_read_body(seen);
    http_rig_wait(&rig, &n_request, 2);
    http_client_say(c, "GET /a" HOST "\r\n");
    http_rig_wait(&rig, &n_headers, 3);
    cr_assert_eq(length, 0);
    fv_http_read_body(seen);
    http_rig_wait(&rig, &n_ended, 3);
    http_client_close(c);
}

Test(http_bodies, the_client_is_told_to_go_on_when_its_body_is_wanted) {
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /a" HOST "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    http_rig_wait(&rig, &n_headers, 1);
    http_client_read(c);
    cr_assert_eq(c->n, 0);
    fv_http_read_body(seen);
    http_client_expect(c, "HTTP/1.1 100 Continue\r\n\r\n");
    http_client_say(c, "body");
    http_client_expect(c, "HTTP/1.1 200 OK\r\n");
    cr_assert_eq(http_client_count(c, "100 Continue"), 1);
    http_client_close(c);
}

Test(http_bodies, one_who_goes_before_the_body_is_wanted_is_noticed) {
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /a" HOST "Content-Length: 100000\r\n\r\n");
    http_rig_wait(&rig, &n_headers, 1);
    for (int i = 0; i < 50; i++) http_client_say(c, "bbbbbbbbbb"); /* waits in the socket */
    cr_assert_eq(n_ended, 0);
    http_client_close(c);
    http_rig_wait(&rig, &n_ended, 1);
    cr_assert_eq(n_request, 0);
}

/* The client sends all before it reads; it gets the answer, and the connection closes. */
Test(http_bodies, an_answer_before_the_body_reaches_a_client_that_still_sends) {
    static char body[1 << 20];
    memset(body, 'b', sizeof body);
    answer_at_once = 401;
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /a" HOST "Content-Length: 6291456\r\n\r\n");
    for (int i = 0; i < 6; i++) http_client_send(c, body, sizeof body);
    http_client_expect_end(c);
    cr_assert_eq(strncmp(c->got, "HTTP/1.1 401 Unauthorized\r\n", 27), 0, "%s", c->got);
    cr_assert(strstr(c->got, "Connection: close\r\n"));
    cr_assert_eq(n_ended, 1);
    cr_assert_eq(n_request, 0);
    http_client_close(c);
}

Test(http_bodies, an_answer_to_a_request_without_a_body_keeps_the_connection) {
    answer_at_once = 404;
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "GET /a" HOST "\r\nGET /b" HOST "\r\n");
    http_rig_wait(&rig, &n_ended, 2);
    cr_assert_eq(n_request, 0);
    http_client_close(c);
}

Test(http_bodies, pieces_come_one_by_one_and_nothing_is_kept) {
    static char body[4 << 20];
    memset(body, 'b', sizeof body);
    reads = true;
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /pieces" HOST "Content-Length: 4194304\r\n\r\n");
    http_client_send(c, body, sizeof body);
    http_client_expect(c, "HTTP/1.1 200 OK\r\n");
    cr_assert_eq(n_byte, sizeof body);
    cr_assert(strstr(c->got, "Content-Length: 0\r\n"));
    http_client_close(c);
}

Test(http_bodies, a_pause_stops_the_client) {
    static char body[4 << 20];
    memset(body, 'b', sizeof body);
    reads = pauses = true;
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /pieces" HOST "Content-Length: 4194304\r\n\r\nb");
    http_rig_wait(&rig, &n_piece, 1);
    wait_in_vain(&n_piece);
    size_t sent = 1;
    /* Bytes sent now stay in the sockets: not all may fit, or the server would not have paused the
     * client. */
    for (int still = 0; still < 200; http_rig_turn(&rig), still++) {
        ssize_t k = send(c->fd, body, sizeof body - sent, MSG_NOSIGNAL);
        if (k > 0) sent += (size_t)k, still = 0;
    }
    cr_assert_eq(n_piece, 1);
    while (n_byte < sizeof body) {
        if (sent < sizeof body) {
            ssize_t k = send(c->fd, body, sizeof body - sent, MSG_NOSIGNAL);
            if (k > 0) sent += (size_t)k;
        }
        int32_t before = n_piece;
        if (seen) fv_http_read_body(seen);
        http_rig_turn(&rig);
        cr_assert_leq(n_piece, before + 1, "a piece comes during a pause");
    }
    fv_http_read_body(seen);
    http_client_expect(c, "HTTP/1.1 200 OK\r\n");
    http_client_close(c);
}

Test(http_bodies, one_who_goes_during_a_pause_is_noticed) {
    reads = pauses = true;
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /pieces" HOST "Content-Length: 1000\r\n\r\nbbb");
    http_rig_wait(&rig, &n_piece, 1);
    http_client_close(c);
    http_rig_wait(&rig, &n_ended, 1);
}

Test(http_bodies, pieces_beyond_the_limit_are_refused) {
    reads = true;
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /pieces" HOST "Transfer-Encoding: chunked\r\n\r\n900000\r\nbbb");
    http_client_expect_end(c);
    cr_assert_eq(strncmp(c->got, "HTTP/1.1 413 ", 13), 0, "%s", c->got);
    cr_assert_eq(n_ended, 1);
    http_client_close(c);
}

Test(http_bodies, a_broken_body_is_refused_and_its_request_ends) {
    reads = true;
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "POST /pieces" HOST "Transfer-Encoding: chunked\r\n\r\n3\r\nbbb\r\nx\r\n");
    http_client_expect_end(c);
    cr_assert_eq(strncmp(c->got, "HTTP/1.1 400 ", 13), 0, "%s", c->got);
    cr_assert_eq(n_ended, 1);
    cr_assert_eq(n_request, 0);
    http_client_close(c);
}
