/* decode-worker/speculate/costs.c and speculate.c: which drafts run, from given times and acceptance. */
#include <criterion/criterion.h>
#include <string.h>

#include "decode-worker/speculate/speculate.h"

/* Notes steps of a machine on which a step of n rows takes base + row * n. */
static void measure(fv_step_costs *c, int32_t answers, double base, double row) {
    static const int32_t drafts[] = {0, 1, 2, 4, 8, 16, 32, 64};
    for (int times = 0; times < 8; times++)
        for (int i = 7; i >= 0; i--)
            fv_step_costs_note(c, answers, drafts[i], base + row * (answers + drafts[i]));
}

static int32_t choose(const fv_step_costs *c, int32_t answers, float p, int32_t n) {
    float gain[FV_DRAFT_ROWS_MOST];
    for (int32_t i = 0; i < n; i++) gain[i] = p;
    return fv_step_costs_choose(c, answers, gain, n);
}

Test(costs, nothing_is_drafted_before_a_step_was_measured) {
    fv_step_costs c = {0};
    cr_assert_eq(choose(&c, 1, 1, 8), 0);
    fv_step_costs_note(&c, 1, 0, 0.02);
    cr_assert_eq(choose(&c, 1, 1, 8), 8);
    cr_assert_eq(choose(&c, 2, 1, 8), 0, "two answers are another step");
}

Test(costs, one_answer_drafts_where_rows_are_cheap_and_a_full_batch_does_not) {
    fv_step_costs c = {0};
    measure(&c, 1, 0.020, 0.001);
    measure(&c, 16, 0.020, 0.005);
    fv_step_costs_note(&c, 1, 0, 0.021);
    cr_assert_eq(choose(&c, 1, 0.8F, 8), 8);
    cr_assert_eq(choose(&c, 1, 0.03F, 8), 0, "a row costs 0.05 of a step");
    cr_assert_eq(choose(&c, 16, 0.6F, 64), 0, "a row costs 0.05 of a step that gives 16 tokens");
    cr_assert_gt(choose(&c, 16, 0.95F, 64), 0);
    cr_assert_float_eq(fv_step_costs_ratio(&c, 1, 8), 29.0 / 21, 0.01);
    cr_assert_float_eq(fv_step_costs_ratio(&c, 1, 3), 24.0 / 21, 0.01, "half as much again as 2");
}

Test(costs, steps_without_drafts_are_measured_again) {
    fv_step_costs c = {0};
    int32_t plain = 0;
    fv_step_costs_note(&c, 1, 0, 0.02);
    for (int i = 0; i < 640; i++) {
        int32_t n = choose(&c, 1, 1, 8);
        plain += n == 0;
        fv_step_costs_note(&c, 1, n, n ? 0.025 : 0.02);
    }
    cr_assert_eq(plain, 10 - 1);
}

Test(costs, a_disturbed_measurement_is_soon_forgotten) {
    fv_step_costs c = {0};
    fv_step_costs_note(&c, 1, 0, 0.02);
    fv_step_costs_note(&c, 1, 8, 5);
    cr_assert_gt(choose(&c, 1, 0.9F, 8), 0, "one long step is noise");
    for (int i = 0; i < 20; i++) fv_step_costs_note(&c, 1, 8, 5);
    cr_assert_eq(choose(&c, 1, 0.9F, 8), 0, "many are not");
    fv_step_costs_note(&c, 1, 0, 3);
    for (int i = 0; i < 5; i++) fv_step_costs_note(&c, 1, 0, 0.02);
    cr_assert_float_eq(fv_step_costs_plain(&c, 1), 0.02, 0.002);
}

Test(costs, a_step_without_drafts_takes_no_longer_than_one_with_some) {
    fv_step_costs c = {0};
    fv_step_costs_note(&c, 1, 0, 0.5); /* disturbed */
    for (int i = 0; i < 5; i++)
        fv_step_costs_note(&c, 1, 1, 0.02), fv_step_costs_note(&c, 1, 4, 0.05);
    cr_assert_float_eq(fv_step_costs_plain(&c, 1), 0.02, 0.02);
    cr_assert_gt(fv_step_costs_ratio(&c, 1, 4), 1.5);
}

/* ---- acceptance ----------------------------------------------------------------------------- */

