/* Tokens of a prompt, images expanded. Any thread. */
#include "prefill-worker/prompt/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "model/net/kv.h"

static fv_status expand(const fv_model_config *cfg, const int32_t *ids, int32_t n, fv_prompt *p) {
    int32_t per_image = p->n_image ? fv_vision_tokens(&cfg->vision) : 0;
    size_t total = (size_t)(n - p->n_image) + (size_t)p->n_image * (size_t)per_image;
    int32_t side = p->n_image ? cfg->vision.image / cfg->vision.patch : 0;
    p->ids = malloc((total + 1) * sizeof *p->ids);
    p->seg = malloc(total + 1);
    p->span = malloc(((size_t)p->n_image + 1) * sizeof *p->span);
    if (!p->ids || !p->seg || !p->span)
        return FV_FAIL(FV_ENOMEM, "out of memory for a prompt of %zu", total);
    for (int32_t i = 0; i < n; i++) {
        bool image = p->n_image && ids[i] == cfg->image_token;
        if (image) {
            p->span[p->n_span] = (fv_token_span){.first = p->n,
                                                 .n = per_image,
                                                 .image = p->n_span,
                                                 .t = 1,
                                                 .h = side,
                                                 .w = side,
                                                 .ahead = cfg->vision.keep_cls};
            p->n_span++;
        }
        for (int32_t k = 0; k < (image ? per_image : 1); k++) {
            p->ids[p->n] = ids[i];
            p->seg[p->n++] = image ? FV_SEG_VISUAL : FV_SEG_TEXT;
        }
    }
    p->n_visual = p->n_image * per_image;
    p->n_text = p->n - p->n_visual;
    return FV_OK;
}

static fv_status check_context(int64_t rows, int32_t n_image, int32_t context) {
    if (rows <= context) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "the prompt has %lld tokens, %d images included; this checkpoint's context "
                   "is %d: shorten the text or send fewer images",
                   (long long)rows, n_image, context);
}

fv_status fv_prompt_of_ids(const fv_model_config *cfg, const int32_t *ids, int32_t n,
                           int32_t n_image, int32_t context, fv_prompt *out) {
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (ids[i] >= cfg->text.vocab && !(n_image && ids[i] == cfg->image_token)))
            return FV_FAIL(FV_EINVAL, "prompt id %d is %d; the model has ids 0..%d", i, ids[i],
                           cfg->text.vocab - 1);
        found += cfg->has_vision && ids[i] == cfg->image_token;
    }
    int64_t rows = n - found;
    if (n_image) rows += (int64_t)n_image * fv_vision_tokens(&cfg->vision);
    if (n_image && !cfg->has_vision)
        return FV_FAIL(FV_EINVAL, "this checkpoint reads text only: ask without images");
    if (found != n_image)
        return FV_FAIL(FV_EINVAL,
                       "the prompt names %d image%s with <image> and %d %s given: they must be "
                       "equal",
                       found, found == 1 ? "" : "s", n_image, n_image == 1 ? "is" : "are");
    FV_TRY(check_context(rows, n_image, context));
    fv_prompt p = {.n_image = n_image};
    fv_status st = expand(cfg, ids, n, &p);
    if (st != FV_OK) {
        fv_prompt_free(&p);
        return st;
    }
    *out = p;
    return FV_OK;
}

static fv_status make(const fv_tokenizer *tok, const fv_model_config *cfg, const char *text,
                      size_t bytes, bool add_special, const fv_text_marks *marks, int32_t n_image,
                      int32_t context, fv_prompt *out) {
    int32_t *ids, n, tags = n_image < cfg->text.max_position ? n_image : cfg->text.max_position;
    /* Before time is spent on it; images are one token each there. */
    FV_TRY(fv_tokenizer_check_length(tok, bytes, cfg->text.max_position + tags));
    FV_TRY(fv_tokenizer_encode_marked(tok, text, bytes, add_special, marks, &ids, &n));
    fv_status st = fv_prompt_of_ids(cfg, ids, n, n_image, context, out);
    free(ids);
    return st;
}

fv_status fv_prompt_make(const fv_tokenizer *tok, const fv_model_config *cfg, const char *text,
                         int32_t n_image, int32_t context, fv_prompt *out) {
    return make(tok, cfg, text, strlen(text), true, NULL, n_image, context, out);
}

fv_status fv_prompt_make_chat(const fv_tokenizer *tok, const fv_model_config *cfg,
                              const fv_chat_text *text, int32_t n_image, int32_t context,
                              fv_prompt *out) {
    fv_text_marks marks = {text->user, cfg->has_vision ? cfg->image_token : -1};
    return make(tok, cfg, text->text, text->n, text->adds_special, &marks, n_image, context, out);
}

fv_status fv_prompt_append(fv_prompt *p, const int32_t *ids, int32_t n) {
    size_t total = (size_t)p->n + (size_t)n;
    int32_t *all = realloc(p->ids, (total + 1) * sizeof *all);
    if (all) p->ids = all;
    uint8_t *seg = realloc(p->seg, total + 1);
    if (seg) p->seg = seg;
    if (!all || !seg) return FV_FAIL(FV_ENOMEM, "out of memory for a prompt of %zu", total);
    for (int32_t i = 0; i < n; i++) {
        p->ids[p->n + i] = ids[i];
        p->seg[p->n + i] = FV_SEG_TEXT;
    }
    p->n += n;
    p->n_text += n;
    return FV_OK;
}

/* Tokens [from, to) move to p->n. */
static void move_tokens(fv_prompt *p, int32_t from, int32_t to) {
    size_t n = (size_t)(to - from);
    memmove(p->ids + p->n, p->ids + from, n * sizeof *p->ids);
    memmove(p->seg + p->n, p->seg + from, n);
    p->n += to - from;
}

fv_status fv_prompt_condense(fv_prompt *p, const int32_t *each, int32_t context) {
    int32_t n = p->n, from = 0;
    p->n = 0;
    for (int32_t i = 0; i < p->n_span; i++) {
        fv_token_span old = p->span[i], *span = &p->span[i];
        move_tokens(p, from, old.first);
        span->first = p->n;
        if (!span->encoded) span->encoded = old.n;
        if (each) span->n = each[span->image];
        move_tokens(p, old.first, old.first + span->n);
        from = old.first + old.n;
    }
    move_tokens(p, from, n);
    p->n_visual -= n - p->n;
    return check_context(p->n, p->n_image, context);
}

void fv_prompt_free(fv_prompt *p) {
    free(p->ids);
    free(p->seg);
    free(p->span);
    *p = (fv_prompt){0};
}
