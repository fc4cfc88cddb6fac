/* A faulty network between a prefill and a decode worker: a damaged hand-off is detected and
 * counted, and no token is generated from it. */
#include <criterion/criterion.h>
#include <stdatomic.h>

#include "common/clock.h"
#include "tests/e2e/decode_rig.h"
#include "transport/frame.h"

TestSuite(decode_faults, .init = write_checkpoint, .fini = remove_checkpoint, .timeout = 240);

static uint64_t refusals(void) {
    fv_receiver_counters c = fv_decode_worker_handoffs(rig.worker);
    uint64_t n = 0;
    for (int r = 0; r < FV_N_REFUSAL; r++) n += c.refused[r];
    return n;
}

static atomic_int late_s; /* how far the worker's clock is ahead */

static double ahead(void *user) {
    (void)user;
    return fv_clock_s() + atomic_load(&late_s);
}

static void delay(void *user) {
    (void)user;
    atomic_fetch_add(&late_s, 3600);
}

/* Sends over a transport with one fault. The hand-off must fail, and be counted. */
static void send_with_fault(fv_fault fault, uint64_t seed, uint64_t n_frame) {
    static handoff h;
    static answer a;
    int32_t fired = 0;
    fv_fault_options opt = {
        .fault = fault, .seed = seed, .n_frame = n_frame, .delay = delay, .fired = &fired};
    uint64_t before = refusals(), expired = fv_decode_worker_handoffs(rig.worker).expired;
    h = (handoff){0};
    a = (answer){0};
    close_transport();
    open_transport(&opt);
    prefill(&h, "", TOKENS, 0, NULL);
    tell(&h, run_ship);
    UNTIL(atomic_load(&h.state) == 2);
    const char *name = fv_fault_name(fault);
    cr_assert_eq(fired, 1, "%s, seed %d", name, (int)seed);
    cr_assert_neq(h.status, FV_OK, "%s, seed %d", name, (int)seed);
    ask(&a, &h, TOKENS);
    UNTIL(a.over);
    cr_assert_eq(a.n, 0, "a token came out of it: %s, seed %d", name, (int)seed);
    cr_assert_neq(a.status, FV_OK);
    UNTIL(worker_is_empty());
    UNTIL(refusals() > before);
    if (fault == FV_FAULT_DELAY)
        cr_assert_eq(fv_decode_worker_handoffs(rig.worker).expired, expired + 1);
    handoff_free(&h);
    rig.exporting = NULL;
}

Test(decode_faults, a_damaged_hand_off_gives_no_token) {
    static handoff clean;
    fv_decode_options opt = fv_decode_options_default();
    opt.grants.frame_max = 4096;
    opt.grants.clock = ahead;
    open_all(&opt);
    prefill_and_send(&clean, "", TOKENS);
    release(&clean.ticket);
    cr_assert_gt(clean.n_frame, 4);
    handoff_free(&clean);
    rig.exporting = NULL;
    for (int fault = FV_FAULT_BIT_FLIP; fault <= FV_FAULT_DELAY; fault++)
        for (uint64_t seed = 1; seed <= 3; seed++)
            send_with_fault((fv_fault)fault, seed, clean.n_frame);
    close_all();
}

static void note_returned(void *flag) { atomic_store((atomic_bool *)flag, true); }

static void on_push_end(fv_rpc_call *c, const fv_rpc_end *end) {
    (void)end;
    *(bool *)fv_rpc_call_user(c) = true;
}

/* A frame of a finished hand-off arrives when its slot belongs to another. */
Test(decode_faults, a_frame_that_is_replayed_later_is_refused_and_disturbs_nobody) {
    static const fv_rpc_events events = {.on_end = on_push_end};
    static handoff h[2];
    static answer a, want;
    fv_decode_options opt = fv_decode_options_default();
    grpc_byte_buffer *frame;
    fv_piece piece = {"the rows of another", 19};
    bool over = false;
    static atomic_bool returned;
    opt.grants.capacity = 1;
    open_all(&opt);
    prefill_and_send(&h[0], "", TOKENS);
    release(&h[0].ticket);
    prefill_and_hold(&h[1]);
    fv_rpc_call_options push = {.path = "/fovea.handoff.v1.Handoff/Push",
                                .events = &events,
                                .user = &over,
                                .deadline_ms = 20000};
    fv_rpc_call *call;
    need(fv_rpc_call_open(rig.channel, &push, &call));
    need(fv_rpc_frame_lend(&h[0].ticket, 0, &piece, 1, note_returned, &returned, &frame));
    need(fv_rpc_call_send_buffer(call, frame));
    UNTIL(over);
    UNTIL(fv_decode_worker_handoffs(rig.worker).refused[FV_REFUSED_STALE_EPOCH] == 1);
    tell(&h[1], run_let_go);
    UNTIL(atomic_load(&h[1].state) == 2);
    cr_assert_eq(h[1].status, FV_OK, "%s", h[1].why);
    ask(&a, &h[1], TOKENS);
    UNTIL(a.over);
    expect(&h[1], TOKENS, &want);
    assert_same(&a, &want);
    for (int i = 0; i < 2; i++) handoff_free(&h[i]);
    close_all();
}
