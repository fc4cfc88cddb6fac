/* Scores the tokens of a prompt from the logits of its rows. */
#include "prefill-worker/job/prompt_scores.h"

#include "kv/kv.h"
#include "text/weights.h"

fv_status fv_prompt_scores_open(const int32_t *ids, const uint8_t *seg, int32_t n, int32_t n_top,
                                int32_t n_vocab, fv_arena *arena, fv_prompt_scores *out) {
    const int64_t all = (int64_t)n * (1 + n_top);
    if (n_top < 0 || n_top > FV_MAX_LOGPROBS)
        return FV_FAIL(FV_EINVAL, "prompt_logprobs is %d; it must be 0..%d", n_top,
                       FV_MAX_LOGPROBS);
    if (all > FV_PROMPT_SCORES_MAX)
        return FV_FAIL(
            FV_EINVAL,
            "prompt_logprobs of %d for a prompt of %d tokens are %lld log-probabilities; "
            "at most %d are returned: ask for fewer, or shorten the prompt",
            n_top, n, (long long)all, FV_PROMPT_SCORES_MAX);
    *out = (fv_prompt_scores){.n = n, .n_top = n_top, .n_vocab = n_vocab, .ids = ids, .seg = seg};
    FV_TRY(FV_ARENA_NEW(arena, n, out->own));
    return FV_ARENA_NEW(arena, (size_t)n * (size_t)n_top, out->top);
}

void fv_prompt_scores_take(void *user, int32_t pos, const float *logits) {
    const fv_prompt_scores *s = user;
    const int32_t at = pos + 1;
    if (at >= s->n || s->seg[at] != FV_SEG_TEXT || s->ids[at] >= s->n_vocab) return;
    if (!fv_all_finite(logits, s->n_vocab)) return; /* the answer's first token reports it */
    const float own = logits[s->ids[at]];
    const double total = fv_log_sum_exp(logits, s->n_vocab);
    int32_t rank = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) rank += logits[i] >= own;
    s->own[at] = (fv_prompt_score){.logprob = (float)((double)own - total), .rank = rank};
    if (s->n_top) {
        fv_logprob *top = s->top + (size_t)at * (size_t)s->n_top;
        int32_t n = fv_logprobs_top(logits, s->n_vocab, total, s->n_top, top);
        for (; n < s->n_top; n++) top[n].id = -1;
    }
}
