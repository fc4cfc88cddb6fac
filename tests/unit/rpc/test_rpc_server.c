/* rpc/server.c, rpc/listen.c, rpc/bridge.c: what a server refuses, how it stops, and what happens
 * when the other side disappears. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/net.h"

TestSuite(rpc_server, .timeout = 240);

static net r;
static net_heard h;

/* ---- refused ---------------------------------------------------------------------------- */

Test(rpc_server, an_unknown_method_is_unimplemented) {
    net_open(&r);
    net_ask_wait(&r, &h, "/test.Wire/Nothing", "x", 1);
    cr_assert_eq(h.end.code, GRPC_STATUS_UNIMPLEMENTED);
    cr_assert(strstr(h.text, "/test.Wire/Nothing"), "%s", h.text);
    cr_assert_eq(r.seen.started, 0);
    net_close(&r, 1000);
}

Test(rpc_server, a_path_longer_than_any_is_unknown) {
    char path[1000] = "/";
    memset(path + 1, 'a', sizeof path - 2);
    net_open(&r);
    net_ask_wait(&r, &h, path, "x", 1);
    cr_assert_eq(h.end.code, GRPC_STATUS_UNIMPLEMENTED);
    net_close(&r, 1000);
}

static grpc_byte_buffer *too_large(size_t n) { return net_zeros(n); }

Test(rpc_server, a_message_over_the_methods_limit_is_refused) {
    net_open(&r);
    net_call(&r, &h, NET_ECHO, 10000);
    cr_assert_eq(fv_rpc_call_send_buffer(h.call, too_large(NET_MESSAGE_MAX + 1)), FV_OK);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    cr_assert_eq(h.end.status, FV_ENOMEM, "and not to be tried again");
    cr_assert_eq(r.seen.messages, 0);
    net_close(&r, 1000);
}

Test(rpc_server, a_message_over_every_limit_is_refused_by_the_network_layer) {
    net_open(&r);
    net_call(&r, &h, NET_COLLECT, 10000);
    cr_assert_eq(fv_rpc_call_send_buffer(h.call, too_large((4 << 20) + 1)), FV_OK);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", h.text);
    net_wait_for(&r, &r.seen.ended, 1);
    cr_assert_eq(r.seen.half_closed, 0, "an oversized message is not the end of the stream");
    net_close(&r, 1000);
}

Test(rpc_server, a_message_at_the_limit_is_taken) {
    net_open(&r);
    net_call(&r, &h, NET_ECHO, 10000);
    cr_assert_eq(fv_rpc_call_send_buffer(h.call, net_zeros(NET_MESSAGE_MAX)), FV_OK);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.bytes, NET_MESSAGE_MAX);
    net_close(&r, 1000);
}

Test(rpc_server, a_method_that_wants_a_message_and_gets_none_says_so) {
    net_open(&r);
    net_call(&r, &h, NET_ECHO, 10000);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_EINVAL, "%s", h.text);
    net_close(&r, 1000);
}

Test(rpc_server, one_call_too_many_is_asked_to_come_back) {
    net_heard second = {0};
    net_open(&r);
    net_ask(&r, &h, NET_STALL, 10000, "x", 1);
    net_wait_for(&r, &r.seen.messages, 1);
    net_ask_wait(&r, &second, NET_STALL, "x", 1);
    cr_assert_eq(second.end.status, FV_EBUSY);
    cr_assert_eq(second.end.retry_ms, FV_RPC_RETRY_MS);
    fv_rpc_call_cancel(h.call);
    net_wait_for(&r, &r.seen.ended, 1);
    net_heard third = {0}; /* the slot is free again */
    net_ask(&r, &third, NET_STALL, 10000, "x", 1);
    net_wait_for(&r, &r.seen.messages, 2);
    fv_rpc_call_cancel(third.call);
    net_wait(&r, &third.over);
    net_close(&r, 1000);
}

/* ---- listening -------------------------------------------------------------------------- */

static fv_status listen_on(const char *address) {
    fv_rpc_server *s;
    fv_rpc_server_options opt = {.listen = address, .services = r.services, .n_service = 1};
    return fv_rpc_server_open(r.bridge, &opt, &s);
}

