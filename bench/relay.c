/* gRPC core by hand. A tag is an op; each op in flight holds a reference to its relayed call. */
#include "bench/relay.h"

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACCEPTS = 64, DEADLINE_S = 600, FIRST_WORDS = 2 };

typedef struct program {
    grpc_completion_queue *cq;
    grpc_server *server;
    grpc_channel *prefill, *decode;
    grpc_slice decode_request, decode_address, prefill_path, decode_path;
} program;

typedef struct relayed relayed;

typedef struct op {
    void (*done)(struct op *op, bool ok);
    relayed *of;
} op;

/* A call to a worker. */
typedef struct upstream {
    grpc_call *call;
    op send, receive, status;
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice details;
    grpc_byte_buffer *message;
    int32_t n_message;
    bool open, over;
} upstream;

typedef struct waiting {
    grpc_byte_buffer *message;
    struct waiting *next;
} waiting;

struct relayed {
    program *program;
    int32_t refs;
    grpc_call *client;
    grpc_call_details about;
    grpc_metadata_array metadata;
    op accepted, begun, closed, sent, finished;
    grpc_byte_buffer *request, *sending;
    int cancelled;
    upstream prefill, decode;
    waiting *first, **tail;
    bool finishing;
};

static void must(bool good, const char *what) {
    if (good) return;
    fprintf(stderr, "relay: %s\n", what);
    exit(1);
}

static void start(relayed *r, grpc_call *call, const grpc_op *ops, size_t n, op *tag,
                  void (*done)(op *, bool)) {
    *tag = (op){done, r};
    r->refs++;
    must(grpc_call_start_batch(call, ops, n, tag, NULL) == GRPC_CALL_OK, "a batch was refused");
}

static void free_upstream(upstream *u) {
    if (!u->open) return;
    grpc_call_unref(u->call);
    grpc_metadata_array_destroy(&u->initial);
    grpc_metadata_array_destroy(&u->trailing);
    grpc_slice_unref(u->details);
}

static void unref(relayed *r) {
    if (--r->refs > 0) return;
    free_upstream(&r->prefill);
    free_upstream(&r->decode);
    while (r->first) {
        waiting *w = r->first;
        r->first = w->next;
        grpc_byte_buffer_destroy(w->message);
        free(w);
    }
    if (r->client) grpc_call_unref(r->client);
    grpc_call_details_destroy(&r->about);
    grpc_metadata_array_destroy(&r->metadata);
    free(r);
}

/* ---- to the client ------------------------------------------------------------------------ */

static void on_finished(op *o, bool ok) { (void)o, (void)ok; }

static void finish(relayed *r) {
    const upstream *u = r->decode.open ? &r->decode : &r->prefill;
    grpc_op status = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    grpc_slice details = u->details;
    status.data.send_status_from_server.status = u->code;
    status.data.send_status_from_server.status_details = &details;
    r->finishing = true;
    start(r, r->client, &status, 1, &r->finished, on_finished);
}

static void send_next(relayed *r);

static void on_sent(op *o, bool ok) {
    (void)ok;
    grpc_byte_buffer_destroy(o->of->sending);
    o->of->sending = NULL;
    send_next(o->of);
}

static void send_next(relayed *r) {
    waiting *w = r->first;
    bool over = r->prefill.over && (!r->decode.open || r->decode.over);
    if (r->sending || r->finishing) return;
    if (!w) {
        if (over) finish(r);
        return;
    }
    r->first = w->next;
    if (!r->first) r->tail = &r->first;
    r->sending = w->message;
    free(w);
    grpc_op send = {.op = GRPC_OP_SEND_MESSAGE};
    send.data.send_message.send_message = r->sending;
    start(r, r->client, &send, 1, &r->sent, on_sent);
}

/* Queues the message for the client; takes it. */
static void forward(relayed *r, grpc_byte_buffer *message) {
    waiting *w = malloc(sizeof *w);
    must(w != NULL, "out of memory");
    *w = (waiting){message, NULL};
    *r->tail = w;
    r->tail = &w->next;
    send_next(r);
}

/* ---- from the workers --------------------------------------------------------------------- */

static void call_upstream(relayed *r, upstream *u, grpc_channel *channel, grpc_slice path,
                          grpc_byte_buffer *request);

static void receive(relayed *r, upstream *u, void (*done)(op *, bool)) {
    grpc_op receive = {.op = GRPC_OP_RECV_MESSAGE};
    receive.data.recv_message.recv_message = &u->message;
    start(r, u->call, &receive, 1, &u->receive, done);
}

static void on_message(op *o, bool ok) {
    relayed *r = o->of;
    upstream *u = o == &r->prefill.receive ? &r->prefill : &r->decode;
    grpc_byte_buffer *message = ok ? u->message : NULL;
    u->message = NULL;
    if (!message) return; /* on_status ends the call */
    if (u == &r->prefill && u->n_message == 0) {
        grpc_byte_buffer *request = grpc_raw_byte_buffer_create(&r->program->decode_request, 1);
        call_upstream(r, &r->decode, r->program->decode, r->program->decode_path, request);
    }
    if (u == &r->decode || u->n_message < FIRST_WORDS)
        forward(r, message);
    else
        grpc_byte_buffer_destroy(message);
    u->n_message++;
    receive(r, u, on_message);
}

static void on_status(op *o, bool ok) {
    relayed *r = o->of;
    upstream *u = o == &r->prefill.status ? &r->prefill : &r->decode;
    (void)ok;
    u->over = true;
    send_next(r);
}

static void on_request_sent(op *o, bool ok) { (void)o, (void)ok; }

