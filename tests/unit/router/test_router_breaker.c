/* router/breaker.c: the states over time. router/balancer.c, router/dispatch.c: their effect on
 * requests. */
#include <criterion/criterion.h>
#include <string.h>

#include "router/breaker.h"
#include "tests/support/router_rig.h"

TestSuite(router_breaker, .timeout = 240);

static fv_breaker b;
static double now;

/* A call that begins now and fails a little later. */
static void fail_once(void) {
    bool trial = fv_breaker_begin(&b);
    cr_assert_eq(trial, b.until_s != 0);
    fv_breaker_failed(&b, now, now + 0.01);
    now += 0.02;
}

static void opened(void) {
    fv_breaker_init(&b, 7);
    now = 100;
    for (int i = 0; i < FV_BREAKER_FAILURES; i++) fail_once();
}

Test(router_breaker, closed_until_enough_have_failed_in_a_row) {
    fv_breaker_init(&b, 7);
    now = 100;
    for (int i = 1; i < FV_BREAKER_FAILURES; i++) {
        fail_once();
        cr_assert(fv_breaker_admits(&b, now));
        cr_assert_eq(b.n_failed, i);
    }
    fail_once();
    cr_assert_not(fv_breaker_admits(&b, now));
    cr_assert_gt(fv_breaker_rest_s(&b, now), 0);
}

Test(router_breaker, one_that_works_ends_the_row) {
    fv_breaker_init(&b, 7);
    now = 100;
    for (int i = 0; i < 10; i++) {
        for (int j = 1; j < FV_BREAKER_FAILURES; j++) fail_once();
        fv_breaker_worked(&b);
        cr_assert(fv_breaker_admits(&b, now));
        cr_assert_eq(b.n_failed, 0);
    }
}

Test(router_breaker, many_that_break_at_once_are_one_failure) {
    fv_breaker_init(&b, 7);
    for (int i = 0; i < 50; i++) fv_breaker_failed(&b, 99, 100);
    cr_assert_eq(b.n_failed, 1);
    cr_assert(fv_breaker_admits(&b, 100));
}

Test(router_breaker, rests_double_up_to_the_longest) {
    opened();
    double want = 1e-3 * FV_BREAKER_FIRST_MS, longest = 1e-3 * FV_BREAKER_LONGEST_MS;
    for (int i = 0; i < 10; i++) {
        double rest = fv_breaker_rest_s(&b, now);
        cr_assert_geq(rest, want * 0.79 - 0.02, "%d: %g", i, rest);
        cr_assert_leq(rest, want * 1.21, "%d: %g", i, rest);
        now += rest + 0.001;
        cr_assert(fv_breaker_admits(&b, now));
        fail_once();
        want = 2 * want < longest ? 2 * want : longest;
    }
}

Test(router_breaker, after_the_rest_one_trial_closes_it) {
    opened();
    now += fv_breaker_rest_s(&b, now);
    cr_assert(fv_breaker_admits(&b, now));
    cr_assert(fv_breaker_begin(&b));
    cr_assert_not(fv_breaker_admits(&b, now), "one at a time");
    fv_breaker_worked(&b);
    cr_assert(fv_breaker_admits(&b, now));
    cr_assert_not(fv_breaker_begin(&b));
    cr_assert_eq(b.n_opened, 0, "the next rest is a short one");
}

Test(router_breaker, a_trial_that_is_broken_off_leaves_room_for_the_next) {
    opened();
    now += fv_breaker_rest_s(&b, now);
    bool trial = fv_breaker_begin(&b);
    fv_breaker_unknown(&b, false); /* an older call */
    cr_assert_not(fv_breaker_admits(&b, now));
    fv_breaker_unknown(&b, trial);
    cr_assert(fv_breaker_admits(&b, now));
}

/* ---- in the router ---------------------------------------------------------------------- */

static router_rig r;
static client k;

enum { D0 = 1, D1 = 3 }; /* in the order in which they joined */

Test(router_breaker, a_worker_that_fails_again_and_again_is_left_alone_and_tried_later) {
    fleet_seen f;
    router_rig_with_pairs(&r, NULL);
    r.d.step = FAKE_NOTHING;
    r.d.fail = FV_EDEVICE;
    for (int i = 0; i < 200 && r.d.calls < FV_BREAKER_FAILURES; i++) {
        client_ask_wait(&r, &k, 4);
        cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    }
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.n_failed[D0], FV_BREAKER_FAILURES);
    cr_assert_gt(f.resting[D0], 0);
    cr_assert_eq(f.resting[D1], 0);
    for (int i = 0; i < 10; i++) {
        client_ask_wait(&r, &k, 4);
        cr_assert_eq(k.n_replays, 0, "it was asked while it rests");
        router_rig_fleet(&r, &f);
        if (f.resting[D0] == 0) break; /* on a slow machine */
    }
    r.d.step = FAKE_END;
    for (int i = 0; i < 400 && r.d.calls == FV_BREAKER_FAILURES; i++) {
        client_ask_wait(&r, &k, 4);
        cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
        router_rig_sleep(&r, 20);
    }
    cr_assert_gt(r.d.calls, FV_BREAKER_FAILURES, "it was never tried again");
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.n_failed[D0], 0);
    router_rig_close(&r);
}

Test(router_breaker, when_all_rest_a_request_waits_for_the_first_to_wake) {
    fv_router_options opt = router_rig_options();
    opt.wait_ms = 10000;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_NOTHING;
    r.d.fail = FV_EDEVICE;
    r.d.n_times = FV_BREAKER_FAILURES;
    client_ask_wait(&r, &k, 10);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_replays, FV_BREAKER_FAILURES);
    cr_assert_eq(r.d.calls, FV_BREAKER_FAILURES + 1);
    router_rig_close(&r);
}

Test(router_breaker, who_cannot_wait_for_that_wakes_it) {
    fv_router_options opt = router_rig_options();
    opt.wait_ms = 100; /* less than a rest period */
    opt.replays = 2;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_NOTHING;
    r.d.fail = FV_EDEVICE;
    r.d.n_times = 4;
    client_ask_wait(&r, &k, 10);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE, "%s", k.why);
    client_ask_wait(&r, &k, 10);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(r.d.calls, 5);
    router_rig_close(&r);
}

Test(router_breaker, refusals_and_clients_errors_do_not_count) {
    static const fv_status all[] = {FV_EINVAL, FV_EBUSY, FV_ENOTFOUND};
    fleet_seen f;
    router_rig_with_workers(&r, NULL);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int j = 0; j < FV_BREAKER_FAILURES; j++) {
            r.p.step = FAKE_NOTHING;
            r.p.fail = all[i];
            r.p.n_times = 1;
            int32_t before = r.p.calls;
            Fovea__Inference__V1__GenerateRequest req;
            client_request(&req, 10);
            client_ask(&r, &k, &req, 20000);
            router_rig_wait_for(&r, &r.p.calls, before + 1);
            router_rig_sleep(&r, 20);
            fake_report(&r.p); /* a worker without memory is avoided until then */
            router_rig_wait(&r, &k.over);
            router_rig_fleet(&r, &f);
            cr_assert_eq(f.n_failed[0] + f.n_failed[1], 0, "%s", fv_status_name(all[i]));
        }
    router_rig_close(&r);
}
