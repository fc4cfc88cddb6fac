/* gateway/caller.h, gateway/reading.h: callers are checked before a body is read. The router is a
 * fake that counts its calls. */
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
#include "inference.pb-c.h"
#include "tests/support/net.h"

enum { PORT_CHARS = 64, N_ID_MAX = 50000 };

static uv_loop_t loop;
static fv_bridge *bridge;
static fv_rpc_server *server;
static fv_rpc_service service;
static fv_gateway *gateway;
static char target[PORT_CHARS];
static bool closed;

/* The fake router's answers, and its counts of calls. */
static fv_status says;
static bool is_silent;
static uint32_t valid_ms;
static size_t n_id = 1; /* ids of a text, as it says */
static int32_t n_checked, n_tokenized, n_cancelled;
static char method[32];

static fv_status on_check(fv_rpc_call *c, grpc_byte_buffer *message) {
    Fovea__Inference__V1__CheckCallerReply reply = FOVEA__INFERENCE__V1__CHECK_CALLER_REPLY__INIT;
    ProtobufCMessage *m;
    n_checked++;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__check_caller_request__descriptor, message,
                              &m));
    snprintf(method, sizeof method, "%s",
             ((const Fovea__Inference__V1__CheckCallerRequest *)m)->method);
    if (is_silent) return FV_OK;
    if (says != FV_OK) return FV_FAIL(says, "so it says");
    reply.valid_ms = valid_ms;
    FV_TRY(fv_rpc_call_send(c, &reply.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static void on_cancel(fv_rpc_call *c) {
    (void)c;
    n_cancelled++;
}

static fv_status on_tokenize(fv_rpc_call *c, grpc_byte_buffer *message) {
    Fovea__Inference__V1__TokenizeReply reply = FOVEA__INFERENCE__V1__TOKENIZE_REPLY__INIT;
    static uint32_t ids[N_ID_MAX];
    (void)message;
    n_tokenized++;
    for (uint32_t i = 0; i < N_ID_MAX; i++) ids[i] = i;
    reply.id = ids;
    reply.n_id = n_id;
    FV_TRY(fv_rpc_call_send(c, &reply.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static const fv_rpc_method methods[] = {
    {.path = "/fovea.inference.v1.Inference/Tokenize", .events = {.on_message = on_tokenize}},
    {.path = "/fovea.inference.v1.Inference/CheckCaller",
     .events = {.on_message = on_check, .on_cancel = on_cancel}},
};

static void open_all(int32_t n_method) {
    cr_assert_eq(uv_loop_init(&loop), 0);
    cr_assert_eq(fv_bridge_open(&loop, &bridge), FV_OK);
    service = (fv_rpc_service){methods, n_method, NULL, NULL};
    fv_rpc_server_options opt = {.listen = "127.0.0.1:0", .services = &service, .n_service = 1};
    cr_assert_eq(fv_rpc_server_open(bridge, &opt, &server), FV_OK, "%s", fv_last_error());
    snprintf(target, sizeof target, "127.0.0.1:%d", fv_rpc_server_port(server));
    fv_gateway_options gateway_opt = {.bridge = bridge,
                                      .listen = "127.0.0.1:0",
                                      .router = target,
                                      .body_max = 1 << 20,
                                      .bodies_max = 1 << 20,
                                      .json_max = 1 << 16,
                                      .connections = 64,
                                      .read_ms = 60000,
                                      .deadline_ms = 60000};
    cr_assert_eq(fv_gateway_open(&gateway_opt, &gateway), FV_OK, "%s", fv_last_error());
    valid_ms = 10000;
}

static void on_closed(void *user) { *(bool *)user = true; }

static void wait_closed(void) {
    while (!closed) uv_run(&loop, UV_RUN_ONCE);
    closed = false;
}

static void close_all(void) {
    fv_gateway_close(gateway, on_closed, &closed);
    wait_closed();
    fv_rpc_server_stop(server, 50, on_closed, &closed);
    wait_closed();
    fv_bridge_close(bridge, on_closed, &closed);
    wait_closed();
    cr_assert_eq(uv_loop_close(&loop), 0);
}

TestSuite(gateway_callers, .fini = close_all, .timeout = 240);

static int connect_gateway(void) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_port = htons((uint16_t)atoi(strrchr(fv_gateway_address(gateway), ':') + 1));
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void turn(double until_s) {
    cr_assert_lt(fv_clock_s(), until_s, "it never happens");
    uv_run(&loop, UV_RUN_NOWAIT);
    usleep(100);
}

/* Returns the status of the answer; 0: the connection closed without one. */
static int status_of(int fd) {
    char got[4096];
    size_t n = 0;
    double until = fv_clock_s() + 60;
    while (n < 12) {
        ssize_t k = read(fd, got + n, sizeof got - n);
        if (k == 0) return 0;
        cr_assert(k > 0 || errno == EAGAIN);
        if (k > 0) n += (size_t)k;
        turn(until);
    }
    return atoi(got + 9);
}

/* Sends a head and the beginning of a body of n bytes. */
static int send_to(const char *path, const char *key, const char *body, size_t n) {
    char text[8192];
    int fd = connect_gateway();
    int k = snprintf(text, sizeof text,
                     "POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: %s\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     path, key, n, body);
    cr_assert_eq(write(fd, text, (size_t)k), k);
    return fd;
}

static int send_head(const char *key, const char *body, size_t n) {
    return send_to("/tokenize", key, body, n);
}

/* Sends a request with its whole body; returns the status. */
static int ask(const char *key) {
    static const char body[] = "{\"prompt\":\"x\"}";
    int fd = send_head(key, body, sizeof body - 1), status = status_of(fd);
    close(fd);
    return status;
}

/* Sends only the head, which announces a body; returns the status. */
static int ask_with_head(const char *key) {
    int fd = send_head(key, "", 1 << 20), status = status_of(fd);
    close(fd);
    return status;
}

Test(gateway_callers, the_answer_is_remembered_for_each_caller) {
    open_all(2);
    for (int i = 0; i < 3; i++) cr_assert_eq(ask("Bearer a"), 200);
    cr_assert_eq(n_checked, 1);
    cr_assert_eq(n_tokenized, 3);
    cr_assert_str_eq(method, "Tokenize");
    cr_assert_eq(ask("Bearer b"), 200);
    cr_assert_eq(n_checked, 2);
}

Test(gateway_callers, an_answer_that_is_good_for_no_time_is_not_remembered) {
    open_all(2);
    valid_ms = 0;
    for (int i = 0; i < 3; i++) cr_assert_eq(ask("Bearer a"), 200);
    cr_assert_eq(n_checked, 3);
    valid_ms = 50;
    cr_assert_eq(ask("Bearer a"), 200);
    usleep(60000);
    cr_assert_eq(ask("Bearer a"), 200);
    cr_assert_eq(n_checked, 5);
}

Test(gateway_callers, a_refusal_comes_without_the_body_and_is_kept_for_a_moment) {
    static const struct {
        fv_status says;
        int status;
        bool kept;
    } cases[] = {{FV_EAUTH, 401, true},
                 {FV_EDENIED, 403, true},
                 {FV_EBUSY, 429, false},
                 {FV_EIO, 503, false}};
    open_all(2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char key[16];
        snprintf(key, sizeof key, "Bearer %zu", i);
        says = cases[i].says;
        n_checked = 0;
        for (int k = 0; k < 2; k++) cr_assert_eq(ask_with_head(key), cases[i].status, "%zu", i);
        cr_assert_eq(n_checked, cases[i].kept ? 1 : 2, "%zu: %d", i, n_checked);
    }
    cr_assert_eq(n_tokenized, 0);
    says = FV_OK;
    double until = fv_clock_s() + 60;
    while (ask("Bearer 0") != 200) turn(until); /* it is asked again */
}

Test(gateway_callers, a_router_that_does_not_know_the_question_lets_everybody_in) {
    open_all(1);
    cr_assert_eq(ask("Bearer a"), 200);
    cr_assert_eq(n_tokenized, 1);
}

Test(gateway_callers, a_header_that_is_too_long_to_remember_is_asked_about_each_time) {
    static char key[5000];
    open_all(2);
    memset(key, 'x', sizeof key - 1);
    for (int i = 0; i < 2; i++) cr_assert_eq(ask(key), 200);
    cr_assert_eq(n_checked, 2);
    key[3000] = '\0';
    for (int i = 0; i < 2; i++) cr_assert_eq(ask(key), 200);
    cr_assert_eq(n_checked, 3);
}

Test(gateway_callers, a_client_that_leaves_meanwhile_ends_the_question) {
    open_all(2);
    is_silent = true;
    int fd = send_head("Bearer a", "", 1 << 20);
    double until = fv_clock_s() + 60;
    while (n_checked < 1) turn(until);
    close(fd);
    while (n_cancelled < 1) turn(until);
    while (!fv_gateway_idle(gateway)) turn(until);
}

/* Long replies are printed on a thread. */
Test(gateway_callers, many_tokens_are_answered_as_few_are) {
    static char got[1 << 20];
    static const char body[] = "{\"prompt\":\"x\"}";
    open_all(2);
    n_id = N_ID_MAX;
    int fd = send_head("Bearer a", body, sizeof body - 1);
    double until = fv_clock_s() + 60;
    for (size_t n = 0; !strstr(got, "49999]");) {
        ssize_t k = read(fd, got + n, sizeof got - 1 - n);
        cr_assert(k > 0 || (k < 0 && errno == EAGAIN), "it closed after %zu bytes", n);
        if (k > 0) n += (size_t)k;
        turn(until);
    }
    cr_assert(strstr(got, "200 OK") && strstr(got, "\"count\":50000") &&
              strstr(got, "\"tokens\":[0,1,2,"));
    close(fd);
    fd = send_head("Bearer a", body, sizeof body - 1);
    while (n_tokenized < 2) turn(until);
    close(fd); /* before or while it is printed */
    while (!fv_gateway_idle(gateway)) turn(until);
}

/* Decoded images are freed, which the sanitizers check. */
Test(gateway_callers, a_client_that_leaves_within_its_body_leaves_nothing) {
    open_all(2);
    int fd = send_to(
        "/v1/chat/completions", "Bearer a",
        "{\"messages\":[{\"content\":[{\"image_url\":{\"url\":\"data:image/png;base64,AAEC\"},"
        "\"type\":\"image_url\"},{\"image_url\":{\"url\":\"data:image/png;base64,AAEC",
        1 << 20);
    double until = fv_clock_s() + 60;
    while (n_checked < 1) turn(until);
    for (int i = 0; i < 100; i++) turn(until); /* until it has been read */
    close(fd);
    while (!fv_gateway_idle(gateway)) turn(until);
}

/* The first pieces of the body are invalid already. */
Test(gateway_callers, a_body_that_is_wrong_is_not_read_to_its_end) {
    open_all(2);
    int fd = send_head("Bearer a", "{\"prompt\":true", 1 << 20);
    cr_assert_eq(status_of(fd), 400);
    close(fd);
    cr_assert_eq(n_tokenized, 0);
}

Test(gateway_callers, bodies_that_arrive_have_a_limit_together) {
    enum { N = 20, PIECE = 60000 };
    static char piece[PIECE + 1];
    int fd[N], n_refused = 0;
    open_all(2);
    memset(piece, 'x', PIECE);
    double until = fv_clock_s() + 60;
    for (int i = 0; i < N; i++) {
        fd[i] = send_head("Bearer a", "{\"prompt\":\"", 70000);
        for (size_t at = 0; at < PIECE;) {
            ssize_t k = write(fd[i], piece + at, PIECE - at);
            cr_assert(k >= 0 || errno == EAGAIN || errno == EPIPE);
            if (k < 0 && errno == EPIPE) break;
            if (k > 0) at += (size_t)k;
            turn(until);
        }
    }
    for (int i = 0; i < 100; i++) turn(until);
    for (int i = 0; i < N; i++) {
        char got[16] = "";
        if (read(fd[i], got, sizeof got - 1) > 0) {
            cr_assert_eq(atoi(got + 9), 503, "%s", got);
            n_refused++;
        }
        close(fd[i]);
    }
    cr_assert(n_refused >= N - 18 && n_refused < N, "%d", n_refused);
    while (!fv_gateway_idle(gateway)) turn(until);
    cr_assert_eq(ask("Bearer a"), 200, "what they took is free again");
}
