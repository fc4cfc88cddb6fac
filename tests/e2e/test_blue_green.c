/* A blue-green upgrade to a fleet with another KV dtype, as deploy/README.md describes, with
 * processes: green starts beside blue, the service switches to green, blue's routers end, then its
 * workers. The test plays the service: like a cluster's, it sends new connections to what its
 * selector names and leaves existing ones alone. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inference.pb-c.h"
#include "rpc/client.h"
#include "tests/support/caller.h"
#include "tests/support/crew.h"
#include "tests/support/net.h"

static crew blue, green;
static caller_rig rig;

#define UNTIL(condition) CALLER_UNTIL(&rig, condition)

/* ---- the service ------------------------------------------------------------------------ */

typedef struct pipe_end {
    uv_tcp_t tcp; /* first: the handle is cast to this */
    struct pipe_end *other;
    bool closing;
} pipe_end;

static uv_tcp_t service;
static const char *selected; /* "127.0.0.1:PORT" */
static int n_open;

static void on_end_closed(uv_handle_t *h) {
    n_open--;
    free(h);
}

static void end_pipe(pipe_end *e) {
    for (int i = 0; i < 2; i++, e = e->other) {
        if (e->closing) continue;
        e->closing = true;
        uv_close((uv_handle_t *)&e->tcp, on_end_closed);
    }
}

typedef struct piece {
    uv_write_t write; /* first */
    char *bytes;
} piece;

static void on_written(uv_write_t *w, int status) {
    (void)status;
    free(((piece *)w)->bytes);
    free(w);
}

static void give_room(uv_handle_t *h, size_t n, uv_buf_t *out) {
    (void)h;
    *out = uv_buf_init(malloc(n), (unsigned)n);
}

static void on_bytes(uv_stream_t *s, ssize_t n, const uv_buf_t *in) {
    pipe_end *e = (pipe_end *)s;
    if (n <= 0 || e->other->closing) {
        free(in->base);
        if (n < 0) end_pipe(e);
        return;
    }
    piece *p = calloc(1, sizeof *p);
    NET_CHECK(p);
    p->bytes = in->base;
    uv_buf_t out = uv_buf_init(p->bytes, (unsigned)n);
    if (uv_write(&p->write, (uv_stream_t *)&e->other->tcp, &out, 1, on_written) == 0) return;
    free(p->bytes);
    free(p);
    end_pipe(e);
}

static void on_connected(uv_connect_t *c, int status) {
    pipe_end *e = c->data;
    free(c);
    if (e->closing) return;
    if (status != 0) {
        end_pipe(e);
        return;
    }
    uv_read_start((uv_stream_t *)&e->tcp, give_room, on_bytes);
    uv_read_start((uv_stream_t *)&e->other->tcp, give_room, on_bytes);
}

static void on_connection(uv_stream_t *s, int status) {
    struct sockaddr_in to;
    pipe_end *in = calloc(1, sizeof *in), *out = calloc(1, sizeof *out);
    uv_connect_t *connect = calloc(1, sizeof *connect);
    NET_CHECK(status == 0 && in && out && connect);
    *in = (pipe_end){.other = out};
    *out = (pipe_end){.other = in};
    uv_tcp_init(&rig.loop, &in->tcp);
    uv_tcp_init(&rig.loop, &out->tcp);
    n_open += 2;
    NET_CHECK(uv_accept(s, (uv_stream_t *)&in->tcp) == 0);
    NET_CHECK(uv_ip4_addr("127.0.0.1", atoi(strrchr(selected, ':') + 1), &to) == 0);
    connect->data = out;
    NET_CHECK(uv_tcp_connect(connect, &out->tcp, (struct sockaddr *)&to, on_connected) == 0);
}

static void open_service(char address[64]) {
    struct sockaddr_in at;
    int n = sizeof at;
    uv_tcp_init(&rig.loop, &service);
    NET_CHECK(uv_ip4_addr("127.0.0.1", 0, &at) == 0);
    NET_CHECK(uv_tcp_bind(&service, (struct sockaddr *)&at, 0) == 0);
    NET_CHECK(uv_listen((uv_stream_t *)&service, 64, on_connection) == 0);
    NET_CHECK(uv_tcp_getsockname(&service, (struct sockaddr *)&at, &n) == 0);
    snprintf(address, 64, "127.0.0.1:%d", ntohs(at.sin_port));
}

