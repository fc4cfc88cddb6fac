/* Cuts the rendering of a conversation whose last text is continued where that text ends, as
 * transformers does with continue_final_message. */
#include <string.h>

#include "text/chat_turns.h"
#include "text/unicode.h"

static const char mark[] = FV_CHAT_MARK;
enum { N_MARK = sizeof mark - 1, N_CHARACTER = N_MARK - 1 };

static bool is_space(int32_t cp) { return fv_uni_space(cp) || (cp >= 0x1c && cp <= 0x1f); }

/* The bytes of s up to the white space at its end. */
static size_t end_of(const char *s, size_t n) {
    int32_t cp;
    size_t len, at;
    for (; n > 0; n = at) {
        for (at = n - 1; at > 0 && n - at < 4 && ((unsigned char)s[at] & 0xc0) == 0x80;) at--;
        if (fv_utf8_next(s + at, n - at, &cp, &len) != FV_UTF8_OK || len != n - at) break;
        if (!is_space(cp)) break;
    }
    return n;
}

/* The bytes of white space at the beginning of s. */
static size_t begin_of(const char *s, size_t n) {
    int32_t cp;
    size_t at = 0, len;
    for (; at < n; at += len)
        if (fv_utf8_next(s + at, n - at, &cp, &len) != FV_UTF8_OK || !is_space(cp)) break;
    return at;
}

/* Returns the text with the mark: the content of the last message, or the last text in it. */
static const json_t *marked(const json_t *messages) {
    const json_t *content =
        json_object_get(json_array_get(messages, json_array_size(messages) - 1), "content");
    for (size_t i = json_array_size(content); i-- > 0;) {
        const json_t *text = json_object_get(json_array_get(content, i), "text");
        if (text) return text;
    }
    return content;
}

static bool has_text(const fv_chat_text *t, const json_t *messages) {
    const json_t *with_mark = marked(messages);
    const char *text = json_string_value(with_mark);
    size_t to = end_of(text, json_string_length(with_mark) - N_MARK), from = begin_of(text, to);
    return memmem(t->text, t->n, text + from, to - from) != NULL;
}

/* Finds the last mark of ours; SIZE_MAX: there is none. */
static size_t find_mark(const fv_chat_text *t) {
    for (size_t at = t->n + 1 - N_CHARACTER; t->n >= N_CHARACTER && at-- > 0;)
        if (memcmp(t->text + at, mark, N_CHARACTER) == 0 && t->user[at]) return at;
    return SIZE_MAX;
}

fv_status fv_chat_cut(const char *name, const json_t *messages, fv_chat_text *t) {
    size_t at = find_mark(t);
    if (at == SIZE_MAX || !has_text(t, messages))
        return FV_FAIL(FV_EINVAL,
                       "%s: the chat template does not write the last turn's text as it is, so it "
                       "cannot be continued: end with another turn, or set add_generation_prompt",
                       name);
    /* A template that trims the text has cut the blank off the mark. */
    const bool trimmed = t->n - at < N_MARK || t->text[at + N_CHARACTER] != mark[N_CHARACTER];
    t->n = trimmed ? end_of(t->text, at) : at;
    t->text[t->n] = '\0';
    return FV_OK;
}
