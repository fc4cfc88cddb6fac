/* gateway/http/http.h: the framing of requests. A request whose end is ambiguous is refused, and
 * its connection closes (RFC 9112, sections 3.2, 5.1, 6.1, 6.3): alone, after a valid one, and over
 * TLS. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/http_rig.h"

typedef struct row {
    int status;
    const char *bytes;
    size_t n;
} row;

#define ROW(status, text)                                                                          \
    { status, text, sizeof text - 1 }
#define POST "POST /bad HTTP/1.1\r\nHost: x\r\n"
#define GET "GET /bad HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static const row bad[] = {
    /* the length */
    ROW(400, POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    ROW(400, POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    ROW(400, POST "Content-Length: 3, 3\r\n\r\nabc"),
    ROW(400, POST "Content-Length : 3\r\n\r\nabc"),
    ROW(400, POST "Content-Length\t: 3\r\n\r\nabc"),
    ROW(400, POST "Content-Length:\r\n\r\nabc"),
    ROW(400, POST "Content-Length: +3\r\n\r\nabc"),
    ROW(400, POST "Content-Length: -3\r\n\r\nabc"),
    ROW(400, POST "Content-Length: 0x3\r\n\r\nabc"),
    ROW(400, POST "Content-Length: 3 3\r\n\r\nabc"),
    ROW(400, POST "Content-Length: 3a\r\n\r\nabc"),
    ROW(400, POST "Content-Length: 99999999999999999999999\r\n\r\nabc"),
    ROW(413, POST "Content-Length: 9999999999999999999\r\n\r\nabc"),
    ROW(400, POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    ROW(501, POST "Transfer-Encoding: identity\r\n\r\n"),
    ROW(501, POST "Transfer-Encoding: gzip\r\n\r\nabc"),
    ROW(501, POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    ROW(501, POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding:\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
    ROW(400, POST "Transfer-Encoding: \x0b"
                  "chunked\r\n\r\n0\r\n\r\n"),
    ROW(400, "POST /bad HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    /* chunks */
    ROW(400, CHUNKED "5 \r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED " 5\r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "0x5\r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "+5\r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "-5\r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "5g\r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "\r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "5\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "5\rabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "5\r\nabcde\n0\r\n\r\n"),
    ROW(400, CHUNKED "5\r\nabcde0\r\n\r\n"),
    ROW(400, CHUNKED "5\r\nabcdef\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "10000000000000005\r\nabcde\r\n0\r\n\r\n"),
    ROW(413, CHUNKED "fffffffffffffff\r\nabcde\r\n"),
    ROW(400, CHUNKED "5;a\nb\r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "5;a=\"x\ny\"\r\nabcde\r\n0\r\n\r\n"),
    ROW(400, CHUNKED "0\r\nX: y\r\n\r\n"),
    ROW(400, CHUNKED "0\r\nContent-Length: 5\r\n\r\n"),
    ROW(400, CHUNKED "0\r\n\n"),
    /* the host */
    ROW(400, "GET /bad HTTP/1.1\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost:\r\n\r\n"),
    ROW(400, GET "Host: x\r\n\r\n"),
    ROW(400, GET "host: y\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost : x\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: localhost:80@evil\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: user@localhost\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: [::1]evil\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: [::1\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: [::1]:80:80\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: localhost:8o\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: localhost:65536\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: ::1\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: a%2\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\nHost: \xc3\xa4\r\n\r\n"),
    ROW(400, "GET http://y/bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET http://u@x/bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET http://x/bad HTTP/1.1\r\n\r\n"),
    ROW(400, "GET ftp://x/bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    /* headers */
    ROW(400, GET "A: b\r\n c\r\n\r\n"),
    ROW(400, GET "A: b\r\n\tc\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1\r\n Host: x\r\n\r\n"),
    ROW(400, GET "A: b\nB: c\r\n\r\n"),
    ROW(400, GET "A: b\r\n\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, GET "A: b\rB: c\r\n\r\n"),
    ROW(400, GET "A: b\r\r\n\r\n"),
    ROW(400, GET "A: b\0c\r\n\r\n"),
    ROW(400, GET "A\0: b\r\n\r\n"),
    ROW(400, GET "A: b\x7f\r\n\r\n"),
    ROW(400, GET "A b: c\r\n\r\n"),
    ROW(400, GET "A\r\n\r\n"),
    ROW(400, GET ": b\r\n\r\n"),
    ROW(400, GET "A\x80: b\r\n\r\n"),
    ROW(400, GET "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n"),
    ROW(417, GET "Expect: the-unexpected\r\n\r\n"),
    /* the request line */
    ROW(400, "GET /bad HTTP/1.1\nHost: x\r\n\r\n"),
    ROW(400, "GET  /bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET /bad  HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET\t/bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.1 \r\nHost: x\r\n\r\n"),
    ROW(400, " GET /bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET /a#b HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET * HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET /\x80 HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "get /bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET /bad http/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "GET /bad HTTP/1.2\r\nHost: x\r\n\r\n"),
    ROW(400, "OPTIONS /bad RTSP/1.0\r\nHost: x\r\n\r\n"),
    ROW(505, "GET /bad HTTP/2.0\r\nHost: x\r\n\r\n"),
    ROW(505, "GET /bad\r\n\r\n"),
    ROW(505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ROW(501, "CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "\r\n\r\nGET /bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "\nGET /bad HTTP/1.1\r\nHost: x\r\n\r\n"),
    ROW(400, "\x16\x03\x01\x02"),
};

static http_rig rig;
static int32_t n_bad; /* requests that were not refused */

static void on_request(void *user, fv_http_request *r) {
    size_t n;
    const char *body = fv_http_body(r, &n);
    (void)user;
    n_bad += strcmp(fv_http_path(r), "/good") != 0;
    fv_http_add(r, "X-Path", fv_http_path(r));
    fv_http_reply(r, 200, "text/plain", body, n);
}

static void close_rig(void) { http_rig_close(&rig); }

TestSuite(http_framing, .fini = close_rig, .timeout = 300);

static const char good[] = "POST /good HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ngood";

static void check(const row *r, bool after_good) {
    char status[32];
    http_client *c = http_client_open(&rig, NULL);
    if (after_good) http_client_say(c, good);
    http_client_send(c, r->bytes, r->n);
    http_client_say(c, "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n");
    c->what = r->bytes;
    http_client_expect_end(c);
    snprintf(status, sizeof status, "HTTP/1.1 %d ", r->status);
    const char *at = after_good ? strstr(c->got, "\r\n\r\ngood") : c->got;
    cr_assert(at, "%s: the request before is not answered: %s", r->bytes, c->got);
    if (after_good) at += strlen("\r\n\r\ngood");
    cr_assert_eq(strncmp(at, status, strlen(status)), 0, "%s: not %d: %s", r->bytes, r->status, at);
    cr_assert(strstr(at, "\r\nConnection: close\r\n"), "%s: %s", r->bytes, at);
    cr_assert(strstr(at, "{\"error\":{\"message\":\""), "%s: %s", r->bytes, at);
    cr_assert_eq(http_client_count(c, "\r\nDate: "), 1 + after_good, "%s: %s", r->bytes, c->got);
    cr_assert_eq(n_bad, 0, "%s", r->bytes);
    http_client_close(c);
}

static void check_all(bool tls) {
    http_rig_open(&rig, &(fv_http_options){.on_request = on_request}, tls);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        check(&bad[i], false);
        check(&bad[i], true);
    }
}

Test(http_framing, what_has_two_meanings_is_refused_and_the_connection_closes) { check_all(false); }

Test(http_framing, over_tls_as_well) { check_all(true); }

static void refused(const char *before, size_t n, const char *after, const char *status) {
    static char text[1 << 17];
    http_client *c = http_client_open(&rig, NULL);
    memset(text, 'a', n);
    text[n] = '\0';
    http_client_say(c, before);
    http_client_say(c, text);
    http_client_say(c, after);
    http_client_expect_end(c);
    cr_assert_eq(strncmp(c->got, status, strlen(status)), 0, "%s", c->got);
    http_client_close(c);
}

Test(http_framing, lines_headers_and_extensions_have_a_bound) {
    http_rig_open(&rig, &(fv_http_options){.on_request = on_request}, false);
    refused("GET /", 1 << 16, " HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 414");
    refused(GET "A: ", 1 << 16, "\r\n\r\n", "HTTP/1.1 431");
    refused(GET, 1 << 16, ": b\r\n\r\n", "HTTP/1.1 431");
    refused(CHUNKED "5;", 1 << 13, "\r\nabcde\r\n0\r\n\r\n", "HTTP/1.1 400");
}

Test(http_framing, what_is_right_is_answered_and_the_connection_stays) {
    static const struct {
        const char *bytes, *answer;
    } rows[] = {
        {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "X-Path: /\r\n"},
        {"\r\nGET /a HTTP/1.1\r\nHost: x\r\n\r\n", "X-Path: /a\r\n"},
        {"GET /%61%2Fb%00%zz?c HTTP/1.1\r\nHost: x\r\n\r\n", "X-Path: /a/b%00%zz\r\n"},
        {"GET http://X:80/a?b HTTP/1.1\r\nHost: x:80\r\n\r\n", "X-Path: /a\r\n"},
        {"GET http://x?b HTTP/1.1\r\nHost: x\r\n\r\n", "X-Path: /\r\n"},
        {"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "X-Path: *\r\n"},
        {"GET / HTTP/1.1\r\nHost: x\r\nEmpty:\r\nB: c \t \r\n\r\n", "X-Path: /\r\n"},
        {"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n", "200 OK"},
        {POST "Content-Length: 0\r\n\r\n", "Content-Length: 0\r\n"},
        {POST "Content-Length: 003\r\n\r\nabc", "\r\n\r\nabc"},
        {POST "Transfer-Encoding: Chunked\r\n\r\n2\r\nab\r\n01;x=y;z=\"w\"\r\nc\r\n0\r\n\r\n",
         "\r\n\r\nabc"},
        {POST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc", "\r\n\r\nabc"},
        {"HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n", "X-Path: /a\r\n"},
    };
    http_rig_open(&rig, &(fv_http_options){.on_request = on_request}, false);
    http_client *one = http_client_open(&rig, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        http_client_say(one, rows[i].bytes);
        http_client_expect(one, rows[i].answer);
        http_client_expect(one, "\r\n\r\n");
        one->n = 0;
        one->got[0] = '\0';
        http_client *split = http_client_open(&rig, NULL);
        for (const char *p = rows[i].bytes; *p; p++) http_client_send(split, p, 1);
        http_client_expect(split, rows[i].answer);
        http_client_close(split);
    }
    http_client_close(one);
}

Test(http_framing, requests_sent_ahead_are_answered_in_their_order) {
    http_rig_open(&rig, &(fv_http_options){.on_request = on_request}, false);
    http_client *c = http_client_open(&rig, NULL);
    char request[64], answer[64];
    for (int i = 0; i < 200; i++) {
        snprintf(request, sizeof request, "GET /%d HTTP/1.1\r\nHost: x\r\n\r\n", i);
        http_client_say(c, request);
    }
    http_client_expect(c, "X-Path: /199\r\n");
    const char *at = c->got;
    for (int i = 0; i < 200; i++) {
        snprintf(answer, sizeof answer, "X-Path: /%d\r\n", i);
        at = strstr(at, answer);
        cr_assert(at, "%d", i);
    }
    http_client_close(c);
}

Test(http_framing, http_1_0_is_answered_and_closed) {
    http_rig_open(&rig, &(fv_http_options){.on_request = on_request}, false);
    http_client *c = http_client_open(&rig, NULL);
    http_client_say(c, "GET /a HTTP/1.0\r\n\r\n");
    http_client_expect_end(c);
    cr_assert(strstr(c->got, "X-Path: /a\r\n") && strstr(c->got, "Connection: close\r\n"));
    http_client_close(c);
}
