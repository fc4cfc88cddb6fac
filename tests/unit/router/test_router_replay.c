/* router/replay.c, router/attempt.c: workers that are lost, or fail, at every step of a request;
 * the client sees neither gap nor duplicate (the rig aborts if it does). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/router_rig.h"

TestSuite(router_replay, .timeout = 240);

static router_rig r;
static client k;
static Fovea__Inference__V1__GenerateRequest req;
static fake_worker *p, *d, *other_p, *other_d; /* workers that got the request; the others */

#define TOKENS 6

static void ask(void) {
    client_request(&req, TOKENS);
    req.digests = true;
    client_ask(&r, &k, &req, 20000);
}

/* Returns the worker of two that got the request. */
static fake_worker *asked(fake_worker *a, fake_worker *b) {
    for (int i = 0; i < 1000 && a->calls + b->calls == 0; i++) router_rig_sleep(&r, 10);
    cr_assert_eq(a->calls + b->calls, 1);
    return a->calls ? a : b;
}

static void find_p(void) {
    p = asked(&r.p, &r.p1);
    other_p = p == &r.p ? &r.p1 : &r.p;
}

static void find_d(void) {
    d = asked(&r.d, &r.d1);
    other_d = d == &r.d ? &r.d1 : &r.d;
}

/* Makes two pairs of workers, which stop at these steps of a request. */
static void pairs_stop(fake_step prefill, fake_step decode, uint32_t n_say) {
    router_rig_with_pairs(&r, NULL);
    r.p.step = r.p1.step = prefill;
    r.d.step = r.d1.step = decode;
    r.d.n_say = r.d1.n_say = n_say;
}

static void others_go_on(void) {
    if (other_p) other_p->step = FAKE_END;
    if (other_d) other_d->step = FAKE_END;
}

static void answered(uint32_t n_replays) {
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_accepted, 1);
    cr_assert_eq(k.n_finished, 1);
    cr_assert_eq(k.n_tokens, TOKENS);
    for (uint32_t i = 0; i < TOKENS; i++) cr_assert_eq(k.ids[i], 100 + i);
    cr_assert_str_eq(k.text, "zero one more more more more");
    cr_assert_eq(k.n_digests, TOKENS);
    for (uint64_t i = 0; i < TOKENS; i++) cr_assert_eq(k.digests[i], 1000 + i);
    cr_assert_eq(k.n_generated, TOKENS);
    cr_assert_eq(k.n_replays, n_replays);
}

/* Asserts that nothing runs any more, at the router and at its workers. */
static void close_idle(void) {
    fleet_seen f;
    int32_t n = 1;
    for (int i = 0; i < 500 && n; i++) {
        router_rig_fleet(&r, &f);
        n = (int32_t)(f.n_queued + f.n_running) + r.p.running + r.d.running + r.p1.running +
            r.d1.running;
        if (n) router_rig_sleep(&r, 20);
    }
    cr_assert_eq(n, 0);
    router_rig_close(&r);
}

/* ---- the prefill worker ----------------------------------------------------------------- */

static void prefill_is_lost(fake_step at, bool died) {
    pairs_stop(at, FAKE_END, 0);
    ask();
    find_p();
    if (at == FAKE_BEGUN) router_rig_wait_for(&r, &k.n_accepted, 1);
    others_go_on();
    if (died)
        fake_die(p);
    else
        fake_leave(p); /* it is still there, and its call must be cancelled */
    answered(1);
    cr_assert_eq(other_p->n_replay, 0);
    cr_assert_str_eq(k.report_prefill, other_p->name);
    if (!died) router_rig_wait_for(&r, &p->cancelled, 1);
    close_idle();
}

Test(router_replay, a_prefill_worker_that_dies_before_it_has_said_anything) {
    prefill_is_lost(FAKE_NOTHING, true);
}

Test(router_replay, a_prefill_worker_that_leaves_before_it_has_said_anything) {
    prefill_is_lost(FAKE_NOTHING, false);
}

