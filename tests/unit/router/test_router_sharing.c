/* Sharing (router/accounts.h, router/queue.c): slots of decode workers, the queue, and clients that
 * do not read. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "router/balancer.h"
#include "tests/support/router_rig.h"

TestSuite(router_sharing, .timeout = 240);

enum { SLOTS = 2, ROOM = SLOTS + FV_SPARE_SLOTS, MANY = ROOM + 6 };

#define A "192.0.2.1"
#define B "192.0.2.2"
#define C "192.0.2.3"

static router_rig r;
static client a[MANY], b[MANY], c[MANY];
static Fovea__Inference__V1__GenerateRequest req;
static fv_trusted *trusted;

static void workers(fv_router_options opt) {
    static const char *const list[] = {"127.0.0.0/8"};
    cr_assert_eq(fv_trusted_open(list, 1, &trusted), FV_OK);
    opt.trusted = trusted;
    r.d.slots = SLOTS;
    router_rig_with_workers(&r, &opt);
    r.d.step = FAKE_TOKENS;
    r.d.n_say = 1;
}

static void begin(client *k, const char *address) {
    client_request(&req, 8);
    k->forwarded = address;
    client_ask(&r, k, &req, 20000);
}

static void begin_all(client *list, int n, const char *address) {
    for (int i = 0; i < n; i++) begin(&list[i], address);
}

static int32_t running(const client *list, int n) {
    int32_t n_running = 0;
    for (int i = 0; i < n; i++) n_running += list[i].n_tokens > 0 && !list[i].over;
    return n_running;
}

static void wait_running(const client *list, int n, int32_t at_least) {
    for (int i = 0; i < 500 && running(list, n) < at_least; i++) router_rig_sleep(&r, 10);
    cr_assert_geq(running(list, n), at_least);
}

static void end_all(client *list, int n) {
    for (int i = 0; i < n; i++) {
        if (list[i].over || !list[i].call) continue;
        fv_rpc_call_cancel(list[i].call);
        router_rig_wait(&r, &list[i].over);
    }
}

static void close_rig(void) {
    end_all(a, MANY);
    end_all(b, MANY);
    end_all(c, MANY);
    router_rig_close(&r);
    fv_trusted_close(trusted);
}

/* ---- slots ------------------------------------------------------------------------------- */

Test(router_sharing, a_decode_worker_gets_no_more_than_it_can_start_soon) {
    workers(router_rig_options());
    begin_all(a, MANY, A);
    wait_running(a, MANY, ROOM);
    router_rig_sleep(&r, 200);
    cr_assert_eq(running(a, MANY), ROOM);
    end_all(a, 1);
    wait_running(a, MANY, ROOM);
    close_rig();
}

Test(router_sharing, a_worker_that_does_not_say_how_many_slots_it_has_gets_any_number) {
    workers(router_rig_options());
    r.d.slots = 0;
    fake_report(&r.d);
    router_rig_sleep(&r, 50);
    begin_all(a, MANY, A);
    wait_running(a, MANY, MANY);
    close_rig();
}

Test(router_sharing, who_has_fewer_slots_than_its_share_does_not_wait_for_who_has_more) {
    workers(router_rig_options());
    begin_all(a, MANY, A);
    wait_running(a, MANY, ROOM);
    begin_all(b, 2, B);
    wait_running(b, 2, 1);
    router_rig_sleep(&r, 200);
    cr_assert_eq(running(b, 2), 1, "half of two slots is one");
    cr_assert_eq(running(a, MANY), ROOM);
    begin_all(c, 1, C);
    wait_running(c, 1, 1);
    close_rig();
}

/* The conversation could expire before a slot is free. */
Test(router_sharing, who_continues_a_conversation_does_not_wait_for_a_slot_here) {
    static uint8_t name[] = FAKE_CONVERSATION "d0";
    Fovea__Inference__V1__Prompt more = FOVEA__INFERENCE__V1__PROMPT__INIT;
    r.d.keep_ms_max = 60000;
    workers(router_rig_options());
    begin_all(a, MANY, A);
    wait_running(a, MANY, ROOM);
    client_request(&req, 8);
    more.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    more.text = (char *)"and then?";
    req.prompt = &more;
    req.conversation = (ProtobufCBinaryData){sizeof name - 1, name};
    b->forwarded = A;
    client_ask(&r, b, &req, 20000);
    router_rig_wait_for(&r, &b->n_tokens, 1);
    cr_assert_eq(r.d.follow_ups, 1);
    close_rig();
}

