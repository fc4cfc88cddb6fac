/* Any bytes as an answer with tool calls, in each form: pieces of any size give what the whole text
 * gives, and arguments are JSON. And as one with reasoning: no byte but space and marks is lost. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/called.h"
#include "text/calls/thinking.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_calls(const char *text, size_t n, uint32_t seed) {
    static const char *const forms[] = {"hermes", "qwen3_xml", "mistral", "gemma", "llama3_json"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const fv_calls_form *f = fv_calls_form_named(forms[i]);
        char *whole = called_in_pieces(f, NULL, text, n, 0, n + 1);
        char *pieces = called_in_pieces(f, NULL, text, n, seed, 1 + seed % 30);
        if (strcmp(whole, pieces) != 0) abort();
        free(whole);
        free(pieces);
    }
}

static fv_status count(void *user, bool thought, const char *text, size_t n) {
    (void)thought, (void)text;
    *(size_t *)user += n;
    return FV_OK;
}

static void check_thinking(const char *text, size_t n, bool open) {
    fv_thinking t = fv_thinking_begin(fv_thinking_form_named("think"), open);
    size_t out = 0, space = 0;
    for (size_t i = 0; i < n; i++) {
        if (fv_thinking_feed(&t, text + i, 1, count, &out) != FV_OK) abort();
        space += strchr(" \n\r\t", text[i]) && text[i];
    }
    if (fv_thinking_end(&t, count, &out) != FV_OK) abort();
    if (out > n || out + space + strlen("<think></think>") < n) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 1 || memchr(data + 1, 0, n - 1)) return 0; /* texts of messages have no NUL */
    check_calls((const char *)data + 1, n - 1, data[0]);
    check_thinking((const char *)data + 1, n - 1, data[0] & 1);
    return 0;
}
