/* router/: requests through a router with fake workers, in success and in every failure. Closing
 * the rig asserts that nothing is left behind. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "router/admit.h"
#include "tests/support/router_rig.h"

TestSuite(router_generate, .timeout = 240);

static router_rig r;
static client k;
static Fovea__Inference__V1__GenerateRequest req;

#define UNAVAILABLE GRPC_STATUS_UNAVAILABLE

static void workers(void) { router_rig_with_workers(&r, NULL); }

/* The decode worker sends one token and then nothing. */
static void stall_decode(void) {
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 1;
}

static client runs, waits;

/* Fills the decode worker, and makes the next request wait for memory there: later ones are
 * queued. */
static void fill(void) {
    stall_decode();
    client_request(&req, 4);
    client_ask(&r, &runs, &req, 20000);
    router_rig_wait_for(&r, &runs.n_tokens, 2);
    r.p.step = FAKE_NOTHING;
    client_ask(&r, &waits, &req, 20000);
    router_rig_wait_for(&r, &r.p.calls, 2);
}

static void end_filling(void) {
    fv_rpc_call_cancel(runs.call);
    fv_rpc_call_cancel(waits.call);
    router_rig_wait(&r, &runs.over);
    router_rig_wait(&r, &waits.over);
}

/* Asserts that nothing runs any more, at the router and at its workers. */
static void assert_idle(void) {
    fleet_seen f;
    for (int i = 0; i < 100; i++) {
        router_rig_fleet(&r, &f);
        if (f.n_queued + f.n_running == 0 && r.p.running + r.d.running == 0) return;
        router_rig_sleep(&r, 20);
    }
    cr_assert(0, "%u wait and %u run, at the workers %d and %d", f.n_queued, f.n_running,
              r.p.running, r.d.running);
}

/* ---- success ----------------------------------------------------------------------------- */

Test(router_generate, tokens_of_both_workers_come_in_order_and_then_the_end) {
    workers();
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_accepted, 1);
    cr_assert_str_eq(k.prefill_worker, "p0");
    cr_assert_str_eq(k.decode_worker, "d0");
    cr_assert_str_eq(k.model, "fake");
    cr_assert_eq(k.bytes_bound, FAKE_BYTES);
    cr_assert_eq(k.n_tokens, 4);
    for (uint32_t i = 0; i < 4; i++) cr_assert_eq(k.ids[i], 100 + i);
    cr_assert_str_eq(k.text, "zero one more more");
    cr_assert_eq(k.n_finished, 1);
    cr_assert_eq(k.reason, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_LENGTH);
    router_rig_close(&r);
}

Test(router_generate, the_report_has_both_halves) {
    workers();
    client_ask_wait(&r, &k, 3);
    cr_assert_eq(k.bytes_raw, 640, "the prefill worker's");
    cr_assert_eq(k.bytes_text_end, 99, "the decode worker's");
    cr_assert_eq(k.n_generated, 3);
    cr_assert_eq(k.n_digests, 0, "nobody asked");
    router_rig_close(&r);
}

Test(router_generate, digests_of_both_workers_tokens_are_collected_for_who_asks) {
    workers();
    client_request(&req, 5);
    req.digests = true;
    client_ask(&r, &k, &req, 10000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_digests, 5);
    for (uint64_t i = 0; i < 5; i++) cr_assert_eq(k.digests[i], 1000 + i);
    router_rig_close(&r);
}

Test(router_generate, both_workers_hear_the_same_id_and_the_prefill_worker_where_decode_is) {
    workers();
    client_request(&req, 4);
    req.request_id = (char *)"mine-1";
    client_ask(&r, &k, &req, 10000);
    router_rig_wait(&r, &k.over);
    cr_assert_str_eq(k.request_id, "mine-1");
    const char *slash = strchr(r.p.request_id, '/');
    cr_assert(slash && slash > r.p.request_id, "inside the fleet, the router's id comes first");
    cr_assert_str_eq(slash + 1, "mine-1");
    cr_assert_str_eq(r.d.request_id, r.p.request_id);
    cr_assert_str_eq(r.p.decode_address, r.d.address);
    router_rig_close(&r);
}

Test(router_generate, a_request_without_max_tokens_gets_the_default) {
    workers();
    client_ask_wait(&r, &k, 0);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(r.p.max_tokens, FV_REQUEST_TOKENS_LEAST);
    cr_assert_eq(k.n_tokens, FV_REQUEST_TOKENS_LEAST);
    router_rig_close(&r);
}

