/* Generates one answer. */
#include "text/generation.h"

#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "text/weights.h"

struct fv_generation {
    fv_generation_options opt; /* stop, eos and rules' lists are not read after open */
    int32_t *ending;           /* [n_ending] ids that end the answer */
    int32_t n_ending;
    fv_token_mask *mask; /* NULL: none */
    int32_t *ids, n, n_prompt;
    fv_detokenizer *detok;
    fv_stop *stop;
    fv_logprob *scratch; /* [FV_SAMPLE_SCRATCH(n_vocab)] */
    fv_sampled token;
    uint32_t n_char; /* of the text so far, before stop strings */
    fv_finish finish;
    char *shown; /* text of the last token that may be shown */
    size_t n_shown, cap_shown;
};

const char *fv_finish_name(fv_finish f) {
    static const char *const names[] = {"running", "length", "eos", "stop"};
    return names[f];
}

static fv_status check(const fv_generation_options *opt, int32_t n, int32_t n_prompt) {
    FV_TRY(fv_sampling_check(&opt->sampling));
    FV_TRY(fv_token_rules_check(&opt->rules, opt->n_vocab));
    if (opt->max_tokens < 1)
        return FV_FAIL(FV_EINVAL, "max-tokens is %d; it must be at least 1", opt->max_tokens);
    if (n - n_prompt >= opt->max_tokens)
        return FV_FAIL(FV_EINVAL, "the answer already has %d tokens of %d", n - n_prompt,
                       opt->max_tokens);
    return FV_OK;
}

static fv_status check_forced(const fv_generation_options *opt) {
    for (int32_t i = 0; i < opt->n_forced; i++)
        if (opt->forced[i] < 0 || opt->forced[i] >= opt->n_vocab)
            return FV_FAIL(FV_EINVAL, "forced token %d is not one of %d ids", opt->forced[i],
                           opt->n_vocab);
    return FV_OK;
}

static fv_status append(fv_generation *s, const char *text, size_t n) {
    FV_TRY(fv_grow(&s->shown, &s->cap_shown, s->n_shown + n, 1));
    if (n) memcpy(s->shown + s->n_shown, text, n);
    s->n_shown += n;
    return FV_OK;
}

/* Appends text to `shown`. A NUL, which a byte token can produce, becomes U+FFFD, because many readers end
 * a string there. */
static fv_status append_shown(fv_generation *s, const char *text, size_t n) {
    const char *nul;
    while (n && (nul = memchr(text, 0, n))) {
        size_t before = (size_t)(nul - text);
        FV_TRY(append(s, text, before));
        FV_TRY(append(s, "\xEF\xBF\xBD", 3));
        text += before + 1;
        n -= before + 1;
    }
    return append(s, text, n);
}

