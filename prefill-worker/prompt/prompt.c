/* Makes the tokens of a prompt, with images expanded. Any thread. */
#include "prefill-worker/prompt/prompt.h"

#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "kv/kv.h"

/* ---- images -------------------------------------------------------------------------------- */

static fv_status grow(fv_prompt *p, int32_t more) {
    size_t total = (size_t)p->n + (size_t)more;
    if (total > INT32_MAX) return FV_FAIL(FV_EINVAL, "a prompt of %zu tokens is too long", total);
    FV_TRY(fv_grow(&p->ids, &p->cap_ids, total + 1, sizeof *p->ids));
    return fv_grow(&p->seg, &p->cap_seg, total + 1, sizeof *p->seg);
}

static fv_status add(fv_prompt *p, int32_t id, int32_t n, fv_kv_segment seg) {
    FV_TRY(grow(p, n));
    for (int32_t i = 0; i < n; i++) p->ids[p->n + i] = id;
    memset(p->seg + p->n, seg, (size_t)n);
    p->n += n;
    *(seg == FV_SEG_VISUAL ? &p->n_visual : &p->n_text) += n;
    return FV_OK;
}

static fv_status add_span(fv_prompt *p, int32_t id, int32_t image, const fv_layout_span *span) {
    FV_TRY(fv_grow(&p->span, &p->cap_span, (size_t)p->n_span + 1, sizeof *p->span));
    p->span[p->n_span++] = (fv_token_span){.first = p->n,
                                           .n = span->n,
                                           .image = image,
                                           .t = span->t,
                                           .h = span->h,
                                           .w = span->w,
                                           .step = span->step,
                                           .ahead = span->class_token};
    return add(p, id, span->n, FV_SEG_VISUAL);
}

/* Adds the family's text between spans, as it is tokenised after the token `before`. */
static fv_status add_text(fv_prompt *p, const fv_tokenizer *tok, int32_t before, const char *text,
                          size_t bytes) {
    int32_t *ids, n;
    if (bytes == 0) return FV_OK;
    FV_TRY(fv_tokenizer_encode_after(tok, before, text, bytes, NULL, &ids, &n));
    fv_status st = grow(p, n);
    for (int32_t i = 0; st == FV_OK && i < n; i++) st = add(p, ids[i], 1, FV_SEG_TEXT);
    free(ids);
    return st;
}

static bool is_video(const fv_model_config *cfg, int32_t id) {
    return cfg->has_vision && cfg->video_token >= 0 && id == cfg->video_token;
}

static bool is_image(const fv_model_config *cfg, int32_t id) {
    return cfg->has_vision && (id == cfg->image_token || is_video(cfg, id));
}

/* Adds an image's text and tokens. */
static fv_status add_image(fv_prompt *p, const fv_tokenizer *tok, const fv_model_config *cfg,
                           int32_t image, const fv_layout *layout) {
    static const char mark[] = "\xEE\x80\x81"; /* U+E001 */
    int32_t id = layout->video ? cfg->video_token : cfg->image_token;
    char text[FV_LAYOUT_TEXT_MAX], *at = text;
    FV_TRY(fv_layout_text(&cfg->layout, layout, mark, text));
    for (int32_t i = 0; i < layout->n_span; i++) {
        char *end = strstr(at, mark);
        if (!end)
            return FV_FAIL(FV_EFATAL, "image %d: %d of its %d parts are in its text", image, i,
                           layout->n_span);
        FV_TRY(add_text(p, tok, id, at, (size_t)(end - at)));
        FV_TRY(add_span(p, id, image, &layout->span[i]));
        at = end + sizeof mark - 1;
    }
    return add_text(p, tok, id, at, strlen(at));
}

static fv_status check_kind(const fv_model_config *cfg, int32_t id, int32_t image,
                            const fv_layout *layout) {
    bool video = is_video(cfg, id);
    if (video == layout->video) return FV_OK;
    return FV_FAIL(FV_EINVAL, "image %d: the prompt has %s there, but %s was given", image,
                   video ? "a video" : "an image", video ? "an image" : "a video");
}

static fv_status expand(const fv_tokenizer *tok, const fv_model_config *cfg, const int32_t *ids,
                        int32_t n, const fv_layout *layout, fv_prompt *p) {
    int32_t image = 0;
    FV_TRY(grow(p, n));
    for (int32_t i = 0; i < n; i++) {
        if (p->n_image && is_image(cfg, ids[i])) {
            FV_TRY(check_kind(cfg, ids[i], image, &layout[image]));
            FV_TRY(add_image(p, tok, cfg, image, &layout[image]));
            image++;
        } else {
            FV_TRY(add(p, ids[i], 1, FV_SEG_TEXT));
        }
    }
    return FV_OK;
}

static fv_status check_context(int64_t rows, int32_t n_image, int32_t context) {
    if (rows <= context) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "the prompt has %lld tokens, %d images included; this checkpoint's context "
                   "is %d: shorten the text or send fewer images",
                   (long long)rows, n_image, context);
}