Test(router_replay, a_prefill_worker_that_dies_after_begun) { prefill_is_lost(FAKE_BEGUN, true); }

Test(router_replay, a_prefill_worker_that_leaves_after_begun) {
    prefill_is_lost(FAKE_BEGUN, false);
}

Test(router_replay, a_prefill_worker_that_dies_after_the_first_token_and_the_hand_off_with_it) {
    pairs_stop(FAKE_FIRST, FAKE_NOTHING, 0);
    ask();
    find_p();
    find_d();
    router_rig_wait_for(&r, &k.n_tokens, 1);
    others_go_on();
    fake_die(p);
    router_rig_wait_for(&r, &p->ended, 1);
    fake_fail(d, FV_EIO, "closed"); /* the stream to it has broken */
    d->step = FAKE_END;
    answered(1);
    cr_assert_eq(other_p->n_replay, 1);
    close_idle();
}

Test(router_replay, a_prefill_worker_that_dies_when_decode_has_everything_costs_its_report) {
    pairs_stop(FAKE_FIRST, FAKE_TOKENS, 2);
    ask();
    find_p();
    router_rig_wait_for(&r, &k.n_tokens, 3);
    find_d();
    fake_die(p);
    router_rig_wait_for(&r, &p->ended, 1);
    router_rig_sleep(&r, 100);
    cr_assert_not(k.over);
    cr_assert_eq(other_p->calls, 0);
    fake_go_on(d);
    answered(0);
    cr_assert_str_eq(k.report_prefill, p->name);
    cr_assert(strstr(k.notes, "was lost: its half of this report is missing"), "%s", k.notes);
    cr_assert(strstr(k.notes, p->name), "%s", k.notes);
    cr_assert_eq(k.bytes_text_end, 99);
    close_idle();
}

Test(router_replay, a_membership_that_ends_after_the_first_token_leaves_the_answer_alone) {
    pairs_stop(FAKE_END, FAKE_TOKENS, 2);
    ask();
    find_p();
    router_rig_wait_for(&r, &k.n_tokens, 3);
    find_d();
    fake_leave(p);
    router_rig_sleep(&r, 100);
    fake_go_on(d);
    answered(0);
    cr_assert_str_empty(k.notes, "%s", k.notes);
    close_idle();
}

/* ---- the decode worker ------------------------------------------------------------------ */

static void decode_is_lost(uint32_t n_say, bool died) {
    pairs_stop(FAKE_END, FAKE_TOKENS, n_say);
    ask();
    find_d();
    router_rig_wait_for(&r, &k.n_tokens, 1 + (int32_t)n_say);
    others_go_on();
    if (died)
        fake_die(d);
    else
        fake_leave(d);
    answered(1);
    cr_assert_eq(other_d->n_replay, 1 + n_say);
    cr_assert_str_eq(k.report_decode, other_d->name);
    if (!died) router_rig_wait_for(&r, &d->cancelled, 1);
    close_idle();
}

Test(router_replay, a_decode_worker_that_dies_before_its_first_token) { decode_is_lost(0, true); }

Test(router_replay, a_decode_worker_that_dies_in_the_middle) { decode_is_lost(3, true); }

Test(router_replay, a_decode_worker_that_leaves_in_the_middle) { decode_is_lost(3, false); }

Test(router_replay, when_one_token_is_left_the_prefill_worker_gives_it_alone) {
    pairs_stop(FAKE_END, FAKE_TOKENS, TOKENS - 2);
    ask();
    find_d();
    router_rig_wait_for(&r, &k.n_tokens, TOKENS - 1);
    fake_die(d);
    answered(1);
    cr_assert_eq(other_d->calls, 0);
    cr_assert_str_empty(k.report_decode);
    close_idle();
}

