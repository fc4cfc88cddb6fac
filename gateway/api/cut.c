#include "gateway/api/cut.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 16 }; /* "data:511" */

/* The quote that ends the string at p, or NULL. */
static const char *string_end(const char *p, const char *end) {
    for (const char *q = p; (q = memchr(q, '"', (size_t)(end - q))); q++) {
        const char *slash = q;
        while (slash > p && slash[-1] == '\\') slash--;
        if ((q - slash) % 2 == 0) return q;
    }
    return NULL;
}

static const char *skip_space(const char *p, const char *end) {
    while (p < end && memchr(" \t\r\n", *p, 4)) p++;
    return p;
}

/* Whether the string [key, key_end) and a colon stand ahead of `quote`. */
static bool is_url(const char *key, const char *key_end, const char *quote) {
    if (!key || key_end - key != 3 || memcmp(key, "url", 3) != 0) return false;
    const char *colon = skip_space(key_end + 1, quote);
    return colon < quote && *colon == ':' && skip_space(colon + 1, quote) == quote;
}

static bool is_data(const char *text, size_t n) {
    return n >= 5 && memcmp(text, "data:", 5) == 0 && !memchr(text, '\\', n);
}

fv_status fv_api_cut(fv_api_cuts *cuts, const char **body, size_t *n, fv_arena *arena) {
    const char *p = *body, *end = p + *n, *key = NULL, *key_end = NULL, *quote, *close;
    size_t rest = *n;
    cuts->n = 0;
    while ((quote = memchr(p, '"', (size_t)(end - p))) && (close = string_end(quote + 1, end))) {
        size_t length = (size_t)(close - quote) - 1;
        if (cuts->n < FV_API_CUTS_MAX && is_url(key, key_end, quote) &&
            is_data(quote + 1, length)) {
            cuts->of[cuts->n].url = quote + 1;
            cuts->of[cuts->n++].n = length;
            rest -= length;
        }
        key = quote + 1;
        p = (key_end = close) + 1;
    }
    if (cuts->n == 0) return FV_OK;
    char *out;
    FV_TRY(FV_ARENA_NEW(arena, rest + NAME_MAX_BYTES * cuts->n, out));
    const char *from = *body;
    *body = out;
    for (size_t i = 0; i < cuts->n; i++) {
        size_t before = (size_t)(cuts->of[i].url - from);
        memcpy(out, from, before);
        out += before;
        out += snprintf(out, NAME_MAX_BYTES, "data:%zu", i);
        from = cuts->of[i].url + cuts->of[i].n;
    }
    memcpy(out, from, (size_t)(end - from));
    *n = (size_t)(out - *body) + (size_t)(end - from);
    return FV_OK;
}

void fv_api_cut_find(fv_api_cuts *cuts, const char **url, size_t *n) {
    if (strncmp(*url, "data:", 5) != 0 || (*url)[5] < '0' || (*url)[5] > '9') return;
    size_t i = strtoul(*url + 5, NULL, 10);
    if (i >= cuts->n || !cuts->of[i].url) return;
    *url = cuts->of[i].url;
    *n = cuts->of[i].n;
    cuts->of[i].url = NULL;
}
