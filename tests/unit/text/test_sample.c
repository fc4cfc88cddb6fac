/* text/sample.c */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/sample.h"

enum { N = 6 };
static const float logits[N] = {1.0f, 3.0f, 2.0f, 3.0f, -1.0f, 9.0f};

static fv_sampled pick(fv_sampling s, int32_t n_vocab, const int32_t *seen, int32_t n_seen,
                       uint64_t step) {
    fv_logprob scratch[FV_SAMPLE_SCRATCH(N)];
    fv_sampled out;
    cr_assert_eq(fv_sampling_check(&s), FV_OK, "%s", fv_last_error());
    (void)fv_sample(&s, NULL, logits, n_vocab, seen, n_seen, 0, step, scratch, &out);
    return out;
}

/* Frequency of each id over many steps. */
static void shares(fv_sampling s, int32_t n_vocab, double out[N]) {
    enum { TRIES = 20000 };
    memset(out, 0, N * sizeof *out);
    for (uint64_t i = 0; i < TRIES; i++) out[pick(s, n_vocab, NULL, 0, i).id] += 1.0 / TRIES;
}

Test(sample, greedy_takes_the_highest_and_the_lowest_id_on_ties) {
    fv_sampling s = fv_sampling_default();
    cr_assert_eq(pick(s, N, NULL, 0, 0).id, 5);
    cr_assert_eq(pick(s, N - 1, NULL, 0, 0).id, 1, "ids after n_vocab are padding");
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
    s.repetition_penalty = 4; /* 9 / 4 = 2.25 < 3; applied three times, 3 still wins: see below */
    cr_assert_eq(pick(s, N, seen, 4, 0).id, 3, "1 and 5 are punished, 3 is not");
    s.repetition_penalty = 2.5f; /* 9 / 2.5 = 3.6 stays first only if it is applied once */
    cr_assert_eq(pick(s, N, seen, 6, 0).id, 5);
    s.repetition_penalty = 0.1f; /* negative logits are multiplied: -1 becomes -0.1 */
    int32_t four = 4;
    cr_assert_eq(pick(s, 5, &four, 1, 0).id, 1);
}

Test(sample, a_repetition_penalty_near_0_takes_what_was_seen) {
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } cuts[] = {{0, 1, 0, 0},    {1, 1, 0, 0},       {1, 0.5f, 0, 0},
                {1, 1, 0.5f, 0}, {1, 0.9f, 0.1f, 2}, {1e-45f, 0.5f, 0, 0}};
    fv_sampling s = fv_sampling_default();
    int32_t two = 2;
    s.repetition_penalty = 1e-40f; /* 2 / 1e-40 is beyond the largest float */
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        s.temperature = cuts[i].temperature;
        s.top_p = cuts[i].top_p;
        s.min_p = cuts[i].min_p;
        s.top_k = cuts[i].top_k;
        for (uint64_t step = 0; step < 20; step++)
            cr_assert_eq(pick(s, N, &two, 1, step).id, 2, "settings %zu", i);
    }
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

