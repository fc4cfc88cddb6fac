/* Requests go to workers that keep a beginning of their prompt, as far as these say the truth and are not busy. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "router/balancer.h"
#include "router/kept.h"
#include "tests/support/router_rig.h"

TestSuite(router_kept, .timeout = 60);

enum { BYTES = 3000, CACHED = 600, KEPT = FAKE_KEPT };

typedef Fovea__Inference__V1__GenerateRequest request_message;

static router_rig r;
static client k;
static char text[128 << 10];
static Fovea__Fleet__V1__KeptPrompt kept[KEPT];

static void open_with_hints(void) {
    fv_router_options opt = router_rig_options();
    opt.hints = 1000;
    r.p.caches = r.p1.caches = true;
    r.p.n_cached = r.p1.n_cached = CACHED;
    router_rig_with_pairs(&r, &opt);
}

/* Makes a prompt of n bytes, which ends in question `number`. */
static void make_request(request_message *req, size_t n, int number) {
    client_request(req, 4);
    memset(text, 'x', n);
    snprintf(text + n, 16, "%d", number);
    req->prompt->text = text;
}

static void ask(int number, const char *salt, bool off) {
    request_message req;
    make_request(&req, BYTES, number);
    req.cache_salt = (char *)(uintptr_t)salt;
    req.cache_off = off;
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
}

/* The workers that served the last request, and the others. */
static fake_worker *used_p(void) { return strcmp(k.report_prefill, r.p.name) == 0 ? &r.p : &r.p1; }
static fake_worker *other_p(void) { return used_p() == &r.p ? &r.p1 : &r.p; }

/* Worker w reports that it keeps so many tokens of all beginnings of the request that `of` had last; 0: gives them up. */
static void report(fake_worker *w, const fake_worker *of, uint32_t tokens) {
    for (size_t i = 0; i < of->n_ends; i++) {
        fovea__fleet__v1__kept_prompt__init(&kept[i]);
        kept[i].digest = of->ends[i];
        kept[i].tokens = tokens;
        kept[i].seconds = 100;
    }
    w->kept = kept;
    w->n_kept = of->n_ends;
    fake_report(w);
    router_rig_sleep(&r, 60);
}

Test(router_kept, what_begins_alike_follows_to_both_workers) {
    open_with_hints();
    ask(0, "", false);
    fake_worker *p = used_p();
    char d[64];
    snprintf(d, sizeof d, "%s", k.report_decode);
    cr_assert_eq(p->n_ends, 3, "two pages of text, and all: %zu", p->n_ends);
    report(p, p, CACHED);
    report(strcmp(d, r.d.name) == 0 ? &r.d : &r.d1, p, CACHED);
    for (int i = 1; i < 8; i++) {
        ask(i, "", false);
        cr_assert_eq(used_p(), p);
        cr_assert_str_eq(k.report_decode, d);
    }
    router_rig_close(&r);
}

Test(router_kept, reports_move_requests_and_outlive_the_worker_that_knew) {
    open_with_hints();
    ask(0, "", false);
    fake_worker *first = used_p(), *second = other_p();
    report(first, first, 0);
    report(second, first, CACHED);
    for (int i = 1; i < 5; i++) {
        ask(i, "", false);
        cr_assert_eq(used_p(), second);
    }
    fake_die(second);
    router_rig_sleep(&r, 100);
    ask(9, "", false);
    cr_assert_eq(used_p(), first);
    router_rig_close(&r);
}

Test(router_kept, another_salt_knows_nothing_and_without_cache_nothing_is_named) {
    open_with_hints();
    ask(0, "", false);
    uint64_t own = used_p()->ends[0];
    ask(0, "salt", false);
    cr_assert_neq(used_p()->ends[0], own);
    ask(0, "", true);
    cr_assert_eq(used_p()->n_ends, 0);
    router_rig_close(&r);
}

Test(router_kept, a_router_without_hints_names_nothing) {
    r.p.caches = r.p1.caches = true;
    router_rig_with_pairs(&r, NULL);
    ask(0, "", false);
    cr_assert_eq(used_p()->n_ends, 0);
    router_rig_close(&r);
}

Test(router_kept, a_worker_that_lies_is_not_believed_for_long) {
    open_with_hints();
    ask(0, "", false);
    fake_worker *honest = used_p(), *liar = other_p();
    report(honest, honest, CACHED);
    liar->n_cached = 0;
    const int32_t before = liar->calls;
    for (int i = 1; i <= 30; i++) {
        report(liar, honest->n_ends ? honest : liar, CACHED);
        ask(i, "", false);
    }
    cr_assert_leq(liar->calls - before, 10);
    router_rig_close(&r);
}

Test(router_kept, reports_that_are_too_large_or_odd_are_bounded) {
    static const float odd[] = {0, -1, NAN, INFINITY, 1e30f};
    open_with_hints();
    ask(0, "", false);
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < KEPT; i++) {
            fovea__fleet__v1__kept_prompt__init(&kept[i]);
            kept[i].digest = (uint64_t)i * (uint64_t)(round + 1);
            kept[i].tokens = i % 3 ? UINT32_MAX : 0;
            kept[i].seconds = odd[i % 5];
        }
        r.p.kept = r.d.kept = kept;
        r.p.n_kept = r.d.n_kept = KEPT;
        fake_report(&r.p);
        fake_report(&r.d);
        router_rig_sleep(&r, 60);
    }
    report(other_p(), used_p(), UINT32_MAX); /* more tokens than the prompt has */
    for (int i = 1; i < 5; i++) ask(i, "", false);
    router_rig_close(&r);
}

