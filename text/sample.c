/* Greedy and random choice. Sums are taken in double and in a fixed order. Any thread. */
#include "text/sample.h"

#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

fv_sampling fv_sampling_default(void) { return (fv_sampling){.repetition_penalty = 1, .top_p = 1}; }

uint64_t fv_logits_digest(const float *logits, int32_t vocab) {
    return XXH64(logits, (size_t)vocab * sizeof *logits, 0);
}

fv_status fv_sampling_check(const fv_sampling *s) {
    if (!(s->repetition_penalty > 0 && s->repetition_penalty <= 100))
        return FV_FAIL(FV_EINVAL, "repetition penalty %g: it must be above 0, up to 100 (1 is off)",
                       (double)s->repetition_penalty);
    if (!(s->temperature >= 0 && s->temperature <= 100))
        return FV_FAIL(FV_EINVAL, "temperature %g: it must be 0..100 (0 is greedy)",
                       (double)s->temperature);
    if (s->top_k < 0) return FV_FAIL(FV_EINVAL, "top-k %d: it must be 0 (off) or more", s->top_k);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return FV_FAIL(FV_EINVAL, "top-p %g: it must be above 0, up to 1 (off)", (double)s->top_p);
    if (s->n_logprobs < 0 || s->n_logprobs > FV_MAX_LOGPROBS)
        return FV_FAIL(FV_EINVAL, "logprobs %d: it must be 0..%d", s->n_logprobs, FV_MAX_LOGPROBS);
    return FV_OK;
}

/* Uniform in [0, 1) from (seed, step): SplitMix64's finaliser over both. */
static double uniform(uint64_t seed, uint64_t step) {
    uint64_t z = seed * 0xd1342543de82ef95u + (step + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Higher first; equal: lower id first. `logprob` holds whatever is ranked. */
static int by_rank(const void *a, const void *b) {
    const fv_logprob *x = a, *y = b;
    if (x->logprob != y->logprob) return x->logprob > y->logprob ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* log sum exp of the model's logits: what log-probabilities are counted from. */
static double log_total(const float *logits, int32_t n) {
    float m = logits[0];
    double sum = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > m) m = logits[i];
    for (int32_t i = 0; i < n; i++) sum += exp((double)logits[i] - m);
    return m + log(sum);
}

static void report_top(const fv_sampling *s, const float *logits, int32_t n, double total,
                       fv_sampled *out) {
    out->n_top = 0;
    for (int32_t i = 0; i < n && s->n_logprobs; i++) {
        fv_logprob c = {i, (float)(logits[i] - total)};
        int32_t at = out->n_top;
        while (at > 0 && by_rank(&c, &out->top[at - 1]) < 0) at--;
        if (at == s->n_logprobs) continue;
        if (out->n_top < s->n_logprobs) out->n_top++;
        for (int32_t j = out->n_top - 1; j > at; j--) out->top[j] = out->top[j - 1];
        out->top[at] = c;
    }
}

/* c[0..n) ranked: how many survive top-k, then top-p of softmax(c / temperature); fills p. */
static int32_t truncate_tail(const fv_sampling *s, fv_logprob *c, int32_t n) {
    if (s->top_k > 0 || s->top_p < 1) qsort(c, (size_t)n, sizeof *c, by_rank);
    if (s->top_k > 0 && s->top_k < n) n = s->top_k;
    float m = c[0].logprob;
    for (int32_t i = 1; i < n; i++)
        if (c[i].logprob > m) m = c[i].logprob;
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        c[i].logprob = (float)exp(((double)c[i].logprob - m) / s->temperature);
        sum += c[i].logprob;
    }
    if (s->top_p >= 1) return n;
    /* A token stays while the mass before it is below p: the smallest set that reaches p. */
    double before = 0;
    for (int32_t i = 0; i < n; i++) {
        if (i > 0 && before >= (double)s->top_p * sum) return i;
        before += c[i].logprob;
    }
    return n;
}

void fv_sample(const fv_sampling *s, const float *logits, int32_t n_vocab, const int32_t *seen,
               int32_t n_seen, uint64_t step, fv_logprob *scratch, fv_sampled *out) {
    fv_logprob *c = scratch;
    double total = log_total(logits, n_vocab);
    report_top(s, logits, n_vocab, total, out);
    for (int32_t i = 0; i < n_vocab; i++) c[i] = (fv_logprob){i, logits[i]};
    for (int32_t i = 0; i < n_seen && s->repetition_penalty != 1; i++) {
        if (seen[i] < 0 || seen[i] >= n_vocab) continue;
        /* From the logits, not from c: a token that was seen twice is penalised once. */
        float l = logits[seen[i]];
        c[seen[i]].logprob = l > 0 ? l / s->repetition_penalty : l * s->repetition_penalty;
    }
    int32_t pick = 0;
    if (s->temperature == 0) {
        for (int32_t i = 1; i < n_vocab; i++)
            if (by_rank(&c[i], &c[pick]) < 0) pick = i;
    } else {
        int32_t n = truncate_tail(s, c, n_vocab);
        double sum = 0, at = 0;
        for (int32_t i = 0; i < n; i++) sum += c[i].logprob;
        double u = uniform(s->seed, step) * sum;
        for (pick = 0; pick < n - 1; pick++) {
            at += c[pick].logprob;
            if (u < at) break;
        }
    }
    out->id = c[pick].id;
    out->logprob = (float)(logits[out->id] - total);
}
