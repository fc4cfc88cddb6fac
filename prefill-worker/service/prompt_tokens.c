/* Makes the events that return a prompt's tokens: ids, texts and scores, as far as the request asks for them.
 * On the computing thread, which needs longer for the scores themselves; the loop thread only sends them. */
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"
#include "kv/kv.h"
#include "prefill-worker/service/internal.h"

typedef Fovea__Inference__V1__PromptTokens prompt_message;
typedef Fovea__Inference__V1__PromptToken scored_message;

enum {
    TOKENS = 256,           /* of an event */
    TEXT_BYTES = 128 << 10, /* of an event, about */
};

/* The text of a prompt, and where each token begins in it. */
typedef struct prompt_text {
    char *text; /* [n] owned, terminated */
    size_t n, cap;
    uint32_t *offset; /* [prompt tokens] characters, in the task's arena */
} prompt_text;

static uint32_t characters(const char *text, size_t n) {
    uint32_t count = 0;
    for (size_t i = 0; i < n; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

static fv_status append(prompt_text *p, const char *text, size_t n, uint32_t *n_char) {
    FV_TRY(fv_grow(&p->text, &p->cap, p->n + n + 1, 1));
    for (size_t i = 0; i < n; i++) /* a string of a message has no NUL */
        if (text[i]) p->text[p->n++] = text[i];
    p->text[p->n] = '\0';
    *n_char += characters(text, n);
    return FV_OK;
}

/* Detokenises the prompt; images have no text. */
static fv_status detokenise(fv_task *t, fv_detokenizer *d, prompt_text *out) {
    const fv_prompt *p = &t->prefill.prompt;
    const char *text = "";
    uint32_t n_char = 0;
    size_t n = 0;
    FV_TRY(append(out, "", 0, &n_char));
    FV_TRY(FV_ARENA_NEW(&t->told_arena, p->n, out->offset));
    for (int32_t i = 0; i < p->n; i++) {
        out->offset[i] = n_char + fv_detokenizer_held(d, p->ids[i]);
        if (p->seg[i] != FV_SEG_TEXT) continue;
        if (fv_detokenizer_push(d, p->ids[i], &text, &n) != FV_OK)
            continue; /* an id without a token */
        FV_TRY(append(out, text, n, &n_char));
    }
    FV_TRY(fv_detokenizer_flush(d, &text, &n));
    return append(out, text, n, &n_char);
}

/* A prompt that was given as text is returned as it was written, unless it was cut. */
static fv_status read_text(fv_task *t, prompt_text *out) {
    const fv_prefill_job *j = &t->prefill;
    fv_detokenizer *d;
    uint32_t n_char = 0;
    FV_TRY(fv_detokenizer_open(j->engine->tok, !t->msg->request->special_tokens, &d));
    fv_status st = detokenise(t, d, out);
    fv_detokenizer_close(d);
    if (st != FV_OK || j->form.kind != FV_PROMPT_TEXT || j->truncated) return st;
    out->n = 0;
    return append(out, j->form.text, strlen(j->form.text), &n_char);
}

static fv_status put_text(fv_task *t, int32_t id, ProtobufCBinaryData *out) {
    char *text;
    if (!t->msg->request->token_texts) return FV_OK;
    FV_TRY(fv_tokenizer_token_text(t->prefill.engine->tok, id, &t->told_arena, &text, &out->len));
    out->data = (uint8_t *)text;
    return FV_OK;
}

static fv_status put_alternatives(fv_task *t, int32_t i, Fovea__Inference__V1__Token *m) {
    const fv_prompt_scores *s = &t->prefill.scores;
    Fovea__Inference__V1__Alternative *a;
    FV_TRY(FV_ARENA_NEW(&t->told_arena, s->n_top, a));
    FV_TRY(FV_ARENA_NEW(&t->told_arena, s->n_top, m->alternatives));
    for (int32_t k = 0; k < s->n_top; k++) {
        const fv_logprob *top = &s->top[(size_t)i * (size_t)s->n_top + (size_t)k];
        if (top->id < 0) break;
        fovea__inference__v1__alternative__init(&a[k]);
        a[k].id = (uint32_t)top->id;
        a[k].logprob = top->logprob;
        FV_TRY(put_text(t, top->id, &a[k].text));
        m->alternatives[m->n_alternatives++] = &a[k];
    }
    return FV_OK;
}

static fv_status make_token(fv_task *t, int32_t i, const prompt_text *text, scored_message **out) {
    const fv_prefill_job *j = &t->prefill;
    Fovea__Inference__V1__Token *m;
    FV_TRY(FV_ARENA_NEW(&t->told_arena, 1, *out));
    FV_TRY(FV_ARENA_NEW(&t->told_arena, 1, m));
    fovea__inference__v1__prompt_token__init(*out);
    fovea__inference__v1__token__init(m);
    (*out)->token = m;
    m->id = (uint32_t)j->prompt.ids[i];
    if (text->offset) m->text_offset = text->offset[i];
    FV_TRY(put_text(t, j->prompt.ids[i], &m->text));
    if (!j->want_scores || j->scores.own[i].rank == 0) return FV_OK;
    m->logprob = j->scores.own[i].logprob;
    (*out)->rank = (uint32_t)j->scores.own[i].rank;
    return put_alternatives(t, i, m);
}

/* Returns the end of the piece of text that begins at `from`: between two characters. */
static size_t piece_end(const prompt_text *p, size_t from) {
    size_t end = p->n - from > TEXT_BYTES ? from + TEXT_BYTES : p->n;
    while (end < p->n && ((unsigned char)p->text[end] & 0xC0) == 0x80) end++;
    return end;
}

static fv_status make_event(fv_task *t, int32_t from, size_t *at, const prompt_text *text,
                            prompt_message *m) {
    const int32_t left = t->prefill.prompt.n - from, n = left < TOKENS ? left : TOKENS;
    const size_t end = text->text ? piece_end(text, *at) : 0;
    fovea__inference__v1__prompt_tokens__init(m);
    m->index = (uint32_t)from;
    m->n_prompt = (uint32_t)t->prefill.prompt.n;
    FV_TRY(FV_ARENA_NEW(&t->told_arena, n, m->tokens));
    for (; m->n_tokens < (size_t)n; m->n_tokens++)
        FV_TRY(make_token(t, from + (int32_t)m->n_tokens, text, &m->tokens[m->n_tokens]));
    if (end > *at) FV_TRY(fv_arena_strndup(&t->told_arena, text->text + *at, end - *at, &m->text));
    *at = end;
    return FV_OK;
}

static fv_status make_events(fv_task *t, const prompt_text *text) {
    const size_t by_tokens = ((size_t)t->prefill.prompt.n + TOKENS - 1) / TOKENS;
    const size_t most = by_tokens + text->n / TEXT_BYTES + 1;
    size_t at = 0, bytes = 0;
    FV_TRY(FV_ARENA_NEW(&t->told_arena, most, t->told));
    for (int32_t from = 0; from < t->prefill.prompt.n || at < text->n; from += TOKENS) {
        prompt_message *m = &t->told[t->n_told++];
        if (from > t->prefill.prompt.n) from = t->prefill.prompt.n;
        FV_TRY(make_event(t, from, &at, text, m));
        bytes += protobuf_c_message_get_packed_size(&m->base);
    }
    if (bytes <= FV_PROMPT_BYTES_MAX) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "the prompt's tokens take %zu bytes as they were asked for; at most %d are "
                   "returned: ask for fewer prompt_logprobs, or shorten the prompt",
                   bytes, FV_PROMPT_BYTES_MAX);
}

fv_status fv_task_tell_prompt(fv_task *t) {
    const fv_generate_message *r = t->msg ? t->msg->request : NULL;
    prompt_text text = {0};
    if (!r || t->prefill.n_replay > 0 || !(r->prompt_tokens || r->prompt_alternatives_case))
        return FV_OK;
    fv_status st = r->token_texts ? read_text(t, &text) : FV_OK;
    if (st == FV_OK) st = make_events(t, &text);
    free(text.text);
    return st;
}
