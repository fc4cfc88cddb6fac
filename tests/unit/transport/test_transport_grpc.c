/* transport/grpc.c, grpc_loop.c: hand-offs from a computing thread through the loop to a decode worker played by
 * the test. The memory of frames is overwritten and freed as soon as they are reported gone. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handoff.pb-c.h"
#include "tests/support/net.h"
#include "transport/frame.h"
#include "transport/grpc.h"

TestSuite(transport_grpc, .timeout = 240);

enum { FRAME = 300000, FRAMES_MAX = 40 };

/* ---- the decode worker ------------------------------------------------------------------ */

typedef enum mood { KIND = 0, FULL, MUTE, CORRUPT, SLOW, HASTY } mood;

typedef struct sink {
    mood mood;
    int32_t opened, cancelled, released, ended, alive;
    uint32_t lease_ms; /* 0: 20 s */
    int32_t frames;
    size_t bytes;
    uint64_t committed;
    bool wrong; /* a frame that differs from what was sent */
    char compat[FV_COMPAT_MAX], policy[64];
} sink;

static sink s;

static fv_status open_message(fv_rpc_call *c, grpc_byte_buffer *m) {
    ProtobufCMessage *q;
    FV_TRY(fv_rpc_call_unpack(c, &fovea__handoff__v1__open_request__descriptor, m, &q));
    const Fovea__Handoff__V1__OpenRequest *open = (const Fovea__Handoff__V1__OpenRequest *)q;
    s.opened++;
    snprintf(s.compat, sizeof s.compat, "%s", open->compat);
    snprintf(s.policy, sizeof s.policy, "%s", open->policy);
    if (s.mood == MUTE) return FV_OK;
    if (s.mood == FULL) {
        fv_rpc_call_trailer(c, FV_REFUSAL_KEY, "no_room");
        return FV_FAIL(FV_EBUSY, "the KV pool is full");
    }
    uint8_t id[16] = "ticket of a test";
    Fovea__Handoff__V1__Ticket t = FOVEA__HANDOFF__V1__TICKET__INIT;
    Fovea__Handoff__V1__Grant g = FOVEA__HANDOFF__V1__GRANT__INIT;
    t.id = (ProtobufCBinaryData){s.mood == HASTY ? 3 : sizeof id, id};
    t.epoch = 7;
    g.ticket = &t;
    g.bytes = open->bytes_visual;
    g.frame_max = FRAME;
    g.credits = 4;
    g.deadline_ms = s.lease_ms ? s.lease_ms : 20000;
    fv_rpc_call_finish(c, fv_rpc_call_send(c, &g.base));
    return FV_OK;
}

static void count_cancel(fv_rpc_call *c) {
    (void)c;
    s.cancelled++;
}

static void count_end(fv_rpc_call *c, const fv_rpc_end *end) {
    (void)c, (void)end;
    s.ended++;
}

static fv_status push_message(fv_rpc_call *c, grpc_byte_buffer *m) {
    fv_rpc_frame f;
    if (fv_rpc_frame_read(m, &f) != FV_OK) s.wrong = true;
    if (f.ticket.epoch != 7 || memcmp(f.ticket.id, "ticket of a test", 16) != 0) s.wrong = true;
    if (f.alive) {
        s.alive++;
        return FV_OK;
    }
    if (f.commit) {
        s.committed = f.commit;
        return FV_OK;
    }
    if (f.seq % FRAMES_MAX != (uint64_t)s.frames % FRAMES_MAX) s.wrong = true;
    for (int32_t i = 0; i < f.n_piece; i++)
        for (size_t k = 0; k < f.piece[i].bytes; k++)
            if (((const uint8_t *)f.piece[i].data)[k] != (uint8_t)(f.seq + 1)) s.wrong = true;
    s.frames++;
    s.bytes += f.bytes;
    if (s.mood == SLOW) fv_rpc_call_pause(c);
    if (s.mood == CORRUPT && s.frames == 3) {
        fv_rpc_call_trailer(c, FV_REFUSAL_KEY, "checksum");
        return FV_FAIL(FV_EDATA, "layer 3: checksum");
    }
    return FV_OK;
}

