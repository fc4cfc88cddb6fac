/* router/: answers that a decode worker preempts for lack of KV are replayed, at no cost to their client, and KV is
 * counted as the workers reserve it. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/router_rig.h"

TestSuite(router_preempted, .timeout = 240);

enum { TOKENS = 8 };

static router_rig r;
static client k;
static Fovea__Inference__V1__GenerateRequest req;

static void open_without_replays(void) {
    fv_router_options opt = router_rig_options();
    opt.replays = 0;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 1;
}

/* The decode worker preempts its answer once it has sent so many tokens in all. */
static void preempt_after(int32_t n_tokens) {
    router_rig_wait_for(&r, &k.n_tokens, n_tokens);
    int32_t calls = r.p.calls;
    fake_fail(&r.d, FV_EBUSY, "preempted");
    router_rig_sleep(&r, 50);
    cr_assert_eq(r.p.calls, calls, "the worker has no memory until it reports");
    fake_report(&r.d);
    router_rig_wait_for(&r, &r.p.calls, calls + 1);
}

Test(router_preempted, it_is_replayed_and_is_no_failure) {
    open_without_replays();
    client_request(&req, TOKENS);
    client_ask(&r, &k, &req, 20000);
    preempt_after(2);
    cr_assert_eq(r.p.n_replay, 2);
    cr_assert_not(r.p.reserve_all);
    preempt_after(4);
    cr_assert(r.p.reserve_all, "after the second time it gets all of its memory at once");
    router_rig_wait_for(&r, &k.n_tokens, 6);
    r.d.step = FAKE_END;
    fake_go_on(&r.d);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_accepted, 1);
    cr_assert_eq(k.n_tokens, TOKENS);
    for (uint32_t i = 0; i < TOKENS; i++) cr_assert_eq(k.ids[i], 100 + i);
    cr_assert_eq(k.n_replays, 0);
    fleet_seen f;
    router_rig_fleet(&r, &f);
    for (int i = 0; i < f.n_worker; i++) cr_assert_eq(f.n_failed[i], 0, "nobody is blamed");
    router_rig_close(&r);
}

Test(router_preempted, a_client_that_leaves_meanwhile_is_forgotten) {
    open_without_replays();
    client_request(&req, TOKENS);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    fake_fail(&r.d, FV_EBUSY, "preempted");
    router_rig_sleep(&r, 50);
    fv_rpc_call_cancel(k.call);
    router_rig_wait(&r, &k.over);
    fleet_seen f;
    for (int i = 0; i < 200; i++) {
        router_rig_fleet(&r, &f);
        if (f.n_queued + f.n_running == 0) break;
        router_rig_sleep(&r, 10);
    }
    cr_assert_eq(f.n_queued + f.n_running, 0);
    cr_assert_eq(r.p.calls, 1);
    router_rig_close(&r);
}

Test(router_preempted, what_always_has_all_of_its_tokens_reserves_them) {
    router_rig_with_workers(&r, NULL);
    client_request(&req, TOKENS);
    req.ignore_eos = true;
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert(r.p.reserve_all);
    router_rig_close(&r);
}

/* Asks for three answers of 100 tokens, 512 bytes each, in a pool of 150000 bytes; so many are sent to workers. */
static void three_in(uint32_t tokens_expected, int32_t n) {
    static client clients[3];
    r.d.capacity = 150000;
    r.d.tokens_expected = tokens_expected;
    router_rig_with_workers(&r, NULL);
    r.p.step = FAKE_NOTHING;
    client_request(&req, 100);
    for (int32_t i = 0; i < 3; i++) {
        client_ask(&r, &clients[i], &req, 20000);
        if (i < n) router_rig_wait_for(&r, &r.p.calls, i + 1);
    }
    router_rig_sleep(&r, 100);
    cr_assert_eq(r.p.calls, n);
    for (int i = 2; i >= 0; i--) {
        fv_rpc_call_cancel(clients[i].call);
        router_rig_wait(&r, &clients[i].over);
    }
    router_rig_close(&r);
}

Test(router_preempted, a_worker_that_expects_short_answers_gets_more_of_them) { three_in(10, 3); }

Test(router_preempted, a_worker_that_reserves_for_all_tokens_gets_as_many_as_fit) {
    three_in(0, 2); /* the second one waits at the worker */
    ;
}
