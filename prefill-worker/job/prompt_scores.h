#ifndef FOVEA_PREFILL_WORKER_JOB_PROMPT_SCORES_H
#define FOVEA_PREFILL_WORKER_JOB_PROMPT_SCORES_H

/* PROMPT SCORES: the log-probability of each token of a prompt after the tokens before it, and the likeliest
 * tokens there:
 *
 *     log p(t_i | t_0 .. t_(i-1)) = l_(t_i) - log sum_j e^l_j      l: logits of row i - 1, ids below n_vocab
 *
 * rank: how many ids have a logit that is no lower, so 1 for the likeliest. A token has no score (rank 0) if it
 * is the first, or visual, or if row i - 1 did not reach the last layer. For the thread that prefills. */
#include "common/arena.h"
#include "text/sample.h"

/* Most log-probabilities of a prompt, those of its own tokens included. */
enum { FV_PROMPT_SCORES_MAX = 1 << 16 };

typedef struct fv_prompt_score {
    float logprob;
    int32_t rank; /* 0: none */
} fv_prompt_score;

typedef struct fv_prompt_scores {
    int32_t n, n_top, n_vocab;
    const int32_t *ids;   /* [n] borrowed: the prompt's */
    const uint8_t *seg;   /* [n] fv_kv_segment, borrowed */
    fv_prompt_score *own; /* [n] */
    fv_logprob *top;      /* [n, n_top] for tokens with a rank */
} fv_prompt_scores;

/* Allocates in the arena. FV_EINVAL: the prompt is too long for so many alternatives. */
fv_status fv_prompt_scores_open(const int32_t *ids, const uint8_t *seg, int32_t n, int32_t n_top,
                                int32_t n_vocab, fv_arena *arena, fv_prompt_scores *out);

/* fv_prefill_request.row_logits; user: the scores. */
void fv_prompt_scores_take(void *user, int32_t pos, const float *logits);

#endif
