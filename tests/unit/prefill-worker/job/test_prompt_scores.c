/* prefill-worker/job/prompt_scores.h */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "kv/kv.h"
#include "prefill-worker/job/prompt_scores.h"

static fv_arena arena;

static void end(void) { fv_arena_fini(&arena); }

TestSuite(prompt_scores, .fini = end);

Test(prompt_scores, a_token_has_its_probability_after_the_tokens_before_it) {
    enum { N = 4, VOCAB = 5 };
    static const int32_t ids[N] = {1, 3, 9, 2};
    static const uint8_t seg[N] = {FV_SEG_TEXT, FV_SEG_TEXT, FV_SEG_VISUAL, FV_SEG_TEXT};
    static const float logits[] = {1, 2, 0.5f, 2, 0, /* padding: */ 99};
    fv_prompt_scores s;
    double total = 0;
    for (int i = 0; i < VOCAB; i++) total += exp(logits[i]);
    cr_assert_eq(fv_prompt_scores_open(ids, seg, N, 2, VOCAB, &arena, &s), FV_OK);
    for (int32_t pos = N - 1; pos >= 0; pos--) fv_prompt_scores_take(&s, pos, logits);
    cr_assert_eq(s.own[0].rank, 0, "nothing is before the first");
    cr_assert_eq(s.own[2].rank, 0, "visual");
    cr_assert_eq(s.own[1].rank, 2, "an equal one counts");
    cr_assert_float_eq(s.own[1].logprob, 2 - log(total), 1e-6);
    cr_assert_eq(s.own[3].rank, 4);
    cr_assert_float_eq(s.own[3].logprob, 0.5 - log(total), 1e-6);
    cr_assert(s.top[2].id == 1 && s.top[3].id == 3);
    cr_assert_float_eq(s.top[3].logprob, 2 - log(total), 1e-6);
}

Test(prompt_scores, a_row_that_is_not_finite_gives_none) {
    static const int32_t ids[] = {0, 1};
    static const uint8_t seg[] = {FV_SEG_TEXT, FV_SEG_TEXT};
    fv_prompt_scores s;
    cr_assert_eq(fv_prompt_scores_open(ids, seg, 2, 0, 2, &arena, &s), FV_OK);
    fv_prompt_scores_take(&s, 0, (const float[]){NAN, 1});
    cr_assert_eq(s.own[1].rank, 0);
}

Test(prompt_scores, so_many_are_returned) {
    fv_prompt_scores s;
    cr_assert_eq(
        fv_prompt_scores_open(NULL, NULL, FV_PROMPT_SCORES_MAX / 21 + 1, 20, 10, &arena, &s),
        FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "at most 65536"), "%s", fv_last_error());
    cr_assert_eq(fv_prompt_scores_open(NULL, NULL, FV_PROMPT_SCORES_MAX / 21, 20, 10, &arena, &s),
                 FV_OK);
}
