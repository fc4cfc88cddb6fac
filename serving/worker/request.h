#ifndef FOVEA_SERVING_WORKER_REQUEST_H
#define FOVEA_SERVING_WORKER_REQUEST_H

/* REQUEST: converts a request's messages to the engine's types. Prefill and decode workers share this, so
 * that they read the turns of a conversation alike. Any thread. */
#include "common/arena.h"
#include "inference.pb-c.h"
#include "text/prompt_form.h"
#include "text/sample.h"

/* Reads the sampling parameters; absent ones have their defaults. Checks nothing (fv_sampling_check does). m may
 * be NULL. */
fv_sampling fv_request_sampling(const Fovea__Inference__V1__Sampling *m, uint32_t n_logprobs);

/* Reads the rules; ids are in the arena, words are borrowed from the message. m may be NULL: no rules. reasoning: as
 * below.
 * FV_EINVAL for more than a rule may have, before anything is copied; fv_token_rules_check checks the rest. */
fv_status fv_request_rules(const Fovea__Inference__V1__TokenRules *m, const char *reasoning,
                           fv_arena *arena, fv_token_rules *out);

/* Reads the grammar of the rules; kind 0: none. Its texts are borrowed from the message. reasoning: the name of the
 * form of reasoning that may stand before the text (text/calls/thinking.h); "": none may. */
fv_status fv_request_grammar(const Fovea__Inference__V1__TokenRules *rules, const char *reasoning,
                             fv_grammar_spec *out);

/* Whether the rules have a grammar. It says where the answer ends, so ignore_eos has no effect beside it. */
bool fv_request_constrained(const Fovea__Inference__V1__TokenRules *m);

/* Reads the prompt; lists are in the arena, strings are borrowed from the message. FV_EINVAL if there is no
 * prompt, a turn has more than n_image images, there are more than `context` ids, or an id is invalid. */
fv_status fv_request_prompt(const Fovea__Inference__V1__Prompt *m, int32_t n_image, int32_t context,
                            fv_arena *arena, fv_prompt_form *out);

/* Sets whether the tokenizer adds special tokens to the prompt: the request's add_special_tokens, if `given`. */
void fv_request_special(bool given, bool adds, fv_prompt_form *form);

/* Reads ids; *ids [n] is in the arena. FV_EINVAL for more than `most`, and for an invalid id. */
fv_status fv_request_ids(const uint32_t *in, size_t n, int32_t most, fv_arena *arena,
                         int32_t **ids);

#endif
