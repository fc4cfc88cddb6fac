#ifndef FOVEA_TEXT_SAMPLE_H
#define FOVEA_TEXT_SAMPLE_H

/* SAMPLE: logits -> the next token. Pure functions of their arguments: the random number of a
 * step depends on (seed, step) only, so a request that is replayed goes on as it would have. */
#include "common/status.h"

enum { FV_MAX_LOGPROBS = 20 };

/* In the order in which they act, as in transformers' generate. */
typedef struct fv_sampling {
    float repetition_penalty; /* > 0; 1: off. Logits of tokens seen: > 0 divided, else multiplied */
    float temperature;        /* >= 0; 0: greedy */
    int32_t top_k;            /* 0: off */
    float top_p;              /* 0 < p <= 1; 1: off */
    uint64_t seed;
    int32_t n_logprobs; /* 0..FV_MAX_LOGPROBS alternatives to report */
} fv_sampling;

/* Greedy, nothing else. */
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
    int32_t n_top;
    fv_logprob top[FV_MAX_LOGPROBS]; /* most likely first; ties: lower id first */
} fv_sampled;

/* XXH64 of logits [vocab]: equal for equal steps, so that two runs can be compared from outside. */
uint64_t fv_logits_digest(const float *logits, int32_t vocab);

/* Picks among ids [0, n_vocab) of logits (later ones are padding and never sampled). `seen`:
 * prompt and generated ids so far. step: 0 for the first generated token. scratch [2 n_vocab]. */
void fv_sample(const fv_sampling *s, const float *logits, int32_t n_vocab, const int32_t *seen,
               int32_t n_seen, uint64_t step, fv_logprob *scratch, fv_sampled *out);

#endif