static uint32_t characters(const char *text, size_t n) {
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Shows text as far as stop strings allow. may_end: a stop string that it completes ends the answer. */
static fv_status pass_text(fv_generation *s, const char *piece, size_t n_piece, bool may_end) {
    const char *text;
    size_t n;
    bool hit;
    s->n_char += characters(piece, n_piece);
    FV_TRY(fv_stop_push(s->stop, piece, n_piece, may_end, &text, &n, &hit));
    if (hit) s->finish = FV_FINISH_STOP;
    return append_shown(s, text, n);
}

/* Shows the text of token number `index` of the answer. */
static fv_status push_token(fv_generation *s, int32_t id, int32_t index) {
    const char *piece;
    size_t n;
    FV_TRY(fv_detokenizer_push(s->detok, id, &piece, &n));
    return pass_text(s, piece, n, index >= s->opt.rules.min_tokens);
}

static fv_status allocate(fv_generation *s, const fv_generation_options *opt, const int32_t *ids) {
    size_t most = (size_t)s->n_prompt + (size_t)opt->max_tokens;
    s->ids = malloc(most * sizeof *s->ids);
    s->ending = malloc(((size_t)opt->n_eos + (size_t)opt->rules.n_stop_id + 1) * sizeof *s->ending);
    s->scratch = malloc(FV_SAMPLE_SCRATCH((size_t)opt->n_vocab) * sizeof *s->scratch);
    if (!s->ids || !s->ending || !s->scratch)
        return FV_FAIL(FV_ENOMEM, "out of memory for %zu tokens", most);
    memcpy(s->ids, ids, (size_t)s->n * sizeof *ids);
    for (int32_t i = 0; i < opt->n_eos; i++) s->ending[s->n_ending++] = opt->eos[i];
    for (int32_t i = 0; i < opt->rules.n_stop_id; i++)
        s->ending[s->n_ending++] = opt->rules.stop_id[i];
    return FV_OK;
}

static fv_status start(fv_generation *s, const fv_generation_options *opt, const fv_tokenizer *tok,
                       const int32_t *ids) {
    FV_TRY(allocate(s, opt, ids));
    fv_token_rules rules = opt->rules;
    if (opt->n_forced > 0) rules.grammar.kind = 0; /* the answer's tokens are given */
    rules.keeps_space = opt->continue_text;
    FV_TRY(fv_token_mask_open(&rules, tok, opt->n_vocab, s->ending, s->n_ending, &s->mask));
    FV_TRY(fv_detokenizer_open(tok, !opt->show_special, &s->detok));
    FV_TRY(fv_stop_open(opt->stop, opt->n_stop, opt->include_stop, &s->stop));
    if (opt->continue_text && s->n_prompt > 0) {
        const char *text; /* the prompt's, which is shown already */
        size_t n;
        (void)fv_detokenizer_push(s->detok, s->ids[s->n_prompt - 1], &text,
                                  &n); /* an image has none */
    }
    /* Replay tokens that another worker has shown, which restores the detokeniser and the stops. */
    for (int32_t i = s->n_prompt; i < s->n; i++) FV_TRY(push_token(s, s->ids[i], i - s->n_prompt));
    s->n_shown = 0;
    return FV_OK;
}

fv_status fv_generation_open(const fv_generation_options *opt, const fv_tokenizer *tok,
                             const int32_t *ids, int32_t n, int32_t n_prompt, fv_generation **out) {
    FV_TRY(check(opt, n, n_prompt));
    FV_TRY(check_forced(opt));
    fv_generation *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for an answer");
    s->opt = *opt;
    s->n = n;
    s->n_prompt = n_prompt;
    fv_status st = start(s, opt, tok, ids);
    if (st != FV_OK) {
        fv_generation_close(s);
        return st;
    }
    *out = s;
    return FV_OK;
}

void fv_generation_close(fv_generation *s) {
    if (!s) return;
    fv_detokenizer_close(s->detok);
    fv_stop_close(s->stop);
    fv_token_mask_close(s->mask);
    free(s->ids);
    free(s->ending);
    free(s->scratch);
    free(s->shown);
    free(s);
}

static bool is_ending(const fv_generation *s, int32_t id) {
    for (int32_t i = 0; i < s->n_ending; i++)
        if (s->ending[i] == id) return true;
    return false;
}

fv_status fv_generation_ended(const fv_generation_options *opt, const fv_tokenizer *tok,
                              const int32_t *ids, int32_t n, int32_t n_prompt, fv_finish *out) {
    fv_generation_options longer = *opt;
    fv_generation *s;
    int32_t n_answer = n - n_prompt;
    *out = FV_FINISH_NOT;
    if (n_answer == 0) return FV_OK;
    if (n_answer > opt->max_tokens)
        return FV_FAIL(FV_EINVAL, "the answer already has %d tokens of %d", n_answer,
                       opt->max_tokens);
    if (n_answer == opt->max_tokens) longer.max_tokens++;
    FV_TRY(fv_generation_open(&longer, tok, ids, n, n_prompt, &s));
    bool full = n_answer == opt->max_tokens || n >= opt->context;
    *out = is_ending(s, ids[n - 1]) ? FV_FINISH_EOS : s->finish;
    if (*out == FV_FINISH_NOT && full) *out = FV_FINISH_LENGTH;
    fv_generation_close(s);
    return FV_OK;
}

/* Shows the text that was held back for a stop string, as the answer ends without one. */
static fv_status flush(fv_generation *s) {
    const char *text;
    size_t n;
    FV_TRY(fv_detokenizer_flush(s->detok, &text, &n));
    FV_TRY(pass_text(s, text, n, s->n - s->n_prompt > s->opt.rules.min_tokens));
    if (s->finish == FV_FINISH_STOP) return FV_OK;
    fv_stop_flush(s->stop, &text, &n);
    return append_shown(s, text, n);
}

/* Ends the answer of a network that has overflowed. */
static fv_status check_finite(const float *logits, int32_t n) {
    if (fv_all_finite(logits, n)) return FV_OK;
    return FV_FAIL(FV_EDATA, "the model's logits are not finite: its weights hold NaN or infinity, "
                             "or overflow in the KV dtype (try --kv-dtype f32)");
}

/* Replaces the sampled token by the forced one, if there is one at this step. */
static void apply_forced(fv_generation *s, const float *logits) {
    int32_t step = s->n - s->n_prompt;
    if (step >= s->opt.n_forced) return;
    int32_t id = s->opt.forced[step];
    s->token.logprob += logits[id] - logits[s->token.id];
    s->token.id = id;
}

fv_status fv_generation_take(fv_generation *s, const float *logits, const fv_sampled **token,
                             const char **text, size_t *n_text) {
    s->n_shown = 0;
    FV_TRY(check_finite(logits, s->opt.n_vocab));
    fv_status st = fv_sample(&s->opt.sampling, s->mask, logits, s->opt.n_vocab, s->ids, s->n,
                             s->n_prompt, (uint64_t)(s->n - s->n_prompt), s->scratch, &s->token);
    if (st != FV_OK) return fv_fail_caller(st);
    apply_forced(s, logits);
    s->ids[s->n++] = s->token.id;
    s->token.text_offset = s->n_char + fv_detokenizer_held(s->detok, s->token.id);
    const bool ends = is_ending(s, s->token.id);
    if (!ends || s->opt.include_stop) FV_TRY(push_token(s, s->token.id, s->n - s->n_prompt - 1));
    if (ends && s->finish == FV_FINISH_NOT) s->finish = FV_FINISH_EOS;
    bool full = s->n - s->n_prompt == s->opt.max_tokens || s->n >= s->opt.context;
    if (s->finish == FV_FINISH_NOT && full) s->finish = FV_FINISH_LENGTH;
    if (s->finish == FV_FINISH_EOS || s->finish == FV_FINISH_LENGTH) FV_TRY(flush(s));
    *token = &s->token;
    *text = s->shown;
    *n_text = s->n_shown;
    return FV_OK;
}

fv_finish fv_generation_finish(const fv_generation *s) { return s->finish; }

int32_t fv_generation_left(const fv_generation *s) {
    int32_t tokens = s->opt.max_tokens - (s->n - s->n_prompt), room = s->opt.context - s->n;
    return tokens < room ? tokens : room;
}

const int32_t *fv_generation_ids(const fv_generation *s, int32_t *n, int32_t *n_prompt) {
    *n = s->n;
    *n_prompt = s->n_prompt;
    return s->ids;
}
