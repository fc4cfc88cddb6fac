/* serving/worker/fair.c and prefill-worker/service/reading.c: tenants take turns by cost and weight, whatever each has waiting. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "prefill-worker/service/reading.h"

TestSuite(fair, .timeout = 240);

static fv_fair_flow *next(const fv_fair *a) {
    fv_fair_flow *best = a->first;
    for (fv_fair_flow *f = a->first; f; f = f->next)
        if (fv_fair_start(a, f) < fv_fair_start(a, best)) best = f;
    return best;
}

Test(fair, cost_is_shared_by_weight) {
    fv_fair a = {0};
    double served[2] = {0};
    fv_fair_flow *one = fv_fair_enter(&a, "one", 1), *three = fv_fair_enter(&a, "three", 3);
    for (int i = 0; i < 4000; i++) {
        fv_fair_flow *f = next(&a);
        double cost = f == one ? 10 : 1; /* a unit of the one is ten of the other */
        served[f == three] += cost;
        fv_fair_charge(&a, f, cost);
    }
    cr_assert_float_eq(served[1] / served[0], 3, 0.1);
    fv_fair_leave(&a, one);
    fv_fair_leave(&a, three);
    fv_fair_fini(&a);
}

Test(fair, who_comes_new_is_next_and_who_was_idle_has_saved_nothing) {
    fv_fair a = {0};
    fv_fair_flow *busy = fv_fair_enter(&a, "busy", 1), *idle = fv_fair_enter(&a, "idle", 1);
    for (int i = 0; i < 100; i++) fv_fair_charge(&a, busy, 64);
    cr_assert_eq(next(&a), idle);
    fv_fair_charge(&a, idle, 64);
    fv_fair_charge(&a, idle, 1);
    cr_assert_eq(next(&a), busy, "the idle one has had as much since");
    fv_fair_leave(&a, busy);
    fv_fair_leave(&a, idle);
    fv_fair_fini(&a);
}

Test(fair, leaving_and_coming_back_gains_nothing) {
    fv_fair a = {0};
    fv_fair_flow *stays = fv_fair_enter(&a, "stays", 1), *goes = fv_fair_enter(&a, "goes", 1);
    fv_fair_charge(&a, stays, 1);
    fv_fair_charge(&a, goes, 100);
    fv_fair_leave(&a, goes);
    fv_fair_leave(&a, fv_fair_enter(&a, "other", 1));
    goes = fv_fair_enter(&a, "goes", 1);
    for (int i = 0; i < 98; i++) {
        cr_assert_eq(next(&a), stays, "%d", i);
        fv_fair_charge(&a, stays, 1);
    }
    fv_fair_leave(&a, goes);
    fv_fair_leave(&a, stays);
    cr_assert(a.first && a.first->n == 0, "the one that is ahead is remembered");
    fv_fair_charge(&a, fv_fair_enter(&a, "stays", 1), 1000);
    fv_fair_charge(&a, a.first, 1);
    fv_fair_fini(&a);
}

Test(fair, a_plan_sees_units_ahead_and_changes_nothing) {
    fv_fair a = {0};
    fv_fair_flow *f = fv_fair_enter(&a, "f", 2);
    fv_fair_charge(&a, f, 10);
    fv_fair_plan(&a);
    cr_assert_eq(f->plan, 5);
    fv_fair_plan_add(f, 4);
    cr_assert_eq(f->plan, 7);
    cr_assert_eq(fv_fair_start(&a, f), 5);
    fv_fair_leave(&a, f);
    fv_fair_fini(&a);
}

/* ---- reading lines ---------------------------------------------------------------------- */

enum { N_UNIT = 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static char order[64];
static bool gate[2]; /* of the large line and the small one: units wait for it */
static fv_unit units[N_UNIT + 1];

static void run(fv_unit *u) {
    pthread_mutex_lock(&mutex);
    while (!gate[u->cost <= FV_READING_SMALL]) pthread_cond_wait(&changed, &mutex);
    strncat(order, u->owner, 1);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void open_gate(int which) {
    pthread_mutex_lock(&mutex);
    gate[which] = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void wait_for(size_t n) {
    pthread_mutex_lock(&mutex);
    while (strlen(order) < n) pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void add(fv_reading *r, int i, const char *who, double cost) {
    units[i] = (fv_unit){
        .owner = (void *)(uintptr_t)who, .who = who, .weight = 1, .cost = cost, .run = run};
    fv_reading_add(r, &units[i]);
}

Test(fair, a_unit_waits_for_the_one_that_runs_and_not_for_all_of_another_tenants) {
    fv_reading *r;
    cr_assert_eq(fv_reading_open(&r), FV_OK);
    for (int i = 0; i < N_UNIT; i++) add(r, i, "a", 1 << 20);
    add(r, N_UNIT, "b", 1 << 10);
    open_gate(1);
    wait_for(N_UNIT + 1);
    cr_assert_eq(strncmp(order, "aba", 3), 0, "%s", order);
    fv_reading_close(r);
}

Test(fair, a_small_unit_does_not_wait_for_a_large_one) {
    fv_reading *r;
    cr_assert_eq(fv_reading_open(&r), FV_OK);
    add(r, 0, "large", 64 << 20);
    add(r, 1, "small", 1 << 20);
    open_gate(1);
    wait_for(1);
    cr_assert_eq(order[0], 's');
    open_gate(0);
    wait_for(2);
    fv_reading_close(r);
}
