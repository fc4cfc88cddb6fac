/* The results log reads what it writes, and nothing else. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "eval/suite/results_log.h"

static const char *const policies[] = {"exact", "prune=random"};
static char path[512];

static void name_file(void) {
    snprintf(path, sizeof path, "%s/sheet-%d.jsonl", FOVEA_TEST_TMP, (int)getpid());
    unlink(path);
}
static void drop_file(void) { unlink(path); }

TestSuite(results_log, .init = name_file, .fini = drop_file);

static fv_results_log_head head_of(int32_t n_item) {
    fv_results_log_head h = {.checkpoint = "0123456789abcdef",
                             .by = "process",
                             .dialog = "whole",
                             .first = "prefill",
                             .n_policy = 2,
                             .policy = policies};
    cr_assert_eq(fv_suite_make(NULL, 0, n_item, 3, false, &h.suite), FV_OK);
    return h;
}

static fv_results_log open_results_log(const fv_results_log_head *head) {
    fv_results_log s;
    cr_assert_eq(fv_results_log_open(path, head, &s), FV_OK, "%s", fv_last_error());
    return s;
}

static void add(fv_results_log *s, int32_t policy, int32_t item, const char *said) {
    fv_item_score m = {
        .policy = policy,
        .item = item,
        .n_turn = fv_task_describe((int32_t)fv_suite_task_of(&s->head->suite, item))->n_turn,
        .n_prompt = 70,
        .n_visual = 16,
        .n_token = 5,
        .bytes_exact = 4096,
        .bytes_visual = 2048,
        .bytes_visual_end = 1024,
        .bytes_sent = 9999,
        .ttft_s = 0.1,
        .tpot_s = -1};
    for (int32_t t = 0; t < m.n_turn; t++) {
        m.said[t] = strdup(said);
        m.score[t] = 1.0 / (t + 1);
    }
    if (policy == 1) m.note = strdup("prune: nothing to do");
    cr_assert_eq(fv_results_log_add(s, &m), FV_OK, "%s", fv_last_error());
}

static void append(const char *text) {
    FILE *f = fopen(path, "a");
    fputs(text, f);
    fclose(f);
}

static void fails(const fv_results_log_head *head, fv_status status, const char *words) {
    fv_results_log s;
    cr_assert_eq(fv_results_log_open(path, head, &s), status, "%s", fv_last_error());
    cr_assert(strstr(fv_last_error(), words), "%s", fv_last_error());
}

Test(results_log, item_scores_are_there_again_with_all_they_hold) {
    fv_results_log_head head = head_of(11);
    fv_results_log s = open_results_log(&head);
    add(&s, 0, 3, "yes\n\"quoted\" \xc3\xa9 \x01");
    add(&s, 1, FV_TASK_DIALOG, "ring");
    fv_results_log_close(&s);

    s = open_results_log(&head);
    cr_assert_eq(s.n_done, 2);
    cr_assert(s.done[fv_results_log_at(&s, 0, 3)] &&
              s.done[fv_results_log_at(&s, 1, FV_TASK_DIALOG)]);
    cr_assert_not(s.done[fv_results_log_at(&s, 1, 3)]);
    const fv_item_score *a = &s.item_score[fv_results_log_at(&s, 0, 3)];
    cr_assert_str_eq(a->said[0], "yes\n\"quoted\" \xc3\xa9 \x01");
    cr_assert_null(a->note);
    cr_assert_float_eq(a->tpot_s, -1, 0);
    const fv_item_score *b = &s.item_score[fv_results_log_at(&s, 1, FV_TASK_DIALOG)];
    cr_assert_eq(b->n_turn, 3);
    cr_assert_float_eq(fv_item_score_mean(b), (1 + 0.5 + 1.0 / 3) / 3, 1e-15);
    cr_assert(b->n_prompt == 70 && b->n_visual == 16 && b->n_token == 5);
    cr_assert(b->bytes_exact == 4096 && b->bytes_visual == 2048 && b->bytes_visual_end == 1024 &&
              b->bytes_sent == 9999 && b->ttft_s == 0.1);
    cr_assert_str_eq(b->note, "prune: nothing to do");
    fv_results_log_close(&s);
}

Test(results_log, drops_a_line_that_was_not_finished_and_goes_on_after_the_others) {
    fv_results_log_head head = head_of(11);
    fv_results_log s = open_results_log(&head);
    add(&s, 0, 0, "ring");
    fv_results_log_close(&s);
    append("{\"policy\":0,\"item\":1,\"ans");

    s = open_results_log(&head);
    cr_assert_eq(s.n_done, 1);
    add(&s, 0, 1, "red");
    fv_results_log_close(&s);

    s = open_results_log(&head);
    cr_assert_eq(s.n_done, 2);
    fv_results_log_close(&s);
}

Test(results_log, begins_anew_when_not_even_the_first_line_was_finished) {
    fv_results_log_head head = head_of(11);
    append("{\"form\":1,");
    fv_results_log s = open_results_log(&head);
    add(&s, 0, 0, "ring");
    fv_results_log_close(&s);
    s = open_results_log(&head);
    cr_assert_eq(s.n_done, 1);
    fv_results_log_close(&s);
}

Test(results_log, refuses_another_suite_by_the_name_of_what_differs) {
    fv_results_log_head head = head_of(11), other = head_of(22);
    fv_results_log s = open_results_log(&head);
    fv_results_log_close(&s);
    fails(&other, FV_EINVAL, "another 'items'");
    other = head_of(11);
    other.n_policy = 1;
    fails(&other, FV_EINVAL, "another 'policies'");
    other = head_of(11);
    other.checkpoint = "fedcba9876543210";
    fails(&other, FV_EINVAL, "another 'checkpoint'");
    other = head_of(11);
    other.by = "fleet";
    fails(&other, FV_EINVAL, "another 'by'");
    other = head_of(11);
    other.dialog = "kept";
    fails(&other, FV_EINVAL, "another 'dialog'");
    other = head_of(11);
    other.first = "held";
    fails(&other, FV_EINVAL, "another 'first'");
}

/* A log written before results had a route. */
Test(results_log, one_that_does_not_say_where_first_tokens_are_from_has_the_prefills) {
    static const char line[] = "{\"form\":1,\"checkpoint\":\"0123456789abcdef\",\"by\":\"process\","
                               "\"dialog\":\"whole\",\"items\":1,\"seed\":3,\"tasks\":[\"cell\"],"
                               "\"policies\":[\"exact\",\"prune=random\"]}\n";
    static const char *const cell[] = {"cell"};
    fv_results_log_head head = head_of(11);
    cr_assert_eq(fv_suite_make(cell, 1, 1, 3, false, &head.suite), FV_OK);
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs(line, f) >= 0 && fclose(f) == 0);
    fv_results_log s = open_results_log(&head);
    fv_results_log_close(&s);
    head.first = "held";
    fails(&head, FV_EINVAL, "another 'first'");
}

