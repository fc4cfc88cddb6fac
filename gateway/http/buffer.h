#ifndef FOVEA_GATEWAY_HTTP_BUFFER_H
#define FOVEA_GATEWAY_HTTP_BUFFER_H

/* A byte queue: bytes are appended at one end and taken at the other. {0} is empty and owns
 * nothing. */
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

typedef struct fv_http_buffer {
    char *bytes;
    size_t begin, end, cap; /* [begin, end) are queued */
} fv_http_buffer;

static inline size_t fv_http_buffer_n(const fv_http_buffer *b) { return b->end - b->begin; }

static inline const char *fv_http_buffer_at(const fv_http_buffer *b) { return b->bytes + b->begin; }

/* FV_ENOMEM: nothing was appended. */
static inline fv_status fv_http_buffer_put(fv_http_buffer *b, const void *bytes, size_t n) {
    if (n == 0) return FV_OK;
    if (b->begin > 0 && b->end + n > b->cap) {
        memmove(b->bytes, b->bytes + b->begin, b->end - b->begin);
        b->end -= b->begin;
        b->begin = 0;
    }
    FV_TRY(fv_grow(&b->bytes, &b->cap, b->end + n, 1));
    memcpy(b->bytes + b->end, bytes, n);
    b->end += n;
    return FV_OK;
}

static inline void fv_http_buffer_take(fv_http_buffer *b, size_t n) {
    b->begin += n;
    if (b->begin == b->end) b->begin = b->end = 0;
}

/* Frees the memory and drops the bytes. */
static inline void fv_http_buffer_free(fv_http_buffer *b) {
    free(b->bytes);
    b->bytes = NULL;
    b->begin = b->end = b->cap = 0;
}

#endif