/* Unread answers have lost their slots (decode-worker/schedule/scheduler.h). */
Test(router_sharing, answers_that_nobody_reads_take_no_slot_from_others_up_to_a_bound) {
    enum { UNREAD = 1 };
    workers(router_rig_options());
    begin_all(a, MANY, A);
    wait_running(a, MANY, ROOM);
    r.d.n_unread = UNREAD;
    fake_report(&r.d);
    wait_running(a, MANY, ROOM + UNREAD);
    r.d.n_unread = 1000;
    fake_report(&r.d);
    router_rig_sleep(&r, 200);
    cr_assert_eq(running(a, MANY), ROOM + FV_UNREAD_SLOTS * SLOTS);
    close_rig();
}

Test(router_sharing, a_worker_hears_by_which_name_to_share_and_that_nobody_owns_anything) {
    workers(router_rig_options());
    begin(a, "198.51.100.9, " A);
    router_rig_wait_for(&r, &a->n_tokens, 2); /* the second one is the decode worker's */
    cr_assert_str_eq(r.d.share, "address " A, "the last one that no proxy is");
    cr_assert_str_eq(r.d.tenant, "");
    cr_assert_eq(r.d.tenant_weight, 1);
    begin(b, NULL);
    router_rig_wait_for(&r, &b->n_tokens, 2);
    cr_assert_str_eq(r.d.share, "address 127.0.0.1");
    close_rig();
}

/* ---- a full queue ------------------------------------------------------------------------ */

static int32_t over(const client *list, int n, const client **last) {
    int32_t n_over = 0;
    for (int i = 0; i < n; i++) {
        n_over += list[i].over;
        if (list[i].over) *last = &list[i];
    }
    return n_over;
}