/* ---- the state of a fleet ---------------------------------------------------------------- */

typedef struct heard {
    bool over;
    char kv_dtype[16];
} heard;

static void on_model(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    heard *h = user;
    ProtobufCMessage *m;
    h->over = true;
    if (end->status != FV_OK) return;
    NET_CHECK(fv_rpc_call_unpack(c, &fovea__inference__v1__model__descriptor, reply, &m) == FV_OK);
    snprintf(h->kv_dtype, sizeof h->kv_dtype, "%s", ((Fovea__Inference__V1__Model *)m)->kv_dtype);
}

static void assert_dtype(const char *address, const char *want) {
    static heard h;
    fv_rpc_channel *to;
    Fovea__Inference__V1__GetModelRequest req = FOVEA__INFERENCE__V1__GET_MODEL_REQUEST__INIT;
    h = (heard){0};
    cr_assert_eq(fv_rpc_channel_open(rig.bridge, address, NULL, &to), FV_OK);
    cr_assert_eq(fv_rpc_unary(to, "/fovea.inference.v1.Inference/GetModel", &req.base, 10000,
                              on_model, &h, NULL),
                 FV_OK);
    UNTIL(h.over);
    cr_assert_str_eq(h.kv_dtype, want);
    fv_rpc_channel_close(to);
}

/* ---- the upgrade ------------------------------------------------------------------------ */

static void open_all(void) {
    crew_open(&blue, "blue", "tiny");
    crew_open(&green, "green", "tiny");
    caller_rig_open(&rig);
}

static void close_all(void) {
    crew_close(&blue);
    crew_close(&green);
}

TestSuite(blue_green, .init = open_all, .fini = close_all, .timeout = 300);

enum { LOAD = 4 };
static caller load[LOAD];

static int load_done(void) {
    int n = 0;
    for (int i = 0; i < LOAD; i++) {
        cr_assert_eq(load[i].n_failed, 0, "%s", load[i].why);
        n += load[i].n_done;
    }
    return n;
}

static void more_load(int n) {
    int until = load_done() + n;
    UNTIL(load_done() >= until);
}

static int32_t runs_at(const crew *c) {
    fv_fleet_count n = fleet_count(&c->f);
    return n.n_queued + n.n_running;
}

Test(blue_green, a_fleet_is_replaced_by_one_of_another_dtype_and_nobody_is_refused) {
    char address[64];
    open_service(address);
    crew_start(&blue, 1, 1);
    selected = blue.f.address;
    assert_dtype(address, "f32");
    for (int i = 0; i < LOAD; i++) {
        load[i].max_tokens = 4 + 8 * (uint32_t)i;
        caller_start(&rig, &load[i], address, NULL);
    }
    more_load(10);

    strcpy(green.prefill_args, "--kv-dtype bf16");
    strcpy(green.decode_args, "--kv-dtype bf16");
    crew_start(&green, 1, 1);
    more_load(5);
    selected = green.f.address; /* kubectl patch service */
    assert_dtype(address, "bf16");
    more_load(5); /* existing connections stay with blue */
    cr_assert_eq(runs_at(&green), 0);

    program_kill(&blue.router, SIGTERM); /* kubectl scale ... --replicas=0 */
    while (!program_said(&blue.router, "event=leave")) caller_rig_run(&rig, 10);
    more_load(10); /* by green: blue has told its clients to go away */
    while (program_runs(&blue.router)) caller_rig_run(&rig, 10);
    cr_assert_not(program_said(&blue.router, "grace-over"));
    crew_stop(&blue); /* kubectl delete */
    more_load(10);
    for (int i = 0; i < LOAD; i++) {
        caller_stop(&load[i]);
        cr_assert_leq(load[i].n_row_most, 2, "%d in a row", load[i].n_row_most);
        caller_close(&load[i]);
    }
    crew_wait_idle(&green, 1, 1);
    crew_stop(&green);
    uv_close((uv_handle_t *)&service, NULL);
    UNTIL(n_open == 0);
    caller_rig_close(&rig);
}