/* A log written before the first line named the scenes. */
Test(results_log, one_that_does_not_say_which_scenes_has_plain_ones) {
    fv_results_log_head head = head_of(11);
    fv_results_log s = open_results_log(&head);
    add(&s, 0, 0, "ring");
    fv_results_log_close(&s);
    head.suite.rich = true;
    fails(&head, FV_EINVAL, "another 'scenes'");
    char *text, *at;
    size_t n;
    cr_assert_eq(fv_file_read(path, 1 << 20, &text, &n), FV_OK);
    cr_assert_not_null(at = strstr(text, ",\"scenes\":\"plain\""));
    FILE *f = fopen(path, "wb");
    fwrite(text, 1, (size_t)(at - text), f);
    fputs(at + strlen(",\"scenes\":\"plain\""), f);
    fclose(f);
    free(text);
    fails(&head, FV_EINVAL, "another 'scenes'");
    head.suite.rich = false;
    s = open_results_log(&head);
    cr_assert_eq(s.n_done, 1);
    fv_results_log_close(&s);
}

/* A log written before the first line had the KV dtype. */
Test(results_log, one_that_does_not_say_how_kv_is_stored_has_f32) {
    fv_results_log_head head = head_of(11);
    fv_results_log s = open_results_log(&head);
    add(&s, 0, 0, "ring");
    fv_results_log_close(&s);
    head.kv_dtype = "bf16";
    fails(&head, FV_EINVAL, "another 'kv_dtype'");
    head.kv_dtype = "f32";
    s = open_results_log(&head);
    cr_assert_eq(s.n_done, 1);
    fv_results_log_close(&s);
}

