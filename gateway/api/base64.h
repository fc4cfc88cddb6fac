#ifndef FOVEA_GATEWAY_API_BASE64_H
#define FOVEA_GATEWAY_API_BASE64_H

/* Base64 (RFC 4648), strict: no white space, no bits left over. Any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

typedef enum fv_base64 {
    FV_BASE64,     /* + and /, padded with = */
    FV_BASE64_URL, /* - and _, not padded */
} fv_base64;

/* Characters of n bytes at most. */
#define FV_BASE64_SIZE(n) (((n) + 2) / 3 * 4)

/* Bytes that n characters give at most, wherever a group of four begins. */
#define FV_BASE64_BYTES(n) ((n) / 4 * 3 + 3)

/* text [FV_BASE64_SIZE(n)], without a NUL; returns how many characters were written. */
size_t fv_base64_write(fv_base64 kind, const uint8_t *bytes, size_t n, char *text);

/* Reads a text that comes in pieces. */
typedef struct fv_base64_reader {
    /* private */
    fv_base64 kind;
    uint8_t value[256]; /* of each character; 0xFF: none */
    uint32_t bits;      /* of the group of four that has begun */
    uint8_t n_group, n_pad;
    size_t n; /* characters so far */
} fv_base64_reader;

void fv_base64_begin(fv_base64_reader *r, fv_base64 kind);
/* The next n characters; bytes [FV_BASE64_BYTES(n)], of which *n_byte are written. FV_EINVAL: not base64. */
fv_status fv_base64_feed(fv_base64_reader *r, const char *text, size_t n, uint8_t *bytes,
                         size_t *n_byte);
/* There are no more; bytes [2]. FV_EINVAL: the end is missing, or FV_BASE64 had no character. */
fv_status fv_base64_end(fv_base64_reader *r, uint8_t *bytes, size_t *n_byte);

/* A text as a whole; bytes [FV_BASE64_BYTES(n)]. */
fv_status fv_base64_read(fv_base64 kind, const char *text, size_t n, uint8_t *bytes,
                         size_t *n_byte);

#endif