Test(router_generate, a_default_that_fits_no_worker_is_cut_by_the_worker) {
    fv_router_options opt = router_rig_options();
    opt.max_tokens_default = 300;
    r.d.capacity = 70000; /* 512 bytes a token: 128 tokens fit */
    router_rig_with_workers(&r, &opt);
    client_ask_wait(&r, &k, 0);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(r.p.max_tokens, 300);
    cr_assert(r.p.open_ended && !r.p.reserve_all);
    client_ask_wait(&r, &k, 250);
    cr_assert_eq(k.end.status, FV_ENOMEM, "so many were asked for: %s", k.why);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_not(r.p.open_ended);
    router_rig_close(&r);
}

Test(router_generate, an_answer_of_one_token_needs_no_decode_worker) {
    workers();
    client_ask_wait(&r, &k, 1);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_tokens, 1);
    cr_assert_eq(k.n_finished, 1);
    cr_assert_str_empty(r.p.decode_address);
    cr_assert_eq(r.d.calls, 0);
    router_rig_close(&r);
}

Test(router_generate, a_first_token_that_ends_the_answer_ends_it) {
    workers();
    r.p.ends_at_first = true;
    client_ask_wait(&r, &k, 8);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_tokens, 1);
    cr_assert_eq(k.reason, FOVEA__INFERENCE__V1__FINISH_REASON__FINISH_REASON_EOS);
    cr_assert_eq(r.d.calls, 0);
    router_rig_close(&r);
}

Test(router_generate, many_requests_at_once_all_come_to_their_end) {
    enum { N = 40 };
    static client many[N];
    workers();
    client_request(&req, 5);
    for (int i = 0; i < N; i++) client_ask(&r, &many[i], &req, 20000);
    for (int i = 0; i < N; i++) {
        router_rig_wait(&r, &many[i].over);
        cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
        cr_assert_eq(many[i].n_tokens, 5);
        for (int j = 0; j < i; j++) cr_assert_str_neq(many[i].request_id, many[j].request_id);
    }
    assert_idle();
    router_rig_close(&r);
}

Test(router_generate, a_client_that_reads_slowly_gets_all_and_holds_the_decode_worker_back) {
    enum { N = 4000 };
    workers();
    r.d.n_flood = N; /* 16 MB: more than buffers on the way hold */
    k.pause = true;
    client_request(&req, 10);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait_for(&r, &k.n_accepted, 1);
    router_rig_sleep(&r, 300);
    cr_assert_gt(r.d.n_flood, 0, "it was not held back");
    k.pause = false;
    fv_rpc_call_resume(k.call);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_tokens, N + 1);
    router_rig_close(&r);
}

/* ---- cancellation ----------------------------------------------------------------------- */

Test(router_generate, cancelling_during_prefill_cancels_it) {
    workers();
    r.p.step = FAKE_NOTHING;
    client_request(&req, 4);
    client_ask(&r, &k, &req, 10000);
    router_rig_wait_for(&r, &r.p.calls, 1);
    fv_rpc_call_cancel(k.call);
    router_rig_wait_for(&r, &r.p.cancelled, 1);
    router_rig_wait(&r, &k.over);
    assert_idle();
    router_rig_close(&r);
}

Test(router_generate, cancelling_during_decode_cancels_it) {
    workers();
    stall_decode();
    client_request(&req, 4);
    client_ask(&r, &k, &req, 10000);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    fv_rpc_call_cancel(k.call);
    router_rig_wait_for(&r, &r.d.cancelled, 1);
    assert_idle();
    router_rig_close(&r);
}

Test(router_generate, a_deadline_cancels_the_work_after_it) {
    workers();
    stall_decode();
    client_request(&req, 4);
    client_ask(&r, &k, &req, 300);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    router_rig_wait_for(&r, &r.d.ended, 1);
    assert_idle();
    router_rig_close(&r);
}

typedef struct abort_seen {
    bool over;
    grpc_status_code code;
} abort_seen;

static void on_abort(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    (void)c;
    (void)reply;
    *(abort_seen *)user = (abort_seen){true, end->code};
}

