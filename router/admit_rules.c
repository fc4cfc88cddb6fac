/* The checks of TokenRules, and of what is returned of the prompt. Pure functions; any thread. */
#include "router/admit_rules.h"

#include <inttypes.h>
#include <string.h>

enum {
    LOGPROBS_MAX = 20,
    ALLOWED_MAX = 1 << 15,
    STOP_IDS_MAX = 256,
    BAD_WORDS_MAX = 256,
    BAD_WORD_BYTES_MAX = 256,
    MIN_TOKENS_MAX = 1 << 24,
    CHOICES_MAX = 4096,
    CONSTRAINT_BYTES_MAX = 1 << 20,
};

static fv_status check_ids(const char *name, const uint32_t *id, size_t n, size_t most,
                           uint32_t n_vocab) {
    if (n > most) return FV_FAIL(FV_EINVAL, "%s has %zu ids; the limit is %zu", name, n, most);
    for (size_t i = 0; i < n; i++)
        if (id[i] >= n_vocab)
            return FV_FAIL(FV_EINVAL, "%s: id %" PRIu32 "; the vocabulary has %" PRIu32, name,
                           id[i], n_vocab);
    return FV_OK;
}

/* Bounds a constraint; what it says is read by the workers. */
static fv_status check_constraint(const Fovea__Inference__V1__Constraint *c) {
    size_t n = 0;
    if (!c) return FV_OK;
    switch (c->kind_case) {
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_OBJECT: return FV_OK;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_JSON_SCHEMA: n = strlen(c->json_schema); break;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_REGEX: n = strlen(c->regex); break;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_GRAMMAR: n = strlen(c->grammar); break;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_STRUCTURAL_TAG:
        n = strlen(c->structural_tag);
        break;
    case FOVEA__INFERENCE__V1__CONSTRAINT__KIND_CHOICE:
        if (c->choice->n_text == 0 || c->choice->n_text > CHOICES_MAX)
            return FV_FAIL(FV_EINVAL, "constraint: %zu choices; there must be 1..%d",
                           c->choice->n_text, CHOICES_MAX);
        for (size_t i = 0; i < c->choice->n_text; i++) n += strlen(c->choice->text[i]);
        break;
    default:
        return FV_FAIL(FV_EINVAL, "constraint: it must be one of json_object, json_schema, regex, "
                                  "choice, grammar and structural_tag");
    }
    if (n == 0 || n > CONSTRAINT_BYTES_MAX)
        return FV_FAIL(FV_EINVAL, "constraint: %zu bytes; there must be 1..%d", n,
                       CONSTRAINT_BYTES_MAX);
    return FV_OK;
}

static fv_status check_rules(const Fovea__Inference__V1__TokenRules *t, uint32_t max_tokens,
                             uint32_t n_vocab) {
    if (!t) return FV_OK;
    FV_TRY(check_constraint(t->constraint));
    const uint32_t most = max_tokens && max_tokens < MIN_TOKENS_MAX ? max_tokens : MIN_TOKENS_MAX;
    if (t->min_tokens > most)
        return FV_FAIL(FV_EINVAL, "min_tokens is %" PRIu32 "; it must be 0..%" PRIu32 "%s",
                       t->min_tokens, most, most == max_tokens ? ", which is max_tokens" : "");
    FV_TRY(check_ids("allowed_token_ids", t->allowed_token_ids, t->n_allowed_token_ids, ALLOWED_MAX,
                     n_vocab));
    FV_TRY(
        check_ids("stop_token_ids", t->stop_token_ids, t->n_stop_token_ids, STOP_IDS_MAX, n_vocab));
    if (t->n_bad_words > BAD_WORDS_MAX)
        return FV_FAIL(FV_EINVAL, "bad_words has %zu words; the limit is %d", t->n_bad_words,
                       BAD_WORDS_MAX);
    for (size_t i = 0; i < t->n_bad_words; i++)
        if (!t->bad_words[i][0] || strlen(t->bad_words[i]) > BAD_WORD_BYTES_MAX)
            return FV_FAIL(FV_EINVAL, "bad_words: word %zu must have 1..%d bytes", i,
                           BAD_WORD_BYTES_MAX);
    return FV_OK;
}

static fv_status check_prompt_fields(const Fovea__Inference__V1__GenerateRequest *r) {
    if (r->prompt_alternatives_case && r->prompt_logprobs > LOGPROBS_MAX)
        return FV_FAIL(FV_EINVAL, "prompt_logprobs is %" PRIu32 "; it must be 0..%d",
                       r->prompt_logprobs, LOGPROBS_MAX);
    if (r->truncate_case && r->truncate_prompt_tokens == 0)
        return FV_FAIL(FV_EINVAL, "truncate_prompt_tokens is 0; it must be at least 1");
    if ((r->prompt_alternatives_case || r->prompt_tokens || r->truncate_case) &&
        r->conversation.len)
        return FV_FAIL(FV_EINVAL,
                       "%s cannot be combined with a kept conversation, whose prompt the router "
                       "does not have: send the whole conversation again",
                       r->truncate_case              ? "truncate_prompt_tokens"
                       : r->prompt_alternatives_case ? "prompt_logprobs"
                                                     : "prompt_tokens");
    return FV_OK;
}

fv_status fv_admit_rules(const Fovea__Inference__V1__GenerateRequest *r, uint32_t n_vocab) {
    FV_TRY(check_rules(r->rules, r->max_tokens, n_vocab));
    return check_prompt_fields(r);
}
