/* common/liveness.c: which workers count as alive, with the test's clock. */
#include <criterion/criterion.h>
#include <math.h>

#include "common/liveness.h"

static fv_liveness v;
static fv_vital_signs signs;

static bool look(double now_s) { return fv_liveness_update(&v, &signs, now_s); }

static bool good_at(double now_s) {
    signs.n_good++;
    return look(now_s);
}

static void init(void) { fv_liveness_init(&v, 30); }

TestSuite(liveness, .init = init);

Test(liveness, nothing_is_healthy_before_the_first_success) {
    cr_assert_not(look(1000));
    signs.n_moved = 1;
    cr_assert_not(look(1001), "only computing is not enough");
    signs.n_bad = 1;
    cr_assert_not(look(1002));
    cr_assert(good_at(1003));
}

Test(liveness, a_success_counts_for_its_time) {
    good_at(1000);
    cr_assert(look(1000));
    cr_assert(look(1030));
    cr_assert_not(look(1030.001));
    cr_assert_not(look(2000));
}

Test(liveness, it_recovers_with_the_next_success) {
    good_at(1000);
    cr_assert_not(look(1100));
    cr_assert(good_at(1101));
    cr_assert(look(1131));
    cr_assert_not(look(1132));
}

Test(liveness, time_in_which_layers_are_computed_does_not_count) {
    good_at(1000);
    for (double t = 1001; t <= 1500; t++) {
        signs.n_moved += 3;
        cr_assert(look(t), "at %g", t);
    }
    cr_assert(look(1530));
    cr_assert_not(look(1531), "it has hung in the middle of its work");
}

Test(liveness, a_slow_worker_is_healthy_between_its_layers_too) {
    good_at(1000);
    for (int i = 1; i <= 20 * 600; i++) { /* looked at 20 times a second, and a layer takes 10 s */
        signs.n_moved += i % 200 == 0;
        cr_assert(look(1000 + i / 20.0), "at %g", i / 20.0);
    }
    cr_assert(look(1629.9));
    cr_assert_not(look(1631), "no layer for more than 30 s");
    signs.n_moved++;
    cr_assert(look(1700), "it goes on after all");
}

Test(liveness, failed_work_is_no_sign_of_health) {
    good_at(1000);
    for (double t = 1001; t <= 1100; t++) {
        signs.n_moved++;
        cr_assert(look(t));
    }
    signs.n_bad++;
    cr_assert_not(look(1101));
}

Test(liveness, failures_that_come_fast_are_forgiven_for_as_long_as_silence_is) {
    good_at(1000);
    for (double t = 1001; t <= 1030; t++) {
        signs.n_moved++, signs.n_bad++;
        cr_assert(look(t), "at %g", t);
    }
    signs.n_moved++, signs.n_bad++;
    cr_assert_not(look(1031));
}

Test(liveness, a_success_among_failures_counts) {
    good_at(1000);
    signs.n_bad++, signs.n_good++;
    cr_assert(look(1100));
}

Test(liveness, a_long_time_between_two_looks_is_judged_by_what_happened_in_it) {
    good_at(1000);
    cr_assert_not(look(5000));
    cr_assert(good_at(9000));
}

Test(liveness, a_probe_is_due_at_once_and_then_each_time_after_a_silence) {
    fv_probe_clock c;
    fv_probe_clock_init(&c, 5);
    cr_assert_eq(fv_probe_due_in(&c, 0), 0);
    fv_probe_clock_reset(&c, 100);
    cr_assert_eq(fv_probe_due_in(&c, 100), 5);
    cr_assert_eq(fv_probe_due_in(&c, 103), 2);
    cr_assert_eq(fv_probe_due_in(&c, 105), 0);
    cr_assert_eq(fv_probe_due_in(&c, 999), 0);
    fv_probe_clock_reset(&c, 104);
    cr_assert_eq(fv_probe_due_in(&c, 105), 4, "requests put it off");
    fv_probe_clock_init(&c, 0);
    cr_assert_eq(fv_probe_due_in(&c, 1e9), HUGE_VAL, "nobody wants any");
}