static grpc_status_code abort_wait(const char *id, const char *token) {
    abort_seen seen = {0};
    Fovea__Inference__V1__AbortRequest m = FOVEA__INFERENCE__V1__ABORT_REQUEST__INIT;
    m.request_id = (char *)(uintptr_t)id;
    m.abort_token = (char *)(uintptr_t)token;
    cr_assert_eq(fv_rpc_unary(r.channel, "/fovea.inference.v1.Inference/Abort", &m.base, 5000,
                              on_abort, &seen, NULL),
                 FV_OK);
    router_rig_wait(&r, &seen.over);
    return seen.code;
}

Test(router_generate, abort_ends_the_request_by_its_id_and_token) {
    workers();
    stall_decode();
    client_request(&req, 4);
    req.request_id = (char *)"long";
    client_ask(&r, &k, &req, 10000);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    cr_assert_eq(abort_wait("long", k.abort_token), GRPC_STATUS_OK);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_ECANCELLED);
    cr_assert(strstr(k.why, "long was aborted"), "%s", k.why);
    assert_idle();
    cr_assert_eq(abort_wait("long", k.abort_token), GRPC_STATUS_NOT_FOUND);
    router_rig_close(&r);
}

Test(router_generate, who_knows_an_id_and_not_its_token_aborts_nothing) {
    static client other;
    char token[64];
    workers();
    stall_decode();
    client_request(&req, 4);
    req.request_id = (char *)"long";
    client_ask(&r, &k, &req, 10000);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    req.request_id = (char *)"";
    client_ask(&r, &other, &req, 10000);
    router_rig_wait_for(&r, &other.n_tokens, 2);
    cr_assert_str_neq(k.abort_token, other.abort_token);
    cr_assert_eq(strcspn(k.abort_token, "/"), strcspn(other.abort_token, "/"));
    cr_assert_eq(abort_wait("long", ""), GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert_eq(abort_wait("long", other.abort_token), GRPC_STATUS_NOT_FOUND);
    cr_assert_eq(abort_wait("long", "00000000/0123456789abcdef0123456789abcdef"),
                 GRPC_STATUS_NOT_FOUND, "of another router");
    for (size_t i = 0; k.abort_token[i]; i++) { /* one character is wrong */
        strcpy(token, k.abort_token);
        token[i] = token[i] == '0' ? '1' : '0';
        cr_assert_eq(abort_wait("long", token), GRPC_STATUS_NOT_FOUND, "%s", token);
    }
    strcpy(token, k.abort_token);
    token[strlen(token) - 1] = '\0';
    cr_assert_eq(abort_wait("long", token), GRPC_STATUS_NOT_FOUND, "cut off");
    cr_assert_not(k.over);
    cr_assert_eq(abort_wait(other.request_id, other.abort_token), GRPC_STATUS_OK);
    cr_assert_eq(abort_wait("long", k.abort_token), GRPC_STATUS_OK);
    router_rig_wait(&r, &k.over);
    router_rig_wait(&r, &other.over);
    router_rig_close(&r);
}

/* Ids must be unpredictable (five xorshift ids would reveal the next): neighbours share no more
 * bits than by chance. */
Test(router_generate, request_ids_say_nothing_of_each_other) {
    enum { N = 24 };
    uint64_t ids[N], all_and = UINT64_MAX, all_or = 0;
    workers();
    for (int i = 0; i < N; i++) {
        char *end;
        client_ask_wait(&r, &k, 2);
        cr_assert_eq(strncmp(k.request_id, "req-", 4), 0, "%s", k.request_id);
        cr_assert_eq(strlen(k.request_id), 20);
        ids[i] = strtoull(k.request_id + 4, &end, 16);
        cr_assert_eq(*end, '\0');
        all_and &= ids[i];
        all_or |= ids[i];
        for (int j = 0; j < i; j++) {
            int differ = __builtin_popcountll(ids[i] ^ ids[j]);
            cr_assert(differ > 8 && differ < 56, "%016llx %016llx", (unsigned long long)ids[i],
                      (unsigned long long)ids[j]);
        }
        /* Ids must not be successive states of Marsaglia's xorshift. */
        for (int j = 0; j < i; j++) {
            uint64_t x = ids[j];
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            cr_assert_neq(x, ids[i]);
        }
    }
    cr_assert(__builtin_popcountll(all_and) < 3 && __builtin_popcountll(~all_or) < 3,
              "each bit is drawn");
    router_rig_close(&r);
}

/* ---- failures --------------------------------------------------------------------------- */

Test(router_generate, what_prefill_says_of_the_request_reaches_the_client_as_it_is) {
    workers();
    r.p.step = FAKE_NOTHING;
    r.p.fail = FV_EINVAL;
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.code, GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert_str_eq(k.why, "it cannot begin");
    cr_assert_eq(k.n_accepted, 0);
    assert_idle();
    router_rig_close(&r);
}

Test(router_generate, no_room_at_first_is_tried_again_unseen_by_the_client) {
    workers();
    r.p.step = FAKE_NOTHING;
    r.p.fail = FV_EBUSY;
    r.p.n_times = 3;
    client_request(&req, 4);
    client_ask(&r, &k, &req, 20000);
    for (int i = 1; i <= 3; i++) {
        router_rig_wait_for(&r, &r.p.calls, i);
        router_rig_sleep(&r, 50);
        fake_report(&r.p);
    }
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_accepted, 1);
    cr_assert_eq(k.n_tokens, 4);
    cr_assert_eq(r.p.calls, 4);
    cr_assert_eq(k.n_replays, 0, "to wait is no replay");
    router_rig_close(&r);
}