Test(rpc_server, a_taken_port_is_an_error_that_says_so) {
    net_open(&r);
    cr_assert_eq(listen_on(r.target), FV_EIO);
    cr_assert(strstr(fv_last_error(), "the port is in use"), "%s", fv_last_error());
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_OK, "the first server is not disturbed");
    net_close(&r, 1000);
}

Test(rpc_server, an_address_of_another_machine_is_an_error_that_says_so) {
    net_open(&r);
    cr_assert_eq(listen_on("192.0.2.1:1234"), FV_EIO);
    cr_assert(strstr(fv_last_error(), "not one of this machine"), "%s", fv_last_error());
    net_close(&r, 1000);
}

Test(rpc_server, an_invalid_address_is_refused) {
    net_open(&r);
    cr_assert_eq(listen_on("localhost"), FV_EINVAL);
    cr_assert_eq(listen_on(""), FV_EINVAL);
    cr_assert_eq(listen_on("localhost:http"), FV_EINVAL);
    net_close(&r, 1000);
}

Test(rpc_server, the_same_method_twice_is_refused) {
    net_open(&r);
    fv_rpc_service twice[] = {r.services[0], r.services[0]};
    fv_rpc_server *s;
    fv_rpc_server_options opt = {.listen = "127.0.0.1:0", .services = twice, .n_service = 2};
    cr_assert_eq(fv_rpc_server_open(r.bridge, &opt, &s), FV_EINVAL);
    net_close(&r, 1000);
}

Test(rpc_server, a_unix_socket_serves_as_well) {
    char path[] = "/tmp/fovea-rpc-test-XXXXXX";
    cr_assert(mkdtemp(path));
    char address[80];
    snprintf(address, sizeof address, "unix:%s/socket", path);
    net_open(&r);
    fv_rpc_server *s;
    fv_rpc_server_options opt = {.listen = address, .services = r.services, .n_service = 1};
    cr_assert_eq(fv_rpc_server_open(r.bridge, &opt, &s), FV_OK, "%s", fv_last_error());
    fv_rpc_channel_close(r.channel);
    cr_assert_eq(fv_rpc_channel_open(r.bridge, address, NULL, &r.channel), FV_OK);
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    fv_rpc_server_stop(s, 100, NULL, NULL);
    net_close(&r, 1000);
    rmdir(path);
}

/* ---- stopping --------------------------------------------------------------------------- */

Test(rpc_server, an_idle_one_stops_at_once) {
    net_open(&r);
    net_close(&r, 10000);
}

Test(rpc_server, stopping_lets_running_calls_end) {
    net_open(&r);
    h.pause_each = true;
    net_ask(&r, &h, NET_COUNT, 10000, (uint32_t[]){50, 16 << 10}, 8);
    net_wait_for(&r, &h.n, 1);
    fv_rpc_server_stop(r.server, 10000, NULL, NULL);
    r.server = NULL;
    while (!h.over) {
        if (h.call) fv_rpc_call_resume(h.call);
        uv_run(&r.loop, UV_RUN_ONCE);
    }
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.n, 50);
    net_close(&r, 0);
}

Test(rpc_server, calls_that_outlast_the_grace_are_cancelled) {
    net_open(&r);
    net_ask(&r, &h, NET_STALL, 60000, "x", 1);
    net_wait_for(&r, &r.seen.messages, 1);
    uint64_t begin = uv_hrtime();
    net_close(&r, 100);
    cr_assert(uv_hrtime() - begin < 5000000000u);
    cr_assert_eq(r.seen.cancelled, 1);
    cr_assert(h.over);
    cr_assert_eq(h.end.code, GRPC_STATUS_UNAVAILABLE, "the client did not cancel: %s", h.text);
}

static void on_dropped(void *user, const fv_rpc_end *end, fv_rpc_call *call,
                       grpc_byte_buffer *reply) {
    net_heard *to = user;
    (void)call, (void)reply;
    to->end = *end;
    snprintf(to->text, sizeof to->text, "%s", end->text);
    to->over = true;
}

