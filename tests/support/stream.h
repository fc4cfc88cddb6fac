#ifndef FOVEA_TESTS_SUPPORT_STREAM_H
#define FOVEA_TESTS_SUPPORT_STREAM_H

/* Turns any bytes into a KV packet that only its contents can make invalid. */
#include <stddef.h>
#include <stdint.h>

/* Corrects every checksum, index and total of a stream, as far as whole sections go. Offsets are
 * those of handoff/kv_packet.h. */
void rig_put_right(uint8_t *at, size_t n, uint64_t compat_hash);

#endif
