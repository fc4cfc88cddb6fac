/* router/: conversations that a decode worker keeps, and requests that continue them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/router_rig.h"

TestSuite(router_conversations, .timeout = 240);

static router_rig r;
static client k;
static Fovea__Inference__V1__GenerateRequest req;
static Fovea__Inference__V1__Prompt more;
static uint8_t name[128];
static size_t n_name;
static fake_worker *keeper, *other;

#define LOST FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_LOST

static void open_pairs(const fv_router_options *opt) {
    r.d.keep_ms_max = r.d1.keep_ms_max = 60000;
    router_rig_with_pairs(&r, opt);
}

/* A first turn that is kept; `name` receives its name. */
static void first_turn(void) {
    client_request(&req, 4);
    req.keep_ms = 5000;
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    n_name = k.n_conversation;
    memcpy(name, k.conversation, n_name);
    keeper = r.d.calls ? &r.d : &r.d1;
    other = keeper == &r.d ? &r.d1 : &r.d;
}

static void follow_request(uint32_t max_tokens) {
    client_request(&req, max_tokens);
    fovea__inference__v1__prompt__init(&more);
    more.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    more.text = (char *)"and then?";
    req.prompt = &more;
    req.keep_ms = 4000;
    req.conversation = (ProtobufCBinaryData){n_name, name};
}

static void follow(void) {
    follow_request(5);
    client_ask(&r, &k, &req, 20000);
}

static void gone(const char *words) {
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_NOT_FOUND, "%s", k.why);
    cr_assert(strstr(k.why, "send the whole conversation again"), "%s", k.why);
    cr_assert(strstr(k.why, words), "%s", k.why);
}

Test(router_conversations, what_is_kept_is_named_with_its_worker) {
    open_pairs(NULL);
    first_turn();
    cr_assert_eq(keeper->keep_ms, 5000);
    cr_assert_eq(k.keep_ms, 5000);
    cr_assert_eq(n_name, 16 + 2);
    cr_assert_eq(memcmp(name, FAKE_CONVERSATION, 16), 0);
    cr_assert_eq(memcmp(name + 16, keeper->name, 2), 0);
    router_rig_close(&r);
}

Test(router_conversations, without_keep_ms_nothing_is_named) {
    open_pairs(NULL);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_conversation, 0);
    router_rig_close(&r);
}

Test(router_conversations, a_follow_up_goes_to_its_worker_alone) {
    open_pairs(NULL);
    first_turn();
    int32_t n_prefill = r.p.calls + r.p1.calls;
    for (int i = 0; i < 4; i++) {
        follow();
        router_rig_wait(&r, &k.over);
        cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
        cr_assert_eq(k.n_accepted, 1);
        cr_assert_eq(k.n_tokens, 5);
        cr_assert_str_eq(k.decode_worker, keeper->name);
        cr_assert_str_empty(k.prefill_worker);
        cr_assert_str_eq(k.report_decode, keeper->name);
        cr_assert_str_empty(k.report_prefill);
        cr_assert_str_empty(k.notes, "%s", k.notes);
        cr_assert_eq(k.bytes_text_end, 99);
        cr_assert_eq(k.n_generated, 5);
        cr_assert_eq(k.keep_ms, 4000);
        cr_assert_eq(k.n_conversation, n_name, "it can go on again");
    }
    cr_assert(keeper->followed);
    cr_assert_str_eq(keeper->prompt, "and then?");
    cr_assert_eq(other->calls, 0);
    cr_assert_eq(r.p.calls + r.p1.calls, n_prefill);
    router_rig_close(&r);
}

Test(router_conversations, one_that_its_worker_does_not_know_is_not_found) {
    open_pairs(NULL);
    first_turn();
    keeper->step = FAKE_NOTHING;
    keeper->fail = FV_ENOTFOUND;
    follow();
    gone(keeper->name);
    cr_assert_eq(other->calls, 0);
    router_rig_close(&r);
}

Test(router_conversations, one_whose_worker_is_lost_is_not_found) {
    fleet_seen f;
    open_pairs(NULL);
    first_turn();
    fake_die(keeper);
    do router_rig_fleet(&r, &f);
    while (f.state[1] != LOST && f.state[3] != LOST);
    follow();
    gone("was lost");
    router_rig_close(&r);
}

Test(router_conversations, one_whose_worker_is_lost_in_the_middle_is_not_found) {
    open_pairs(NULL);
    first_turn();
    keeper->step = FAKE_TOKENS;
    keeper->n_say = 2;
    follow();
    router_rig_wait_for(&r, &k.n_tokens, 2);
    fake_die(keeper);
    gone(keeper->name);
    cr_assert_eq(other->calls, 0);
    router_rig_close(&r);
}

Test(router_conversations, one_whose_worker_drains_is_not_found) {
    open_pairs(NULL);
    first_turn();
    keeper->draining = true;
    fake_report(keeper);
    for (int i = 0; i < 200; i++) {
        follow();
        router_rig_wait(&r, &k.over);
        if (k.end.status != FV_OK) break;
    }
    gone("shutting down");
    router_rig_close(&r);
}