/* A stopping server requests no calls from gRPC; only calls not yet taken are left. */
Test(rpc_server, a_call_that_a_stopping_one_has_not_looked_at_is_to_be_tried_elsewhere) {
    char target[64];
    fv_rpc_channel *ch;
    net_open(&r);
    grpc_completion_queue *queue = grpc_completion_queue_create_for_next(NULL);
    grpc_server *server = grpc_server_create(NULL, NULL);
    grpc_server_register_completion_queue(server, queue, NULL);
    grpc_server_credentials *insecure = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(server, "127.0.0.1:0", insecure);
    grpc_server_credentials_release(insecure);
    grpc_server_start(server);
    snprintf(target, sizeof target, "127.0.0.1:%d", port);
    cr_assert_eq(fv_rpc_channel_open(r.bridge, target, NULL, &ch), FV_OK);
    fv_rpc_call_options ask = {.path = NET_ECHO, .deadline_ms = 60000, .half_close = true};
    cr_assert_eq(fv_rpc_unary_with(ch, &ask, on_dropped, &h, NULL), FV_OK);
    net_sleep(&r, 300);
    grpc_server_shutdown_and_notify(server, queue, NULL);
    net_wait(&r, &h.over);
    grpc_event e = grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
    cr_assert_eq(e.type, GRPC_OP_COMPLETE);
    cr_assert_eq(h.end.code, GRPC_STATUS_UNAVAILABLE, "%d: %s", (int)h.end.code, h.text);
    cr_assert_eq(h.end.status, FV_EIO);
    cr_assert_str_eq(h.text, FV_RPC_DROPPED);
    fv_rpc_channel_close(ch);
    grpc_server_destroy(server);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
    net_close(&r, 1000);
}

Test(rpc_server, a_stopping_one_takes_no_new_calls) {
    net_open(&r);
    net_ask(&r, &h, NET_STALL, 60000, "x", 1);
    net_wait_for(&r, &r.seen.messages, 1);
    fv_rpc_server_stop(r.server, 300, NULL, NULL);
    r.server = NULL;
    net_heard late = {0};
    net_ask_wait(&r, &late, NET_ECHO, "x", 1);
    cr_assert_eq(late.end.status, FV_EIO, "to be tried elsewhere: %s", late.text);
    cr_assert_eq(late.end.code, GRPC_STATUS_UNAVAILABLE, "%s", late.text);
    net_wait(&r, &h.over);
    net_close(&r, 0);
}

Test(rpc_server, survives_100_lifetimes) {
    for (int i = 0; i < 100; i++) {
        memset(&r, 0, sizeof r);
        memset(&h, 0, sizeof h);
        net_open(&r);
        if (i % 3 == 0) {
            net_ask_wait(&r, &h, NET_ECHO, "x", 1);
            cr_assert_eq(h.end.status, FV_OK);
        } else if (i % 3 == 1) {
            net_ask(&r, &h, NET_COUNT, 10000, (uint32_t[]){1000, 1000}, 8);
            net_wait_for(&r, &h.n, 1);
            fv_rpc_call_cancel(h.call);
        } /* or nothing at all */
        net_close(&r, 1000);
    }
}

/* ---- the other side disappears ---------------------------------------------------------- */

/* Runs `main` in a child and reads its first line. The child starts before gRPC does, which does
 * not support forks. */
static pid_t start_child(int (*child)(int out, int in), char line[64], int *to_child) {
    int up[2], down[2];
    cr_assert(pipe(up) == 0 && pipe(down) == 0);
    pid_t pid = fork();
    if (pid == 0) _exit(child(up[1], down[0]));
    close(up[1]);
    close(down[0]);
    *to_child = down[1];
    if (line) {
        ssize_t n = read(up[0], line, 63);
        cr_assert(n > 0);
        line[n] = '\0';
    }
    return pid;
}

static int child_server(int out, int in) {
    (void)in;
    net_open(&r);
    if (write(out, r.target, strlen(r.target)) <= 0) return 1;
    uv_run(&r.loop, UV_RUN_DEFAULT);
    return 0;
}