Test(router_replay, a_decode_worker_that_dies_after_the_last_token_costs_its_report) {
    pairs_stop(FAKE_END, FAKE_TOKENS, TOKENS - 1);
    r.p.had_ended = r.p1.had_ended = true;
    ask();
    find_d();
    router_rig_wait_for(&r, &k.n_tokens, TOKENS);
    fake_die(d);
    answered(1);
    cr_assert_eq(k.reason, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS);
    cr_assert(strstr(k.notes, "after the last token"), "%s", k.notes);
    cr_assert(strstr(k.notes, d->name), "%s", k.notes);
    cr_assert_eq(other_d->calls, 0);
    close_idle();
}

Test(router_replay, both_lost_at_once) {
    pairs_stop(FAKE_FIRST, FAKE_TOKENS, 2);
    ask();
    find_p();
    router_rig_wait_for(&r, &k.n_tokens, 3);
    find_d();
    others_go_on();
    fake_die(p);
    fake_die(d);
    answered(1);
    cr_assert_str_eq(k.report_prefill, other_p->name);
    cr_assert_str_eq(k.report_decode, other_d->name);
    close_idle();
}

/* ---- failures that workers report ------------------------------------------------------- */

typedef struct way {
    fake_worker *w;
    fake_step step;
} way;

Test(router_replay, whatever_a_worker_fails_with_another_try_follows) {
    static const fv_status all[] = {FV_EIO,       FV_EDEVICE,    FV_EDATA,
                                    FV_ENOTFOUND, FV_ECANCELLED, FV_EDEADLINE};
    router_rig_with_pairs(&r, NULL);
    way ways[] = {
        {&r.p, FAKE_NOTHING}, {&r.p, FAKE_BEGUN}, {&r.d, FAKE_NOTHING}, {&r.d, FAKE_TOKENS}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t j = 0; j < sizeof ways / sizeof ways[0]; j++) {
            fake_worker *w = ways[j].w, *twin = w == &r.p ? &r.p1 : &r.d1;
            w->step = twin->step = ways[j].step;
            w->fail = twin->fail = all[i];
            w->n_times = twin->n_times = 1;
            w->n_say = twin->n_say = 2;
            ask();
            router_rig_wait(&r, &k.over);
            cr_assert_eq(k.end.status, FV_OK, "%s: %s", fv_status_name(all[i]), k.why);
            cr_assert_eq(k.n_tokens, TOKENS);
            cr_assert_geq(k.n_replays, 1);
            w->step = twin->step = FAKE_END;
        }
    close_idle();
}

Test(router_replay, a_hand_off_that_breaks_after_the_first_token) {
    router_rig_with_workers(&r, NULL);
    r.p.step = FAKE_FIRST;
    r.d.step = FAKE_NOTHING;
    ask();
    router_rig_wait_for(&r, &r.d.calls, 1);
    router_rig_wait_for(&r, &k.n_tokens, 1);
    r.p.step = r.d.step = FAKE_END;
    fake_fail(&r.p, FV_EDATA, "checksum");
    answered(1);
    cr_assert_eq(r.p.n_replay, 1);
    router_rig_wait_for(&r, &r.d.cancelled, 1);
    close_idle();
}

/* ---- origin of failures ------------------------------------------------------------------ */

static uint32_t n_failed(void) {
    fleet_seen f;
    uint32_t n = 0;
    router_rig_fleet(&r, &f);
    for (int32_t i = 0; i < f.n_worker; i++) n += f.n_failed[i];
    return n;
}

/* Sends a request on which the only prefill worker fails once in this way. */
static void prefill_fails(fv_status st, fv_origin origin) {
    r.p.step = FAKE_NOTHING;
    r.p.n_times = 1;
    r.p.fail = st;
    r.p.origin = origin;
    memset(&k, 0, sizeof k);
    ask();
    router_rig_wait(&r, &k.over);
}

