/* A gateway with 1000 concurrent streams, 200 of whose clients do not read: memory is bounded, the
 * others get their whole answers, and the unread streams end with their clients. A fake router
 * sends each stream as many large tokens as it takes, once all streams are open. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/clock.h"
#include "inference.pb-c.h"
#include "rpc/server.h"
#include "tests/support/fleet.h"
#include "tests/support/net.h"
#include "tests/support/program.h"

enum {
    N_STREAM = 1000,
    N_SLOW = 200,
    TOKEN_BYTES = 4000,
    FAST_TOKENS = 32,   /* 128 kB */
    SLOW_TOKENS = 4000, /* 16 MB: 3.2 GB of all */
    RISE_MIB_MAX = 128, /* 650 KiB for each client that does not read */
    WAIT_S = 600,
};

static uv_loop_t loop;
static fv_bridge *bridge;
static fv_rpc_server *router;
static fleet f;
static program gateway;
static bool flooding, stopped, bridge_closed;
static int32_t n_call, n_over, n_cancelled, n_done;
static int64_t n_sent; /* tokens */

/* ---- a router --------------------------------------------------------------------------- */

typedef struct stream {
    fv_rpc_call *call; /* NULL: over */
    uint32_t n_sent, n_token;
} stream;
static stream streams[N_STREAM];

static void send_event(fv_rpc_call *c, Fovea__Inference__V1__GenerateEvent *e) {
    NET_CHECK(fv_rpc_call_send(c, &e->base) == FV_OK);
}

static void send_finished(fv_rpc_call *c) {
    Fovea__Inference__V1__GenerateEvent e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    Fovea__Inference__V1__Finished end = FOVEA__INFERENCE__V1__FINISHED__INIT;
    end.reason = FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_FINISHED;
    e.finished = &end;
    send_event(c, &e);
    fv_rpc_call_finish(c, FV_OK);
}

static void flood(fv_rpc_call *c) {
    static char text[TOKEN_BYTES + 1];
    stream *s = fv_rpc_call_user(c);
    Fovea__Inference__V1__GenerateEvent e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    Fovea__Inference__V1__Tokens tokens = FOVEA__INFERENCE__V1__TOKENS__INIT;
    memset(text, 'x', TOKEN_BYTES);
    tokens.text = text;
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_TOKENS;
    e.tokens = &tokens;
    while (flooding && s->n_sent < s->n_token && fv_rpc_call_writable(c)) {
        s->n_sent++;
        n_sent++;
        send_event(c, &e);
        if (s->n_sent == s->n_token) send_finished(c);
    }
}

static fv_status on_generate(fv_rpc_call *c, grpc_byte_buffer *message) {
    ProtobufCMessage *m;
    Fovea__Inference__V1__GenerateEvent e = FOVEA__INFERENCE__V1__GENERATE_EVENT__INIT;
    Fovea__Inference__V1__Accepted accepted = FOVEA__INFERENCE__V1__ACCEPTED__INIT;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__inference__v1__generate_request__descriptor, message, &m));
    NET_CHECK(n_call < N_STREAM);
    stream *s = &streams[n_call++];
    *s = (stream){.call = c, .n_token = ((Fovea__Inference__V1__GenerateRequest *)m)->max_tokens};
    fv_rpc_call_set_user(c, s);
    e.event_case = FOVEA__INFERENCE__V1__GENERATE_EVENT__EVENT_ACCEPTED;
    e.accepted = &accepted;
    send_event(c, &e);
    return FV_OK;
}

static void on_cancel(fv_rpc_call *c) {
    (void)c;
    n_cancelled++;
}

static void on_over(fv_rpc_call *c, const fv_rpc_end *end) {
    (void)end;
    ((stream *)fv_rpc_call_user(c))->call = NULL;
    n_over++;
}

static void open_router(void) {
    static const fv_rpc_method method = {.path = "/fovea.inference.v1.Inference/Generate",
                                         .kind = FV_RPC_SERVER_STREAM,
                                         .queue_max = 64 << 10,
                                         .events = {.on_message = on_generate,
                                                    .on_writable = flood,
                                                    .on_cancel = on_cancel,
                                                    .on_end = on_over}};
    static const fv_rpc_service service = {.methods = &method, .n_method = 1};
    fv_rpc_server_options opt = {.listen = "127.0.0.1:0", .services = &service, .n_service = 1};
    NET_CHECK(uv_loop_init(&loop) == 0);
    NET_CHECK(fv_bridge_open(&loop, &bridge) == FV_OK);
    NET_CHECK(fv_rpc_server_open(bridge, &opt, &router) == FV_OK);
}

/* ---- clients ---------------------------------------------------------------------------- */

typedef struct reader {
    uv_tcp_t tcp;
    uv_connect_t connect;
    uv_write_t write;
    uint32_t n_token; /* tokens asked for */
    int64_t n_got;    /* bytes */
    char request[300], end[16];
    bool done;
} reader;
static reader readers[N_STREAM];

static void on_room(uv_handle_t *h, size_t n, uv_buf_t *out) {
    static char room[64 << 10]; /* read at once */
    (void)h;
    (void)n;
    *out = uv_buf_init(room, sizeof room);
}

