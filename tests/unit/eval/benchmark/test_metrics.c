/* Each metric against values worked out by hand. */
#include <criterion/criterion.h>

#include "eval/benchmark/metrics.h"

#define LIST(...) ((const char *const[]){__VA_ARGS__})
#define N(...) ((int32_t)(sizeof LIST(__VA_ARGS__) / sizeof(char *)))
#define EXACT(said, ...) fv_metric_exact_match(LIST(__VA_ARGS__), N(__VA_ARGS__), said)
#define CONTAINS(said, ...) fv_metric_contains(LIST(__VA_ARGS__), N(__VA_ARGS__), said)
#define VQA(said, ...) fv_metric_vqa(LIST(__VA_ARGS__), N(__VA_ARGS__), said)
#define ANLS(said, ...) fv_metric_anls(LIST(__VA_ARGS__), N(__VA_ARGS__), said)
#define CHOICE(said, ...) fv_choice_said(LIST(__VA_ARGS__), N(__VA_ARGS__), said)

Test(metrics, exact_match_ignores_case_space_and_a_full_stop) {
    cr_expect_eq(EXACT("  Dark\t red.\n", "blue", "dark red"), 1);
    cr_expect_eq(EXACT("dark red!", "dark red"), 0);
    cr_expect_eq(EXACT("", "red"), 0);
    cr_expect_eq(EXACT(".", "."), 1);
}

Test(metrics, contains_finds_whole_words) {
    cr_expect_eq(CONTAINS("It is Dark  Red, I think.", "blue", "dark red"), 1);
    cr_expect_eq(CONTAINS("There are 10.", "1"), 0);
    cr_expect_eq(CONTAINS("There are 10 or 1.", "1"), 1);
    cr_expect_eq(CONTAINS("I know", "no"), 0);
    cr_expect_eq(CONTAINS("it costs $5", "$5"), 1);
    cr_expect_eq(CONTAINS("", "no"), 0);
}

/* The score of k equal answers among n: (k min(3, k - 1) + (n - k) min(3, k)) / 3n. */
Test(metrics, vqa_leaves_each_answer_out_in_turn) {
    cr_expect_float_eq(
        VQA("yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes", "yes"), 1, 1e-12);
    cr_expect_float_eq(VQA("yes", "yes", "no", "no", "no", "no", "no", "no", "no", "no", "no"), 0.3,
                       1e-12);
    cr_expect_float_eq(VQA("yes", "yes", "yes", "no", "no", "no", "no", "no", "no", "no", "no"),
                       0.6, 1e-12);
    cr_expect_float_eq(VQA("yes", "yes", "yes", "yes", "no", "no", "no", "no", "no", "no", "no"),
                       0.9, 1e-12);
    cr_expect_float_eq(VQA("yes", "yes", "yes", "yes", "yes", "no", "no", "no", "no", "no", "no"),
                       1, 1e-12);
    cr_expect_float_eq(VQA("maybe", "yes", "yes", "yes", "no"), 0, 1e-12);
    cr_expect_float_eq(VQA("The Ring.", "ring", "a ring", "RING", "ring"), 1, 1e-12);
}

static void normal(const char *said, const char *is) {
    char out[200];
    fv_vqa_normalise(said, out, sizeof out);
    cr_expect_str_eq(out, is, "'%s' became '%s'", said, out);
}

Test(metrics, vqa_normalises_as_the_challenge_does) {
    normal(" The  two\tDogs\n", "2 dogs");
    normal("An apple, a pear and none", "apple pear and 0");
    normal("red/blue", "red blue");
    normal("red / blue", "red blue");
    normal("x-ray", "x ray");
    normal("x-ray - old", "xray old");
    normal("1,000 dollars", "1000 dollars");
    normal("1,000 red/blue", "1000 redblue");
    normal("3.5 p.m.", "3.5 pm");
    normal("what is it?", "what is it");
    normal("dont", "don't");
    normal("Couldntve", "couldn't've");
    normal("OClock", "o'clock");
    normal("lets", "lets");
    normal("the", "");
    normal("", "");
    char small[6];
    fv_vqa_normalise("red ring", small, sizeof small);
    cr_expect_str_eq(small, "red");
}

Test(metrics, anls_counts_edits_per_character) {
    cr_expect_float_eq(ANLS("Harry  Potter", "harry potter"), 1, 1e-12);
    cr_expect_float_eq(ANLS("kitten", "sitting"), 1 - 3.0 / 7, 1e-12);
    cr_expect_float_eq(ANLS("ab", "ac"), 0.5, 1e-12); /* the threshold itself */
    cr_expect_float_eq(ANLS("abc", "axy"), 0, 1e-12);
    cr_expect_float_eq(ANLS("abcd", "zzzz", "abce", "abxx"), 0.75, 1e-12);
    cr_expect_float_eq(ANLS("M\xc3\xbcnchen", "Munchen"), 1 - 1.0 / 7, 1e-12); /* one character */
    cr_expect_float_eq(ANLS("", "a"), 0, 1e-12);
    cr_expect_float_eq(ANLS("a much longer sentence", "a"), 0, 1e-12);
}

Test(metrics, a_choice_is_said_by_letter_or_text) {
#define RINGS "red ring", "blue ring", "ring"
    cr_expect_eq(CHOICE("B", RINGS), 1);
    cr_expect_eq(CHOICE(" b\n", RINGS), 1);
    cr_expect_eq(CHOICE("B. blue ring", RINGS), 1);
    cr_expect_eq(CHOICE("(C) because", RINGS), 2);
    cr_expect_eq(CHOICE("(C because", RINGS), -1);
    cr_expect_eq(CHOICE("D", RINGS), -1);
    cr_expect_eq(CHOICE("Ring.", RINGS), 2);
    cr_expect_eq(CHOICE("Blue ring", RINGS), 1);
    cr_expect_eq(CHOICE("It is left", "left", "right"), 0);
    cr_expect_eq(CHOICE("A left one", "left", "right"), 0);
    cr_expect_eq(CHOICE("left or right", "left", "right"), -1);
    cr_expect_eq(CHOICE("", "left", "right"), -1);
}
