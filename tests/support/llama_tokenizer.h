#ifndef FOVEA_TESTS_SUPPORT_LLAMA_TOKENIZER_H
#define FOVEA_TESTS_SUPPORT_LLAMA_TOKENIZER_H

/* The tokenizer of Llama 2 in `tok`; the functions are a suite's init and fini. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/file.h"
#include "text/tokenizer.h"

static fv_tokenizer *tok;

static inline void open_tokenizer(void) {
    char *json;
    size_t n;
    cr_assert_eq(fv_file_read(FOVEA_TEST_DATA "/golden/tokenizer/llama2.json", 1 << 24, &json, &n),
                 FV_OK);
    cr_assert_eq(fv_tokenizer_parse(json, n, "llama2.json", &tok), FV_OK, "%s", fv_last_error());
    free(json);
}

static inline void close_tokenizer(void) { fv_tokenizer_free(tok); }

#endif
