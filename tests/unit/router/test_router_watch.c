/* router/watch.c: a request without progress is taken from its worker; one that makes progress is
 * not, however slow it is. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/router_rig.h"

TestSuite(router_watch, .timeout = 240);

enum { STALL_MS = 1000, REPORT_MS = 40 };

#define UNHEALTHY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_UNHEALTHY
#define READY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY

static router_rig r;
static client k;
static fake_worker *p, *q; /* the worker that got the request, and the other */

static void ask(void) {
    static Fovea__Inference__V1__GenerateRequest req;
    client_request(&req, 6);
    client_ask(&r, &k, &req, 30000);
}

static void find(fake_worker *a, fake_worker *b) {
    for (int i = 0; i < 1000 && a->calls + b->calls == 0; i++) router_rig_sleep(&r, 10);
    cr_assert_eq(a->calls + b->calls, 1);
    p = a->calls ? a : b;
    q = p == a ? b : a;
}

static void open_pairs(fake_step prefill, fake_step decode) {
    fv_router_options opt = router_rig_options();
    opt.stall_ms = STALL_MS;
    router_rig_with_pairs(&r, &opt);
    r.p.step = r.p1.step = prefill;
    r.d.step = r.d1.step = decode;
    r.d.n_say = r.d1.n_say = 1;
    ask();
}

/* Sends this many reports of p, with this much work between them. */
static void report(int n, uint64_t work, uint64_t foreign) {
    for (int i = 0; i < n; i++) {
        p->work += work;
        p->work_foreign += foreign;
        fake_report(p);
        router_rig_sleep(&r, REPORT_MS);
    }
}

static void report_until_replayed(void) {
    for (int i = 0; i < 500 && q->calls == 0; i++) report(1, 0, 0);
    cr_assert_eq(q->calls, 1, "it was not taken away");
}

/* States are in the order in which workers joined. */
static Fovea__Inference__V1__WorkerState state_of(const fake_worker *w) {
    const fake_worker *joined[] = {&r.p, &r.d, &r.p1, &r.d1};
    fleet_seen f;
    int i = 0;
    router_rig_fleet(&r, &f);
    while (joined[i] != w) i++;
    return f.state[i];
}

static void is_answered(uint32_t n_replays) {
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_tokens, 6);
    cr_assert_eq(k.n_replays, n_replays);
}

Test(router_watch, a_request_that_stands_still_in_prefill_is_replayed_and_its_worker_rests) {
    open_pairs(FAKE_NOTHING, FAKE_END);
    find(&r.p, &r.p1);
    q->step = FAKE_END;
    p->works = true;
    report_until_replayed();
    is_answered(1);
    router_rig_wait_for(&r, &p->cancelled, 1);
    cr_assert_eq(state_of(p), UNHEALTHY);
    report(3, 0, 0);
    cr_assert_eq(state_of(p), UNHEALTHY);
    report(1, 1, 0); /* it progresses again */
    cr_assert_eq(state_of(p), READY);
    router_rig_close(&r);
}

Test(router_watch, slow_is_not_hung) {
    open_pairs(FAKE_NOTHING, FAKE_END);
    find(&r.p, &r.p1);
    p->works = true;
    for (int i = 0; i < 16; i++) { /* three times as long as necessary */
        report(1, 1, 0);
        report(4, 0, 0);
    }
    cr_assert_eq(q->calls, 0);
    cr_assert_eq(state_of(p), READY);
    p->step = FAKE_END;
    fake_fail(p, FV_EINVAL, NULL);
    router_rig_wait(&r, &k.over);
    router_rig_close(&r);
}

Test(router_watch, a_request_that_stands_still_in_decode_is_replayed) {
    open_pairs(FAKE_END, FAKE_TOKENS);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    find(&r.d, &r.d1);
    q->step = FAKE_END;
    p->works = true;
    report_until_replayed();
    is_answered(1);
    router_rig_wait_for(&r, &p->cancelled, 1);
    router_rig_close(&r);
}

/* Other requests make progress, so this one is only waiting for its turn. */
Test(router_watch, one_that_waits_is_left_in_peace) {
    open_pairs(FAKE_NOTHING, FAKE_END);
    find(&r.p, &r.p1);
    p->foreign = "another";
    report(40, 0, 1);
    cr_assert_eq(q->calls, 0);
    p->foreign = NULL; /* and nothing is worked on, as while it waits for memory elsewhere */
    report(40, 0, 0);
    cr_assert_eq(q->calls, 0);
    fake_fail(p, FV_EINVAL, NULL);
    router_rig_wait(&r, &k.over);
    router_rig_close(&r);
}

Test(router_watch, one_that_waits_behind_another_that_stands_still_is_taken_away) {
    open_pairs(FAKE_NOTHING, FAKE_END);
    find(&r.p, &r.p1);
    q->step = FAKE_END;
    p->foreign = "another router's";
    report_until_replayed();
    is_answered(1);
    router_rig_close(&r);
}

/* The others make progress: the worker does not hang. */
Test(router_watch, one_that_stands_still_alone_is_taken_away_alone) {
    open_pairs(FAKE_NOTHING, FAKE_END);
    find(&r.p, &r.p1);
    q->step = FAKE_END;
    p->works = true;
    p->foreign = "another";
    for (int i = 0; i < 500 && q->calls == 0; i++) report(1, 0, 1);
    is_answered(1);
    cr_assert_eq(state_of(p), READY);
    router_rig_close(&r);
}

Test(router_watch, a_worker_through_which_nothing_goes_keeps_nothing) {
    open_pairs(FAKE_NOTHING, FAKE_END);
    find(&r.p, &r.p1);
    q->step = FAKE_END;
    p->unhealthy = true;
    report_until_replayed();
    is_answered(1);
    router_rig_close(&r);
}

Test(router_watch, a_request_over_which_two_workers_hang_is_ended) {
    open_pairs(FAKE_NOTHING, FAKE_END);
    find(&r.p, &r.p1);
    r.p.works = r.p1.works = true;
    report_until_replayed();
    for (int i = 0; i < 5000 && !k.over; i++) {
        fake_report(q);
        router_rig_sleep(&r, REPORT_MS);
    }
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_FAILED_PRECONDITION, "%s", k.why);
    router_rig_close(&r);
}
