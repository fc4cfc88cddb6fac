#ifndef FOVEA_TEXT_BASE64_H
#define FOVEA_TEXT_BASE64_H

/* BASE64 of the files of tokenizers, with its padding. Any thread. */
#include <stdbool.h>
#include <stddef.h>

/* The most bytes that n characters stand for. */
#define FV_TEXT_BASE64_BYTES(n) ((n) / 4 * 3)
/* The characters of n bytes. */
#define FV_TEXT_BASE64_CHARS(n) (((n) + 2) / 3 * 4)

/* Decodes n characters into out[FV_TEXT_BASE64_BYTES(n)]; *bytes: how many there are. False: it is not base64. */
bool fv_text_base64_read(const char *text, size_t n, unsigned char *out, size_t *bytes);

/* Encodes n bytes into out[FV_TEXT_BASE64_CHARS(n)]. */
void fv_text_base64_write(const unsigned char *bytes, size_t n, char *out);

#endif
