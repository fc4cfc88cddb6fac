/* Holds back the longest end of the stream that could still become a stop string. One thread. */
#include "text/stop.h"

#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

struct fv_stop {
    char *string[FV_MAX_STOP];
    size_t length[FV_MAX_STOP];
    int32_t n;
    bool include;
    char *text; /* held-back text, then new text; given out from the front */
    size_t used, given, cap;
    size_t passed; /* bytes of the text within which a complete stop string does not count */
};

fv_status fv_stop_open(const char *const *strings, int32_t n, bool include, fv_stop **out) {
    if (n > FV_MAX_STOP) return FV_FAIL(FV_EINVAL, "%d stop strings: at most %d", n, FV_MAX_STOP);
    fv_stop *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for stop strings");
    s->include = include;
    for (int32_t i = 0; i < n; i++) {
        size_t len = strlen(strings[i]);
        if (len == 0 || len > FV_STOP_BYTES_MAX) {
            fv_stop_close(s);
            return FV_FAIL(FV_EINVAL, "a stop string has %zu bytes; it must have 1..%d", len,
                           FV_STOP_BYTES_MAX);
        }
        s->string[s->n] = strdup(strings[i]);
        if (!s->string[s->n]) {
            fv_stop_close(s);
            return FV_FAIL(FV_ENOMEM, "out of memory for stop strings");
        }
        s->length[s->n++] = len;
    }
    *out = s;
    return FV_OK;
}

void fv_stop_close(fv_stop *s) {
    if (!s) return;
    for (int32_t i = 0; i < s->n; i++) free(s->string[i]);
    free(s->text);
    free(s);
}

static fv_status append(fv_stop *s, const char *text, size_t n) {
    if (s->given) memmove(s->text, s->text + s->given, s->used - s->given);
    s->used -= s->given;
    s->passed -= s->given < s->passed ? s->given : s->passed;
    s->given = 0;
    if (n == 0) return FV_OK;
    FV_TRY(fv_grow(&s->text, &s->cap, s->used + n, 1));
    memcpy(s->text + s->used, text, n);
    s->used += n;
    return FV_OK;
}

/* Finds the stop string that starts first, among those that end behind the passed text; of several that
 * start there, the first in the list. *end: where the output ends. False: there is none. */
static bool find_stop(const fv_stop *s, size_t *end) {
    size_t first = *end = s->used;
    for (int32_t i = 0; i < s->n && s->used; i++) {
        const size_t n = s->length[i], from = s->passed < n ? 0 : s->passed + 1 - n;
        const char *at =
            from < s->used ? memmem(s->text + from, s->used - from, s->string[i], n) : NULL;
        if (!at || (size_t)(at - s->text) >= first) continue;
        first = (size_t)(at - s->text);
        *end = first + (s->include ? n : 0);
    }
    return first < s->used;
}

/* Length of the longest end of the text that begins a stop string. */
static size_t unfinished(const fv_stop *s) {
    size_t longest = 0;
    for (int32_t i = 0; i < s->n; i++)
        for (size_t len = s->length[i] - 1; len > longest; len--)
            if (len <= s->used && memcmp(s->text + s->used - len, s->string[i], len) == 0)
                longest = len;
    return longest;
}

fv_status fv_stop_push(fv_stop *s, const char *text, size_t n, bool may_end, const char **out,
                       size_t *n_out, bool *hit) {
    size_t end;
    FV_TRY(append(s, text, n));
    if (!may_end) s->passed = s->used;
    *hit = find_stop(s, &end);
    if (*hit) s->used = end;
    s->given = s->used - (*hit ? 0 : unfinished(s));
    *out = s->text;
    *n_out = s->given;
    return FV_OK;
}

void fv_stop_flush(fv_stop *s, const char **out, size_t *n_out) {
    *out = s->text ? s->text + s->given : "";
    *n_out = s->used - s->given;
    s->given = s->used;
}