Test(router_replay, a_callers_mistake_is_told_and_neither_replayed_nor_counted) {
    static const fv_status all[] = {FV_EINVAL, FV_EDATA,     FV_EUNSUPPORTED, FV_ENOTFOUND,
                                    FV_EIO,    FV_EDEADLINE, FV_EDEVICE};
    router_rig_with_workers(&r, NULL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int32_t calls = r.p.calls;
        prefill_fails(all[i], FV_ORIGIN_CALLER);
        cr_assert_eq(k.end.status, all[i], "%s", k.why);
        cr_assert_eq(k.end.origin, FV_ORIGIN_CALLER);
        cr_assert_str_eq(k.why, "it cannot begin", "the worker is not named");
        cr_assert_eq(r.p.calls, calls + 1, "%s", fv_status_name(all[i]));
        cr_assert_eq(n_failed(), 0);
    }
    close_idle();
}

Test(router_replay, a_broken_file_of_the_checkpoint_is_told_and_not_counted) {
    router_rig_with_workers(&r, NULL);
    prefill_fails(FV_EDATA, FV_ORIGIN_CHECKPOINT);
    cr_assert_eq(k.end.status, FV_EDATA, "%s", k.why);
    cr_assert_eq(r.p.calls, 1);
    cr_assert_eq(n_failed(), 0);
    close_idle();
}

/* Fails a hand-off with the same status, of this origin, or of a worker that states none. */
static void damaged_hand_off(fv_origin origin) {
    router_rig_with_workers(&r, NULL);
    r.p.step = FAKE_FIRST;
    r.d.step = FAKE_NOTHING;
    ask();
    router_rig_wait_for(&r, &r.d.calls, 1);
    r.d.step = FAKE_END;
    r.d.origin = origin;
    r.p.step = FAKE_NOTHING; /* the replay waits there, and its success clears no count yet */
    fake_fail(&r.d, FV_EDATA, "checksum");
    router_rig_wait_for(&r, &r.p.calls, 2);
    cr_assert_eq(n_failed(), 1);
    r.p.step = FAKE_END;
    fake_go_on(&r.p);
    answered(1);
    close_idle();
}

Test(router_replay, a_damaged_hand_off_is_replayed_and_counts) {
    damaged_hand_off(FV_ORIGIN_HANDOFF);
}

Test(router_replay, data_lost_by_a_worker_is_replayed_and_counts) {
    damaged_hand_off(FV_ORIGIN_WORKER);
}

Test(router_replay, data_lost_without_an_origin_is_replayed_and_counts) {
    damaged_hand_off(FV_ORIGIN_UNSTATED);
}

Test(router_replay, a_worker_out_of_memory_is_replayed_and_what_is_too_large_is_told) {
    router_rig_with_workers(&r, NULL);
    prefill_fails(FV_ENOMEM, FV_ORIGIN_WORKER);
    cr_assert_eq(k.n_replays, 1);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    prefill_fails(FV_ENOMEM, FV_ORIGIN_UNSTATED);
    cr_assert_eq(k.end.status, FV_ENOMEM, "%s", k.why);
    close_idle();
}

Test(router_replay, a_worker_that_fails_is_tried_again_when_there_is_no_other) {
    router_rig_with_workers(&r, NULL);
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 1;
    r.d.fail = FV_EIO;
    r.d.n_times = 2;
    ask();
    answered(2);
    cr_assert_eq(r.d.calls, 3);
    close_idle();
}

Test(router_replay, three_losses_in_a_row_are_survived) {
    router_rig_with_pairs(&r, NULL);
    r.d.step = r.d1.step = FAKE_TOKENS;
    r.d.fail = r.d1.fail = FV_EIO;
    r.d.n_times = 2;
    r.d1.n_times = 1;
    r.d.n_say = r.d1.n_say = 1;
    /* d, d1, d in some order; the fourth try succeeds, unless it meets the one that has failed
     * once: the two alternate, since each try avoids the one that failed last. */
    ask();
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_tokens, TOKENS);
    cr_assert_geq(k.n_replays, 2);
    cr_assert_leq(k.n_replays, 3);
    close_idle();
}