/* ---- ids ----------------------------------------------------------------------------------- */

fv_status fv_prompt_of_ids(const fv_tokenizer *tok, const fv_model_config *cfg, const int32_t *ids,
                           int32_t n, int32_t n_image, const fv_layout *layout, int32_t context,
                           fv_prompt *out) {
    int32_t found = 0;
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || (ids[i] >= cfg->text.vocab && !(n_image && is_image(cfg, ids[i]))))
            return FV_FAIL(FV_EINVAL, "prompt id %d is %d; the model has ids 0..%d", i, ids[i],
                           cfg->text.vocab - 1);
        found += is_image(cfg, ids[i]);
    }
    if (n_image && !cfg->has_vision)
        return FV_FAIL(FV_EINVAL, "this checkpoint reads text only: ask without images");
    if (found != n_image)
        return FV_FAIL(FV_EINVAL,
                       "the prompt names %d image%s with <image> and %d %s given: they must be "
                       "equal",
                       found, found == 1 ? "" : "s", n_image, n_image == 1 ? "is" : "are");
    int64_t total = n - found;
    for (int32_t i = 0; i < n_image; i++) total += layout[i].n_visual + layout[i].n_text;
    FV_TRY(check_context(total, n_image, context));
    fv_prompt p = {.n_image = n_image};
    fv_status st = expand(tok, cfg, ids, n, layout, &p);
    if (st == FV_OK) st = check_context(p.n, n_image, context);
    if (st != FV_OK) {
        fv_prompt_free(&p);
        return st;
    }
    *out = p;
    return FV_OK;
}

typedef struct text_bytes {
    char *text;
    uint8_t *user; /* of each byte, or NULL */
    size_t n;
} text_bytes;

/* Copies the text with `written` in place of each `word` that is not the user's. The caller frees both
 * arrays. */
static fv_status write_images(const char *text, size_t n, const uint8_t *user, const char *word,
                              const char *written, text_bytes *out) {
    size_t n_word = strlen(word), n_written = strlen(written), most = n / n_word * n_written + n;
    *out = (text_bytes){.text = malloc(most + 1), .user = user ? calloc(most + 1, 1) : NULL};
    if (!out->text || (user && !out->user)) {
        free(out->text);
        free(out->user);
        return FV_FAIL(FV_ENOMEM, "out of memory for a prompt");
    }
    for (size_t i = 0; i < n;) {
        bool is_word = n - i >= n_word && !memcmp(text + i, word, n_word);
        if (is_word && !(user && user[i])) {
            memcpy(out->text + out->n, written, n_written);
            out->n += n_written;
            i += n_word;
            continue;
        }
        if (user) out->user[out->n] = user[i];
        out->text[out->n++] = text[i++];
    }
    out->text[out->n] = '\0';
    return FV_OK;
}

/* Calls fv_tokenizer_encode_marked, with the family's text around images. */
static fv_status encode(const fv_tokenizer *tok, const fv_model_config *cfg, const char *text,
                        size_t n, bool add_special, const fv_text_marks *marks, int32_t **ids,
                        int32_t *n_ids) {
    const char *written = cfg->has_vision ? fv_layout_replacement_text(cfg->layout.family) : NULL;
    fv_text_marks moved = marks ? *marks : (fv_text_marks){0};
    text_bytes b;
    if (!written) return fv_tokenizer_encode_marked(tok, text, n, add_special, marks, ids, n_ids);
    FV_TRY(
        write_images(text, n, moved.user, fv_layout_image_token(cfg->layout.family), written, &b));
    moved.user = b.user;
    fv_status st = fv_tokenizer_encode_marked(tok, b.text, b.n, add_special, marks ? &moved : NULL,
                                              ids, n_ids);
    free(b.text);
    free(b.user);
    return st;
}

static fv_status make(const fv_tokenizer *tok, const fv_model_config *cfg, const char *text,
                      size_t bytes, bool add_special, const fv_text_marks *marks, int32_t n_image,
                      const fv_layout *layout, int32_t context, fv_prompt *out) {
    int32_t *ids, n, tags = n_image < cfg->text.max_position ? n_image : cfg->text.max_position;
    /* Refuse text that is too long before spending time on it; each image is one token in it. */
    FV_TRY(fv_tokenizer_check_length(tok, bytes, cfg->text.max_position + tags));
    FV_TRY(encode(tok, cfg, text, bytes, add_special, marks, &ids, &n));
    fv_status st = fv_prompt_of_ids(tok, cfg, ids, n, n_image, layout, context, out);
    free(ids);
    return st;
}

fv_status fv_prompt_make(const fv_tokenizer *tok, const fv_model_config *cfg, const char *text,
                         bool special, int32_t n_image, const fv_layout *layout, int32_t context,
                         fv_prompt *out) {
    return make(tok, cfg, text, strlen(text), special, NULL, n_image, layout, context, out);
}

