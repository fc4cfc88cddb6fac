#include "tests/support/sliced.h"

#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_MAX = 97 };

static grpc_slice slice_of(const uint8_t *p, size_t n) {
    uint8_t *own = malloc(n ? n : 1);
    if (!own) abort();
    memcpy(own, p, n);
    return grpc_slice_new(own, n, free);
}

grpc_byte_buffer *sliced(const uint8_t *p, size_t n, unsigned cut) {
    grpc_slice *slice = malloc((n + 1) * sizeof *slice);
    if (!slice) abort();
    size_t n_slice = 0;
    for (size_t at = 0, part; at < n || n_slice == 0; at += part) {
        part = cut && cut < n - at ? cut : n - at;
        slice[n_slice++] = slice_of(p + at, part);
        cut = cut ? (cut * 5 + 1) % SLICE_MAX + 1 : 0;
    }
    grpc_byte_buffer *out = grpc_raw_byte_buffer_create(slice, n_slice);
    for (size_t i = 0; i < n_slice; i++) grpc_slice_unref(slice[i]);
    free(slice);
    return out;
}