/* Calls a worker; takes the request. */
static void call_upstream(relayed *r, upstream *u, grpc_channel *channel, grpc_slice path,
                          grpc_byte_buffer *request) {
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(DEADLINE_S, GPR_TIMESPAN));
    grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA}};
    grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    u->open = true;
    u->details = grpc_empty_slice();
    u->call = grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, r->program->cq, path,
                                       NULL, deadline, NULL);
    ops[1].data.send_message.send_message = request;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &u->initial;
    start(r, u->call, ops, 4, &u->send, on_request_sent);
    grpc_byte_buffer_destroy(request);
    status.data.recv_status_on_client.status = &u->code;
    status.data.recv_status_on_client.status_details = &u->details;
    status.data.recv_status_on_client.trailing_metadata = &u->trailing;
    start(r, u->call, &status, 1, &u->status, on_status);
    receive(r, u, on_message);
}

/* ---- from the client ---------------------------------------------------------------------- */

/* Builds PrefillRequest {request = 1, decode_address = 2} around the client's bytes. */
static grpc_byte_buffer *wrap(const program *p, grpc_byte_buffer *request) {
    uint8_t head[16] = {0x0a};
    size_t n = 1;
    for (size_t rest = grpc_byte_buffer_length(request);; rest >>= 7) {
        head[n++] = (uint8_t)((rest & 0x7f) | (rest > 0x7f ? 0x80 : 0));
        if (rest <= 0x7f) break;
    }
    grpc_byte_buffer_reader reader;
    must(grpc_byte_buffer_reader_init(&reader, request), "a request cannot be read");
    grpc_slice parts[3] = {grpc_slice_from_copied_buffer((const char *)head, n),
                           grpc_byte_buffer_reader_readall(&reader), p->decode_address};
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer *wrapped = grpc_raw_byte_buffer_create(parts, 3);
    grpc_slice_unref(parts[0]);
    grpc_slice_unref(parts[1]);
    return wrapped;
}

static void on_begun(op *o, bool ok) {
    relayed *r = o->of;
    if (!ok || !r->request) return;
    grpc_byte_buffer *request = wrap(r->program, r->request);
    grpc_byte_buffer_destroy(r->request);
    call_upstream(r, &r->prefill, r->program->prefill, r->program->prefill_path, request);
}

/* Cancels both workers' calls when the client is gone. */
static void on_closed(op *o, bool ok) {
    relayed *r = o->of;
    (void)ok;
    if (!r->cancelled) return;
    if (r->prefill.open) grpc_call_cancel(r->prefill.call, NULL);
    if (r->decode.open) grpc_call_cancel(r->decode.call, NULL);
}

static void accept_one(program *p);

static void on_accepted(op *o, bool ok) {
    relayed *r = o->of;
    must(ok, "the server has stopped");
    accept_one(r->program);
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER};
    close.data.recv_close_on_server.cancelled = &r->cancelled;
    start(r, r->client, &close, 1, &r->closed, on_closed);
    grpc_op begin[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_RECV_MESSAGE}};
    begin[1].data.recv_message.recv_message = &r->request;
    start(r, r->client, begin, 2, &r->begun, on_begun);
}

static void accept_one(program *p) {
    relayed *r = calloc(1, sizeof *r);
    must(r != NULL, "out of memory");
    r->program = p;
    r->tail = &r->first;
    r->refs = 1;
    r->accepted = (op){on_accepted, r};
    grpc_call_details_init(&r->about);
    must(grpc_server_request_call(p->server, &r->client, &r->about, &r->metadata, p->cq, p->cq,
                                  &r->accepted) == GRPC_CALL_OK,
         "calls cannot be taken");
}

/* ---- the program -------------------------------------------------------------------------- */

static grpc_channel *channel_to(const char *address) {
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    grpc_channel *channel = grpc_channel_create(address, plain, NULL);
    grpc_channel_credentials_release(plain);
    return channel;
}

static void listen_somewhere(program *p) {
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    p->server = grpc_server_create(NULL, NULL);
    grpc_server_register_completion_queue(p->server, p->cq, NULL);
    int port = grpc_server_add_http2_port(p->server, "127.0.0.1:0", plain);
    must(port > 0, "it cannot listen");
    grpc_server_credentials_release(plain);
    grpc_server_start(p->server);
    printf("listening on 127.0.0.1:%d\n", port);
    fflush(stdout);
}

/* Returns field 2 of PrefillRequest. */
static grpc_slice address_field(const char *address) {
    char text[130] = {0x12};
    size_t n = strlen(address);
    must(n < 128, "an address is too long");
    text[1] = (char)n;
    memcpy(text + 2, address, n);
    return grpc_slice_from_copied_buffer(text, n + 2);
}

void relay_run(const char *prefill, const char *decode, const void *decode_request, size_t n) {
    grpc_init();
    program p = {.cq = grpc_completion_queue_create_for_next(NULL),
                 .prefill = channel_to(prefill),
                 .decode = channel_to(decode),
                 .decode_request = grpc_slice_from_copied_buffer(decode_request, n),
                 .decode_address = address_field(decode),
                 .prefill_path = grpc_slice_from_static_string("/fovea.handoff.v1.Prefill/Prefill"),
                 .decode_path = grpc_slice_from_static_string("/fovea.handoff.v1.Decode/Decode")};
    listen_somewhere(&p);
    for (int32_t i = 0; i < ACCEPTS; i++) accept_one(&p);
    for (;;) {
        grpc_event e = grpc_completion_queue_next(p.cq, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
        op *o = e.tag;
        relayed *r = o->of;
        o->done(o, e.success != 0);
        unref(r);
    }
}