Test(router_generate, a_fleet_without_decode_workers_is_unavailable) {
    router_rig_open(&r, NULL);
    r.p.name = "p0";
    r.p.role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL;
    router_rig_join(&r, &r.p);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.code, UNAVAILABLE);
    cr_assert(strstr(k.why, "no decode worker"), "%s", k.why);
    router_rig_close(&r);
}

Test(router_generate, an_empty_fleet_is_unavailable) {
    router_rig_open(&r, NULL);
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.code, UNAVAILABLE);
    router_rig_close(&r);
}

/* ---- the queue -------------------------------------------------------------------------- */

Test(router_generate, what_does_not_fit_waits_and_is_served_when_there_is_room) {
    static client third;
    r.d.capacity = FAKE_BYTES * 3 / 2;
    workers();
    fill();
    client_ask(&r, &third, &req, 20000);
    router_rig_sleep(&r, 200);
    fleet_seen f;
    router_rig_fleet(&r, &f);
    cr_assert_eq(f.n_queued, 1);
    cr_assert_eq(f.n_running, 2, "one of them waits at the decode worker");
    cr_assert_eq(waits.n_accepted, 0);
    cr_assert_eq(third.n_accepted, 0);
    r.d.step = r.p.step = FAKE_END;
    end_filling();
    router_rig_wait(&r, &third.over);
    cr_assert_eq(third.end.status, FV_OK, "%s", third.why);
    router_rig_close(&r);
}

Test(router_generate, the_oldest_request_waits_where_its_age_is_known_and_moves_on_where_room_is) {
    static client third;
    r.d.capacity = FAKE_BYTES * 3 / 2;
    workers();
    fill();
    cr_assert_str_eq(r.p.decode_address, r.d.address, "it waits there, and not in the router");
    client_ask(&r, &third, &req, 20000);
    router_rig_sleep(&r, 100);
    cr_assert_eq(r.p.calls, 2, "one at a time");
    r.p.step = FAKE_END;
    r.d1.name = "d1";
    r.d1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    r.d1.capacity = FAKE_BYTES * 9;
    router_rig_join(&r, &r.d1);
    router_rig_wait(&r, &waits.over);
    router_rig_wait(&r, &third.over);
    cr_assert_eq(waits.end.status, FV_OK, "%s", waits.why);
    cr_assert_eq(third.end.status, FV_OK, "%s", third.why);
    cr_assert_str_eq(waits.decode_worker, "d1");
    cr_assert_eq(waits.n_replays, 0);
    cr_assert_geq(r.p.age_ms, 100, "it says how old it is");
    fv_rpc_call_cancel(runs.call);
    router_rig_wait(&r, &runs.over);
    router_rig_close(&r);
}

Test(router_generate, a_worker_that_refuses_is_full_until_it_reports_and_not_ill) {
    fleet_seen f;
    router_rig_with_pairs(&r, NULL);
    r.p.step = r.p1.step = FAKE_NOTHING;
    r.p.fail = r.p1.fail = FV_EBUSY;
    client_request(&req, 4);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait_for(&r, &r.p.calls, 1);
    router_rig_wait_for(&r, &r.p1.calls, 1);
    router_rig_sleep(&r, 300);
    cr_assert_eq(r.p.calls + r.p1.calls, 2, "each once");
    fake_report(&r.p);
    router_rig_wait_for(&r, &r.p.calls, 2);
    router_rig_sleep(&r, 100);
    cr_assert_eq(r.p1.calls, 1);
    router_rig_fleet(&r, &f);
    for (int32_t i = 0; i < f.n_worker; i++)
        cr_assert(f.n_failed[i] == 0 && f.resting[i] == 0, "worker %d", i);
    r.p1.step = FAKE_END;
    fake_report(&r.p1);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_str_eq(k.prefill_worker, "p1");
    cr_assert_eq(k.n_replays, 0, "to wait is no replay");
    router_rig_close(&r);
}

