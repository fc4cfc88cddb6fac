#ifndef FOVEA_EVAL_SCENES_DIVERGENCE_H
#define FOVEA_EVAL_SCENES_DIVERGENCE_H

/* Differences of distributions: the attention of two layers, which decides whether they may share
 * it; and next tokens under two policies. Pure functions: any thread. */
#include <stdint.h>

/* Jensen-Shannon divergence of two distributions over n keys, in nats; numbers that do not sum to 1
 * are divided by their sum, so a and b may be parts of distributions:
 *   JS(a, b) = 1/2 sum_j a_j ln(a_j / m_j) + 1/2 sum_j b_j ln(b_j / m_j),   m = (a + b) / 2
 * with 0 ln 0 = 0: 0 if they are equal, ln 2 if they share no key; symmetric. (Q Cache's measure of
 * similar layers; there a and b are the last prompt row's attention, mean over heads.) */
double fv_js_divergence(const float *a, const float *b, int32_t n);

/* Makes blocks of similar adjacent layers, greedily from the first layer on: layer l joins the
 * block of l - 1 if S(l-1, l) < epsilon and the block has fewer than `cap` layers; otherwise it
 * starts a block as its source layer. s [n_layer, n_layer]; writes source_layer [n_layer]. Q Cache
 * publishes neither epsilon nor cap. */
void fv_similar_blocks(const double *s, int32_t n_layer, double epsilon, int32_t cap,
                       int32_t *source_layer);

/* The smallest epsilon with which at least n_lazy layers join another's block; if `cap` does not
 * allow that many, one with which as many as possible do. */
double fv_similar_epsilon(const double *s, int32_t n_layer, int32_t n_lazy, int32_t cap);

/* Kullback-Leibler divergence of the distributions over n tokens given by two rows of logits:
 *   KL(p | q) = sum_j p_j ln(p_j / q_j),   p = softmax(a), q = softmax(b),   in nats
 * 0 if they are equal; not symmetric. */
double fv_kl_divergence(const float *a, const float *b, int32_t n);

#endif
