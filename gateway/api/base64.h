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

/* text [FV_BASE64_SIZE(n)], without a NUL; returns how many characters were written. */
size_t fv_base64_write(fv_base64 kind, const uint8_t *bytes, size_t n, char *text);

/* bytes [n / 4 * 3 + 2], *n_byte of them are written. FV_EINVAL: not base64, or FV_BASE64 without any. */
fv_status fv_base64_read(fv_base64 kind, const char *text, size_t n, uint8_t *bytes,
                         size_t *n_byte);

#endif
