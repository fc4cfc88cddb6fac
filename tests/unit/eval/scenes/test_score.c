/* eval/scenes/score.c: which answers count as correct, and confidence intervals against the
 * literature. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "eval/scenes/score.h"

static void normal(const char *said, const char *expected) {
    char out[64];
    fv_answer_normalise(said, out, sizeof out);
    cr_expect_str_eq(out, expected, "'%s'", said);
}

Test(score, normal_form) {
    normal("red", "red");
    normal(" Red.\n", "red");
    normal("The ring is red.", "red");
    normal("The green object is a cross.", "cross");
    normal("The ring is at the Top Left!", "top left");
    normal("In the bottom-right", "bottom right");
    normal("The number of red objects is three.", "3");
    normal("An orange circle: yes.", "yes");
    normal("Seen from the blue ring, the red circle is left.", "left");
    normal("The picture with more circles is the first.", "first");
    normal("middle centre", "middle center");
    normal("The printed number is 482.", "482");
    normal("red\nand more", "red");
    normal("There are ten", "10");
    normal("", "");
    normal("  ...  ", "");
    normal("the answer is", "answer is");
    normal("the answer is ", "answer is");
    normal("it is: ", "it is"); /* nothing to strip */
    normal("one two", "1 2");
    normal("caf\xc3\xa9 RED", "caf\xc3\xa9 red");
}

Test(score, a_normal_form_that_does_not_fit_is_cut_at_a_word) {
    char out[10];
    fv_answer_normalise("abc defg hij", out, sizeof out);
    cr_assert_str_eq(out, "abc defg");
    fv_answer_normalise("abcdefghijk", out, sizeof out);
    cr_assert_str_eq(out, "");
    char word[400];
    memset(word, 'x', sizeof word - 1);
    word[sizeof word - 1] = 0;
    fv_answer_normalise(word, out, sizeof out); /* longer than any word that counts */
    cr_assert_str_eq(out, "");
}

static double score(fv_scene_task task, const char *answer, const char *said) {
    fv_turn turn = {.task = task};
    strcpy(turn.answer, answer);
    return fv_score_turn(&turn, said);
}

Test(score, answers_are_right_or_wrong) {
    cr_assert_eq(score(FV_TASK_COLOR, "red", "The ring is red."), 1);
    cr_assert_eq(score(FV_TASK_COLOR, "red", "blue"), 0);
    cr_assert_eq(score(FV_TASK_COLOR, "red", "red or blue"), 0);
    cr_assert_eq(score(FV_TASK_COLOR, "red", ""), 0);
    cr_assert_eq(score(FV_TASK_NUMBER, "48", "482"), 0);
    cr_assert_eq(score(FV_TASK_CELL, "top left", "top"), 0);
    cr_assert_eq(score(FV_TASK_COUNT, "0", "zero"), 1);
}

Test(score, every_answer_of_every_task_scores_full_in_both_forms) {
    for (int task = 0; task < FV_N_TASK; task++)
        for (uint64_t i = 0; i < 300; i++) {
            fv_item item;
            cr_assert_eq(fv_item_make(FV_SPLIT_TEST, (fv_scene_task)task, i, NULL, &item), FV_OK);
            for (int32_t k = 0; k < item.n_turn; k++) {
                const fv_turn *t = &item.turn[k];
                cr_assert_eq(fv_score_turn(t, t->answer), 1, "%s", t->answer);
                cr_assert_eq(fv_score_turn(t, t->restated), 1, "%s", t->restated);
            }
        }
}

Test(score, the_answer_of_another_item_scores_about_chance) {
    enum { N = 1000 };
    static fv_item item[N];
    for (int task = 0; task < FV_TASK_COMPARE; task++) {
        double sum = 0;
        for (uint64_t i = 0; i < N; i++)
            cr_assert_eq(fv_item_make(FV_SPLIT_TEST, (fv_scene_task)task, i, NULL, &item[i]),
                         FV_OK);
        for (int i = 0; i < N; i++)
            sum += fv_score_turn(&item[i].turn[0], item[(i + 1) % N].turn[0].restated);
        double chance = fv_task_describe(task)->chance;
        cr_assert_leq(sum / N, chance + 0.07, "%s: %f", fv_task_describe(task)->name, sum / N);
    }
}

/* ---- captions ------------------------------------------------------------------------ */

#define RED "In the top left there is a small red circle."
#define BLUE "In the top right there is a large blue ring."
#define SIGN "In the bottom left there is the printed number 48."