Test(router_kept, a_policy_that_shares_nothing_leaves_what_others_left) {
    open_with_hints();
    ask(0, "", false);
    fake_worker *p = used_p();
    report(p, p, CACHED);
    p->caches = false; /* as it would say of such a request */
    p->n_cached = 0;
    ask(1, "", false);
    cr_assert_eq(used_p(), p);
    p->caches = true;
    p->n_cached = CACHED;
    for (int i = 2; i < 6; i++) {
        ask(i, "", false);
        cr_assert_eq(used_p(), p);
    }
    router_rig_close(&r);
}

Test(router_kept, large_requests_are_named_on_a_thread_also_if_the_client_leaves) {
    request_message req;
    open_with_hints();
    make_request(&req, 100 << 10, 1);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_geq(used_p()->n_ends, (size_t)6);
    for (int i = 0; i < 20; i++) {
        make_request(&req, 100 << 10, i);
        client_ask(&r, &k, &req, 20000);
        router_rig_sleep(&r, i % 3);
        if (!k.over) fv_rpc_call_cancel(k.call);
        router_rig_wait(&r, &k.over);
    }
    router_rig_close(&r);
}

/* ---- the choice alone -------------------------------------------------------------------------- */

static fv_fleet fleet;
static fv_registered_worker w[2];
static fv_introduction intro[2];
static const fv_work work = {.prompt = 1000, .answer = 10};

static fv_registered_worker *choose(const fv_kept *keeper, Fovea__Inference__V1__Role role) {
    fv_constraints c = {.role = role,
                        .exclude = "",
                        .now_s = 1,
                        .estimate = &fleet.estimate,
                        .work = &work,
                        .kept = keeper,
                        .n_kept = 1};
    for (int i = 0; i < 2; i++) w[i].role = role;
    return fv_balance(&fleet, &c);
}

static fv_kept make_fleet(void) {
    for (int i = 0; i < 2; i++) {
        fovea__fleet__v1__introduction__init(&intro[i]);
        intro[i].name = (char *)(i ? "b" : "a");
        w[i] =
            (fv_registered_worker){.intro = &intro[i], .fleet = &fleet, .state = FV_WORKER_READY};
        fovea__inference__v1__load__init(&w[i].load);
        w[i].load.slots = 4;
    }
    w[0].next = &w[1];
    fleet.first = &w[0];
    fleet.estimate.pace.prefill = (fv_ratio){.x = 1000, .y = 1}; /* 1 ms a token */
    fleet.estimate.pace.kept = (fv_ratio){.x = 1, .y = 0.01};
    fleet.estimate.pace.decode = (fv_trend){.w = 1, .x = 1, .y = 0.01, .xx = 1, .xy = 0.01};
    return (fv_kept){.worker = &w[0], .tokens = 900, .left = {.prompt = 100, .answer = 10}};
}

Test(router_kept, a_busy_prefill_worker_passes_the_request_on) {
    fv_kept keeper = make_fleet();
    for (int i = 0; i < 50; i++) {
        w[0].prompt_taken = 0;
        cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[0]);
        w[0].prompt_taken = 800; /* 0.9 s until the token there, 1 s elsewhere */
        cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[0]);
        w[0].prompt_taken = 1600; /* 1.7 s */
        cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[1]);
        keeper.seconds = 2; /* measured: computing it takes longer than that */
        cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[0]);
        keeper.seconds = 0;
        w[1].prompt_taken = 3000;
        cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[0]);
        w[1].prompt_taken = 0;
    }
}

Test(router_kept, many_short_requests_make_a_worker_busy_too) {
    fv_kept keeper = make_fleet();
    w[0].n_taken = w[0].n_prompt = 15;
    cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[0]);
    fleet.estimate.pace.kept.y = 0.1;
    for (int i = 0; i < 20; i++) cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[1]);
}

Test(router_kept, a_worker_that_cannot_take_it_is_not_taken) {
    fv_kept keeper = make_fleet();
    w[0].state = FV_WORKER_UNHEALTHY;
    for (int i = 0; i < 20; i++) cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[1]);
    w[0].state = FV_WORKER_READY;
    w[0].n_taken = FV_PREFILL_MAX;
    for (int i = 0; i < 20; i++) cr_assert_eq(choose(&keeper, FV_WORKER_PREFILL), &w[1]);
}

Test(router_kept, a_decode_worker_without_a_slot_passes_the_request_on) {
    fv_kept keeper = make_fleet();
    w[0].n_taken = 3;
    for (int i = 0; i < 20; i++) cr_assert_eq(choose(&keeper, FV_WORKER_DECODE), &w[0]);
    w[0].n_taken = 4;
    for (int i = 0; i < 20; i++) cr_assert_eq(choose(&keeper, FV_WORKER_DECODE), &w[1]);
}

Test(router_kept, a_decode_worker_with_many_answers_passes_the_request_on) {
    fv_kept keeper = make_fleet();
    w[0].load.slots = w[1].load.slots = 16;
    w[0].n_taken = 8;
    w[1].n_taken = 3;
    for (int i = 0; i < 20; i++) cr_assert_eq(choose(&keeper, FV_WORKER_DECODE), &w[0]);
    w[1].n_taken = 2;
    for (int i = 0; i < 20; i++) cr_assert_eq(choose(&keeper, FV_WORKER_DECODE), &w[1]);
}
