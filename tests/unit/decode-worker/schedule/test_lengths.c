/* decode-worker/schedule/lengths.c: the expected length follows what was measured, and no more. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "decode-worker/schedule/lengths.h"

static fv_lengths *l;

static void open_it(void) { cr_assert_eq(fv_lengths_open(&l), FV_OK); }
static void close_it(void) { fv_lengths_close(l); }

TestSuite(lengths, .init = open_it, .fini = close_it, .timeout = 240);

static void add(const char *owner, int32_t n, int times) {
    for (int i = 0; i < times; i++) fv_lengths_add(l, owner, 0, n, true);
}

Test(lengths, nothing_measured_is_the_prior) {
    cr_assert_geq(fv_lengths_expect(l, "", 0), 340);
    cr_assert_leq(fv_lengths_expect(l, "", 0), 370); /* 256 ln 4 = 355 */
    cr_assert_geq(fv_lengths_expect(l, "", 5000), 340, "the prior does not age");
    cr_assert_eq(fv_lengths_expect(l, "nobody", 0), fv_lengths_expect(l, "", 0));
}

Test(lengths, equal_answers_are_expected_to_be_so_long) {
    add("", 100, 200);
    int32_t n = fv_lengths_expect(l, "", 0);
    cr_assert(n >= 95 && n <= 130, "%d", n);
    n = fv_lengths_expect(l, "", 80);
    cr_assert(n >= 15 && n <= 50, "%d", n);
    n = fv_lengths_expect(l, "", 500); /* none was so long */
    cr_assert(n >= 300, "%d", n);
}

Test(lengths, short_answers_reserve_little_and_never_nothing) {
    add("", 1, 400);
    cr_assert_leq(fv_lengths_expect(l, "", 0), 2);
    cr_assert_geq(fv_lengths_expect(l, "", 0), 1);
}

Test(lengths, a_limit_is_no_end) {
    for (int i = 0; i < 200; i++) fv_lengths_add(l, "", 0, 32, false);
    cr_assert_geq(fv_lengths_expect(l, "", 0), 300, "all were cut off at 32");
    for (int i = 0; i < 200; i++) {
        fv_lengths_add(l, "", 0, 32, false);
        fv_lengths_add(l, "", 0, 10, true);
    }
    int32_t n = fv_lengths_expect(l, "", 0);
    cr_assert_geq(n, 33, "half go on past 32, but %d", n);
}

/* A preempted answer counts once: its tokens until then, and after the replay the rest. */
Test(lengths, an_answer_in_two_parts_counts_as_in_one) {
    fv_lengths *parts;
    cr_assert_eq(fv_lengths_open(&parts), FV_OK);
    for (int i = 0; i < 50; i++) {
        fv_lengths_add(l, "", 0, 90, true);
        fv_lengths_add(parts, "", 0, 40, false);
        fv_lengths_add(parts, "", 40, 90, true);
    }
    int32_t a = fv_lengths_expect(l, "", 0), b = fv_lengths_expect(parts, "", 0);
    cr_assert(a - b <= 4 && b - a <= 4, "%d and %d", a, b);
    fv_lengths_close(parts);
}

Test(lengths, a_tenant_has_its_own_lengths_and_begins_with_those_of_all) {
    add("brief", 20, 200);
    add("prolix", 800, 200);
    int32_t brief = fv_lengths_expect(l, "brief", 0), prolix = fv_lengths_expect(l, "prolix", 0);
    cr_assert(brief >= 19 && brief <= 40, "%d", brief);
    cr_assert(prolix >= 700 && prolix <= 1000, "%d", prolix);
    cr_assert_eq(fv_lengths_expect(l, "newcomer", 0), fv_lengths_expect(l, "", 0));
}

Test(lengths, what_changes_is_learnt_again) {
    add("", 1000, 300);
    add("", 30, 1500);
    int32_t n = fv_lengths_expect(l, "", 0);
    cr_assert(n >= 28 && n <= 60, "%d", n);
}

Test(lengths, any_number_of_tenants_and_any_length_is_fine) {
    char name[80];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "%070d", i); /* longer than the names that are told apart */
        fv_lengths_add(l, name, 0, i % 300 + 1, true);
        snprintf(name, sizeof name, "t%d", i);
        fv_lengths_add(l, name, 0, INT32_MAX - i, i % 2);
        cr_assert_geq(fv_lengths_expect(l, name, i * 1000), 1);
    }
    fv_lengths_add(l, "", 5, 5, true);
    fv_lengths_add(l, "", 7, 5, true);
    cr_assert_geq(fv_lengths_expect(l, "", INT32_MAX - 1), 1);
    cr_assert_geq(fv_lengths_expect(l, "", INT32_MAX), 1);
}
