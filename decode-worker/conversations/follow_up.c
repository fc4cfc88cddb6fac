/* Turns a follow-up of chat turns, text or ids into ids. Pure functions of the checkpoint. */
#include "decode-worker/conversations/follow_up.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

/* Encodes text; refuses more bytes than the context has room for before tokenising them. */
static fv_status encode(const fv_engine *e, int32_t last, const char *text, size_t n_bytes,
                        const fv_text_marks *marks, int32_t **ids, int32_t *n) {
    FV_TRY(
        fv_tokenizer_check_length(e->tok, n_bytes, fv_checkpoint_config(e->ck)->text.max_position));
    return fv_tokenizer_encode_after(e->tok, last, text, n_bytes, marks, ids, n);
}

static fv_status chat_ids(const fv_engine *e, const fv_prompt_form *q, int32_t last, int32_t **ids,
                          int32_t *n, fv_reasoning *reasoning) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    fv_chat *chat;
    fv_chat_text text = {0};
    FV_TRY(fv_engine_chat(e, q->chat_template, &chat));
    fv_status st =
        fv_chat_continue(chat, q->turn, q->n_turn, &q->options, fv_tokenizer_special(e->tok, last),
                         fv_clock_s() + FV_CHAT_SECONDS, &text);
    fv_text_marks marks = {text.user, cfg->has_vision ? cfg->image_token : -1};
    if (st == FV_OK) st = encode(e, last, text.text, text.n, &marks, ids, n);
    *reasoning = text.reasoning;
    fv_chat_text_free(&text);
    fv_chat_free(chat);
    return st;
}

static fv_status copy_ids(const fv_prompt_form *q, int32_t **ids, int32_t *n) {
    int32_t *copy = malloc(((size_t)q->n_id + 1) * sizeof *copy);
    if (!copy) return FV_FAIL(FV_ENOMEM, "out of memory for a prompt of %d", q->n_id);
    if (q->n_id) memcpy(copy, q->id, (size_t)q->n_id * sizeof *copy);
    *ids = copy;
    *n = q->n_id;
    return FV_OK;
}

static fv_status check_ids(const fv_engine *e, const int32_t *ids, int32_t n) {
    const fv_model_config *cfg = fv_checkpoint_config(e->ck);
    if (n == 0) return FV_FAIL(FV_EINVAL, "the prompt is empty: write a question");
    for (int32_t i = 0; i < n; i++) {
        if (cfg->has_vision && ids[i] == cfg->image_token)
            return FV_FAIL(
                FV_EINVAL,
                "a kept conversation cannot add images: send the whole conversation again");
        if (ids[i] < 0 || ids[i] >= cfg->text.vocab)
            return FV_FAIL(FV_EINVAL, "prompt id %d is %d; the model has ids 0..%d", i, ids[i],
                           cfg->text.vocab - 1);
    }
    return FV_OK;
}

static fv_status make_ids(const fv_engine *e, const fv_prompt_form *q, int32_t last, int32_t **ids,
                          int32_t *n, fv_reasoning *reasoning) {
    *reasoning = FV_REASONING_MAY;
    switch (q->kind) {
    case FV_PROMPT_CHAT: return chat_ids(e, q, last, ids, n, reasoning);
    case FV_PROMPT_TEXT: return encode(e, last, q->text, strlen(q->text), NULL, ids, n);
    case FV_PROMPT_IDS: return copy_ids(q, ids, n);
    }
    return FV_FAIL(FV_EINVAL, "unknown kind of prompt: send a chat, a text or ids");
}

fv_status fv_follow_up_ids(const fv_engine *e, const fv_prompt_form *q, int32_t last, int32_t **ids,
                           int32_t *n, fv_reasoning *reasoning) {
    int32_t *made, n_made;
    fv_reasoning after;
    FV_TRY(make_ids(e, q, last, &made, &n_made, &after));
    fv_status st = check_ids(e, made, n_made);
    if (st != FV_OK) {
        free(made);
        return st;
    }
    *ids = made;
    *n = n_made;
    *reasoning = after;
    return FV_OK;
}
