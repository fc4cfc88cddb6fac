/* Chooses tokens greedily or at random. Nothing sorts the vocabulary: top_k finds the highest ids through
 * the highest of each block of ids, top_p the smallest set by bins of weights (weights.h). Sums are taken in
 * double and in a fixed order. Any thread. */
#include "text/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "text/weights.h"

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
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return FV_FAIL(FV_EINVAL, "top-p %g: it must be 0..1 (1 is off)", (double)s->top_p);
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

/* Orders by `logprob`, whatever it holds, highest first; ties: lower id first. */
static int by_rank(const void *a, const void *b) {
    const fv_logprob *x = a, *y = b;
    if (x->logprob != y->logprob) return x->logprob > y->logprob ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* `top` holds logits until all are found. */
int32_t fv_logprobs_top(const float *logits, int32_t vocab, double total, int32_t n,
                        fv_logprob *top) {
    int32_t found = 0;
    for (int32_t i = 0; i < vocab && n; i++) {
        fv_logprob c = {i, logits[i]};
        int32_t at = found;
        if (at == n && !(c.logprob > top[at - 1].logprob)) continue;
        while (at > 0 && by_rank(&c, &top[at - 1]) < 0) at--;
        if (at == n) continue;
        if (found < n) found++;
        for (int32_t j = found - 1; j > at; j--) top[j] = top[j - 1];
        top[at] = c;
    }
    for (int32_t i = 0; i < found; i++) top[i].logprob = (float)((double)top[i].logprob - total);
    return found;
}

/* ---- top_k ------------------------------------------------------------------------------- */

/* Bins of logits by their distance from the highest: an id ranks before all ids in later bins. */
enum { BINS = 1024, BINS_PER_UNIT = 32 };

static int bin_of(float l, float m) {
    float at = (m - l) * BINS_PER_UNIT;
    return at < BINS - 1 ? (int)at : BINS - 1;
}

/* Moves the `count` highest-ranked of c [n], or all if there are fewer, to the front of c, sorted. Returns
 * how many. */
static int32_t rank_first(float m, fv_logprob *c, int32_t n, int32_t count) {
    int32_t in_bin[BINS] = {0}, reached = 0, last = 0, found = 0;
    for (int32_t i = 0; i < n; i++) in_bin[bin_of(c[i].logprob, m)]++;
    while ((reached += in_bin[last]) < count && last < BINS - 1) last++;
    for (int32_t i = 0; i < n; i++)
        if (bin_of(c[i].logprob, m) <= last) c[found++] = c[i];
    qsort(c, (size_t)found, sizeof *c, by_rank);
    return found < count ? found : count;
}

/* Writes the top_k highest-ranked ids to c; returns how many. At least top_k ids are not below the top_k-th
 * of the blocks' highest, so blocks whose highest is below that are skipped. highest: scratch. */
static int32_t first_ids(int32_t top_k, const float *l, int32_t n, float m, float *highest,
                         fv_logprob *c) {
    int32_t n_block = FV_WEIGHT_BLOCKS(n), found = 0;
    float least = -INFINITY;
    fv_highest_of_blocks(l, n, highest);
    if (n_block > top_k) {
        for (int32_t b = 0; b < n_block; b++) c[b] = (fv_logprob){b, highest[b]};
        rank_first(m, c, n_block, top_k);
        least = c[top_k - 1].logprob;
    }
    for (int32_t b = 0; b < n_block; b++) {
        if (highest[b] < least) continue;
        for (int32_t i = b * FV_WEIGHT_BLOCK; i < n && i < (b + 1) * FV_WEIGHT_BLOCK; i++)
            if (!(l[i] < least)) c[found++] = (fv_logprob){i, l[i]};
    }
    return rank_first(m, c, found, top_k);
}

/* Writes the ids that top_k, min_p and then top_p keep to c, and their weights to v->w; returns how
 * many. *sum: the sum of these weights. */
static int32_t cut(const fv_sampling *s, const float *l, float m, fv_weights *v, fv_logprob *c,
                   double *sum) {
    int32_t n = first_ids(s->top_k, l, v->n, m, v->highest, c), kept = 0;
    float *w = v->w;
    for (int32_t i = 0; i < n; i++) w[i] = fv_weight(c[i].logprob, m, s->temperature);
    /* The first weight is 1; those of forbidden ids are 0. */
    while (n > 1 && (w[n - 1] < s->min_p || w[n - 1] == 0)) n--;
    double total = 0;
    for (int32_t i = 0; i < n; i++) total += (double)w[i];
    /* A token stays while the mass before it is below top_p: the smallest set that reaches it. */
    for (*sum = 0; kept < n && (kept == 0 || *sum < (double)s->top_p * total);)
        *sum += (double)w[kept++];
    return kept;
}

/* ---- the choice -------------------------------------------------------------------------- */

/* Returns the first index at which the summed weights exceed `to`; n - 1 if none does. */
static int32_t index_at(const float *w, int32_t n, double to) {
    double mass = 0;
    for (int32_t i = 0; i < n - 1; i++) {
        mass += (double)w[i];
        if (to < mass) return i;
    }
    return n - 1;
}

/* Draws an id from the softmax of l / temperature after min_p, top_k and top_p. c [v->n]: scratch. */
static int32_t draw(const fv_sampling *s, const float *l, double u, fv_weights *v, fv_logprob *c) {
    float m = fv_highest(l, v->n);
    if (s->top_k > 0) {
        double sum;
        int32_t n = cut(s, l, m, v, c, &sum);
        return c[index_at(v->w, n, u * sum)].id;
    }
    fv_weights_fill(v, l, m, s->temperature, s->min_p);
    if (s->top_p < 1) fv_weights_cut(v, s->top_p, (int32_t *)c);
    return fv_weights_draw(v, u * v->total);
}

static bool changes_logits(const fv_sampling *s) {
    return s->n_bias > 0 || s->repetition_penalty != 1 || s->frequency_penalty != 0 ||
           s->presence_penalty != 0;
}

/* Applies the repetition penalty to a logit. A penalty far below 1 could overflow; the result stays finite,
 * as weights need differences of logits. */
static float penalize(float l, float penalty) {
    float x = l > 0 ? l / penalty : l * penalty;
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

/* Applies bias and penalties to x [n_vocab] in place. count [n_vocab]: scratch. Ids outside the text
 * model's vocabulary (an image's) are ignored. */
static void change_logits(const fv_sampling *s, float *x, int32_t n_vocab, const int32_t *seen,
                          int32_t n_seen, int32_t n_prompt, int32_t *count) {
    for (int32_t i = 0; i < s->n_bias; i++)
        if (s->bias[i].id >= 0 && s->bias[i].id < n_vocab) x[s->bias[i].id] += s->bias[i].bias;
    /* The repetition penalty acts once per id; -1 marks ids of the prompt. */
    memset(count, 0, (size_t)n_vocab * sizeof *count);
    for (int32_t i = 0; i < n_seen; i++) {
        if (seen[i] < 0 || seen[i] >= n_vocab) continue;
        int32_t *c = &count[seen[i]];
        float *l = &x[seen[i]];
        if (*c == 0) *l = penalize(*l, s->repetition_penalty);
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

fv_status fv_sample(const fv_sampling *s, fv_token_mask *mask, const float *logits, int32_t n_vocab,
                    const int32_t *seen, int32_t n_seen, int32_t n_prompt, uint64_t step,
                    fv_logprob *scratch, fv_sampled *out) {
    double total = fv_log_sum_exp(logits, n_vocab);
    out->n_top = fv_logprobs_top(logits, n_vocab, total, s->n_logprobs, out->top);
    float *room = (float *)(scratch + n_vocab);
    fv_weights v = {.n = n_vocab,
                    .w = room,
                    .sum = room + 2 * (size_t)n_vocab,
                    .highest = room + 2 * (size_t)n_vocab + FV_WEIGHT_BLOCKS(n_vocab)};
    const float *l = logits;
    const bool masked = fv_token_mask_acts(mask, n_seen - n_prompt);
    if (changes_logits(s) || masked) {
        float *changed = room + n_vocab;
        l = memcpy(changed, logits, (size_t)n_vocab * sizeof *l);
        if (changes_logits(s))
            change_logits(s, changed, n_vocab, seen, n_seen, n_prompt, (int32_t *)v.w);
        if (masked) FV_TRY(fv_token_mask_apply(mask, seen + n_prompt, n_seen - n_prompt, changed));
    }
    if (s->temperature > 0) {
        out->id = draw(s, l, uniform(s->seed, step), &v, scratch);
    } else {
        out->id = fv_index_of(l, n_vocab, fv_highest(l, n_vocab));
    }
    out->logprob = (float)(logits[out->id] - total);
    return FV_OK;
}
