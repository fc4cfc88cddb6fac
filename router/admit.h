#ifndef FOVEA_ROUTER_ADMIT_H
#define FOVEA_ROUTER_ADMIT_H

/* ADMIT: is a request valid, and how much KV may it need? Checks that need a tokenizer or an image decoder
 * are left to the prefill worker. Pure functions. */
#include "inference.pb-c.h"
#include "policy/policy.h"

enum {
    FV_CONVERSATION_ID_BYTES = 16,   /* the decode worker's id begins a conversation's name, */
    FV_CONVERSATION_BYTES_MAX = 80,  /* followed by the name of that worker */
    FV_REQUEST_BYTES_MAX = 64 << 20, /* a whole GenerateRequest */
    FV_REQUEST_TOKENS_LEAST = 128,   /* of an answer without max_tokens, where more does not fit */
    /* of an answer without max_tokens in a kept conversation, whose KV is reserved for all of them */
    FV_REQUEST_TOKENS_FOLLOW = 1024,
};

typedef struct fv_request_bounds {
    uint32_t max_tokens;
    uint64_t bytes;        /* of KV, at most: prompt and answer, in addition to what is kept */
    uint64_t bytes_least;  /* and at least: text may take few tokens */
    uint64_t bytes_prompt; /* the prompt's part of bytes_least */
    uint64_t bytes_token;  /* of a token of the answer */
    bool open_ended;       /* the request has no max_tokens: where fewer fit, fewer do */
    uint64_t tokens_known; /* of the prompt: images, and text that came as ids */
    uint64_t tokens_text;  /* of other text, at most */
    uint64_t pixels;       /* of the images, from their headers */
} fv_request_bounds;

/* Checks that `name` is "", or the model's name or fingerprint; else FV_ENOTFOUND. */
fv_status fv_admit_model(const char *name, const Fovea__Inference__V1__Model *model);

/* Whether a request's name stands for the model: its name, an alias, its fingerprint, the name of an adapter, or "". */
bool fv_model_is_named(const Fovea__Inference__V1__Model *model, const char *name);

/* The name of the model's adapter that is called so, borrowed; NULL: none is. */
const char *fv_model_adapter(const Fovea__Inference__V1__Model *model, const char *name);

/* Checks a request and computes what it needs. keep_ms_max: the longest time that a conversation is kept, 0: not
 * at all. tokens_default: max_tokens of a request that has none; 0: as many as the context holds, or
 * FV_REQUEST_TOKENS_FOLLOW in a kept conversation. FV_EINVAL, FV_ENOTFOUND (another model) or FV_EUNSUPPORTED, with
 * a sentence that names the field. */
fv_status fv_admit(const Fovea__Inference__V1__GenerateRequest *req,
                   const Fovea__Inference__V1__Model *model, uint32_t keep_ms_max,
                   uint32_t tokens_default, fv_request_bounds *out);

/* How a model's prompts mark images and videos: words in plain text (NULL: none; static), and ids (0: none). */
typedef struct fv_prompt_marks {
    const char *word[2];
    uint32_t image_token, video_token;
} fv_prompt_marks;
void fv_admit_marks(const Fovea__Inference__V1__Model *model, fv_prompt_marks *out);

/* KV after the prefill of one image with as many tokens as the model has at most, and 32 tokens of text, at most; 0:
 * the model cannot run the policy. */
uint64_t fv_admit_policy_bytes(const Fovea__Inference__V1__Policy *policy,
                               const Fovea__Inference__V1__Model *model);

#endif