Test(results_log, takes_over_what_another_run_has_answered_of_this_one) {
    static const char *const others[] = {"prune=random", "prune=vtw"};
    fv_results_log_head head = head_of(11), other = head_of(22);
    other.policy = others;
    fv_results_log s = open_results_log(&other), mine;
    add(&s, 0, 3, "ring");  /* asked here too, as policy 1 */
    add(&s, 1, 4, "blue");  /* no policy of this evaluation */
    add(&s, 0, 14, "cone"); /* no item of this evaluation */
    add(&s, 0, 5, "late");
    fv_results_log_close(&s);

    cr_assert_eq(fv_results_log_init(&head, &mine), FV_OK);
    add(&mine, 1, 5, "mine");
    cr_assert_eq(fv_results_log_reuse(&mine, path), FV_OK, "%s", fv_last_error());
    cr_assert_eq(mine.n_done, 2);
    cr_assert_str_eq(mine.item_score[fv_results_log_at(&mine, 1, 3)].said[0], "ring");
    cr_assert_str_eq(mine.item_score[fv_results_log_at(&mine, 1, 5)].said[0], "mine");
    fv_results_log_close(&mine);

    head.suite.seed = 4;
    cr_assert_eq(fv_results_log_init(&head, &mine), FV_OK);
    cr_assert_eq(fv_results_log_reuse(&mine, path), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "another 'seed'"), "%s", fv_last_error());
    cr_assert_neq(fv_results_log_reuse(&mine, "/nowhere/items.jsonl"), FV_OK);
    cr_assert_eq(mine.n_done, 0);
    fv_results_log_close(&mine);
}

/* The texts of policies do not say which directions they read. */
Test(results_log, of_a_checkpoint_with_another_calibration_only_exact_is_taken_over) {
    fv_results_log_head head = head_of(11), other = head_of(11);
    other.measured = "00000000000000aa";
    fv_results_log s = open_results_log(&other), mine;
    add(&s, 0, 3, "ring");
    add(&s, 1, 3, "cone");
    fv_results_log_close(&s);
    static const struct {
        const char *measured;
        int32_t n_done;
    } cases[] = {{"00000000000000aa", 2}, {"00000000000000bb", 1}, {"none", 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        head.measured = cases[i].measured;
        cr_assert_eq(fv_results_log_init(&head, &mine), FV_OK);
        cr_assert_eq(fv_results_log_reuse(&mine, path), FV_OK, "%s", fv_last_error());
        cr_assert_eq(mine.n_done, cases[i].n_done, "%s", cases[i].measured);
        cr_assert(mine.done[fv_results_log_at(&mine, 0, 3)]);
        fv_results_log_close(&mine);
    }
    fails(&head, FV_EINVAL, "another 'measured'");
}

/* A log written before the first line had the calibration. */
Test(results_log, one_that_does_not_say_what_was_measured_has_nothing) {
    fv_results_log_head head = head_of(11);
    fv_results_log s = open_results_log(&head);
    fv_results_log_close(&s);
    head.measured = "00000000000000aa";
    fails(&head, FV_EINVAL, "another 'measured'");
    head.measured = "none";
    s = open_results_log(&head);
    fv_results_log_close(&s);
}

Test(results_log, says_which_line_is_broken) {
    static const char *const broken[] = {
        "no json\n",
        "{\"policy\":2,\"item\":0,\"answers\":[\"a\"],\"scores\":[1]}\n",
        "{\"policy\":0,\"item\":11,\"answers\":[\"a\"],\"scores\":[1]}\n",
        "{\"item\":0,\"answers\":[\"a\"],\"scores\":[1]}\n",
        "{\"policy\":0,\"item\":0,\"answers\":[\"a\"]}\n",
        "{\"policy\":0,\"item\":0,\"answers\":[1],\"scores\":[1]}\n",
        "{\"policy\":0,\"item\":0,\"answers\":[\"a\"],\"scores\":[1.5]}\n",
    };
    fv_results_log_head head = head_of(11);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        unlink(path);
        fv_results_log s = open_results_log(&head);
        fv_results_log_close(&s);
        append(broken[i]);
        fails(&head, FV_EDATA, "line 2");
    }
}
