#ifndef FOVEA_ROUTER_ADMIT_H
#define FOVEA_ROUTER_ADMIT_H

/* ADMIT: is a request right, and how much KV may it take? What needs a tokenizer or a decoder of
 * images is left to the prefill worker. Pure functions. */
#include "inference.pb-c.h"
#include "policy/policy.h"

enum {
    FV_CONVERSATION_ID_BYTES = 16,   /* at the beginning of a conversation's name: the worker's */
    FV_CONVERSATION_BYTES_MAX = 80,  /* followed by the name of the worker that has it */
    FV_REQUEST_BYTES_MAX = 64 << 20, /* a whole GenerateRequest */
    FV_REQUEST_TOKENS_DEFAULT = 128, /* when neither the request nor the model says */
};

typedef struct fv_need {
    uint32_t max_tokens;
    uint64_t bytes;        /* of KV, at most: prompt and answer, or what they add to what is kept */
    uint64_t bytes_least;  /* and at least: text may take few tokens */
    uint64_t bytes_prompt; /* of that, the prompt's */
    uint64_t tokens_known; /* of the prompt: images, and text that came as ids */
    uint64_t tokens_text;  /* and of other text, at most */
    uint64_t pixels;       /* of its images, as their headers say */
} fv_need;

/* Is it the served one, by name or fingerprint, or ""? Otherwise FV_ENOTFOUND. */
fv_status fv_admit_model(const char *name, const Fovea__Inference__V1__Model *model);

/* keep_ms_max: how long a decode worker keeps a conversation at most, 0 for not at all.
 * FV_EINVAL, FV_ENOTFOUND (another model) or FV_EUNSUPPORTED, with a sentence that names the
 * field. */
fv_status fv_admit(const Fovea__Inference__V1__GenerateRequest *req,
                   const Fovea__Inference__V1__Model *model, uint32_t keep_ms_max, fv_need *out);

#endif