typedef struct fixed {
    int32_t n, grade;
} fixed;

static void draft_fixed(void *user, const int32_t *ids, int32_t n, int32_t most, fv_draft *out) {
    const fixed *f = user;
    (void)ids, (void)n;
    while (out->n < f->n && out->n < most) out->id[out->n++] = 1;
    out->grade = f->grade;
}

static int32_t run(fv_speculation *s, const fv_step_costs *c, int32_t kept) {
    int32_t n;
    fv_speculation_propose(s, NULL, 5, 8);
    n = fv_speculation_trim(&s, 1, 1, c);
    cr_assert_eq(n, s->draft.n);
    if (kept > n) kept = n;
    fv_speculation_note(s, kept, kept < n, 0.022, 0.02);
    return n;
}

Test(costs, drafts_shorten_as_they_fail_and_are_tried_again_later) {
    fixed f = {.n = 8, .grade = 3};
    fv_speculation s = {.source = {draft_fixed, &f}, .n_vocab = 10};
    fv_step_costs c = {0};
    measure(&c, 1, 0.020, 0.002);
    int32_t first = run(&s, &c, 0), rows = 0, later = 0;
    cr_assert_gt(first, 2);
    for (int i = 0; i < 30; i++) {
        fv_step_costs_note(&c, 1, 0, 0.022);
        int32_t n = run(&s, &c, 0);
        rows += i >= 10 ? n : 0;
    }
    cr_assert_leq(rows, 10, "%d rows", (int)rows);
    f.n = 0;
    for (int i = 0; i < 500; i++) run(&s, &c, 0);
    f.n = 8;
    fv_step_costs_note(&c, 1, 0, 0.022);
    later = run(&s, &c, 8);
    cr_assert_gt(later, 0);
    for (int i = 0; i < 10; i++) {
        fv_step_costs_note(&c, 1, 0, 0.022);
        later = run(&s, &c, 8);
    }
    cr_assert_eq(later, 8);
}

Test(costs, rows_go_to_the_answers_whose_drafts_are_kept) {
    fixed f = {.n = 8, .grade = 2};
    fv_speculation s[2] = {{.source = {draft_fixed, &f}, .n_vocab = 10},
                           {.source = {draft_fixed, &f}, .n_vocab = 10}};
    fv_speculation *both[] = {&s[0], &s[1]};
    fv_step_costs c = {0};
    measure(&c, 2, 0.020, 0.002);
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < 2; j++) fv_speculation_propose(&s[j], NULL, 5, 8);
        for (int j = 0; j < 2; j++) fv_speculation_note(&s[j], j ? 8 : 0, j == 0, 0.03, 0.02);
    }
    fv_step_costs_note(&c, 2, 0, 0.024);
    for (int j = 0; j < 2; j++) fv_speculation_propose(&s[j], NULL, 5, 8);
    int32_t n = fv_speculation_trim(both, 2, 2, &c);
    cr_assert_eq(s[0].draft.n + s[1].draft.n, n);
    cr_assert_leq(s[0].draft.n, 1);
    cr_assert_eq(s[1].draft.n, 8);
}

Test(costs, ids_that_no_token_has_are_not_drafted) {
    fixed f = {.n = 8};
    fv_speculation s = {.source = {draft_fixed, &f}, .n_vocab = 1};
    fv_speculation_propose(&s, NULL, 5, 8);
    cr_assert_eq(s.draft.n, 0);
    s.n_vocab = 2;
    fv_speculation_propose(&s, NULL, 5, 3);
    cr_assert_eq(s.draft.n, 3);
    fv_speculation_propose(&s, NULL, 5, 0);
    cr_assert_eq(s.draft.n, 0);
}

Test(costs, what_was_saved_is_the_kept_tokens_steps_less_what_the_step_took_longer) {
    fixed f = {.n = 4, .grade = 4};
    fv_speculation s = {.source = {draft_fixed, &f}, .n_vocab = 10};
    fv_speculation_propose(&s, NULL, 5, 8);
    fv_speculation_note(&s, 3, true, 0.03, 0.02);
    cr_assert_eq(s.n_drafted, 4);
    cr_assert_eq(s.n_kept, 3);
    cr_assert_float_eq(s.s_saved, 0.05, 1e-9);
}
