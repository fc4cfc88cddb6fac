/* Sharing the batch's slots (decode-worker/schedule/shares.h), without a network: tenants whose
 * answers never end, and the slots that they hold. */
#include "decode-worker/schedule/shares.h"

#include <criterion/criterion.h>
#include <stdlib.h>

TestSuite(shares, .timeout = 240);

enum { TENANTS = 4 };

static fv_shares all;
static fv_share *of[TENANTS];
static int64_t rows[TENANTS], swaps;

/* Adds n waiting answers of tenant i. */
static void come(int i, const char *name, double weight, int32_t n) {
    for (int32_t k = 0; k < n; k++)
        cr_assert_eq(fv_shares_enter(&all, name, weight, &of[i]), FV_OK);
    of[i]->n_waiting += n;
}

static void go(int i) {
    of[i]->n_running = of[i]->n_waiting = 0;
    for (int32_t n = of[i]->n_answer; n > 0; n--) fv_shares_leave(&all, of[i]);
    of[i] = NULL;
}

static void move(fv_share *s, int by) {
    s->n_running += by;
    s->n_waiting -= by;
}

/* Runs steps of a batch with so many slots, each of one row. */
static void run(int32_t slots, int32_t steps) {
    fv_share *from, *to;
    for (int32_t t = 0; t < steps; t++) {
        int32_t busy = 0;
        for (int i = 0; i < TENANTS; i++) busy += of[i] ? of[i]->n_running : 0;
        fv_shares_settle(&all);
        for (; busy < slots && (to = fv_shares_next(&all)); busy++) move(to, 1);
        for (; fv_shares_swap(&all, &from, &to); swaps++) {
            cr_assert_neq(from, to);
            move(from, -1);
            move(to, 1);
        }
        for (int i = 0; i < TENANTS; i++) {
            if (!of[i]) continue;
            fv_share_charge(of[i], of[i]->n_running);
            rows[i] += of[i]->n_running;
        }
    }
}

Test(shares, one_tenant_has_all_slots_and_none_changes_hands) {
    come(0, "a", 1, 200);
    run(64, 500);
    cr_assert_eq(of[0]->n_running, 64);
    cr_assert_eq(swaps, 0);
    go(0);
    cr_assert_null(all.first);
}

Test(shares, who_comes_to_a_full_batch_is_in_the_next_step) {
    come(0, "a", 1, 200);
    run(64, 500);
    come(1, "b", 1, 1);
    run(64, 1);
    cr_assert_eq(of[1]->n_running, 1);
    run(64, 300);
    cr_assert_eq(rows[1], 301, "and stays, because a share is more than it has");
    cr_assert_eq(swaps, 1);
}

Test(shares, slots_follow_weights) {
    come(0, "a", 1, 200);
    run(64, 100);
    come(1, "b", 3, 200);
    rows[0] = 0;
    run(64, 2000);
    cr_assert_float_eq((double)rows[1] / (double)rows[0], 3, 0.1);
    cr_assert_lt(swaps, 48 + 2000 / FV_SHARE_QUANTUM, "slots do not change hands at every token");
}

Test(shares, more_tenants_than_slots_take_turns) {
    come(0, "a", 1, 20);
    come(1, "b", 1, 1);
    come(2, "c", 1, 3);
    run(1, 3000);
    for (int i = 0; i < 3; i++) cr_assert_float_eq((double)rows[i], 1000, 3 * FV_SHARE_QUANTUM);
    cr_assert_leq(swaps, 3000 / FV_SHARE_QUANTUM);
    cr_assert_gt(swaps, 3000 / (4 * FV_SHARE_QUANTUM));
}

Test(shares, nobody_saves_up_by_asking_for_little) {
    come(0, "a", 1, 200);
    come(1, "b", 1, 1);
    run(8, 1000);
    come(2, "c", 1, 200);
    come(1, "b", 1, 200);
    rows[0] = rows[1] = rows[2] = 0;
    run(8, 300);
    for (int i = 0; i < 3; i++) cr_assert_float_eq((double)rows[i], 800, 100);
}

Test(shares, who_leaves_and_comes_back_begins_with_the_others) {
    come(0, "a", 1, 64);
    run(8, 1000);
    go(0);
    come(1, "b", 1, 64);
    run(8, 10);
    come(0, "a", 1, 64);
    rows[0] = rows[1] = 0;
    run(8, 400);
    cr_assert_float_eq((double)rows[0], (double)rows[1], 200);
}

Test(shares, a_weight_that_is_none_counts_as_one) {
    come(0, "a", 0, 64);
    come(1, "b", -1, 64);
    run(8, 400);
    cr_assert_float_eq((double)rows[0], (double)rows[1], 100);
}
