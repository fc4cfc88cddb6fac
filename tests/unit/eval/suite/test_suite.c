/* The items of a suite. */
#include <criterion/criterion.h>
#include <string.h>

#include "eval/suite/suite.h"

static fv_suite make(int32_t n_item, int32_t seed) {
    fv_suite e;
    cr_assert_eq(fv_suite_make(NULL, 0, n_item, seed, false, &e), FV_OK, "%s", fv_last_error());
    return e;
}

static void refused(const char *name, int32_t n_item, int32_t seed, const char *words) {
    fv_suite e;
    const char *const names[] = {name};
    cr_assert_eq(fv_suite_make(names, name ? 1 : 0, n_item, seed, false, &e), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), words), "%s", fv_last_error());
}

static void expect_item(const fv_suite *e, int32_t i, const fv_item *want) {
    fv_item item;
    cr_assert_eq(fv_suite_item(e, i, &item), FV_OK, "%s", fv_last_error());
    cr_assert_eq(memcmp(&item, want, sizeof item), 0, "item %d", i);
}

Test(suite, asks_one_item_of_each_task_in_turn) {
    fv_suite e = make(3 * FV_N_TASK, 0);
    for (int32_t i = 0; i < e.n_item; i++) {
        cr_assert_eq((int)fv_suite_task_of(&e, i), i % FV_N_TASK);
        fv_item want;
        cr_assert_eq(fv_item_make(FV_SPLIT_TEST, (fv_scene_task)(i % FV_N_TASK),
                                  (uint64_t)(i / FV_N_TASK), NULL, &want),
                     FV_OK);
        expect_item(&e, i, &want);
    }
}

Test(suite, a_longer_one_begins_with_a_shorter_one) {
    fv_suite less = make(FV_N_TASK, 7), more = make(40, 7);
    for (int32_t i = 0; i < less.n_item; i++) {
        fv_item item;
        cr_assert_eq(fv_suite_item(&more, i, &item), FV_OK);
        expect_item(&less, i, &item);
    }
}

Test(suite, another_seed_has_other_items) {
    fv_suite a = make(FV_N_TASK, 0), b = make(FV_N_TASK, FV_SUITE_SEED_MAX);
    for (int32_t i = 0; i < a.n_item; i++) {
        fv_item x, y;
        cr_assert_eq(fv_suite_item(&a, i, &x), FV_OK);
        cr_assert_eq(fv_suite_item(&b, i, &y), FV_OK, "%s", fv_last_error());
        cr_assert_neq(x.scene[0].look, y.scene[0].look);
    }
}

Test(suite, has_only_the_tasks_that_were_named_each_once) {
    const char *const names[] = {"caption", "shape", "caption"};
    fv_suite e;
    cr_assert_eq(fv_suite_make(names, 3, 5, 0, false, &e), FV_OK, "%s", fv_last_error());
    cr_assert_eq(e.n_task, 2);
    cr_assert_eq(fv_suite_task_of(&e, 0), FV_TASK_SHAPE);
    cr_assert_eq(fv_suite_task_of(&e, 3), FV_TASK_CAPTION);
}

Test(suite, says_what_it_cannot_be) {
    refused("smell", 10, 0, "available: shape, color,");
    refused(NULL, FV_N_TASK - 1, 0, "one for each task");
    refused(NULL, FV_SUITE_ITEMS_MAX + 1, 0, "items: write");
    refused(NULL, 100, FV_SUITE_SEED_MAX + 1, "seed");
    refused(NULL, 100, -1, "seed");
}
