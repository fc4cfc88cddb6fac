#ifndef FOVEA_TESTS_SUPPORT_SLICED_H
#define FOVEA_TESTS_SUPPORT_SLICED_H

/* Bytes as they arrive from the network: a gRPC message in slices, each in memory of its own, so
 * that AddressSanitizer detects reading past one. */
#include <grpc/byte_buffer.h>
#include <stddef.h>
#include <stdint.h>

/* n bytes in slices of `cut` bytes, then of other sizes derived from it; 0: in one. The caller
 * destroys it. Aborts when memory runs out. */
grpc_byte_buffer *sliced(const uint8_t *p, size_t n, unsigned cut);

#endif
