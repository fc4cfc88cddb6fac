#ifndef FOVEA_PREFILL_WORKER_PREFILL_SCORERS_H
#define FOVEA_PREFILL_WORKER_PREFILL_SCORERS_H

/* SCORERS (SparseVLM, arXiv 2410.04417, "scorers"): the text tokens that concern the images; their
 * attention to visual tokens is the score. Pure functions. */
#include <stdint.h>

#include "model/net/rope.h"

/* dot [n_visual, n_text]: products of input embeddings of visual and text tokens. With
 *     m = mean over visual tokens of softmax over text tokens,
 * scorers are text tokens of more than the mean of m; where none is, all are. scorer [n_text]
 * becomes 1 or 0, m [n_text] is scratch; returns their number. */
int32_t fv_scorers_choose(const float *dot, int32_t n_visual, int32_t n_text, double *m,
                          uint8_t *scorer);

/* out[j]: the score that rotation alone, with queries and keys of ones, gives row j for a query at
 * p = pos[n - 1]: 2 sum_f cos((p - p_j) f) / sqrt(D), each f with its coordinate; greatest at j = n - 1.
 * The authors divide by this score without taking a softmax, so quotients can be negative. out [n]; pos
 * ascend. */
void fv_scorers_rope(const fv_rope *rope, const fv_rope_pos *pos, int32_t n, double *out);

#endif
