/* Greedy and random choice. Sums are taken in double and in a fixed order. Any thread. */
#include "text/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/vectors.h"

fv_sampling fv_sampling_default(void) { return (fv_sampling){.repetition_penalty = 1, .top_p = 1}; }

uint64_t fv_logits_digest(const float *logits, int32_t vocab) {
    return XXH64(logits, (size_t)vocab * sizeof *logits, 0);
}

static fv_status check_bias(const fv_sampling *s) {
    if (s->n_bias < 0 || s->n_bias > FV_MAX_LOGIT_BIAS)
        return FV_FAIL(FV_EINVAL, "%d logit biases; the limit is %d", s->n_bias, FV_MAX_LOGIT_BIAS);
    for (int32_t i = 0; i < s->n_bias; i++)
        if (!(fabsf(s->bias[i].bias) <= 100))
            return FV_FAIL(FV_EINVAL, "logit bias %g of id %d: it must be -100..100",
                           (double)s->bias[i].bias, s->bias[i].id);
    return FV_OK;
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
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return FV_FAIL(FV_EINVAL, "min-p %g: it must be 0 (off) to 1", (double)s->min_p);
    if (!(fabsf(s->frequency_penalty) <= 2))
        return FV_FAIL(FV_EINVAL, "frequency penalty %g: it must be -2..2 (0 is off)",
                       (double)s->frequency_penalty);
    if (!(fabsf(s->presence_penalty) <= 2))
        return FV_FAIL(FV_EINVAL, "presence penalty %g: it must be -2..2 (0 is off)",
                       (double)s->presence_penalty);
    FV_TRY(check_bias(s));
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

/* Loops over the vocabulary have LANES independent chains, which the compiler turns into vectors: the
 * order of every sum is the same on every CPU. */
enum { LANES = 16 };

VECTORS static float highest(const float *x, int32_t n) {
    float lane[LANES], m = x[0];
    for (int j = 0; j < LANES; j++) lane[j] = m;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (; i < n; i++) m = x[i] > m ? x[i] : m;
    for (int j = 0; j < LANES; j++) m = lane[j] > m ? lane[j] : m;
    return m;
}

/* e^x for x <= 0, to 2 ulp, without a branch or a table: libm's is one call per id, and its last bit
 * differs between CPUs. x = k ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor series. */
static inline double exp_below(double x) {
    static const double inverse[] = {
        1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
        1.0 / 5040,       1.0 / 720,       1.0 / 120,      1.0 / 24,      1.0 / 6,      0.5};
    const double to_integer = 0x1.8p52;
    x = x > -708 ? x : -708;
    double shifted = x * 0x1.71547652b82fep0 + to_integer, k = shifted - to_integer;
    double r = x - k * 0x1.62e42fefa3800p-1 - k * 0x1.ef35793c76730p-45;
    double p = inverse[0];
    for (int i = 1; i < 12; i++) p = p * r + inverse[i];
    p = p * r * r + r + 1;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 52) + ((uint64_t)1023 << 52); /* k is in the low bits of `shifted` */
    double power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* log sum exp of the model's logits: what log-probabilities are counted from. */
VECTORS static double log_total(const float *logits, int32_t n) {
    double m = highest(logits, n), lane[LANES] = {0}, sum = 0;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += exp_below(logits[i + j] - m);
    for (; i < n; i++) sum += exp_below(logits[i] - m);
    for (int j = 0; j < LANES; j++) sum += lane[j];
    return m + log(sum);
}

static void report_top(const fv_sampling *s, const float *logits, int32_t n, double total,
                       fv_sampled *out) {
    out->n_top = 0;
    for (int32_t i = 0; i < n && s->n_logprobs; i++) {
        fv_logprob c = {i, (float)(logits[i] - total)};
        int32_t at = out->n_top;
        if (at == s->n_logprobs && !(c.logprob > out->top[at - 1].logprob)) continue;
        while (at > 0 && by_rank(&c, &out->top[at - 1]) < 0) at--;
        if (at == s->n_logprobs) continue;
        if (out->n_top < s->n_logprobs) out->n_top++;
        for (int32_t j = out->n_top - 1; j > at; j--) out->top[j] = out->top[j - 1];
        out->top[at] = c;
    }
}

/* w[i] = e^((l[i] - m) / temperature). */
VECTORS static void weigh(const float *l, int32_t n, double m, double temperature, float *w) {
    for (int32_t i = 0; i < n; i++) w[i] = (float)exp_below((l[i] - m) / temperature);
}

static double mass_of(const float *w, int32_t n) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += w[i];
    return sum;
}

/* The first index at which the mass exceeds `to`, below n. */
static int32_t index_at(const float *w, int32_t n, double to) {
    double mass = 0;
    for (int32_t i = 0; i < n - 1; i++) {
        mass += w[i];
        if (to < mass) return i;
    }
    return n - 1;
}

/* Logits fall into bins by their distance from the highest, in units of the temperature. An id ranks
 * ahead of those in later bins, so the front of the ranking is found without sorting the vocabulary. */
enum { BINS = 1024, BINS_PER_UNIT = 32 };

static int bin_of(float l, double m, double scale) {
    double at = (m - l) * scale;
    return at < BINS - 1 ? (int)at : BINS - 1;
}

/* The first ids of the ranking, with their logits, and how many: all bins up to the one with which
 * there are top_k of them, or, without top_k, with which their weights w reach top_p of `total`. */
