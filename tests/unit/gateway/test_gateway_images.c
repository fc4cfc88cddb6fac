/* A gateway before a router, and images at URLs of a server beside them. */
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
#include "gateway/gateway.h"
#include "tests/support/router_rig.h"

static router_rig rig;
static fv_http *server; /* of images */
static fv_gateway *gateway;
static char image_host[64];
static const char *image_hosts[] = {image_host};
static int32_t n_seen, n_ended;
static bool closed;

/* The bytes of a PNG that a router reads: 40 x 30 pixels. */
static const uint8_t png[] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10, 0,  0, 0, 13, 'I', 'H', 'D',
                              'R',  0,   0,   0,   40, 0,  0,  0,  30, 8, 2, 0,  0,   0};

static void on_request(void *user, fv_http_request *r) {
    (void)user;
    n_seen++;
    if (strcmp(fv_http_path(r), "/a.png") == 0)
        fv_http_reply(r, 200, "image/png", (const char *)png, sizeof png);
    else if (strcmp(fv_http_path(r), "/never") != 0)
        fv_http_reply(r, 404, "text/plain", "", 0);
}

static void on_nothing(void *user, fv_http_request *r) {
    (void)user;
    (void)r;
}

static void on_end(void *user, fv_http_request *r) {
    (void)user;
    (void)r;
    n_ended++;
}

static bool any_address(const struct sockaddr *a) { return a != NULL; }

static void open_all(bool (*may_connect)(const struct sockaddr *a), int32_t n_host) {
    router_rig_with_workers(&rig, NULL);
    fv_http_options http = {.loop = &rig.loop,
                            .listen = "127.0.0.1:0",
                            .body_max = 1000,
                            .bodies_max = 1000,
                            .connections = 16,
                            .read_ms = 60000,
                            .on_request = on_request,
                            .on_writable = on_nothing,
                            .on_end = on_end};
    cr_assert_eq(fv_http_open(&http, &server), FV_OK, "%s", fv_last_error());
    snprintf(image_host, sizeof image_host, "%s", fv_http_address(server));
    fv_gateway_options opt = {.bridge = rig.bridge,
                              .listen = "127.0.0.1:0",
                              .router = rig.target,
                              .body_max = 1 << 20,
                              .bodies_max = 1 << 20,
                              .json_max = 1 << 20,
                              .connections = 16,
                              .read_ms = 60000,
                              .deadline_ms = 60000,
                              .image_hosts = image_hosts,
                              .n_image_host = n_host,
                              .image_bytes = 1 << 16,
                              .image_ms = 60000,
                              .may_connect = may_connect};
    cr_assert_eq(fv_gateway_open(&opt, &gateway), FV_OK, "%s", fv_last_error());
}

static void on_closed(void *user) {
    (void)user;
    closed = true;
}

static void close_all(void) {
    fv_gateway_close(gateway, on_closed, NULL);
    while (!closed) uv_run(&rig.loop, UV_RUN_ONCE);
    closed = false;
    fv_http_close(server, on_closed, NULL);
    while (!closed) uv_run(&rig.loop, UV_RUN_ONCE);
    router_rig_close(&rig);
}

TestSuite(gateway_images, .fini = close_all, .timeout = 240);

static int ask(const char *url) {
    char body[512], text[1024];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int n_body =
        snprintf(body, sizeof body,
                 "{\"max_tokens\":2,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":"
                 "\"image_url\",\"image_url\":{\"url\":\"%s\"}}]}]}",
                 url);
    int n =
        snprintf(text, sizeof text,
                 "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                 "Content-Length: %d\r\n\r\n%s",
                 n_body, body);
    to.sin_port = htons((uint16_t)atoi(strrchr(fv_gateway_address(gateway), ':') + 1));
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    cr_assert_eq(write(fd, text, (size_t)n), n);
    return fd;
}

static void turn(double until_s) {
    cr_assert_lt(fv_clock_s(), until_s, "it never happens");
    uv_run(&rig.loop, UV_RUN_NOWAIT);
    usleep(100);
}

static void expect(const char *path, const char *const words[3]) {
    static char got[1 << 16];
    char url[256];
    size_t n = 0;
    double until = fv_clock_s() + 60;
    snprintf(url, sizeof url, "http://%s%s", image_host, path);
    int fd = ask(url);
    for (;;) {
        ssize_t k = read(fd, got + n, sizeof got - 1 - n);
        if (k == 0) break;
        cr_assert(k > 0 || errno == EAGAIN);
        if (k > 0) n += (size_t)k;
        turn(until);
    }
    got[n] = '\0';
    close(fd);
    for (int i = 0; i < 3; i++) cr_assert(strstr(got, words[i]), "no %s: %s", words[i], got);
}

Test(gateway_images, an_image_at_a_url_becomes_part_of_the_request) {
    open_all(any_address, 1);
    expect("/a.png", (const char *const[]){"200 OK", "\"finish_reason\":\"length\"", "usage"});
    cr_assert_eq(n_seen, 1);
}

Test(gateway_images, what_cannot_be_fetched_is_the_requests_fault) {
    open_all(any_address, 1);
    expect("/else", (const char *const[]){"400 Bad", "\"messages[0].content[0].image_url.url\"",
                                          "HTTP status 404"});
}

Test(gateway_images, private_addresses_are_refused) {
    open_all(NULL, 1);
    expect("/a.png", (const char *const[]){"400 Bad", "image_url.url\"", "not public"});
    cr_assert_eq(n_seen, 0);
}

Test(gateway_images, nothing_is_fetched_without_a_list) {
    open_all(NULL, 0);
    expect("/a.png", (const char *const[]){"400 Bad", "image_url.url\"", "send the image itself"});
    cr_assert_eq(n_seen, 0);
}

Test(gateway_images, a_client_that_goes_ends_the_fetch) {
    char url[256];
    double until = fv_clock_s() + 60;
    open_all(any_address, 1);
    snprintf(url, sizeof url, "http://%s/never", image_host);
    int fd = ask(url);
    while (n_seen < 1) turn(until);
    close(fd);
    while (n_ended < 1) turn(until);
    while (!fv_gateway_idle(gateway)) turn(until);
}