Test(rpc_server, a_server_that_is_killed_ends_its_calls_for_the_client) {
    char target[64];
    int to_child;
    pid_t pid = start_child(child_server, target, &to_child);
    net_open(&r);
    fv_rpc_channel *there;
    cr_assert_eq(fv_rpc_channel_open(r.bridge, target, NULL, &there), FV_OK);
    fv_rpc_channel *here = r.channel;
    r.channel = there;
    h.pause_each = true;
    net_ask(&r, &h, NET_COUNT, 60000, (uint32_t[]){1000000, 10000}, 8);
    net_wait_for(&r, &h.n, 1);
    kill(pid, SIGKILL);
    fv_rpc_call_resume(h.call);
    h.pause_each = false;
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.code, GRPC_STATUS_UNAVAILABLE, "%s", h.text);
    cr_assert_eq(h.end.status, FV_EIO);
    memset(&h, 0, sizeof h);
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_EIO, "and a new call finds nobody");
    r.channel = here;
    fv_rpc_channel_close(there);
    waitpid(pid, NULL, 0);
    net_close(&r, 1000);
}

static int child_client(int out, int in) {
    (void)out;
    char target[64] = "";
    if (read(in, target, sizeof target - 1) <= 0) return 1;
    net_open(&r);
    fv_rpc_channel_close(r.channel);
    NET_CHECK(fv_rpc_channel_open(r.bridge, target, NULL, &r.channel) == FV_OK);
    net_ask(&r, &h, NET_STALL, 60000, "x", 1);
    uv_run(&r.loop, UV_RUN_DEFAULT);
    return 0;
}

Test(rpc_server, a_client_that_is_killed_ends_its_calls_for_the_server) {
    int to_child;
    pid_t pid = start_child(child_client, NULL, &to_child);
    net_open(&r);
    cr_assert(write(to_child, r.target, strlen(r.target)) > 0);
    net_wait_for(&r, &r.seen.messages, 1);
    kill(pid, SIGKILL);
    net_wait_for(&r, &r.seen.ended, 1);
    cr_assert_eq(r.seen.cancelled, 1);
    waitpid(pid, NULL, 0);
    net_close(&r, 1000);
}

Test(rpc_server, a_call_to_nobody_fails_soon) {
    net_open(&r);
    fv_rpc_channel_close(r.channel);
    cr_assert_eq(fv_rpc_channel_open(r.bridge, "127.0.0.1:1", NULL, &r.channel), FV_OK);
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_eq(h.end.status, FV_EIO);
    net_close(&r, 1000);
}

/* ---- the bridge ------------------------------------------------------------------------- */

enum { POSTS = 1000 };
static fv_rpc_op posts[POSTS];
static int32_t arrived;

static void on_post(fv_rpc_op *op, bool ok) {
    cr_assert(op == &posts[arrived], "in the order of the sender");
    cr_assert_eq(ok, arrived % 2);
    arrived++;
}

static void *post_all(void *bridge) {
    for (int i = 0; i < POSTS; i++) {
        posts[i].done = on_post;
        fv_bridge_post(bridge, &posts[i], i % 2);
    }
    return NULL;
}

Test(rpc_server, what_another_thread_posts_runs_on_the_loop_in_its_order) {
    pthread_t thread;
    net_open(&r);
    pthread_create(&thread, NULL, post_all, r.bridge);
    net_wait_for(&r, &arrived, POSTS);
    pthread_join(thread, NULL);
    net_close(&r, 1000);
}

static int32_t n_after; /* events that are over */

static void count_after(void *user) {
    cr_assert_eq(user, &n_after);
    n_after++;
    cr_assert_geq(n_after, arrived, "once after each event");
}

Test(rpc_server, what_follows_an_event_runs_once_after_each) {
    net_open(&r);
    fv_bridge_set_after_event(r.bridge, count_after, &n_after);
    post_all(r.bridge);
    net_wait_for(&r, &arrived, POSTS);
    cr_assert_geq(n_after, POSTS);
    fv_bridge_set_after_event(r.bridge, NULL, NULL);
    int32_t n = n_after;
    arrived = 0;
    post_all(r.bridge);
    net_wait_for(&r, &arrived, POSTS);
    cr_assert_eq(n_after, n, "no longer");
    net_close(&r, 1000);
}
