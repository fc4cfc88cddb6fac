/* Chooses the experts of a token, and their weights, from the router's logits. Pure, any thread. */
#include <assert.h>

#include "kernels/activations.h"
#include "kernels/mathf.h"
#include "model/net/experts.h"

/* Keeps a token whose scores are all 0 from a division by 0. */
static const float least_sum = 1e-20F;

/* The index of the highest score that is not taken; the lowest of equal ones. */
static int32_t highest(const float *score, int32_t n, const bool *taken) {
    int32_t best = -1;
    for (int32_t e = 0; e < n; e++) {
        if (taken[e]) continue;
        if (best < 0 || score[e] > score[best] || (isnan(score[best]) && !isnan(score[e])))
            best = e;
    }
    return best;
}

/* Sets closed[e] of the experts outside of the n_open groups with the highest scores. A group's score is
 * the sum of the two highest in it. */
static void close_groups(const fv_text_config *c, const float *score, bool *closed) {
    const int32_t n = c->router.n_group, size = c->n_expert / n;
    float of[FV_EXPERTS_MAX];
    bool open[FV_EXPERTS_MAX] = {false};
    for (int32_t g = 0; g < n; g++) {
        const float *first = score + (ptrdiff_t)g * size;
        bool taken[FV_EXPERTS_MAX] = {false};
        const int32_t most = highest(first, size, taken);
        taken[most] = true;
        of[g] = first[most] + first[highest(first, size, taken)];
    }
    for (int32_t j = 0; j < c->router.n_open; j++) open[highest(of, n, open)] = true;
    for (int32_t e = 0; e < c->n_expert; e++) closed[e] = !open[e / size];
}

/* Lists the n_active experts with the highest scores, in ascending order. */
static void choose(const fv_text_config *c, const float *score, int32_t *expert) {
    bool taken[FV_EXPERTS_MAX] = {false}, chosen[FV_EXPERTS_MAX] = {false};
    if (c->router.n_group > 1) close_groups(c, score, taken);
    for (int32_t j = 0; j < c->n_active; j++) {
        const int32_t e = highest(score, c->n_expert, taken);
        taken[e] = chosen[e] = true;
    }
    for (int32_t e = 0, j = 0; j < c->n_active; e++)
        if (chosen[e]) expert[j++] = e;
}

static void route_softmax(const fv_text_config *c, const float *r, int32_t *expert, float *weight) {
    const bool none[FV_EXPERTS_MAX] = {false};
    const float most = r[highest(r, c->n_expert, none)];
    float sum = 0;
    choose(c, r, expert);
    for (int32_t j = 0; j < c->n_active; j++) {
        weight[j] = exp_f32(r[expert[j]] - most);
        sum += weight[j];
    }
    for (int32_t j = 0; j < c->n_active; j++) weight[j] /= sum;
}

static void route_sigmoid(const fv_text_config *c, const float *bias, const float *r,
                          int32_t *expert, float *weight) {
    float score[FV_EXPERTS_MAX], by[FV_EXPERTS_MAX], sum = 0;
    for (int32_t e = 0; e < c->n_expert; e++) {
        score[e] = act_sigmoid(r[e]);
        by[e] = bias ? score[e] + bias[e] : score[e];
    }
    choose(c, by, expert);
    for (int32_t j = 0; j < c->n_active; j++) {
        weight[j] = score[expert[j]];
        sum += weight[j];
    }
    sum += least_sum;
    for (int32_t j = 0; j < c->n_active; j++) {
        if (c->router.normed) weight[j] /= sum;
        weight[j] *= c->router.scale;
    }
}

void fv_experts_route(const fv_text_config *c, const float *bias, const float *logits, int32_t n,
                      int32_t *expert, float *weight) {
    assert(c->n_active >= 1 && c->n_active <= c->n_expert && c->n_expert <= FV_EXPERTS_MAX);
    for (int32_t t = 0; t < n; t++) {
        if (c->router.sigmoid)
            route_sigmoid(c, bias, logits, expert, weight);
        else
            route_softmax(c, logits, expert, weight);
        logits += c->n_expert;
        expert += c->n_active;
        weight += c->n_active;
    }
}
