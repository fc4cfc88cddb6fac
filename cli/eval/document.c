/* Document and question -> token ids. The chat is rendered with a mark in the document's place, and the texts
 * around the mark are tokenised apart, so that the document's tokens do not depend on the question. */
#include "cli/eval/document.h"

#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

#define MARK "\xEE\x80\x82" /* U+E002 */

typedef struct ids {
    int32_t *id;
    int32_t n;
    size_t cap;
} ids;

static fv_status add(ids *to, const int32_t *id, int32_t n) {
    FV_TRY(fv_grow(&to->id, &to->cap, (size_t)(to->n + n) + 1, sizeof *to->id));
    if (n) memcpy(to->id + to->n, id, (size_t)n * sizeof *id);
    to->n += n;
    return FV_OK;
}

/* Adds the ids of bytes [from, to) of a rendered chat. */
static fv_status add_chat(const fv_tokenizer *tok, const fv_chat_text *chat, size_t from, size_t to,
                          ids *out) {
    const fv_text_marks marks = {chat->user + from, -1};
    int32_t *id, n;
    FV_TRY(fv_tokenizer_encode_marked(tok, chat->text + from, to - from,
                                      from == 0 && chat->adds_special, &marks, &id, &n));
    fv_status st = add(out, id, n);
    free(id);
    return st;
}

/* Gives the ids of text in the middle of others. */
static fv_status encode(const fv_tokenizer *tok, int32_t before, const char *text, int32_t **id,
                        int32_t *n) {
    uint8_t *user = malloc(strlen(text) + 1);
    if (!user) return FV_FAIL(FV_ENOMEM, "out of memory for a document");
    memset(user, 1, strlen(text) + 1);
    const fv_text_marks marks = {user, -1};
    fv_status st = fv_tokenizer_encode_after(tok, before, text, strlen(text), &marks, id, n);
    free(user);
    return st;
}

/* Whether a token ends a sentence. */
static bool ends_sentence(const fv_tokenizer *tok, int32_t id, fv_arena *arena) {
    char *text;
    size_t n;
    if (fv_tokenizer_token_text(tok, id, arena, &text, &n) != FV_OK || n == 0) return false;
    return strchr(".!?\n", text[n - 1]) != NULL;
}

/* Adds `room` tokens: the document's, with the needles behind the sentences that end next to their depths. */
static fv_status add_document(const fv_tokenizer *tok, const fv_benchmark_item *item, int32_t room,
                              const int32_t *id, int32_t n, fv_arena *arena, ids *out) {
    int32_t *needle[FV_BENCHMARK_NEEDLES] = {0}, n_needle[FV_BENCHMARK_NEEDLES], at = 0,
            rest = room;
    fv_status st = FV_OK;
    for (int32_t i = 0; i < item->n_needle && st == FV_OK; i++) {
        st = encode(tok, out->id[out->n - 1], item->needle[i].text, &needle[i], &n_needle[i]);
        if (st == FV_OK) rest -= n_needle[i];
    }
    if (st == FV_OK && (rest < 0 || n < rest))
        st = FV_FAIL(FV_EINVAL,
                     "the document has %d tokens and its needles %d, and --span-as-visual is %d", n,
                     room - rest, room);
    for (int32_t i = 0; i < item->n_needle && st == FV_OK; i++) {
        int32_t to = (int32_t)(item->needle[i].depth * rest);
        if (to < at) to = at;
        while (to > at && to < rest && !ends_sentence(tok, id[to - 1], arena)) to--;
        st = add(out, id + at, to - at);
        if (st == FV_OK) st = add(out, needle[i], n_needle[i]);
        at = to;
    }
    if (st == FV_OK) st = add(out, id + at, rest - at);
    for (int32_t i = 0; i < item->n_needle; i++) free(needle[i]);
    return st;
}