/* Keeps the last bytes, which are the end of a stream. */
static void on_read(uv_stream_t *t, ssize_t n, const uv_buf_t *buf) {
    reader *r = t->data;
    static const char done[] = "[DONE]\n\n\r\n0\r\n\r\n";
    enum { N_END = sizeof done - 1 };
    char both[2 * N_END];
    if (n < 0) {
        NET_CHECK(r->done); /* an idle connection ends */
        uv_read_stop(t);
        return;
    }
    r->n_got += n;
    size_t k = (size_t)n < N_END ? (size_t)n : N_END;
    memcpy(both, r->end, N_END);
    memcpy(both + N_END, buf->base + n - k, k);
    memcpy(r->end, both + k, N_END);
    if (r->done || memcmp(r->end, done, N_END) != 0) return;
    r->done = true;
    n_done++;
}

static void on_written(uv_write_t *w, int status) {
    (void)w;
    NET_CHECK(status == 0);
}

static void on_connected(uv_connect_t *c, int status) {
    reader *r = c->data;
    NET_CHECK(status == 0);
    char body[100];
    int n_body = snprintf(body, sizeof body, "{\"stream\":true,\"prompt\":\"x\",\"max_tokens\":%u}",
                          r->n_token);
    int n =
        snprintf(r->request, sizeof r->request,
                 "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
                 n_body, body);
    uv_buf_t buf = uv_buf_init(r->request, (unsigned)n);
    NET_CHECK(uv_write(&r->write, (uv_stream_t *)&r->tcp, &buf, 1, on_written) == 0);
    if (r->n_token == FAST_TOKENS)
        NET_CHECK(uv_read_start((uv_stream_t *)&r->tcp, on_room, on_read) == 0);
}

static void dial(reader *r, uint32_t n_token) {
    struct sockaddr_in to;
    uv_ip4_addr("127.0.0.1", atoi(strrchr(gateway.address, ':') + 1), &to);
    r->n_token = n_token;
    uv_tcp_init(&loop, &r->tcp);
    r->tcp.data = r->connect.data = r;
    NET_CHECK(uv_tcp_connect(&r->connect, &r->tcp, (struct sockaddr *)&to, on_connected) == 0);
}

/* ---- the case --------------------------------------------------------------------------- */

static void turn(void) {
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_sleep(1);
}

static void wait_for(const int32_t *count, int32_t at_least, const char *what) {
    double until = fv_clock_s() + WAIT_S;
    while (*count < at_least) {
        cr_assert_lt(fv_clock_s(), until, "%s: %d of %d", what, *count, at_least);
        turn();
    }
}

/* Waits until nothing has been sent for three seconds. */
static void wait_still(void) {
    int64_t before = -1;
    for (double since_s = fv_clock_s(); fv_clock_s() - since_s < 3; turn()) {
        if (n_sent != before) since_s = fv_clock_s();
        before = n_sent;
    }
}

static void on_stopped(void *user) { *(bool *)user = true; }

static void close_all(void) {
    if (gateway.pid) program_kill(&gateway, SIGKILL);
    fv_rpc_server_stop(router, 0, on_stopped, &stopped);
    while (!stopped) turn();
    fv_bridge_close(bridge, on_stopped, &bridge_closed);
    while (!bridge_closed) turn();
    net_loop_close(&loop);
    fleet_close(&f);
}

static void files(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * N_STREAM) cr_skip("too few open files are allowed here");
}

Test(gateway_streams, readers_that_do_not_read_cost_bounded_memory, .timeout = 2 * WAIT_S) {
    files();
    fleet_open(&f, "gateway-streams");
    open_router();
    program_start(
        &gateway, f.dir, "gateway", "fovea-gateway",
        "--router 127.0.0.1:%d --listen 127.0.0.1:0 --log warn --per-address 0 --write-ms 3600000",
        fv_rpc_server_port(router));
    for (int i = 0; i < N_STREAM; i++) {
        dial(&readers[i], i % 5 == 0 ? SLOW_TOKENS : FAST_TOKENS);
        if (i % 50 == 49) wait_for(&n_call, i + 1, "requests at the router");
    }
    long before = program_rss_kib(&gateway);
    flooding = true;
    for (int i = 0; i < N_STREAM; i++)
        if (streams[i].call) flood(streams[i].call);
    wait_for(&n_done, N_STREAM - N_SLOW, "whole answers");
    wait_still();
    long rise = (program_rss_kib(&gateway) - before) / 1024;
    printf("%d streams, %d unread: %ld MiB before, %ld MiB more; %lld MiB sent\n", N_STREAM, N_SLOW,
           before / 1024, rise, (long long)(n_sent * TOKEN_BYTES >> 20));
    cr_assert_lt(rise, RISE_MIB_MAX);
    for (int i = 0; i < N_STREAM; i++)
        if (readers[i].n_token == FAST_TOKENS)
            cr_assert_gt(readers[i].n_got, FAST_TOKENS * TOKEN_BYTES);
    cr_assert_eq(n_over, N_STREAM - N_SLOW);
    /* A client that reads again gets the rest. */
    NET_CHECK(uv_read_start((uv_stream_t *)&readers[0].tcp, on_room, on_read) == 0);
    wait_for(&n_done, N_STREAM - N_SLOW + 1, "the answer of one that reads late");
    cr_assert_gt(readers[0].n_got, (int64_t)SLOW_TOKENS * TOKEN_BYTES);
    /* The others leave, and their work ends. */
    for (int i = 0; i < N_STREAM; i++) uv_close((uv_handle_t *)&readers[i].tcp, NULL);
    wait_for(&n_cancelled, N_SLOW - 1, "calls that end with their clients");
    wait_for(&n_over, N_STREAM, "calls that are over");
    program_kill(&gateway, SIGTERM);
    cr_assert_eq(program_wait(&gateway), 0);
    gateway.pid = 0;
    close_all();
}