fv_status fv_prompt_make_chat(const fv_tokenizer *tok, const fv_model_config *cfg,
                              const fv_chat_text *text, int32_t n_image, const fv_layout *layout,
                              int32_t context, fv_prompt *out) {
    fv_text_marks marks = {text->user, cfg->has_vision ? cfg->image_token : -1};
    return make(tok, cfg, text->text, text->n, text->adds_special, &marks, n_image, layout, context,
                out);
}

fv_status fv_prompt_truncate(fv_prompt *p, const fv_tokenizer *tok, bool keep_first, int32_t most) {
    const int32_t lead = keep_first && p->n > 0 && p->seg[0] == FV_SEG_TEXT, n_cut = p->n - most;
    int32_t end = p->n_span ? p->span[0].first : p->n;
    while (p->n_span && end > lead && fv_tokenizer_is_special(tok, p->ids[end - 1])) end--;
    if (n_cut <= 0) return FV_OK;
    if (n_cut > end - lead)
        return FV_FAIL(
            FV_EINVAL,
            "truncate_prompt_tokens is %d, but without the text before its first image "
            "the prompt has %d tokens, and an image is never cut: allow at least as many",
            most, p->n - (end - lead));
    const size_t n = (size_t)(p->n - lead - n_cut);
    memmove(p->ids + lead, p->ids + lead + n_cut, n * sizeof *p->ids);
    memmove(p->seg + lead, p->seg + lead + n_cut, n);
    for (int32_t i = 0; i < p->n_span; i++) p->span[i].first -= n_cut;
    p->n -= n_cut;
    p->n_text -= n_cut;
    return FV_OK;
}

static size_t bytes_ahead(const char *const *ahead, int32_t n) {
    size_t bytes = 0;
    for (int32_t i = 0; i < n; i++) bytes += ahead[i] ? strlen(ahead[i]) : 0;
    return bytes;
}

/* Adds bytes [from, to) of a text. */
static void copy_bytes(const fv_chat_text *text, size_t from, size_t to, text_bytes *b) {
    memcpy(b->text + b->n, text->text + from, to - from);
    memcpy(b->user + b->n, text->user + from, to - from);
    b->n += to - from;
}

static void copy_user(const char *text, text_bytes *b) {
    const size_t n = strlen(text);
    memcpy(b->text + b->n, text, n);
    memset(b->user + b->n, 1, n);
    b->n += n;
}

fv_status fv_prompt_put_ahead(const fv_model_config *cfg, const char *const *ahead, int32_t n,
                              fv_chat_text *text) {
    const char *word = fv_layout_image_token(cfg->layout.family);
    const size_t more = bytes_ahead(ahead, n);
    if (more == 0) return FV_OK;
    text_bytes b = {.text = malloc(text->n + more + 1), .user = malloc(text->n + more + 1)};
    if (!b.text || !b.user) {
        free(b.text);
        free(b.user);
        return FV_FAIL(FV_ENOMEM, "out of memory for a prompt");
    }
    size_t copied = 0;
    int32_t image = 0;
    for (const char *at = text->text; image < n && (at = strstr(at, word)); at += strlen(word)) {
        const size_t here = (size_t)(at - text->text);
        if (text->user[here]) continue;
        copy_bytes(text, copied, here, &b);
        copied = here;
        if (ahead[image]) copy_user(ahead[image], &b);
        image++;
    }
    copy_bytes(text, copied, text->n, &b);
    b.text[b.n] = '\0';
    free(text->text);
    free(text->user);
    text->text = b.text;
    text->user = b.user;
    text->n = b.n;
    return FV_OK;
}

fv_status fv_prompt_mark_visual(fv_prompt *p, int32_t first, int32_t n) {
    if (p->n_visual > 0 || p->n_image > 0)
        return FV_FAIL(FV_EINVAL, "a prompt with images has no text that is taken for an image");
    if (first < 0 || n < 1 || first > p->n - n)
        return FV_FAIL(FV_EINVAL, "tokens %d to %d are not in a prompt of %d tokens", first,
                       first + n - 1, p->n);
    FV_TRY(fv_grow(&p->span, &p->cap_span, 1, sizeof *p->span));
    p->span[p->n_span++] = (fv_token_span){.first = first, .n = n, .t = 1, .h = 1, .w = n};
    memset(p->seg + first, FV_SEG_VISUAL, (size_t)n);
    p->n_visual = n;
    p->n_text -= n;
    return FV_OK;
}

fv_status fv_prompt_append(fv_prompt *p, const int32_t *ids, int32_t n) {
    FV_TRY(grow(p, n));
    for (int32_t i = 0; i < n; i++) FV_TRY(add(p, ids[i], 1, FV_SEG_TEXT));
    return FV_OK;
}

/* Moves tokens [from, to) to p->n. */
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
        if (each) span->n = each[i];
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