static fv_status push_close(fv_rpc_call *c) {
    Fovea__Handoff__V1__PushReply m = FOVEA__HANDOFF__V1__PUSH_REPLY__INIT;
    m.n_frames = s.committed;
    FV_TRY(fv_rpc_call_send(c, &m.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static fv_status release_message(fv_rpc_call *c, grpc_byte_buffer *m) {
    (void)m;
    Fovea__Handoff__V1__ReleaseReply r = FOVEA__HANDOFF__V1__RELEASE_REPLY__INIT;
    s.released++;
    FV_TRY(fv_rpc_call_send(c, &r.base));
    fv_rpc_call_finish(c, FV_OK);
    return FV_OK;
}

static const fv_rpc_method methods[] = {
    {.path = "/fovea.handoff.v1.Handoff/Open",
     .kind = FV_RPC_UNARY,
     .events = {.on_message = open_message, .on_cancel = count_cancel, .on_end = count_end}},
    {.path = "/fovea.handoff.v1.Handoff/Push",
     .kind = FV_RPC_CLIENT_STREAM,
     .events = {.on_message = push_message,
                .on_half_close = push_close,
                .on_cancel = count_cancel,
                .on_end = count_end}},
    {.path = "/fovea.handoff.v1.Handoff/Release",
     .kind = FV_RPC_UNARY,
     .events = {.on_message = release_message, .on_end = count_end}},
};

/* ---- the prefill worker ----------------------------------------------------------------- */

typedef enum until { TO_COMMIT = 0, TO_PATIENCE, TO_RECALL, TO_GRANT, TO_PUSH, TO_OPEN } until;

/* A hand-off. Only the computing thread uses it, except `done`. */
typedef struct sender {
    fv_job job;
    until until; /* the step at which it gives up */
    int32_t n_frame;
    fv_transport *transport;
    fv_transfer *x;
    uint8_t *rows; /* [n_frame, FRAME] */
    fv_reply opened, committed;
    int32_t answers;
    fv_status pushed;
    bool ended;
    atomic_bool done;
} sender;

static net n;
static fv_jobs *jobs;
static fv_transport *transport;

static void on_gone(void *user) {
    sender *x = user;
    memset(x->rows, 0xee, (size_t)FRAMES_MAX * FRAME);
    free(x->rows);
    atomic_store(&x->done, true);
}

static void finish(sender *x) {
    x->ended = true;
    x->x->ops->end(x->x, x->until != TO_RECALL, on_gone, x);
}

static void on_committed(void *user, const fv_reply *r) {
    sender *x = user;
    cr_assert(!x->ended);
    x->committed = *r;
    x->answers++;
    finish(x);
}

static void push_all(sender *x) {
    for (int32_t i = 0; i < x->n_frame && x->pushed == FV_OK; i++) {
        uint8_t *at = x->rows + (size_t)i * FRAME;
        memset(at, i + 1, FRAME);
        fv_piece piece[3] = {{at, 1000}, {at + 1000, 1}, {at + 1001, FRAME - 1001}};
        x->pushed = x->x->ops->push(x->x, (uint64_t)i, piece, 3);
    }
    if (x->until == TO_PUSH)
        finish(x);
    else
        x->x->ops->commit(x->x, (uint64_t)x->n_frame, on_committed, x);
}

static void on_opened(void *user, const fv_reply *r) {
    sender *x = user;
    cr_assert(!x->ended);
    x->opened = *r;
    x->answers++;
    if (r->status != FV_OK || x->until == TO_GRANT) {
        finish(x);
        return;
    }
    if (x->until != TO_PATIENCE) push_all(x);
}

static void run_push_all(fv_job *job) { push_all((sender *)job); }

static void run_sender(fv_job *job) {
    sender *x = (sender *)job;
    fv_hello hello = {.n_text = 5, .bytes_visual = 12345, .policy = "prune=vtw"};
    snprintf(hello.compat.text, sizeof hello.compat.text, "model=tiny\n");
    x->rows = malloc((size_t)FRAMES_MAX * FRAME);
    cr_assert_not_null(x->rows);
    cr_assert_eq(x->transport->ops->open(x->transport, &hello, NULL, on_opened, x, &x->x), FV_OK);
    if (x->until == TO_OPEN) finish(x);
}

static void open_all(void) {
    n.services[n.n_service++] =
        (fv_rpc_service){methods, sizeof methods / sizeof methods[0], &s, NULL};
    net_open(&n);
    cr_assert_eq(fv_jobs_start(&(fv_jobs_options){.limit = 64}, &jobs), FV_OK);
    fv_transport_grpc_options opt = {
        .bridge = n.bridge, .jobs = jobs, .target = n.target, .open_ms = s.mood == MUTE ? 300 : 0};
    cr_assert_eq(fv_transport_grpc(&opt, &transport), FV_OK);
}

static void begin(sender *x) {
    x->job.run = run_sender;
    if (!x->transport) x->transport = transport;
    cr_assert_eq(fv_jobs_post(jobs, &x->job), FV_OK);
}

/* Lets a hand-off without a deadline send. */
static void go_on(sender *x) {
    x->job.run = run_push_all;
    cr_assert_eq(fv_jobs_post(jobs, &x->job), FV_OK);
}

static void wait_done(sender *x) {
    for (int i = 0; i < 30000 && !atomic_load(&x->done); i++) net_sleep(&n, 3);
    cr_assert(atomic_load(&x->done));
}

static void send_one(sender *x) {
    begin(x);
    wait_done(x);
}

static void set_flag(void *flag) { *(bool *)flag = true; }

static void close_all(void) {
    bool closed = false;
    fv_transport_close(transport, set_flag, &closed);
    net_wait(&n, &closed);
    fv_jobs_stop(jobs);
    net_close(&n, 1000);
}

/* ---- success ----------------------------------------------------------------------------- */

Test(transport_grpc, frames_arrive_whole_and_in_order_and_the_commit_is_answered) {
    sender x = {.n_frame = FRAMES_MAX};
    open_all();
    cr_assert_str_eq(transport->ops->name, "grpc");
    send_one(&x);
    cr_assert_eq(x.opened.status, FV_OK, "%s", x.opened.text);
    cr_assert_eq(x.opened.grant.bytes, 12345);
    cr_assert_eq(x.opened.grant.frame_max, FRAME);
    cr_assert_eq(x.opened.grant.ticket.epoch, 7);
    cr_assert_eq(x.committed.status, FV_OK, "%s", x.committed.text);
    cr_assert_eq(x.committed.refusal, FV_REFUSED_NONE);
    cr_assert_eq(s.frames, FRAMES_MAX);
    cr_assert_eq(s.bytes, (size_t)FRAMES_MAX * FRAME);
    cr_assert_eq(s.committed, FRAMES_MAX);
    cr_assert_not(s.wrong);
    cr_assert_str_eq(s.compat, "model=tiny\n");
    cr_assert_str_eq(s.policy, "prune=vtw");
    close_all();
    cr_assert_eq(s.released, 0, "what is committed is not given back");
    cr_assert_eq(s.cancelled, 0);
    cr_assert_geq(s.alive, 1, "the stream is there before the frames are");
}

Test(transport_grpc, a_sender_with_nothing_to_send_yet_says_that_it_is_there) {
    sender x = {.until = TO_PATIENCE, .n_frame = 2};
    s.lease_ms = 60;
    open_all();
    begin(&x);
    net_wait_for(&n, &s.alive, 12); /* four leases */
    cr_assert_eq(s.frames, 0);
    go_on(&x);
    wait_done(&x);
    cr_assert_eq(x.committed.status, FV_OK, "%s", x.committed.text);
    cr_assert_eq(s.frames, 2);
    close_all();
}

Test(transport_grpc, one_connection_serves_many_hand_offs_at_once) {
    static sender x[16];
    open_all();
    for (int i = 0; i < 16; i++) {
        x[i].until = i % 2 ? TO_COMMIT : TO_OPEN; /* half of them are abandoned */
        x[i].n_frame = 1;
        begin(&x[i]);
    }
    for (int i = 0; i < 16; i++) {
        wait_done(&x[i]);
        cr_assert_eq(x[i].answers, i % 2 ? 2 : 0);
        if (i % 2) cr_assert_eq(x[i].committed.status, FV_OK, "%s", x[i].committed.text);
    }
    close_all();
    cr_assert_eq(s.frames, 8);
}

/* ---- refusals and failures -------------------------------------------------------------- */

Test(transport_grpc, a_refused_open_brings_the_reason_and_the_sentence) {
    sender x = {.n_frame = 1};
    s.mood = FULL;
    open_all();
    send_one(&x);
    cr_assert_eq(x.opened.refusal, FV_REFUSED_NO_ROOM);
    cr_assert_eq(x.opened.status, FV_EBUSY);
    cr_assert(strstr(x.opened.text, "the KV pool is full"), "%s", x.opened.text);
    cr_assert(strstr(x.opened.text, n.target), "it says who: %s", x.opened.text);
    close_all();
    cr_assert_eq(s.released, 0);
}

Test(transport_grpc, a_grant_without_a_proper_ticket_is_an_error) {
    sender x = {.n_frame = 1};
    s.mood = HASTY;
    open_all();
    send_one(&x);
    cr_assert_eq(x.opened.status, FV_EDATA, "%s", x.opened.text);
    close_all();
}

Test(transport_grpc, nobody_there_is_an_error_that_names_the_address) {
    sender x = {.n_frame = 1};
    open_all();
    fv_transport_grpc_options opt = {
        .bridge = n.bridge, .jobs = jobs, .target = "127.0.0.1:1", .open_ms = 3000};
    cr_assert_eq(fv_transport_grpc(&opt, &x.transport), FV_OK);
    send_one(&x);
    cr_assert_eq(x.opened.status, FV_EIO, "%s", x.opened.text);
    cr_assert(strstr(x.opened.text, "127.0.0.1:1"), "%s", x.opened.text);
    bool closed = false;
    fv_transport_close(x.transport, set_flag, &closed);
    net_wait(&n, &closed);
    close_all();
}

Test(transport_grpc, a_worker_that_does_not_answer_is_given_up_after_a_while) {
    sender x = {.n_frame = 1};
    s.mood = MUTE;
    open_all();
    fv_transport_grpc_options opt = {
        .bridge = n.bridge, .jobs = jobs, .target = n.target, .open_ms = 100};
    cr_assert_eq(fv_transport_grpc(&opt, &x.transport), FV_OK);
    send_one(&x);
    cr_assert_eq(x.opened.status, FV_EIO, "%s", x.opened.text);
    fv_transport_close(x.transport, NULL, NULL);
    close_all();
}

Test(transport_grpc, a_refused_frame_loses_the_hand_off_and_the_commit_says_why) {
    sender x = {.n_frame = FRAMES_MAX};
    s.mood = CORRUPT;
    open_all();
    send_one(&x);
    cr_assert_eq(x.committed.refusal, FV_REFUSED_CHECKSUM);
    cr_assert_eq(x.committed.status, FV_EDATA);
    cr_assert(strstr(x.committed.text, "layer 3: checksum"), "%s", x.committed.text);
    close_all();
    cr_assert_lt(s.frames, FRAMES_MAX);
}

/* ---- giving up -------------------------------------------------------------------------- */

Test(transport_grpc, ending_before_the_answer_brings_none) {
    sender x = {.until = TO_OPEN};
    s.mood = MUTE;
    open_all();
    send_one(&x);
    close_all();
    cr_assert_eq(x.answers, 0);
}

Test(transport_grpc, ending_with_a_grant_gives_it_back) {
    sender x = {.until = TO_GRANT};
    open_all();
    send_one(&x);
    close_all();
    cr_assert_eq(s.released, 1);
}

Test(transport_grpc, ending_in_the_middle_cancels_and_frees_the_rows) {
    sender x = {.until = TO_PUSH, .n_frame = FRAMES_MAX};
    open_all();
    send_one(&x);
    close_all();
    cr_assert_eq(s.committed, 0);
    cr_assert_eq(s.released, 1, "the stream may not have been heard of");
}

Test(transport_grpc, what_is_committed_can_be_given_back) {
    sender x = {.until = TO_RECALL, .n_frame = 2};
    open_all();
    send_one(&x);
    cr_assert_eq(x.committed.status, FV_OK, "%s", x.committed.text);
    close_all();
    cr_assert_eq(s.released, 1);
}

Test(transport_grpc, a_worker_that_does_not_read_keeps_nobody_from_ending) {
    sender x = {.until = TO_PUSH, .n_frame = FRAMES_MAX};
    s.mood = SLOW;
    open_all();
    send_one(&x);
    close_all();
    cr_assert_leq(s.frames, 2);
}

Test(transport_grpc, a_worker_that_takes_nothing_loses_the_hand_off_and_holds_up_no_other) {
    sender x = {.n_frame = FRAMES_MAX}, y = {.n_frame = 2};
    s.mood = SLOW;
    s.lease_ms = 900;
    open_all();
    begin(&x);
    net_wait_for(&n, &s.frames, 1); /* it has paused, and reads no more */
    s = (sink){.lease_ms = 20000};
    begin(&y);
    wait_done(&y);
    cr_assert_eq(y.committed.status, FV_OK, "%s", y.committed.text);
    wait_done(&x);
    cr_assert_eq(x.pushed, FV_OK, "pushing did not wait");
    cr_assert_eq(x.committed.status, FV_EIO);
    cr_assert(strstr(x.committed.text, "accepted no data"), "%s", x.committed.text);
    close_all();
}
