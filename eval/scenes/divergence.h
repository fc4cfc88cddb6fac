#ifndef FOVEA_EVAL_SCENES_DIVERGENCE_H
#define FOVEA_EVAL_SCENES_DIVERGENCE_H

/* How much distributions differ: two layers' attention, and which layers may therefore share it;
 * and next tokens under two policies. Pure functions: any thread. */
#include <stdint.h>

/* Jensen-Shannon divergence of two distributions over n keys, in nats; numbers that do not sum to 1
 * are divided by their sum, so a and b may be parts of distributions:
 *   JS(a, b) = 1/2 sum_j a_j ln(a_j / m_j) + 1/2 sum_j b_j ln(b_j / m_j),   m = (a + b) / 2
 * with 0 ln 0 = 0: 0 when they are equal, ln 2 when they share no key; symmetric. (Q Cache, the
 * measure of similar layers; its a and b are the last prompt row's attention, mean over heads.) */
double fv_js_divergence(const float *a, const float *b, int32_t n);

/* Blocks of adjacent layers that are alike, greedily from the first layer on: layer l joins the
 * block of l - 1 when S(l-1, l) < epsilon and the block has fewer than `cap` layers; otherwise it
 * starts one, as its source layer. s [n_layer, n_layer]; source layer [n_layer] is written. Q Cache
 * publishes neither number. */
void fv_alike_blocks(const double *s, int32_t n_layer, double epsilon, int32_t cap,
                     int32_t *source_layer);

/* The smallest epsilon with which at least n_lazy layers join another's block; where `cap` does not
 * allow so many, one with which as many do as can. */
double fv_alike_epsilon(const double *s, int32_t n_layer, int32_t n_lazy, int32_t cap);

/* Kullback-Leibler divergence of the distributions over n tokens that two rows of logits mean:
 *   KL(p | q) = sum_j p_j ln(p_j / q_j),   p = softmax(a), q = softmax(b),   in nats
 * 0 when they are equal; not symmetric. */
double fv_kl_divergence(const float *a, const float *b, int32_t n);

#endif
