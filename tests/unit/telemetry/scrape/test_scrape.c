/* telemetry/scrape: replies over HTTP, and hostile clients. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "telemetry/metrics.h"
#include "telemetry/scrape/scrape.h"

enum { REPLY_MAX = 1 << 17, WAIT_MS = 60000 };

static fv_scrape *scrape;
static char reply[REPLY_MAX];

static void start(void) {
    cr_assert_eq(fv_metrics_open(FV_DAEMON_ROUTER), FV_OK);
    cr_assert_eq(fv_scrape_open("0", NULL, &scrape), FV_OK, "%s", fv_last_error());
}

static void stop(void) {
    fv_scrape_close(scrape);
    fv_metrics_close();
}

TestSuite(scrape, .init = start, .fini = stop, .timeout = 240);

static int reach(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const char *port = strrchr(fv_scrape_address(scrape), ':') + 1;
    at.sin_port = htons((uint16_t)atoi(port));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

/* Reads until the other side closes; false: it does not. */
static bool read_all(int fd, int wait_ms) {
    size_t n = 0;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        if (poll(&p, 1, wait_ms) == 0) return false;
        ssize_t got = recv(fd, reply + n, sizeof reply - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got;
    }
    reply[n] = '\0';
    return true;
}

static void ask(const char *request) {
    int fd = reach();
    cr_assert_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    cr_assert(read_all(fd, WAIT_MS), "the connection ends with the reply");
    close(fd);
}

static bool begins(const char *words) { return strncmp(reply, words, strlen(words)) == 0; }

Test(scrape, a_port_alone_is_on_loopback) {
    cr_assert_eq(strncmp(fv_scrape_address(scrape), "127.0.0.1:", 10), 0);
    cr_assert_neq(atoi(fv_scrape_address(scrape) + 10), 0);
}

Test(scrape, the_text_format_is_the_default) {
    fv_metric_add(FV_METRIC_REPLAYS, 0, 3);
    ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_assert(begins("HTTP/1.1 200 "), "%s", reply);
    cr_assert_not_null(strstr(reply, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    cr_assert_not_null(strstr(reply, "\nfovea_replays_total 3\n"));
    cr_assert_null(strstr(reply, "# EOF"));
}

Test(scrape, openmetrics_is_for_those_who_accept_it) {
    ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text;version=1.0.0,"
        "text/plain;q=0.5\r\n\r\n");
    cr_assert_not_null(strstr(
        reply, "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
    cr_assert_str_eq(reply + strlen(reply) - 6, "# EOF\n");
}

Test(scrape, head_has_no_body) {
    ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_assert(begins("HTTP/1.1 200 "));
    cr_assert_str_eq(reply + strlen(reply) - 4, "\r\n\r\n");
}

Test(scrape, there_is_nothing_else_to_get_and_nothing_to_put) {
    ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_assert(begins("HTTP/1.1 404 "));
    ask("GET /metrics/../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_assert(begins("HTTP/1.1 404 "));
    ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx");
    cr_assert(begins("HTTP/1.1 405 "));
    ask("GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n");
    cr_assert(begins("HTTP/1.1 200 "));
}

Test(scrape, what_is_not_http_is_turned_away) {
    ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    cr_assert_not(begins("HTTP/1.1 200 "));
    ask("\x16\x03\x01\x02\r\n\r\n\r\n");
    cr_assert_not(begins("HTTP/1.1 200 "));
    ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    cr_assert(begins("HTTP/1.1 200 "));
}

Test(scrape, headers_beyond_the_limit_end_the_connection) {
    int fd = reach();
    char line[1024];
    memset(line, 'a', sizeof line);
    memcpy(line, "\r\nA: ", 5);
    (void)!send(fd, "GET /metrics HTTP/1.1", 21, MSG_NOSIGNAL);
    int sent = 0;
    while (sent < 64 && send(fd, line, sizeof line, MSG_NOSIGNAL) > 0) sent++;
    cr_assert(read_all(fd, WAIT_MS));
    cr_assert(begins("HTTP/1.1 431 ") || begins("HTTP/1.1 413 ") || !*reply, "%s", reply);
    close(fd);
}

Test(scrape, one_address_has_so_many_connections_and_no_more) {
    enum { MANY = FV_SCRAPE_PER_ADDRESS + 4 };
    int fd[MANY], n_ended = 0;
    struct pollfd p[MANY];
    for (int i = 0; i < MANY; i++) p[i] = (struct pollfd){.fd = fd[i] = reach(), .events = POLLIN};
    while (n_ended < MANY - FV_SCRAPE_PER_ADDRESS) {
        cr_assert_gt(poll(p, MANY, WAIT_MS), 0, "%d of %d have ended", n_ended, MANY);
        for (int i = 0; i < MANY; i++) {
            if (!p[i].revents) continue;
            p[i].fd = -1;
            n_ended++;
        }
    }
    cr_assert_eq(n_ended, MANY - FV_SCRAPE_PER_ADDRESS);
    for (int i = 0; i < MANY; i++) close(fd[i]);
    do { /* they are counted until it has seen that they are closed */
        ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    } while (!begins("HTTP/1.1 200 "));
}

/* A slow client is dropped however much it has sent. */
Test(scrape, a_client_that_dribbles_is_ended_when_its_time_is_over) {
    int fd = reach();
    double began_s = fv_clock_s();
    cr_assert_eq(send(fd, "GET /met", 8, MSG_NOSIGNAL), 8);
    fv_scrape_tick(scrape, began_s + FV_SCRAPE_S - 1);
    cr_assert_not(read_all(fd, 100));
    /* The server may not have accepted it yet. */
    do fv_scrape_tick(scrape, fv_clock_s() + FV_SCRAPE_S + 1);
    while (!read_all(fd, 10));
    cr_assert_str_empty(reply);
    close(fd);
}

Test(scrape, an_address_that_is_taken_or_wrong_is_said) {
    fv_scrape *other;
    cr_assert_eq(fv_scrape_open(fv_scrape_address(scrape), NULL, &other), FV_EIO);
    cr_assert_not_null(strstr(fv_last_error(), "--metrics: cannot listen on 127.0.0.1:"));
    cr_assert_eq(fv_scrape_open("nowhere", NULL, &other), FV_EINVAL);
    cr_assert_eq(fv_scrape_open("127.0.0.1:70000", NULL, &other), FV_EINVAL);
    cr_assert_eq(fv_scrape_open("unix:/tmp/x", NULL, &other), FV_EINVAL);
}
