/* Totals of scores. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "eval/suite/results.h"

static const char *const policies[] = {"exact", "prune=random"};
static fv_results_log_head head;
static fv_results_log results_log;
static fv_results r;

/* 20 items, of shape and of count alternately; `right` says how many of ten of each task each
 * policy answers correctly. */
static void make(const int32_t right[2][2]) {
    const char *const names[] = {"shape", "count"};
    head = (fv_results_log_head){.checkpoint = "0123456789abcdef",
                                 .by = "process",
                                 .dialog = "whole",
                                 .first = "held",
                                 .n_policy = 2,
                                 .policy = policies};
    cr_assert_eq(fv_suite_make(names, 2, 20, 0, false, &head.suite), FV_OK);
    cr_assert_eq(fv_results_log_init(&head, &results_log), FV_OK);
    for (int32_t p = 0; p < 2; p++)
        for (int32_t i = 0; i < 20; i++) {
            fv_item_score m = {.policy = p,
                               .item = i,
                               .n_turn = 1,
                               .said = {strdup("x")},
                               .score = {i / 2 < right[p][i % 2] ? 1 : 0},
                               .bytes_exact = 1000,
                               .bytes_visual = p ? 400 : 1000,
                               .bytes_visual_end = p ? 300 : 1000,
                               .bytes_sent = i % 4 ? 2000 : 0,
                               .ttft_s = 0.001 * i,
                               .tpot_s = i < 10 ? -1 : 0.002};
            cr_assert_eq(fv_results_log_add(&results_log, &m), FV_OK);
        }
    cr_assert_eq(fv_results_make(&results_log, &r), FV_OK);
}

static void drop(void) {
    fv_results_free(&r);
    fv_results_log_close(&results_log);
}

TestSuite(results, .fini = drop);

Test(results, groups_are_the_tasks_and_all_of_them) {
    make((const int32_t[2][2]){{10, 8}, {5, 8}});
    cr_assert_eq(r.n_group, 3); /* one two-hop task is no group of its own */
    cr_assert_str_eq(r.group[0].name, "shape");
    cr_assert_str_eq(r.group[1].name, "count");
    cr_assert_str_eq(r.group[2].name, "all");
    cr_assert_float_eq(r.group[2].chance, 1.0 / 6, 1e-12);
}

Test(results, scores_are_means_and_differences_are_of_the_same_items) {
    make((const int32_t[2][2]){{10, 8}, {5, 8}});
    const fv_group_result *shape = &r.policy[1].group[0], *all = &r.policy[1].group[2];
    fv_interval wilson = fv_interval_wilson(5, 10);
    cr_assert_eq(shape->n, 10);
    cr_assert_float_eq(shape->score.value, 0.5, 1e-12);
    cr_assert_float_eq(shape->score.low, wilson.low, 1e-12);
    cr_assert_float_eq(shape->less.value, -0.5, 1e-12);
    cr_assert_lt(shape->less.high, 0);
    cr_assert_float_eq(r.policy[1].group[1].less.value, 0, 1e-12);
    cr_assert_eq(all->n, 20);
    cr_assert_float_eq(all->score.value, 13 / 20.0, 1e-12);
    cr_assert_float_eq(all->less.value, -5 / 20.0, 1e-12);
}

Test(results, bytes_and_times_are_of_what_there_was) {
    make((const int32_t[2][2]){{10, 8}, {5, 8}});
    const fv_group_result *all = &r.policy[1].group[2];
    cr_assert_float_eq(all->bytes_exact, 1000, 1e-9);
    cr_assert_float_eq(all->bytes_visual, 400, 1e-9);
    cr_assert_float_eq(all->bytes_visual_end, 300, 1e-9);
    cr_assert_float_eq(all->bytes_sent, 2000, 1e-9, "of hand-offs that took place");
    cr_assert_eq(r.policy[1].ttft_s.n, 20);
    cr_assert_float_eq(r.policy[1].ttft_s.p50, 0.0095, 1e-12);
    cr_assert_float_eq(r.policy[1].ttft_s.p10, 0.0019, 1e-12);
    cr_assert_eq(r.policy[1].tpot_s.n, 10);
    cr_assert_float_eq(r.policy[1].tpot_s.mean, 0.002, 1e-12);
}

Test(results, json_says_the_same) {
    make((const int32_t[2][2]){{10, 8}, {5, 8}});
    json_t *json = fv_results_json(&r);
    cr_assert_not_null(json);
    const json_t *suite = json_object_get(json, "eval");
    cr_assert_eq(json_integer_value(json_object_get(suite, "items")), 20);
    const json_t *list = json_object_get(json, "results");
    cr_assert_eq(json_array_size(list), 2);
    for (size_t p = 0; p < 2; p++) {
        const json_t *policy = json_array_get(list, p);
        cr_assert_str_eq(json_string_value(json_object_get(policy, "policy")), policies[p]);
        const json_t *groups = json_object_get(policy, "groups");
        cr_assert_eq(json_array_size(groups), 3);
        const json_t *shape = json_array_get(groups, 0);
        double value = json_real_value(json_object_get(json_object_get(shape, "score"), "value"));
        cr_assert_float_eq(value, p ? 0.5 : 1, 1e-12);
        cr_assert_eq(json_is_null(json_object_get(shape, "difference")), p == 0);
    }
    json_decref(json);
}

Test(results, of_nothing_are_empty) {
    make((const int32_t[2][2]){{10, 8}, {5, 8}});
    drop();
    cr_assert_eq(fv_results_log_init(&head, &results_log), FV_OK);
    cr_assert_eq(fv_results_make(&results_log, &r), FV_OK);
    cr_assert_eq(r.policy[0].group[0].n, 0);
    json_t *json = fv_results_json(&r);
    cr_assert_not_null(json);
    cr_assert(json_is_null(
        json_object_get(json_array_get(json_object_get(json, "results"), 0), "ttft_ms")));
    json_decref(json);
}