Test(router_sharing, who_fills_the_queue_gives_way_to_who_has_less_of_it) {
    const client *ended = NULL;
    fv_router_options opt = router_rig_options();
    opt.queue_max = 4;
    workers(opt);
    begin_all(a, ROOM, A);
    wait_running(a, MANY, ROOM);
    begin_all(&a[ROOM], 4, A); /* they wait */
    router_rig_sleep(&r, 200);
    begin(&a[ROOM + 4], A);
    router_rig_wait(&r, &a[ROOM + 4].over);
    cr_assert_eq(a[ROOM + 4].end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", a[ROOM + 4].why);
    begin(&b[0], B); /* runs, by its share */
    wait_running(b, 1, 1);
    for (int i = 0; i < 300 && over(a, ROOM + 4, &ended) == 0; i++) router_rig_sleep(&r, 10);
    cr_assert_eq(over(a, ROOM + 4, &ended), 1);
    cr_assert_eq(ended->n_tokens, 0, "it waited");
    cr_assert_eq(ended->end.code, GRPC_STATUS_RESOURCE_EXHAUSTED);
    cr_assert(strstr(ended->why, "has the largest part of it"), "%s", ended->why);
    cr_assert_gt(ended->end.retry_ms, 0);
    begin_all(&b[1], 3, B); /* in the space that is left, in place of one more of a's, and none */
    router_rig_sleep(&r, 300);
    cr_assert_eq(over(a, ROOM + 4, &ended), 2);
    cr_assert_eq(over(b, 4, &ended), 1, "two of four is as much as a has");
    close_rig();
}

static void begin_within(client *k, const char *address, int64_t deadline_ms) {
    client_request(&req, 8);
    k->forwarded = address;
    client_ask(&r, k, &req, deadline_ms);
}

/* The queue frees slowly, so the last request of one client waits for seconds, but not a request of
 * another client. */
Test(router_sharing, a_deadline_counts_only_the_work_that_would_be_served_before) {
    enum { EACH_MS = 400, ENDED = 4, DEADLINE_MS = 2500 };
    static client late;
    workers(router_rig_options());
    begin_all(a, MANY, A);
    wait_running(a, MANY, ROOM);
    for (int i = 0, n = 0; i < MANY && n < ENDED; i++) {
        if (a[i].n_tokens == 0) continue;
        router_rig_sleep(&r, EACH_MS);
        fv_rpc_call_cancel(a[i].call);
        router_rig_wait(&r, &a[i].over);
        n++;
    }
    begin_all(c, MANY, A); /* more wait */
    router_rig_sleep(&r, 200);
    begin_within(&late, A, DEADLINE_MS);
    router_rig_wait(&r, &late.over);
    cr_assert_eq(late.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", late.why);
    cr_assert(strstr(late.why, "would take about"), "%s", late.why);
    begin_within(b, B, DEADLINE_MS);
    wait_running(b, 1, 1);
    close_rig();
}

/* ---- places of prefill workers ------------------------------------------------------------ */

/* The requests of `a` stay where they are, as if their grammars took long, so `b` gets ahead of it. */
Test(router_sharing, who_holds_no_place_does_not_wait_for_who_holds_all) {
    enum { N = FV_PREFILL_MAX, AHEAD = 8 };
    static client many[N + 4];
    workers(router_rig_options());
    r.p.step = FAKE_NOTHING;
    r.d.slots = 0;
    fake_report(&r.d);
    router_rig_sleep(&r, 50);
    begin_all(many, N + 4, A);
    router_rig_wait_for(&r, &r.p.calls, N);
    router_rig_sleep(&r, 100);
    cr_assert_eq(r.p.calls, N, "the others wait");
    for (int i = 0; i < AHEAD; i++) {
        begin(&b[i], B);
        router_rig_wait_for(&r, &r.p.calls, N + i + 1);
        end_all(&b[i], 1);
    }
    end_all(many, N + 4);
    close_rig();
}

/* ---- unread answers ---------------------------------------------------------------------- */

Test(router_sharing, an_answer_that_is_not_read_ends_after_a_while_and_says_so) {
    enum { N = 4000, UNREAD_MS = 400 };
    fv_router_options opt = router_rig_options();
    opt.unread_ms = UNREAD_MS;
    workers(opt);
    r.d.n_flood = N; /* 16 MB: more than buffers on the way hold */
    a->pause = true;
    client_request(&req, 10);
    client_ask(&r, a, &req, 20000);
    router_rig_wait_for(&r, &a->n_accepted, 1);
    router_rig_wait_for(&r, &r.d.cancelled, 1);
    cr_assert_gt(r.d.n_flood, 0);
    a->pause = false;
    fv_rpc_call_resume(a->call);
    router_rig_wait(&r, &a->over);
    cr_assert_eq(a->end.code, GRPC_STATUS_ABORTED, "%s", a->why);
    cr_assert(strstr(a->why, "the client did not read its answer for 0 s"), "%s", a->why);
    close_rig();
}

Test(router_sharing, an_answer_that_is_read_slowly_goes_on) {
    enum { N = 2000, UNREAD_MS = 500 };
    fv_router_options opt = router_rig_options();
    opt.unread_ms = UNREAD_MS;
    workers(opt);
    r.d.n_flood = N;
    a->pause = true;
    client_request(&req, 10);
    client_ask(&r, a, &req, 20000);
    router_rig_wait_for(&r, &a->n_accepted, 1);
    for (int i = 0; i < 12; i++) { /* a message in a while */
        router_rig_sleep(&r, UNREAD_MS / 5);
        fv_rpc_call_resume(a->call);
        for (int j = 0; j < 60; j++) {
            int32_t n = a->n_tokens;
            router_rig_wait_for(&r, &a->n_tokens, n + 1);
            fv_rpc_call_pause(a->call);
            fv_rpc_call_resume(a->call);
        }
        fv_rpc_call_pause(a->call);
    }
    cr_assert_not(a->over, "%s", a->why);
    a->pause = false;
    fv_rpc_call_resume(a->call);
    router_rig_wait(&r, &a->over);
    cr_assert_eq(a->end.status, FV_OK, "%s", a->why);
    close_rig();
}