/* The last prefill worker of a fleet leaves in an orderly way, and is forgotten. */
static void leave(fake_worker *w) {
    w->draining = true;
    fake_report(w);
    fake_leave(w);
    router_rig_wait(&r, &w->join_over);
}

Test(router_conversations, a_follow_up_goes_on_when_all_prefill_workers_have_left) {
    fleet_seen f;
    open_pairs(NULL);
    first_turn();
    keeper->step = FAKE_TOKENS;
    keeper->n_say = 0;
    follow();
    router_rig_wait_for(&r, &keeper->follow_ups, 1);
    leave(&r.p);
    leave(&r.p1);
    do router_rig_fleet(&r, &f);
    while (f.n_worker != 2);
    fake_go_on(keeper);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_tokens, 5);
    router_rig_close(&r);
}

Test(router_conversations, of_a_worker_that_was_never_here_is_not_found_once_all_may_have_joined) {
    open_pairs(NULL);
    memcpy(name, FAKE_CONVERSATION "nobody", 22);
    n_name = 22;
    follow();
    gone("nobody");
    cr_assert_eq(r.d.calls + r.d1.calls, 0);
    router_rig_close(&r);
}

Test(router_conversations, a_router_that_was_started_again_waits_for_the_worker_to_join) {
    fv_router_options opt = router_rig_options();
    opt.wait_ms = 10000;
    r.d.keep_ms_max = r.d1.keep_ms_max = 60000;
    router_rig_with_workers(&r, &opt);
    memcpy(name, FAKE_CONVERSATION "d1", 18);
    n_name = 18;
    follow();
    router_rig_sleep(&r, 200);
    cr_assert_not(k.over);
    r.d1.name = "d1";
    r.d1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    router_rig_join(&r, &r.d1);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_str_eq(k.decode_worker, "d1");
    router_rig_close(&r);
}

Test(router_conversations, no_room_is_waited_for_and_nobody_else_waits_with_it) {
    static client first;
    open_pairs(NULL);
    first_turn();
    keeper->step = FAKE_NOTHING;
    keeper->fail = FV_EBUSY;
    int32_t before = keeper->calls;
    follow();
    for (int i = 1; i <= 3; i++) {
        router_rig_wait_for(&r, &keeper->calls, before + i);
        router_rig_sleep(&r, 50);
        cr_assert_eq(keeper->calls, before + i, "full until it reports");
        if (i < 3) fake_report(keeper);
    }
    cr_assert_not(k.over);
    for (int i = 0; i < 4; i++) {
        other->calls = 0;
        client_ask_wait(&r, &first, 1);
        cr_assert_eq(first.end.status, FV_OK, "%s", first.why);
    }
    keeper->step = FAKE_END;
    fake_report(keeper);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_replays, 0);
    router_rig_close(&r);
}

Test(router_conversations, an_unhealthy_worker_keeps_it_and_the_client_may_try_again) {
    open_pairs(NULL);
    first_turn();
    keeper->unhealthy = true;
    fake_report(keeper);
    for (int i = 0; i < 200; i++) {
        follow();
        router_rig_wait(&r, &k.over);
        if (k.end.status != FV_OK) break;
    }
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE, "%s", k.why);
    cr_assert(strstr(k.why, "not healthy now"), "%s", k.why);
    keeper->unhealthy = false;
    fake_report(keeper);
    follow();
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    router_rig_close(&r);
}

Test(router_conversations, cancelling_a_follow_up_cancels_it) {
    open_pairs(NULL);
    first_turn();
    keeper->step = FAKE_TOKENS;
    keeper->n_say = 1;
    follow();
    router_rig_wait_for(&r, &k.n_tokens, 1);
    fv_rpc_call_cancel(k.call);
    router_rig_wait_for(&r, &keeper->cancelled, 1);
    router_rig_wait(&r, &k.over);
    router_rig_close(&r);
}

Test(router_conversations, what_may_not_be_asked_is_told) {
    open_pairs(NULL);
    first_turn();
    follow_request(5);
    req.keep_ms = 60001;
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert(strstr(k.why, "60000 ms"), "%s", k.why);
    n_name = 7;
    follow();
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_INVALID_ARGUMENT);
    router_rig_close(&r);
}

Test(router_conversations, a_fleet_that_keeps_none_says_so) {
    router_rig_with_pairs(&r, NULL);
    client_request(&req, 4);
    req.keep_ms = 1;
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNIMPLEMENTED);
    router_rig_close(&r);
}

/* After a router's start, workers join one after the other. */
Test(router_conversations, without_a_decode_worker_yet_keeping_is_waited_for) {
    router_rig_open(&r, NULL);
    r.p.name = "p0";
    r.p.role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL;
    router_rig_join(&r, &r.p);
    client_request(&req, 4);
    req.keep_ms = 5000;
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE, "%s", k.why);
    router_rig_close(&r);
}
