#ifndef FOVEA_TESTS_SUPPORT_STREAM_H
#define FOVEA_TESTS_SUPPORT_STREAM_H

/* Any bytes as a KV packet that only its contents can make wrong. */
#include <stddef.h>
#include <stdint.h>

/* Makes the bytes a stream whose every checksum, index and total is right, as far as whole
 * sections go. Offsets are those of handoff/kv_packet.h. */
void rig_put_right(uint8_t *at, size_t n, uint64_t compat_hash);

#endif