Test(router_replay, after_so_many_replays_the_client_is_told_who_failed_and_how) {
    router_rig_with_workers(&r, NULL);
    r.d.step = FAKE_NOTHING;
    r.d.fail = FV_EDEVICE;
    ask();
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE);
    cr_assert(strstr(k.why, "given up after 3 replays"), "%s", k.why);
    cr_assert(strstr(k.why, "prefill worker p0"), "%s", k.why);
    cr_assert(strstr(k.why, "decode worker d0: it cannot begin"), "%s", k.why);
    cr_assert(strstr(k.why, "safe to send"), "%s", k.why);
    cr_assert_eq(r.d.calls, 4);
    cr_assert_eq(k.n_finished, 0);
    close_idle();
}

Test(router_replay, none_is_made_when_none_is_wanted) {
    fv_router_options opt = router_rig_options();
    opt.replays = 0;
    router_rig_with_pairs(&r, &opt);
    r.p.step = r.p1.step = FAKE_NOTHING;
    r.p.fail = r.p1.fail = FV_EIO;
    ask();
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE);
    cr_assert_eq(r.p.calls + r.p1.calls, 1);
    close_idle();
}

Test(router_replay, what_is_wrong_with_the_request_is_told_also_in_a_replay) {
    pairs_stop(FAKE_END, FAKE_TOKENS, 2);
    ask();
    find_d();
    find_p();
    router_rig_wait_for(&r, &k.n_tokens, 3);
    r.p.step = r.p1.step = FAKE_NOTHING;
    r.p.fail = r.p1.fail = FV_EINVAL;
    fake_die(d);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert_str_eq(k.why, "it cannot begin");
    close_idle();
}

Test(router_replay, tokens_that_are_not_due_are_a_failure_of_who_sent_them) {
    router_rig_with_workers(&r, NULL);
    r.d.skips = 1;
    ask();
    answered(1);
    close_idle();
}

/* ---- waiting requests ------------------------------------------------------------------- */

Test(router_replay, a_worker_that_is_lost_while_a_request_waits_for_it) {
    static client first;
    r.d.capacity = FAKE_BYTES * 3 / 2;
    router_rig_with_workers(&r, NULL);
    r.d.step = FAKE_TOKENS;
    client_request(&req, 4);
    client_ask(&r, &first, &req, 20000);
    router_rig_wait_for(&r, &first.n_tokens, 1);
    r.p.step = FAKE_NOTHING;
    ask();
    router_rig_wait_for(&r, &r.p.calls, 2);
    cr_assert_eq(k.n_accepted, 0);
    r.p.step = FAKE_END;
    fake_die(&r.d);
    r.d1.name = "d1";
    r.d1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    router_rig_join(&r, &r.d1);
    answered(0);
    router_rig_wait(&r, &first.over);
    cr_assert_eq(first.end.status, FV_OK, "%s", first.why);
    close_idle();
}

Test(router_replay, a_worker_that_comes_back_in_time_takes_the_request) {
    fv_router_options opt = router_rig_options();
    opt.wait_ms = 10000;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 2;
    ask();
    router_rig_wait_for(&r, &k.n_tokens, 3);
    fake_die(&r.d);
    router_rig_sleep(&r, 400);
    cr_assert_not(k.over);
    r.d1.name = "d0"; /* the same one again */
    r.d1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    router_rig_join(&r, &r.d1);
    answered(1);
    cr_assert_eq(r.d1.n_replay, 3);
    close_idle();
}

Test(router_replay, nobody_comes_back_and_the_client_is_told_what_was_lost) {
    router_rig_with_workers(&r, NULL);
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 2;
    ask();
    router_rig_wait_for(&r, &k.n_tokens, 3);
    fake_die(&r.d);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE);
    cr_assert(strstr(k.why, "decode worker d0"), "%s", k.why);
    cr_assert(strstr(k.why, "no other decode worker"), "%s", k.why);
    cr_assert(strstr(k.why, "safe to send"), "%s", k.why);
    close_idle();
}