Test(score, captions_by_hand) {
    const char *right = "There are 2 objects. " RED " " BLUE " " SIGN;
    cr_assert_eq(fv_score_caption(right, right), 1);
    cr_assert_eq(fv_score_caption(right, SIGN " " BLUE " " RED), 1, "order does not count");
    cr_assert_eq(fv_score_caption(right, ""), 0);
    cr_assert_eq(fv_score_caption("", ""), 1);
    /* Two of three listed, both right: 2 * 2 / (3 + 2). */
    cr_assert_float_eq(fv_score_caption(right, RED " " SIGN), 0.8, 1e-12);
    /* Three listed, one of the wrong size: 2 * 2 / (3 + 3). */
    cr_assert_float_eq(
        fv_score_caption(right, RED " " SIGN " In the top right there is a small blue ring."),
        2.0 / 3, 1e-12);
    /* Listed twice, present once: 2 * 1 / (3 + 2). */
    cr_assert_float_eq(fv_score_caption(right, RED " " RED), 0.4, 1e-12);
    /* At the wrong place, and a digit that is handwritten: nothing is correct. */
    cr_assert_eq(fv_score_caption(right, "In the top center there is a small red circle. "
                                         "In the bottom left there is the handwritten digit 48."),
                 0);
    /* A sentence without an attribute lists nothing. */
    cr_assert_float_eq(fv_score_caption(right, RED " " SIGN " In the top right there is a ring."),
                       0.8, 1e-12);
    /* Other sentences, same facts. */
    cr_assert_eq(fv_score_caption(RED, "A SMALL RED CIRCLE is at the top left"), 1);
}

Test(score, captions_without_end_are_read_without_harm) {
    char *text = malloc(200000);
    text[0] = 0;
    size_t n = 0;
    for (int i = 0; i < 2000; i++) n += (size_t)sprintf(text + n, "%s ", RED);
    cr_assert_float_eq(fv_score_caption(RED, text), 2.0 / 2001, 1e-12);
    memset(text, '7', 199999);
    text[199999] = 0;
    cr_assert_eq(fv_score_caption(RED, text), 0);
    free(text);
}

/* ---- intervals ----------------------------------------------------------------------- */

static void is(fv_interval i, double value, double low, double high, double tolerance) {
    cr_expect_float_eq(i.value, value, tolerance, "%f", i.value);
    cr_expect_float_eq(i.low, low, tolerance, "low %f", i.low);
    cr_expect_float_eq(i.high, high, tolerance, "high %f", i.high);
}

/* Newcombe, Statistics in Medicine 17 (1998) 857, table I, method 3. */
Test(score, wilson_as_in_newcombe) {
    is(fv_interval_wilson(81, 263), 81.0 / 263, 0.2553, 0.3662, 5e-5);
    is(fv_interval_wilson(15, 148), 15.0 / 148, 0.0624, 0.1605, 5e-5);
    is(fv_interval_wilson(0, 20), 0, 0, 0.1611, 5e-5);
    is(fv_interval_wilson(1, 29), 1.0 / 29, 0.0061, 0.1718, 5e-5);
}

Test(score, wilson_at_the_ends) {
    is(fv_interval_wilson(20, 20), 1, 0.8389, 1, 5e-5);
    is(fv_interval_wilson(0, 0), 0, 0, 1, 0);
    fv_interval half = fv_interval_wilson(1000, 2000);
    cr_assert_float_eq(half.high - half.low, 0.0438, 1e-4, "what 2000 items are worth");
}

/* n pairs of which `better` are 1 against 0, `worse` 0 against 1, the rest 1 against 1. */
static fv_interval paired(int32_t n, int32_t better, int32_t worse) {
    static double a[4000], b[4000];
    for (int32_t i = 0; i < n; i++) {
        a[i] = i < better || i >= better + worse;
        b[i] = i >= better;
    }
    return fv_interval_paired(a, b, n);
}

/* The approval ratings of Agresti's textbook: 1600 people asked twice, 86 changed one way, 150 the
 * other. By hand: d = -64/1602, squares 236 + 1. */
Test(score, paired_by_hand) {
    /* d = -0.039950, s^2 = 0.147940 - 0.001596 = 0.146344, half = 1.96 sqrt(s^2/1602) = 0.018733 */
    is(paired(1600, 86, 150), -0.04, -0.058683, -0.021217, 2e-6);
    /* Nothing differs: s^2 = 1 / 102, half = 1.96 sqrt(s^2 / 102) = 0.019215, and never zero. */
    is(paired(100, 0, 0), 0, -0.019215, 0.019215, 2e-6);
    /* Everything is better: d = 10/12, s^2 = 11/12 - 100/144 = 0.222222, half = 0.266717. */
    is(paired(10, 10, 0), 1, 0.566616, 1, 2e-6);
}

Test(score, paired_of_fractions) {
    const double a[4] = {1, 0.5, 0.25, 1}, b[4] = {0.5, 0.5, 0.75, 0};
    /* Differences 0.5 0 -0.5 1: d = 1/6, s^2 = 2.5/6 - 1/36 = 0.388889, half = 0.498984. */
    is(fv_interval_paired(a, b, 4), 0.25, -0.332317, 0.665651, 2e-6);
    is(fv_interval_paired(a, b, 0), 0, -1, 1, 0);
}