static int32_t rank_front(const fv_sampling *s, const float *l, int32_t n, double m, const float *w,
                          double total, fv_logprob *c) {
    double mass[BINS] = {0}, scale = BINS_PER_UNIT / (double)s->temperature, reached = 0;
    /* Bins add up in another order than the ranking, so it takes a little more. */
    double enough = s->top_p * total * (1 + 1e-9);
    int32_t count[BINS] = {0}, n_front = 0, last = 0, found = 0;
    for (int32_t i = 0; i < n; i++) {
        int b = bin_of(l[i], m, scale);
        count[b]++;
        if (s->top_k == 0) mass[b] += w[i];
    }
    for (; last < BINS; last++) {
        n_front += count[last];
        reached += mass[last];
        if (s->top_k > 0 ? n_front >= s->top_k : reached >= enough) break;
    }
    for (int32_t i = 0; i < n; i++)
        if (bin_of(l[i], m, scale) <= last) c[found++] = (fv_logprob){i, l[i]};
    qsort(c, (size_t)found, sizeof *c, by_rank);
    return found;
}

/* An id at random, from the softmax of l / temperature after min_p, top_k and top_p. w [n], c [n]: scratch. */
static int32_t draw(const fv_sampling *s, const float *l, int32_t n, double u, float *w,
                    fv_logprob *c) {
    double m = highest(l, n), total = 0;
    if (s->top_k == 0) {
        weigh(l, n, m, s->temperature, w);
        for (int32_t i = 0; i < n && s->min_p > 0; i++) w[i] = w[i] >= s->min_p ? w[i] : 0;
        total = mass_of(w, n);
        if (s->top_p >= 1) return index_at(w, n, u * total);
    }
    int32_t n_front = rank_front(s, l, n, m, w, total, c);
    if (s->top_k > 0 && s->top_k < n_front) n_front = s->top_k;
    for (int32_t i = 0; i < n_front; i++)
        w[i] = (float)exp_below((c[i].logprob - m) / s->temperature);
    while (w[n_front - 1] < s->min_p) n_front--; /* the first has 1 */
    if (s->top_k > 0) total = mass_of(w, n_front);
    /* A token stays while the mass before it is below top_p: the smallest set that reaches it. */
    int32_t n_kept = 0;
    for (double before = 0; n_kept < n_front && (n_kept == 0 || before < s->top_p * total);)
        before += w[n_kept++];
    return c[index_at(w, n_kept, u * mass_of(w, n_kept))].id;
}

static bool changes_logits(const fv_sampling *s) {
    return s->n_bias > 0 || s->repetition_penalty != 1 || s->frequency_penalty != 0 ||
           s->presence_penalty != 0;
}

/* Never infinite: a penalty far below 1 takes a logit past the largest float, and what is drawn from needs
 * differences of logits. */
static float repeated(float l, float penalty) {
    float x = l > 0 ? l / penalty : l * penalty;
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

/* Bias and penalties: x [n_vocab] in place. count [n_vocab]: scratch. An id that is no token of the
 * text model (an image's) counts for nothing. */
static void change_logits(const fv_sampling *s, float *x, int32_t n_vocab, const int32_t *seen,
                          int32_t n_seen, int32_t n_prompt, int32_t *count) {
    for (int32_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].id >= 0 && s->bias[i].id < n_vocab) x[s->bias[i].id] += s->bias[i].bias;
    /* Repetition acts once on an id that was seen twice: -1 marks those of the prompt. */
    memset(count, 0, (size_t)n_vocab * sizeof *count);
    for (int32_t i = 0; i < n_seen; i++) {
        if (seen[i] < 0 || seen[i] >= n_vocab) continue;
        int32_t *c = &count[seen[i]];
        float *l = &x[seen[i]];
        if (*c == 0) *l = repeated(*l, s->repetition_penalty);
        if (i < n_prompt)
            *c = -1;
        else
            *c = *c > 0 ? *c + 1 : 1;
    }
    for (int32_t i = n_prompt; i < n_seen; i++) {
        if (seen[i] < 0 || seen[i] >= n_vocab || count[seen[i]] <= 0) continue;
        x[seen[i]] -= s->frequency_penalty * (float)count[seen[i]];
        x[seen[i]] -= s->presence_penalty;
        count[seen[i]] = 0;
    }
}

void fv_sample(const fv_sampling *s, const float *logits, int32_t n_vocab, const int32_t *seen,
               int32_t n_seen, int32_t n_prompt, uint64_t step, fv_logprob *scratch,
               fv_sampled *out) {
    double total = log_total(logits, n_vocab);
    report_top(s, logits, n_vocab, total, out);
    float *w = (float *)(scratch + n_vocab), *changed = w + n_vocab;
    const float *l = logits;
    if (changes_logits(s)) {
        l = memcpy(changed, logits, (size_t)n_vocab * sizeof *l);
        change_logits(s, changed, n_vocab, seen, n_seen, n_prompt, (int32_t *)w);
    }
    if (s->temperature > 0) {
        out->id = draw(s, l, n_vocab, uniform(s->seed, step), w, scratch);
    } else {
        float m = highest(l, n_vocab);
        for (out->id = 0; out->id < n_vocab - 1 && l[out->id] != m;) out->id++;
    }
    out->logprob = (float)(logits[out->id] - total);
}
