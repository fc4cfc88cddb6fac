/* Any text through fv_jinja_spelling: a comment in front of a program changes nothing, and what has
 * no spelling gets a sentence. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void expect(bool holds) {
    if (!holds) abort();
}

/* `begin`, and the input as text behind it. */
static char *text_of(const char *begin, const uint8_t *data, size_t n) {
    size_t head = strlen(begin);
    char *p = malloc(head + n + 1);
    expect(p != NULL);
    memcpy(p, begin, head);
    if (n) memcpy(p + head, data, n);
    p[head + n] = '\0';
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *program = text_of("", data, n), *remarked = text_of("{# a remark #}", data, n);
    char *one = NULL, *other = NULL;
    fv_status st = fv_jinja_spelling(program, &one);
    expect(fv_jinja_spelling(remarked, &other) == st);
    if (st == FV_OK)
        expect(strcmp(one, other) == 0);
    else
        expect((st == FV_EDATA || st == FV_ENOMEM) && *fv_last_error() && !one && !other);
    free(program);
    free(remarked);
    free(one);
    free(other);
    return 0;
}