Test(sample, top_p_0_is_the_likeliest_token_alone) {
    fv_sampling s = fv_sampling_default();
    s.temperature = 100;
    s.top_p = 0;
    for (int top_k = 0; top_k <= 4; top_k += 4)
        for (uint64_t step = 0; step < 200; step++) {
            s.top_k = top_k;
            s.seed = step * 77;
            cr_assert_eq(pick(s, N, NULL, 0, step).id, 5);
            cr_assert_eq(pick(s, 5, NULL, 0, step).id, 1, "of equal ones the lowest id");
        }
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

enum { VOCAB = 1001 };

/* A number in [0, 1) from a linear congruence. */
static double even(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

static int32_t below(uint64_t *state, int32_t n) { return (int32_t)(even(state) * n); }

static int by_logit(const void *a, const void *b) {
    const fv_logprob *x = a, *y = b;
    if (x->logprob != y->logprob) return x->logprob > y->logprob ? -1 : 1;
    return x->id - y->id;
}

/* The ids that may be chosen, by sorting all of them, and the probability of the last of them. */
static int32_t allowed(const fv_sampling *s, const float *l, int32_t *ids, double *last) {
    static fv_logprob c[VOCAB];
    for (int32_t i = 0; i < VOCAB; i++) c[i] = (fv_logprob){i, l[i]};
    qsort(c, VOCAB, sizeof *c, by_logit);
    int32_t n = s->top_k > 0 && s->top_k < VOCAB ? s->top_k : VOCAB, kept = 0;
    double sum = 0, before = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp(((double)c[i].logprob - c[0].logprob) / s->temperature);
    while (kept < n && (kept == 0 || before < s->top_p * sum)) {
        *last = exp(((double)c[kept].logprob - c[0].logprob) / s->temperature);
        before += *last;
        ids[kept] = c[kept].id;
        kept++;
    }
    *last /= before;
    return kept;
}

Test(sample, a_cut_without_sorting_the_vocabulary_allows_the_same_ids) {
    static float l[VOCAB];
    static fv_logprob scratch[FV_SAMPLE_SCRATCH(VOCAB)];
    static int32_t ids[VOCAB];
    uint64_t rng = 5;
    for (int round = 0; round < 120; round++) {
        /* Wide, narrow, and with many ties. */
        float width = (float)below(&rng, 3) * 4 + 0.5f;
        for (int32_t i = 0; i < VOCAB; i++) {
            double normal = -6;
            for (int j = 0; j < 12; j++) normal += even(&rng);
            l[i] = width * (float)normal;
            if (round % 3 == 0) l[i] = roundf(l[i]);
        }
        fv_sampling s = fv_sampling_default();
        s.temperature = 0.1f + 0.2f * (float)below(&rng, 10);
        s.top_k = round % 2 ? 1 + below(&rng, round % 5 ? 60 : 2 * VOCAB) : 0;
        s.top_p = round % 4 == 1 ? 1 : 0.05f + 0.1f * (float)below(&rng, 9);
        s.seed = (uint64_t)round;
        double share = 0;
        int32_t n = allowed(&s, l, ids, &share);
        bool last_seen = false;
        for (uint64_t step = 0; step < 200; step++) {
            fv_sampled t;
            (void)fv_sample(&s, NULL, l, VOCAB, NULL, 0, 0, step, scratch, &t);
            int32_t at = 0;
            while (at < n && ids[at] != t.id) at++;
            cr_assert_lt(at, n, "round %d: id %d is none of the %d", round, t.id, n);
            last_seen |= at == n - 1;
        }
        if (share > 0.1) cr_assert(last_seen, "round %d: the last of %d never comes", round, n);
    }
}

Test(sample, logits_that_are_no_numbers_do_not_matter_to_memory) {
    static float l[VOCAB];
    static fv_logprob scratch[FV_SAMPLE_SCRATCH(VOCAB)];
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < 9; kind++)
        for (int cut = 0; cut < 8; cut++) {
            for (int32_t i = 0; i < VOCAB; i++)
                l[i] = i % (kind < 3 ? 1 : kind < 6 ? 100 : VOCAB) == 0 ? odd[kind % 3] : 1;
            fv_sampling s = fv_sampling_default();
            s.temperature = 1;
            s.top_k = cut & 1 ? 5 : 0;
            s.top_p = cut & 2 ? 0.5f : 1;
            s.min_p = cut & 4 ? 0.5f : 0;
            for (uint64_t step = 0; step < 20; step++) {
                fv_sampled t;
                (void)fv_sample(&s, NULL, l, VOCAB, NULL, 0, 0, step, scratch, &t);
                cr_assert(t.id >= 0 && t.id < VOCAB, "kind %d, cut %d: id %d", kind, cut, t.id);
            }
        }
}

/* vLLM's formulas, one after the other, in double: the probability of each id. */
static void by_the_formulas(const fv_sampling *s, const float *l, int32_t n, const int32_t *seen,
                            int32_t n_seen, int32_t n_prompt, double *x, double *p) {
    double sum = 0, top = 0, above;
    for (int32_t i = 0; i < n; i++) {
        int32_t in_prompt = 0, count = 0;
        for (int32_t j = 0; j < n_seen; j++)
            if (seen[j] == i) *(j < n_prompt ? &in_prompt : &count) += 1;
        x[i] = l[i];
        for (int32_t j = 0; j < s->n_bias; j++)
            if (s->bias[j].id == i) x[i] += s->bias[j].bias;
        if (in_prompt || count)
            x[i] = x[i] > 0 ? x[i] / s->repetition_penalty : x[i] * s->repetition_penalty;
        x[i] -= s->frequency_penalty * count;
        x[i] -= s->presence_penalty * (count > 0);
    }
    if (s->temperature == 0) return;
    for (int32_t i = 0; i < n; i++) sum += p[i] = exp(x[i] / s->temperature);
    for (int32_t i = 0; i < n; i++) top = fmax(top, p[i] /= sum);
    for (int32_t i = 0; i < n; i++) p[i] = p[i] < s->min_p * top ? 0 : p[i];
    for (int pass = 0; pass < 2; pass++) { /* top_k, then top_p of what it left */
        double left[12];
        sum = 0;
        for (int32_t i = 0; i < n; i++) sum += p[i];
        for (int32_t i = 0; i < n; i++) {
            int32_t rank = 0;
            above = 0;
            for (int32_t j = 0; j < n; j++)
                if (p[j] > p[i] || (p[j] == p[i] && j < i)) {
                    rank++;
                    above += p[j] / sum;
                }
            bool stays = pass ? above < s->top_p : !s->top_k || rank < s->top_k;
            left[i] = stays ? p[i] : 0;
        }
        memcpy(p, left, (size_t)n * sizeof *p);
    }
    sum = 0;
    for (int32_t i = 0; i < n; i++) sum += p[i];
    for (int32_t i = 0; i < n; i++) p[i] /= sum;
}

static float one_of(uint64_t *rng, const float *values, int32_t n) { return values[below(rng, n)]; }

Test(sample, all_settings_together_choose_as_the_formulas_say) {
    enum { SMALL = 12, SEEN = 9, STEPS = 3000 };
    static const float share[] = {0, 0.05f, 0.3f, 1}, penalty[] = {0, 0.7f, 2, -0.4f},
                       repetition[] = {1, 1.3f, 0.8f}, heat[] = {0, 0.6f, 1.4f};
    uint64_t rng = 11;
    for (int round = 0; round < 150; round++) {
        float l[SMALL];
        double x[SMALL], p[SMALL], got[SMALL] = {0};
        int32_t seen[SEEN], n_prompt = below(&rng, SEEN + 1);
        fv_logprob scratch[FV_SAMPLE_SCRATCH(SMALL)];
        fv_sampling s = fv_sampling_default();
        for (int i = 0; i < SMALL; i++) l[i] = (float)(6 * even(&rng) - 3);
        for (int i = 0; i < SEEN; i++) seen[i] = below(&rng, SMALL + 2) - 1; /* -1, SMALL: no ids */
        s.temperature = one_of(&rng, heat, 3);
        s.min_p = one_of(&rng, share, 4);
        s.top_p = fmaxf(one_of(&rng, share, 4), 0.6f);
        s.top_k = below(&rng, 2) * below(&rng, SMALL);
        s.repetition_penalty = one_of(&rng, repetition, 3);
        s.frequency_penalty = one_of(&rng, penalty, 4);
        s.presence_penalty = one_of(&rng, penalty, 4);
        s.n_bias = below(&rng, 4);
        for (int i = 0; i < s.n_bias; i++)
            s.bias[i] = (fv_logit_bias){4 * i, (float)(4 * even(&rng) - 2)};
        s.seed = (uint64_t)round;
        cr_assert_eq(fv_sampling_check(&s), FV_OK, "%s", fv_last_error());
        by_the_formulas(&s, l, SMALL, seen, SEEN, n_prompt, x, p);
        int32_t n_step = s.temperature > 0 ? STEPS : 1;
        for (int32_t step = 0; step < n_step; step++) {
            fv_sampled t;
            (void)fv_sample(&s, NULL, l, SMALL, seen, SEEN, n_prompt, (uint64_t)step, scratch, &t);
            got[t.id] += 1.0 / n_step;
        }
        for (int i = 0; i < SMALL; i++) {
            if (s.temperature > 0)
                cr_assert_float_eq(got[i], p[i], 0.04, "round %d: id %d", round, i);
            else if (got[i] > 0)
                for (int j = 0; j < SMALL; j++) cr_assert_geq(x[i], x[j] - 1e-5, "round %d", round);
            if (s.temperature > 0) cr_assert(p[i] > 0 || got[i] == 0, "round %d: id %d", round, i);
        }
    }
}

Test(sample, logprobs_are_from_before_bias_and_penalties) {
    fv_sampling s = fv_sampling_default();
    fv_sampled plain = pick(s, N, NULL, 0, 0);
    s.n_bias = 1;
    s.bias[0] = (fv_logit_bias){5, 100};
    fv_sampled t = pick(s, N, NULL, 0, 0);
    cr_assert_eq(t.id, 5);
    cr_assert(t.logprob == plain.logprob);
}

Test(sample, settings_out_of_range_are_named) {
    fv_sampling s = fv_sampling_default();
    s.top_p = -0.5f;
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
    s = fv_sampling_default();
    s.min_p = 1.5f;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    s = fv_sampling_default();
    s.presence_penalty = 2.5f;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    s = fv_sampling_default();
    s.frequency_penalty = NAN;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    s = fv_sampling_default();
    s.n_bias = FV_MAX_LOGIT_BIAS + 1;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    s.n_bias = 1;
    s.bias[0].bias = 101;
    cr_assert_eq(fv_sampling_check(&s), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "logit bias"));
}
