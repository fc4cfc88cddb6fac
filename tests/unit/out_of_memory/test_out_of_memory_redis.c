/* A connection to Redis whose n-th allocation fails: the operation fails, and the next one still comes after the whole
 * greeting, or its reply would be taken for another's. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "redis/redis.h"
#include "tests/support/alloc_fail.h"

TestSuite(out_of_memory_redis, .timeout = 240);

static int open_listener(int *port) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&a, n), 0);
    cr_assert_eq(listen(fd, 16), 0);
    cr_assert_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    getsockname(fd, (struct sockaddr *)&a, &n);
    *port = ntohs(a.sin_port);
    return fd;
}

static void on_done(void *user, fv_status st, const void *value, size_t n) {
    (void)user, (void)st, (void)value, (void)n;
}

static fv_status get(fv_redis *r, const char *name) {
    fv_redis_op *op;
    return fv_redis_get(r, name, strlen(name), on_done, NULL, &op);
}

/* Runs the loop until the client has sent `last`. */
static void receive(uv_loop_t *loop, int listener, const char *last, char *text, size_t cap) {
    size_t n = 0;
    int c = -1;
    text[0] = '\0';
    while (!strstr(text, last)) {
        uv_run(loop, UV_RUN_NOWAIT);
        if (c < 0 && (c = accept(listener, NULL, NULL)) >= 0)
            cr_assert_eq(fcntl(c, F_SETFL, O_NONBLOCK), 0);
        ssize_t got = c >= 0 ? read(c, text + n, cap - 1 - n) : -1;
        if (got > 0) n += (size_t)got;
        text[n] = '\0';
        if (got < 0) usleep(1000);
    }
    close(c);
}

/* Returns whether the n-th allocation was reached. */
static bool attempt(int listener, int port, int64_t n) {
    static const char greeting[] = "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n"
                                   "*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*2\r\n$3\r\nGET\r\n";
    char url[64], text[1024];
    uv_loop_t loop;
    fv_redis *r;
    snprintf(url, sizeof url, "redis://:secret@127.0.0.1:%d/3", port);
    cr_assert_eq(uv_loop_init(&loop), 0);
    const fv_redis_options opt = {
        .loop = &loop, .url = url, .deadline_ms = 60000, .value_max = 100};
    cr_assert_eq(fv_redis_open(&opt, &r), FV_OK, "%s", fv_last_error());
    alloc_fail_begin(n);
    fv_status st = get(r, "first");
    bool came = alloc_fail_end();
    cr_assert_eq(st, came ? FV_ENOMEM : FV_OK, "allocation %lld", (long long)n);
    cr_assert_eq(get(r, "second"), FV_OK, "%s", fv_last_error());
    receive(&loop, listener, "second", text, sizeof text);
    cr_assert_eq(strncmp(text, greeting, sizeof greeting - 1), 0, "allocation %lld: %s",
                 (long long)n, text);
    cr_assert_eq(strstr(text, "first") == NULL, came);
    fv_redis_close(r);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    return came;
}

Test(out_of_memory_redis, a_greeting_is_sent_whole_or_not_at_all) {
    int port, listener = open_listener(&port);
    int64_t n = 1;
    while (attempt(listener, port, n)) n++;
    cr_assert_gt(n, 5, "the first operation allocates");
    close(listener);
}
