#ifndef FOVEA_TEXT_UNICODE_H
#define FOVEA_TEXT_UNICODE_H

/* UNICODE as far as tokenising needs it: UTF-8, character classes, normal forms.
 *
 * Classes and forms follow what Hugging Face `tokenizers` 0.23 was built with (Unicode 16 for
 * classes, Unicode 9 for normal forms) although the system's utf8proc has another version: ids
 * must not depend on the distribution. Any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef enum fv_utf8 {
    FV_UTF8_OK = 0, /* a character */
    FV_UTF8_SHORT,  /* the text ends inside what may be a character */
    FV_UTF8_BAD,    /* no character begins like this */
} fv_utf8;

/* Decodes a character from the n >= 1 bytes at s. *len: the bytes of the character; if SHORT, of its
 * beginning; if BAD, of the longest beginning of a character, at least 1. *cp: the code point,
 * U+FFFD unless FV_UTF8_OK is returned. */
fv_utf8 fv_utf8_next(const char *s, size_t n, int32_t *cp, size_t *len);

/* Writes code point cp, which must be a Unicode scalar value. Returns its 1..4 bytes. */
size_t fv_utf8_put(int32_t cp, char out[4]);

/* The number of bytes at the front of s that are valid UTF-8. */
size_t fv_utf8_valid(const char *s, size_t n);

/* The bytes of the grapheme cluster at the front of n >= 1 bytes of valid UTF-8, in O of these bytes. */
size_t fv_uni_cluster(const char *s, size_t n);

bool fv_uni_letter(int32_t cp); /* \p{L} */
bool fv_uni_number(int32_t cp); /* \p{N} */
bool fv_uni_space(int32_t cp);  /* \s: the property White_Space */
bool fv_uni_word(int32_t cp);   /* \w: letters, marks, decimal and letter numbers, joiners */

typedef enum fv_uni_form { FV_UNI_NFC = 0, FV_UNI_NFD, FV_UNI_NFKC, FV_UNI_NFKD } fv_uni_form;

/* Normalises n bytes of valid UTF-8 in O(n log n). Gives *out (free it; not NUL-terminated) and
 * *bytes. */
fv_status fv_uni_normalize(fv_uni_form form, const char *s, size_t n, char **out, size_t *bytes);

#endif
