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

static fv_status check_rules(const Fovea__Inference__V1__TokenRules *t, uint32_t max_tokens,
                             uint32_t n_vocab) {
    if (!t) return FV_OK;
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
