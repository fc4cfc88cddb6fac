#include "tests/support/called.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct written {
    FILE *f;
} written;

static fv_status on_text(void *user, const char *text, size_t n) {
    written *w = user;
    if (n == 0) abort();
    fwrite(text, 1, n, w->f);
    return FV_OK;
}

static fv_status on_call(void *user, const char *name, const char *arguments) {
    written *w = user;
    json_t *json = json_loads(arguments, 0, NULL);
    if (!json_is_object(json)) abort();
    json_decref(json);
    fprintf(w->f, "{%s %s}", name, arguments);
    return FV_OK;
}

char *called_in_pieces(const fv_calls_form *form, const json_t *tools, const char *text, size_t n,
                       uint32_t seed, size_t size_max) {
    static const fv_calls_events events = {on_text, on_call};
    char *out;
    size_t n_out;
    written w = {open_memstream(&out, &n_out)};
    fv_calls_parser *p;
    if (fv_calls_parser_open(form, tools, &events, &w, &p) != FV_OK) abort();
    for (size_t at = 0; at < n;) {
        seed = seed * 1664525 + 1013904223;
        size_t size = 1 + (seed >> 8) % size_max;
        if (size > n - at) size = n - at;
        /* In memory of its own, so that a sanitizer sees what is read beyond it. */
        char *piece = malloc(size);
        memcpy(piece, text + at, size);
        if (fv_calls_parser_feed(p, piece, size) != FV_OK) abort();
        free(piece);
        at += size;
    }
    if (fv_calls_parser_end(p) != FV_OK) abort();
    fv_calls_parser_close(p);
    fclose(w.f);
    return out;
}