Test(router_generate, a_decode_worker_that_is_full_is_told_from_a_prefill_worker_that_is) {
    router_rig_with_pairs(&r, NULL);
    r.p.step = r.p1.step = FAKE_NOTHING;
    r.p.fail = r.p1.fail = FV_EBUSY;
    r.p.refusal = r.p1.refusal = "no_room";
    client_request(&req, 4);
    client_ask(&r, &k, &req, 20000);
    for (int i = 0; i < 500 && r.p.calls + r.p1.calls < 2; i++) router_rig_sleep(&r, 10);
    router_rig_sleep(&r, 200);
    cr_assert_eq(r.p.calls + r.p1.calls, 2, "one for each decode worker");
    r.p.step = r.p1.step = FAKE_END;
    fake_report(&r.d1);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_str_eq(k.decode_worker, "d1");
    router_rig_close(&r);
}

Test(router_generate, what_is_too_large_for_one_decode_worker_goes_to_a_larger_one) {
    r.d.capacity = 2 * FAKE_BYTES;
    workers();
    r.p.step = FAKE_NOTHING;
    r.p.fail = FV_ENOMEM;
    r.p.refusal = "too_large";
    r.p.n_times = 1;
    r.d1.name = "d1";
    r.d1.role = FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE;
    r.d1.capacity = 3 * FAKE_BYTES;
    r.d1.unhealthy = true;
    router_rig_join(&r, &r.d1);
    client_request(&req, 4);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait_for(&r, &r.p.calls, 1);
    router_rig_sleep(&r, 100);
    cr_assert_eq(r.p.calls, 1);
    r.d1.unhealthy = false;
    fake_report(&r.d1);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_str_eq(k.decode_worker, "d1");
    r.p.step = FAKE_NOTHING;
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.status, FV_ENOMEM, "too large for all: %s", k.why);
    router_rig_close(&r);
}

