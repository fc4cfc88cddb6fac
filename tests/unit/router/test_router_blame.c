/* router/blame.c: a request that workers are repeatedly lost over is ended; requests that shared
 * those workers are not. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/router_rig.h"

TestSuite(router_blame, .timeout = 240);

#define PREFILL FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL

static router_rig r;
static client k, other;

static void ask(client *c) {
    static Fovea__Inference__V1__GenerateRequest req;
    client_request(&req, 6);
    client_ask(&r, c, &req, 20000);
}

static void is_condemned(client *c) {
    router_rig_wait(&r, &c->over);
    cr_assert_eq(c->end.code, GRPC_STATUS_FAILED_PRECONDITION, "%s", c->why);
    cr_assert_lt(c->end.retry_ms, 0);
    cr_assert(strstr(c->why, "two workers were lost while they worked on this request"), "%s",
              c->why);
    cr_assert(strstr(c->why, "do not send it again"), "%s", c->why);
}

static void is_answered(client *c) {
    router_rig_wait(&r, &c->over);
    cr_assert_eq(c->end.status, FV_OK, "%s", c->why);
    cr_assert_eq(c->n_tokens, 6);
}

/* Waits until one of two has this many calls; returns that one. */
static fake_worker *asked(fake_worker *a, fake_worker *b) {
    for (int i = 0; i < 1000 && a->calls + b->calls == 0; i++) router_rig_sleep(&r, 10);
    cr_assert_eq(a->calls + b->calls, 1);
    return a->calls ? a : b;
}

static void second_loss_ends_it(fake_worker *a, fake_worker *b) {
    fake_worker *first = asked(a, b), *second = first == a ? b : a;
    fake_die(first);
    router_rig_wait_for(&r, &second->calls, 1);
    if (a->role != PREFILL) router_rig_wait_for(&r, &k.n_tokens, 3);
    fake_die(second);
    is_condemned(&k);
    cr_assert(strstr(k.why, a->name) && strstr(k.why, b->name), "%s", k.why);
    router_rig_close(&r);
}

Test(router_blame, two_prefill_workers_lost_over_a_request_end_it) {
    router_rig_with_pairs(&r, NULL);
    r.p.step = r.p1.step = FAKE_NOTHING;
    ask(&k);
    second_loss_ends_it(&r.p, &r.p1);
}

Test(router_blame, two_decode_workers_lost_over_a_request_end_it) {
    router_rig_with_pairs(&r, NULL);
    r.d.step = r.d1.step = FAKE_TOKENS;
    r.d.n_say = r.d1.n_say = 1;
    ask(&k);
    router_rig_wait_for(&r, &k.n_tokens, 2);
    second_loss_ends_it(&r.d, &r.d1);
}

/* A worker that had sent the first token was not killed by the prefill. */
Test(router_blame, a_prefill_worker_that_has_said_the_first_token_does_not_count) {
    router_rig_with_pairs(&r, NULL);
    r.p.step = r.p1.step = FAKE_FIRST;
    r.d.step = r.d1.step = FAKE_NOTHING;
    ask(&k);
    fake_worker *p = asked(&r.p, &r.p1), *q = p == &r.p ? &r.p1 : &r.p;
    fake_worker *d = asked(&r.d, &r.d1), *e = d == &r.d ? &r.d1 : &r.d;
    q->step = FAKE_NOTHING;
    fake_die(p);
    router_rig_wait_for(&r, &p->ended, 1);
    fake_fail(d, FV_EIO, "closed"); /* the hand-off was lost with it */
    router_rig_wait_for(&r, &q->calls, 1);
    d->step = e->step = FAKE_END;
    r.p.step = r.p1.step = FAKE_END;
    fake_die(q); /* the first loss that counts, and there is nobody left */
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.code, GRPC_STATUS_UNAVAILABLE, "%s", k.why);
    router_rig_close(&r);
}

/* More prefill workers than the rig has. */
static fake_worker x = {.name = "x", .role = PREFILL}, y = {.name = "y", .role = PREFILL};

static void both_lose_the_only_one(void) {
    router_rig_with_workers(&r, NULL);
    r.p.step = FAKE_NOTHING;
    ask(&k);
    ask(&other);
    router_rig_wait_for(&r, &r.p.calls, 2);
}

static void close_all(int n_extra) {
    fake_worker *extra[] = {&x, &y};
    for (int i = 0; i < n_extra; i++) {
        fake_close(extra[i]);
        router_rig_wait(&r, &extra[i]->stopped);
    }
    router_rig_close(&r);
}

Test(router_blame, those_that_lost_a_worker_together_are_kept_apart) {
    both_lose_the_only_one();
    x.step = y.step = FAKE_NOTHING;
    router_rig_join(&r, &x);
    router_rig_join(&r, &y);
    fake_die(&r.p);
    router_rig_wait_for(&r, &x.calls, 1);
    router_rig_wait_for(&r, &y.calls, 1);
    fake_die(&x);
    while (!k.over && !other.over) router_rig_sleep(&r, 10);
    is_condemned(k.over ? &k : &other);
    cr_assert(!k.over || !other.over);
    y.step = FAKE_END;
    fake_fail(&y, FV_EDEVICE, NULL);
    is_answered(k.end.code == GRPC_STATUS_FAILED_PRECONDITION ? &other : &k);
    close_all(2);
}

Test(router_blame, of_two_that_lost_two_workers_together_neither_is_ended_and_each_goes_alone) {
    both_lose_the_only_one();
    x.step = FAKE_NOTHING;
    router_rig_join(&r, &x);
    fake_die(&r.p);
    router_rig_wait_for(&r, &x.calls, 2); /* there is no other */
    y.step = FAKE_NOTHING;
    router_rig_join(&r, &y);
    fake_die(&x);
    router_rig_wait_for(&r, &y.calls, 1);
    router_rig_sleep(&r, 300);
    cr_assert_eq(y.calls, 1, "the other one waits until it is alone");
    y.step = FAKE_END;
    fake_fail(&y, FV_EDEVICE, NULL);
    is_answered(&k);
    is_answered(&other);
    close_all(2);
}