static fv_status render(const fv_engine *e, const char *question, fv_chat_text *out) {
    fv_chat *chat = NULL;
    char *text = malloc(sizeof MARK + 2 + strlen(question));
    if (!text) return FV_FAIL(FV_ENOMEM, "out of memory for a question");
    strcpy(text, MARK);
    if (*question) strcat(strcat(text, "\n\n"), question);
    const fv_chat_turn turn = {.role = "user", .text = text};
    fv_status st = fv_engine_chat(e, "", &chat);
    if (st == FV_OK) st = fv_chat_render(chat, &turn, 1, NULL, 0, out);
    fv_chat_free(chat);
    free(text);
    return st;
}

/* Adds the question and what the answer begins with. */
static fv_status add_question(const fv_tokenizer *tok, const fv_chat_text *chat, size_t from,
                              const char *begin, ids *out) {
    int32_t *id, n;
    FV_TRY(add_chat(tok, chat, from, chat->n, out));
    if (!begin) return FV_OK;
    FV_TRY(encode(tok, out->id[out->n - 1], begin, &id, &n));
    fv_status st = add(out, id, n);
    free(id);
    return st;
}

/* Adds the document's tokens behind the visual ones: the end of the prompt, and those after it. */
static fv_status add_rest(const int32_t *id, int32_t n, int32_t span, int32_t n_after, ids *out) {
    if (n < span + FV_EVAL_TAIL + n_after)
        return FV_FAIL(FV_EINVAL, "the document has %d tokens; --span-as-visual %d needs %d of it",
                       n, span, span + FV_EVAL_TAIL + n_after);
    return add(out, id + span, FV_EVAL_TAIL + n_after);
}

static fv_status make(fv_local *local, const fv_benchmark_item *item, int32_t span, int32_t n_after,
                      const fv_chat_text *chat, fv_arena *arena, ids *all, fv_eval_document *out) {
    const fv_tokenizer *tok = fv_local_engine(local)->tok;
    const char *mark = strstr(chat->text, MARK);
    if (!mark) return FV_FAIL(FV_EUNSUPPORTED, "the chat template leaves the document out");
    const size_t at = (size_t)(mark - chat->text);
    int32_t *id, n;
    FV_TRY(add_chat(tok, chat, 0, at, all));
    if (all->n == 0)
        return FV_FAIL(FV_EUNSUPPORTED, "the chat template writes nothing ahead of the document");
    FV_TRY(encode(tok, all->id[all->n - 1], item->document, &id, &n));
    *out = (fv_eval_document){.first = all->n, .n_visual = span};
    fv_status st = add_document(tok, item, span, id, n, arena, all);
    if (st == FV_OK && item->question)
        st = add_question(tok, chat, at + strlen(MARK), item->begin, all);
    else if (st == FV_OK)
        st = add_rest(id, n, span, out->n_after = n_after, all);
    free(id);
    out->id = all->id;
    out->n = all->n - out->n_after;
    return st;
}

fv_status fv_eval_document_make(fv_local *local, const fv_benchmark_item *item, int32_t span,
                                int32_t n_after, fv_eval_document *out) {
    fv_chat_text chat = {0};
    fv_arena arena = {0};
    ids all = {0};
    FV_TRY(render(fv_local_engine(local), item->question ? item->question : "", &chat));
    fv_status st = make(local, item, span, n_after, &chat, &arena, &all, out);
    fv_arena_fini(&arena);
    fv_chat_text_free(&chat);
    if (st == FV_OK) return FV_OK;
    free(all.id);
    *out = (fv_eval_document){0};
    return st;
}

void fv_eval_document_ask(const fv_eval_document *d, fv_ask *ask) {
    if (!d->id) return;
    ask->n_turn = 0;
    ask->n_id = d->n;
    ask->id = d->id;
    ask->visual_first = d->first;
    ask->n_visual_text = d->n_visual;
}

void fv_eval_document_free(fv_eval_document *d) {
    free(d->id);
    *d = (fv_eval_document){0};
}
