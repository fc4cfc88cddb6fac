/* router/balancer.c: workers of the router's zone, and of each other's, come first. */
#include <criterion/criterion.h>
#include <string.h>

#include "auth/fleet_name.h"
#include "tests/support/router_rig.h"

TestSuite(router_zones, .timeout = 240);

enum { MANY = 12 };

static router_rig r;
static client k[MANY];

static void live_in(void *user, Fovea__Fleet__V1__Introduction *in) { in->zone = user; }

static void place(fake_worker *w, char *zone) {
    w->forge = live_in;
    w->user = zone;
}

/* A pair in zone a and one in zone b; the router is in `zone`. */
static void two_zones(const char *zone) {
    fv_router_options opt = router_rig_options();
    opt.zone = zone;
    place(&r.p, "a");
    place(&r.d, "a");
    place(&r.p1, "b");
    place(&r.d1, "b");
    router_rig_with_pairs(&r, &opt);
}

static void ask_all(void) {
    for (int i = 0; i < MANY; i++) {
        client_ask_wait(&r, &k[i], 4);
        cr_assert_eq(k[i].end.status, FV_OK, "%s", k[i].why);
    }
}

Test(router_zones, requests_stay_in_the_router_s_zone) {
    two_zones("b");
    ask_all();
    cr_assert_eq(r.d1.calls, MANY);
    cr_assert_eq(r.p1.calls, MANY);
    router_rig_close(&r);
}

Test(router_zones, a_zone_without_workers_is_served_by_others_and_pairs_stay_together) {
    two_zones("c");
    r.d.unhealthy = true;
    fake_report(&r.d);
    router_rig_sleep(&r, 100);
    ask_all();
    cr_assert_eq(r.d1.calls, MANY);
    cr_assert_eq(r.p1.calls, MANY, "prompts come from the zone of the decode worker");
    router_rig_close(&r);
}

Test(router_zones, a_router_without_zone_keeps_pairs_together) {
    two_zones("");
    ask_all();
    cr_assert_eq(r.d.calls, r.p.calls);
    cr_assert_eq(r.d1.calls, r.p1.calls);
    cr_assert_eq(r.d.calls + r.d1.calls, MANY);
    router_rig_close(&r);
}

Test(router_zones, who_would_wait_for_a_slot_goes_to_another_zone) {
    Fovea__Inference__V1__GenerateRequest req;
    r.d.slots = r.d1.slots = 1;
    two_zones("a");
    r.d.step = FAKE_TOKENS; /* the first answer does not end */
    r.d.n_say = 1;
    client_request(&req, 8);
    client_ask(&r, &k[0], &req, 20000);
    router_rig_wait_for(&r, &k[0].n_tokens, 1);
    client_ask_wait(&r, &k[1], 4);
    cr_assert_eq(k[1].end.status, FV_OK, "%s", k[1].why);
    cr_assert_eq(r.d.calls, 1);
    cr_assert_eq(r.d1.calls, 1);
    fv_rpc_call_cancel(k[0].call);
    router_rig_wait(&r, &k[0].over);
    router_rig_close(&r);
}

Test(router_zones, a_request_whose_worker_failed_goes_to_another_zone) {
    two_zones("a");
    r.d.step = FAKE_NOTHING;
    r.d.fail = FV_EIO;
    r.d.n_times = 1;
    client_ask_wait(&r, &k[0], 4);
    cr_assert_eq(k[0].end.status, FV_OK, "%s", k[0].why);
    cr_assert_eq(r.d.calls, 1);
    cr_assert_eq(r.d1.calls, 1);
    router_rig_close(&r);
}

Test(router_zones, a_name_that_is_none_is_refused) {
    fake_worker odd = {.name = "d1", .role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE};
    router_rig_with_workers(&r, NULL);
    place(&odd, "a zone\nevent=forged");
    fake_open(&odd, r.bridge, r.fleet);
    router_rig_wait(&r, &odd.join_over);
    cr_assert_eq(odd.join_end.code, GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(odd.join_text, "zone"), "%s", odd.join_text);
    fake_close(&odd);
    router_rig_wait(&r, &odd.stopped);
    router_rig_close(&r);
    cr_assert_eq(fv_zone_check(""), FV_OK);
    cr_assert_eq(fv_zone_check("europe-west1-b"), FV_OK);
}