Test(router_replay, a_mute_worker_is_lost_when_it_sends_no_reports_either) {
    fv_router_options opt = router_rig_options();
    opt.report_ms = 50;
    opt.silence_ms = 1000;
    router_rig_with_pairs(&r, &opt);
    r.p.step = r.p1.step = FAKE_NOTHING;
    ask();
    find_p();
    others_go_on();
    for (int i = 0; i < 1000 && !k.over; i++) {
        fake_report(other_p);
        fake_report(&r.d);
        fake_report(&r.d1);
        router_rig_sleep(&r, 20);
    }
    answered(1);
    close_idle();
}

/* ---- the client ------------------------------------------------------------------------- */

Test(router_replay, cancelling_during_a_replay_cancels_it) {
    pairs_stop(FAKE_END, FAKE_TOKENS, 2);
    ask();
    find_d();
    find_p();
    router_rig_wait_for(&r, &k.n_tokens, 3);
    r.p.step = r.p1.step = FAKE_BEGUN;
    fake_die(d);
    int32_t *cancelled = &r.p.cancelled, *cancelled1 = &r.p1.cancelled;
    for (int i = 0; i < 1000 && r.p.calls + r.p1.calls < 2; i++) router_rig_sleep(&r, 10);
    fv_rpc_call_cancel(k.call);
    for (int i = 0; i < 1000 && *cancelled + *cancelled1 == 0; i++) router_rig_sleep(&r, 10);
    cr_assert_eq(*cancelled + *cancelled1, 1);
    router_rig_wait(&r, &k.over);
    close_idle();
}

Test(router_replay, cancelling_while_a_replay_waits_for_a_worker_ends_it) {
    fv_router_options opt = router_rig_options();
    opt.wait_ms = 60000;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_TOKENS;
    ask();
    router_rig_wait_for(&r, &r.d.calls, 1);
    fake_die(&r.d);
    router_rig_wait_for(&r, &r.d.ended, 1);
    router_rig_sleep(&r, 100);
    fv_rpc_call_cancel(k.call);
    router_rig_wait(&r, &k.over);
    close_idle();
}

Test(router_replay, a_deadline_holds_for_all_replays_together) {
    router_rig_with_workers(&r, NULL);
    r.d.step = FAKE_TOKENS;
    client_request(&req, TOKENS);
    client_ask(&r, &k, &req, 3000);
    router_rig_wait_for(&r, &r.d.calls, 1);
    fake_die(&r.d);
    r.d1.name = "d1";
    r.d1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    r.d1.step = FAKE_NOTHING;
    router_rig_join(&r, &r.d1);
    router_rig_wait_for(&r, &r.d1.calls, 1);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    router_rig_wait_for(&r, &r.d1.cancelled, 1);
    close_idle();
}

Test(router_replay, the_routers_own_deadline_holds_too_and_says_so) {
    fv_router_options opt = router_rig_options();
    opt.deadline_ms = 1000;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_TOKENS;
    ask();
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    cr_assert(strstr(k.why, "--deadline-ms"), "%s", k.why);
    close_idle();
}

Test(router_replay, a_client_that_reads_slowly_gets_all_of_a_replay) {
    enum { N = 3000 };
    router_rig_with_pairs(&r, NULL);
    r.d.n_flood = r.d1.n_flood = N; /* 12 MB: more than buffers on the way hold */
    k.pause = true;
    client_request(&req, 100000);
    client_ask(&r, &k, &req, 60000);
    find_d();
    router_rig_wait_for(&r, &k.n_accepted, 1);
    router_rig_sleep(&r, 300);
    cr_assert_gt(d->n_flood, 0, "it was not held back");
    other_d->n_flood = 10;
    fake_die(d);
    router_rig_sleep(&r, 300);
    k.pause = false;
    fv_rpc_call_resume(k.call);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_replays, 1);
    cr_assert_eq((uint32_t)k.n_tokens, other_d->n_replay + 1 + 10);
    close_idle();
}
