/* router/dispatch.c, router/admission.c: requests that cannot be answered in time, on a router with
 * fake workers. test_router_deadline.c tests the estimates. */
#include <criterion/criterion.h>
#include <string.h>

#include "router/balancer.h"
#include "tests/support/router_rig.h"

TestSuite(router_overload, .timeout = 240);

static router_rig r;
static client k, crowd[FV_PREFILL_MAX + 1];
static Fovea__Inference__V1__GenerateRequest req;

static void ask(client *c, uint32_t max_tokens, int64_t deadline_ms) {
    client_request(&req, max_tokens);
    req.ignore_eos = true;
    client_ask(&r, c, &req, deadline_ms);
}

/* The prefill worker sends nothing until told to, and accepts any number of requests. */
static void fill_prefill(void) {
    router_rig_with_workers(&r, NULL);
    r.p.step = FAKE_NOTHING;
    for (int i = 0; i < FV_PREFILL_MAX; i++) {
        ask(&crowd[i], 4, 20000);
        router_rig_wait_for(&r, &r.p.calls, i + 1); /* in this order */
    }
}

/* Finishes the newest prefill after this time; all prefills before it count as finished with it. */
static void answer_last(int32_t after_ms) {
    router_rig_sleep(&r, after_ms);
    fake_go_on(&r.p);
    router_rig_wait_for(&r, &r.d.ended, 1);
}

static void assert_not_sent(int32_t calls) { cr_assert_eq(r.p.calls, calls); }

Test(router_overload, what_cannot_be_in_time_is_refused_at_once_and_told_when_to_come_again) {
    fill_prefill();
    answer_last(1500);
    /* Now 15 are ahead of it, and take 1.4 s. Alone it would take a 16th of that. */
    ask(&k, 4, 800);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", k.why);
    cr_assert_eq(k.end.status, FV_EBUSY, "there is a hint");
    cr_assert_geq(k.end.retry_ms, 100);
    cr_assert(strstr(k.why, "the deadline allows"), "%s", k.why);
    assert_not_sent(FV_PREFILL_MAX);
    router_rig_close(&r);
}

Test(router_overload, who_has_time_is_not_refused) {
    fill_prefill();
    answer_last(1500);
    r.p.step = FAKE_END;
    ask(&k, 4, 15000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    router_rig_close(&r);
}

Test(router_overload, what_waits_in_vain_is_ended_before_it_costs_anything) {
    fill_prefill();
    ask(&k, 4, 4000);  /* nothing is known yet: it is accepted */
    answer_last(2500); /* and now there is a slot, but no time for 16 such prefills */
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_DEADLINE_EXCEEDED, "%s", k.why);
    cr_assert(strstr(k.why, "in the queue the answer would take"), "%s", k.why);
    assert_not_sent(FV_PREFILL_MAX);
    router_rig_close(&r);
}

/* An idle fleet tries a request whatever was measured before, and measures again. */
Test(router_overload, a_fleet_that_is_idle_tries_what_comes) {
    router_rig_with_workers(&r, NULL);
    r.p.step = FAKE_NOTHING;
    ask(&k, 4, 20000);
    router_rig_wait_for(&r, &r.p.calls, 1);
    answer_last(2500);
    router_rig_wait(&r, &k.over);
    r.p.step = FAKE_END;
    ask(&k, 4, 2000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    router_rig_close(&r);
}

Test(router_overload, what_even_an_idle_fleet_could_not_do_is_told_so) {
    router_rig_with_workers(&r, NULL);
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 2;
    ask(&k, 8, 20000);
    router_rig_wait_for(&r, &k.n_tokens, 3);
    router_rig_sleep(&r, 800); /* for 8 tokens: 100 ms each */
    fake_go_on(&r.d);
    router_rig_wait(&r, &k.over);
    ask(&crowd[0], 8, 20000); /* so that the fleet is not idle */
    router_rig_wait_for(&r, &crowd[0].n_tokens, 1);
    ask(&k, 250, 5000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", k.why);
    cr_assert_eq(k.end.status, FV_ENOMEM, "without a hint");
    cr_assert(strstr(k.why, "allow more time, or ask for fewer tokens"), "%s", k.why);
    assert_not_sent(2);
    /* A few tokens are fine. */
    r.d.step = FAKE_END;
    ask(&k, 3, 5000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    router_rig_close(&r);
}

/* A slow prefill worker may hang or run on a slower machine. */
Test(router_overload, a_prefill_worker_that_is_much_slower_than_others_is_left_to_them) {
    router_rig_with_pairs(&r, NULL);
    r.p.step = FAKE_NOTHING;
    /* The slow worker gets one of the first requests; if it gets the very first, the router knows nothing of
     * the other worker yet. */
    for (int i = 0; i < 64 && r.p.calls == 0; i++) {
        ask(&crowd[0], 4, 700);
        router_rig_wait(&r, &crowd[0].over);
    }
    cr_assert_eq(r.p.calls, 1);
    cr_assert_eq(crowd[0].end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    for (int i = 0; i < 20; i++) {
        ask(&k, 4, 5000);
        router_rig_wait(&r, &k.over);
        cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    }
    cr_assert_eq(r.p.calls, 1);
    router_rig_close(&r);
}

Test(router_overload, get_fleet_counts_whom_there_was_no_time_for) {
    fleet_seen f;
    fill_prefill();
    answer_last(1500);
    for (int i = 0; i < 3; i++) {
        ask(&k, 4, 800);
        router_rig_wait(&r, &k.over);
    }
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.n_refused, 3);
    cr_assert_eq(f.n_expired, 0);
    router_rig_close(&r);
}
