/* text/sample.c */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "text/sample.h"

enum { N = 6 };
static const float logits[N] = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 9.0f};

static fv_sampled pick(fv_sampling s, int32_t n_vocab, const int32_t *seen, int32_t n_seen,
                       uint64_t step) {
    fv_logprob scratch[N];
    fv_sampled out;
    cr_assert_eq(fv_sampling_check(&s), FV_OK, "%s", fv_last_error());
    fv_sample(&s, logits, n_vocab, seen, n_seen, step, scratch, &out);
    return out;
}

/* How often each id comes in many steps, as shares. */
static void shares(fv_sampling s, int32_t n_vocab, double out[N]) {
    enum { TRIES = 20000 };
    memset(out, 0, N * sizeof *out);
    for (uint64_t i = 0; i < TRIES; i++) out[pick(s, n_vocab, NULL, 0, i).id] += 1.0 / TRIES;
}

Test(sample, greedy_takes_the_highest_and_the_lowest_id_on_ties) {
    fv_sampling s = fv_sampling_default();
    cr_assert_eq(pick(s, N, NULL, 0, 0).id, 5);
    cr_assert_eq(pick(s, N - 1, NULL, 0, 0).id, 1, "ids behind n_vocab are padding");
}

Test(sample, logprobs_are_the_models_own) {
    fv_sampling s = fv_sampling_default();
    s.n_logprobs = 3;
    s.temperature = 5;
    fv_sampled t = pick(s, 5, NULL, 0, 0);
    double total = 0;
    for (int i = 0; i < 5; i++) total += exp(logits[i]);
    cr_assert_eq(t.n_top, 3);
    cr_assert_eq(t.top[0].id, 1);
    cr_assert_eq(t.top[1].id, 3);
    cr_assert_eq(t.top[2].id, 2);
    for (int i = 0; i < 3; i++)
        cr_assert_float_eq(t.top[i].logprob, logits[t.top[i].id] - log(total), 1e-6);
    cr_assert_float_eq(t.logprob, logits[t.id] - log(total), 1e-6);
}

Test(sample, repetition_penalty_acts_once_per_token_and_by_sign) {
    fv_sampling s = fv_sampling_default();
    int32_t seen[] = {5, 5, 5, 1, 77, -3};
    s.repetition_penalty = 4; /* 9 / 4 = 2.25 < 3; were it taken thrice, still 3 wins: see below */
    cr_assert_eq(pick(s, N, seen, 4, 0).id, 3, "1 and 5 are punished, 3 is not");
    s.repetition_penalty = 2.5f; /* 9 / 2.5 = 3.6 stays first only if it acts once */
    cr_assert_eq(pick(s, N, seen, 6, 0).id, 5);
    s.repetition_penalty = 0.1f; /* negative logits are multiplied: -1 becomes -0.1 */
    int32_t four = 4;
    cr_assert_eq(pick(s, 5, &four, 1, 0).id, 1);
}

Test(sample, shares_follow_the_softmax_at_that_temperature) {
    fv_sampling s = fv_sampling_default();
    double got[N], total = 0;
    s.temperature = 2;
    s.seed = 42;
    shares(s, 5, got);
    for (int i = 0; i < 5; i++) total += exp(logits[i] / 2);
    for (int i = 0; i < 5; i++) cr_assert_float_eq(got[i], exp(logits[i] / 2) / total, 0.015);
}

Test(sample, top_k_and_top_p_cut_the_tail) {
    fv_sampling s = fv_sampling_default();
    double got[N];
    s.temperature = 1;
    s.top_k = 2;
    shares(s, 5, got);
    cr_assert_float_eq(got[1], 0.5, 0.02);
    cr_assert_float_eq(got[1] + got[3], 1, 1e-9);
    s.top_k = 0;
    s.top_p = 0.5f; /* 1 and 3 have 0.40 each: the first does not reach 0.5, both do */
    shares(s, 5, got);
    cr_assert_float_eq(got[1] + got[3], 1, 1e-9);
    s.top_p = 0.01f;
    shares(s, 5, got);
    cr_assert_float_eq(got[1], 1, 1e-9, "one always stays");
}

Test(sample, a_step_replayed_gives_the_same_token) {
    fv_sampling s = fv_sampling_default();
    s.temperature = 3;
    s.seed = 9;
    int32_t first[50], changed = 0;
    for (uint64_t i = 0; i < 50; i++) first[i] = pick(s, N, NULL, 0, i).id;
    for (uint64_t i = 50; i-- > 0;) cr_assert_eq(pick(s, N, NULL, 0, i).id, first[i]);
    s.seed = 10;
    for (uint64_t i = 0; i < 50; i++) changed += pick(s, N, NULL, 0, i).id != first[i];
    cr_assert_gt(changed, 10);
}

Test(sample, settings_out_of_range_are_named) {
    fv_sampling s = fv_sampling_default();
    s.top_p = 0;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "top-p"));
    s = fv_sampling_default();
    s.temperature = -1;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    s = fv_sampling_default();
    s.repetition_penalty = NAN;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    s = fv_sampling_default();
    s.n_logprobs = FV_MAX_LOGPROBS + 1;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    s = fv_sampling_default();
    s.top_k = -1;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
}
