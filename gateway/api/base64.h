#ifndef FOVEA_GATEWAY_API_BASE64_H
#define FOVEA_GATEWAY_API_BASE64_H

/* Base64 (RFC 4648). Any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef enum fv_base64 {
    /* + and /, padded with =. Read as clients send it: with blanks and line breaks anywhere, with or
     * without padding, and with - and _ for + and /. */
    FV_BASE64,
    FV_BASE64_URL, /* - and _, not padded, nothing else */
} fv_base64;

/* Most characters that n bytes take. */
#define FV_BASE64_SIZE(n) (((n) + 2) / 3 * 4)

/* Most bytes that n characters give, wherever a group of four begins. */
#define FV_BASE64_BYTES(n) ((n) / 4 * 3 + 3)

/* Encodes n bytes into text [FV_BASE64_SIZE(n)], without a NUL; returns the number of
 * characters. */
size_t fv_base64_write(fv_base64 kind, const uint8_t *bytes, size_t n, char *text);

/* Decodes a text that arrives in pieces. */
typedef struct fv_base64_reader {
    /* private */
    fv_base64 kind;
    uint8_t value[256]; /* digit of each character; 64: a blank; 0xFF: neither */
    uint32_t bits;      /* of the incomplete group of four */
    uint8_t n_group, n_pad;
    size_t n; /* characters so far, without blanks */
} fv_base64_reader;

void fv_base64_begin(fv_base64_reader *r, fv_base64 kind);
/* Decodes the next n characters into bytes [FV_BASE64_BYTES(n)], of which *n_byte are written.
 * FV_EINVAL: not base64. */
fv_status fv_base64_feed(fv_base64_reader *r, const char *text, size_t n, uint8_t *bytes,
                         size_t *n_byte);
/* Ends the text; writes up to 2 bytes. FV_EINVAL: the text is truncated, has bits left over, or has no
 * character where the kind is FV_BASE64. */
fv_status fv_base64_end(fv_base64_reader *r, uint8_t *bytes, size_t *n_byte);

/* Decodes a whole text into bytes [FV_BASE64_BYTES(n)]. */
fv_status fv_base64_read(fv_base64 kind, const char *text, size_t n, uint8_t *bytes,
                         size_t *n_byte);

#endif
