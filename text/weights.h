#ifndef FOVEA_TEXT_WEIGHTS_H
#define FOVEA_TEXT_WEIGHTS_H

/* WEIGHTS of a vocabulary, w_i = e^((l_i - m) / T) with m the highest logit, from which tokens are drawn.
 * Blocks of ids have their sum and their highest weight, so that later steps look into few of them,
 * and nothing sorts the vocabulary.
 *
 * Weights are f32, to 2 ulp, their sums double; operations have one order, so bits are the same on every
 * CPU. Pure functions: any thread. */
#include <stdbool.h>
#include <stdint.h>

enum { FV_WEIGHT_BLOCK = 32 };

#define FV_WEIGHT_BLOCKS(n) (((n) + FV_WEIGHT_BLOCK - 1) / FV_WEIGHT_BLOCK)

typedef struct fv_weights {
    int32_t n;
    float *w, *sum, *highest; /* [n], [FV_WEIGHT_BLOCKS(n)] twice; the caller's memory */
    double total;
} fv_weights;

/* Whether none of l [n] is NaN or infinite. */
bool fv_all_finite(const float *l, int32_t n);

/* The highest of l [n], n > 0; a NaN counts only at l[0]. */
float fv_highest(const float *l, int32_t n);

/* The first id whose logit is x; n - 1 if there is none. */
int32_t fv_index_of(const float *l, int32_t n, float x);

/* The highest of each block of l [n]: highest [FV_WEIGHT_BLOCKS(n)]. */
void fv_highest_of_blocks(const float *l, int32_t n, float *highest);

/* log sum_i e^l_i, which a logit exceeds by its log-probability. */
double fv_log_sum_exp(const float *l, int32_t n);

/* Fills v's arrays and total from l [v->n]. Weights below `least` become 0. */
void fv_weights_fill(fv_weights *v, const float *l, float m, float temperature, float least);

/* Sets weights to 0 outside the smallest set that reaches a share 0 <= top_p < 1 of the total; of equal
 * weights, those of lower ids stay. At least one stays. ids [v->n]: scratch. */
void fv_weights_cut(fv_weights *v, float top_p, int32_t *ids);

/* Computes a single weight, with the same bits. */
float fv_weight(float l, float m, float temperature);

/* Finds the id at which the sum of weights exceeds `to`, 0 <= to < total; if none does because of rounding,
 * the last id whose weight is above 0. */
int32_t fv_weights_draw(const fv_weights *v, double to);

#endif
