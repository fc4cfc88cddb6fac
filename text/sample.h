#ifndef FOVEA_TEXT_SAMPLE_H
#define FOVEA_TEXT_SAMPLE_H

/* SAMPLE: logits -> the next token. Pure functions of their arguments: the random number of a
 * step depends on (seed, step) only, so a replayed request gets the same tokens. */
#include "text/token_mask.h"

enum { FV_MAX_LOGPROBS = 20, FV_MAX_LOGIT_BIAS = 300 };

typedef struct fv_logit_bias {
    int32_t id;
    float bias; /* -100..100 */
} fv_logit_bias;

/* Sampling parameters in the order in which they act, as in vLLM: the bias and then penalties change
 * logits, a mask forbids tokens (token_mask.h); the others act on l / temperature and its softmax. */
typedef struct fv_sampling {
    int32_t n_bias;
    fv_logit_bias bias[FV_MAX_LOGIT_BIAS]; /* [n_bias], each id once */
    float repetition_penalty; /* > 0; 1: off. Divides seen tokens' logits > 0, multiplies others */
    /* For tokens of the answer only, -2..2; 0: off: l -= frequency * count + presence * (count > 0) */
    float frequency_penalty, presence_penalty;
    float temperature; /* >= 0; 0: greedy */
    float min_p;       /* 0..1; 0: off. Removes tokens below min_p times the highest probability */
    int32_t top_k;     /* 0: off */
    float top_p; /* 0..1; 1: off. 0: the narrowest nucleus, which is the likeliest token alone */
    uint64_t seed;
    int32_t n_logprobs; /* 0..FV_MAX_LOGPROBS alternatives to report */
} fv_sampling;

/* Greedy, with everything else off. */
fv_sampling fv_sampling_default(void);

/* FV_EINVAL names the field that is out of range. */
fv_status fv_sampling_check(const fv_sampling *s);

typedef struct fv_logprob {
    int32_t id;
    float logprob;
} fv_logprob;

typedef struct fv_sampled {
    int32_t id;
    float
        logprob; /* natural log of the model's own probability, before penalties and temperature */
    uint32_t text_offset; /* characters of the answer before it; set by the generation */
    int32_t n_top;
    fv_logprob top[FV_MAX_LOGPROBS]; /* most likely first; ties: lower id first */
} fv_sampled;

/* Writes the n likeliest of logits [vocab], of which `total` is the fv_log_sum_exp, in the order of
 * fv_sampled.top; returns how many there are. n <= FV_MAX_LOGPROBS. */
int32_t fv_logprobs_top(const float *logits, int32_t vocab, double total, int32_t n,
                        fv_logprob *top);

/* XXH64 of logits [vocab]: equal for equal steps, so that two runs can be compared from outside. */
uint64_t fv_logits_digest(const float *logits, int32_t vocab);

#define FV_SAMPLE_SCRATCH(n_vocab) (2 * (n_vocab) + (n_vocab) / 32 + 1)

/* Picks among ids [0, n_vocab) of logits (later ones are padding and never sampled). mask: NULL: none.
 * `seen`: n_prompt ids of the prompt, then those of the answer so far. step: 0 for the first generated
 * token. scratch [FV_SAMPLE_SCRATCH(n_vocab)]. Fails only as fv_token_mask_apply does. */
fv_status fv_sample(const fv_sampling *s, fv_token_mask *mask, const float *logits, int32_t n_vocab,
                    const int32_t *seen, int32_t n_seen, int32_t n_prompt, uint64_t step,
                    fv_logprob *scratch, fv_sampled *out);

#endif