Test(router_generate, a_full_queue_sends_away_with_a_hint_when_to_come_again) {
    static client second, third;
    fv_router_options opt = router_rig_options();
    opt.queue_max = 1;
    r.d.capacity = FAKE_BYTES * 3 / 2;
    router_rig_with_workers(&r, &opt);
    fill();
    client_ask(&r, &second, &req, 20000);
    router_rig_sleep(&r, 100);
    client_ask(&r, &third, &req, 20000);
    router_rig_wait(&r, &third.over);
    cr_assert_eq(third.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    cr_assert_eq(third.end.status, FV_EBUSY);
    cr_assert_gt(third.end.retry_ms, 0);
    end_filling();
    fv_rpc_call_cancel(second.call);
    router_rig_wait(&r, &second.over);
    assert_idle();
    router_rig_close(&r);
}

Test(router_generate, a_waiting_request_can_be_cancelled) {
    static client third;
    r.d.capacity = FAKE_BYTES * 3 / 2;
    workers();
    fill();
    client_ask(&r, &third, &req, 20000);
    router_rig_sleep(&r, 100);
    fv_rpc_call_cancel(third.call);
    router_rig_wait(&r, &third.over);
    router_rig_sleep(&r, 100);
    cr_assert_eq(r.p.calls, 2);
    end_filling();
    router_rig_wait_for(&r, &r.p.cancelled, 1); /* it learns that nobody waits */
    assert_idle();
    router_rig_close(&r);
}

Test(router_generate, two_requests_may_not_have_the_same_id_at_a_time) {
    static client second;
    workers();
    stall_decode();
    client_request(&req, 4);
    req.request_id = (char *)"same";
    client_ask(&r, &k, &req, 10000);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    client_ask(&r, &second, &req, 10000);
    router_rig_wait(&r, &second.over);
    cr_assert_eq(second.end.code, GRPC_STATUS_INVALID_ARGUMENT);
    cr_assert_eq(k.over, false);
    fv_rpc_call_cancel(k.call);
    router_rig_wait(&r, &k.over);
    router_rig_close(&r);
}

/* ---- limits ----------------------------------------------------------------------------- */

static void too_large(const char *words) {
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", k.why);
    cr_assert_eq(k.end.status, FV_ENOMEM, "no hint when to come again: it will never fit");
    cr_assert(strstr(k.why, words), "%s", k.why);
    cr_assert_eq(r.p.calls, 0);
    assert_idle();
    router_rig_close(&r);
}

Test(router_generate, what_no_decode_worker_can_hold_is_told_with_the_numbers) {
    r.d.capacity = 40000;
    workers();
    client_request(&req, 200); /* and one text token, 4 layers of 2 heads of 8 floats each */
    client_ask(&r, &k, &req, 10000);
    too_large("at least 102912 bytes of KV, but the largest decode worker has 40000");
}

Test(router_generate, a_prompt_that_no_prefill_worker_can_hold_is_told_with_the_numbers) {
    static uint32_t list[100];
    Fovea__Inference__V1__TokenIds ids = FOVEA__INFERENCE__V1__TOKEN_IDS__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    r.p.capacity = 40000;
    workers();
    client_request(&req, 4);
    ids.n_id = 100;
    ids.id = list;
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_IDS;
    prompt.ids = &ids;
    req.prompt = &prompt;
    client_ask(&r, &k, &req, 10000);
    too_large("at least 51200 bytes of KV, but the largest prefill worker has 40000");
}

Test(router_generate, a_text_whose_bound_is_above_what_there_is_gets_its_chance) {
    static char text[200];
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    r.d.capacity = 40000; /* the bound is more than 100000, and the fake worker says FAKE_BYTES */
    workers();
    memset(text, 'x', sizeof text - 1);
    client_request(&req, 4);
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = text;
    req.prompt = &prompt;
    client_ask(&r, &k, &req, 10000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    router_rig_close(&r);
}

Test(router_generate, what_a_worker_finds_too_large_is_told_and_not_tried_again) {
    workers();
    r.p.step = FAKE_NOTHING;
    r.p.fail = FV_ENOMEM;
    client_ask_wait(&r, &k, 4);
    cr_assert_eq(k.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    cr_assert_eq(k.end.status, FV_ENOMEM);
    cr_assert_eq(r.p.calls, 1);
    router_rig_close(&r);
}

Test(router_generate, requests_of_too_many_bytes_together_are_sent_away_for_a_while) {
    static client first;
    static char text[9000];
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    fv_router_options opt = router_rig_options();
    opt.queue_bytes = 10000;
    router_rig_with_workers(&r, &opt);
    stall_decode();
    memset(text, 'x', sizeof text - 1);
    client_request(&req, 4);
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = text;
    req.prompt = &prompt;
    client_ask(&r, &first, &req, 20000);
    router_rig_wait_for(&r, &first.n_tokens, 2);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    cr_assert_eq(k.end.status, FV_EBUSY, "%s", k.why);
    cr_assert_gt(k.end.retry_ms, 0);
    r.d.step = FAKE_END;
    fv_rpc_call_cancel(first.call);
    router_rig_wait(&r, &first.over);
    assert_idle();
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    router_rig_close(&r);
}

Test(router_generate, a_request_that_never_fits_is_not_asked_to_come_back) {
    static char text[12000];
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    fv_router_options opt = router_rig_options();
    opt.queue_bytes = 10000;
    router_rig_with_workers(&r, &opt);
    memset(text, 'x', sizeof text - 1);
    client_request(&req, 4);
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = text;
    req.prompt = &prompt;
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_ENOMEM, "%s", k.why);
    cr_assert(strstr(k.why, "the limit is 10000"), "%s", k.why);
    router_rig_close(&r);
}

/* ---- shutdown --------------------------------------------------------------------------- */

/* The worker drains, then leaves as its call ends: the router may see either first. */
Test(router_generate, a_worker_that_drains_finishes_what_it_has_and_leaves) {
    workers();
    stall_decode();
    client_request(&req, 4);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    r.d.draining = true;
    fake_report(&r.d);
    router_rig_sleep(&r, 100);
    fake_leave(&r.d);
    router_rig_wait(&r, &r.d.join_over);
    router_rig_sleep(&r, 100);
    cr_assert_not(k.over);
    fake_go_on(&r.d);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_OK, "%s", k.why);
    cr_assert_eq(k.n_replays, 0);
    cr_assert_eq(k.n_tokens, 4);
    router_rig_close(&r);
}
