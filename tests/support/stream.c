/* Rewrites a stream of sections in place. */
#include "tests/support/stream.h"

#include <string.h>
#include <xxhash.h>

#include "handoff/crc32c.h"
#include "handoff/kv_packet.h"

static void put32(uint8_t *at, uint32_t x) { memcpy(at, &x, sizeof x); }
static void put64(uint8_t *at, uint64_t x) { memcpy(at, &x, sizeof x); }

void rig_put_right(uint8_t *at, size_t n, uint64_t compat_hash) {
    uint64_t bytes = 0, digest = 0, length;
    for (uint32_t index = 0; n >= FV_SECTION_HEADER; index++) {
        uint8_t *payload = at + FV_SECTION_HEADER;
        uint32_t type;
        memcpy(&type, at + 4, sizeof type);
        memcpy(&length, at + 40, sizeof length);
        if (length > n - FV_SECTION_HEADER) length = n - FV_SECTION_HEADER;
        memcpy(at, "FV\x01", 3);
        at[3] &= 1;
        at[22] = at[23] = 0;
        put32(at + 8, index);
        put64(at + 40, length);
        if (type == FV_SECTION_HELLO && length >= 8) put64(payload, compat_hash);
        if (type == FV_SECTION_END && length == 32) {
            put64(payload, index);
            put64(payload + 8, bytes);
            put64(payload + 24, digest);
        }
        put32(at + 48, fv_crc32c(0, payload, (size_t)length));
        put32(at + 52, fv_crc32c(0, at, 52));
        digest = XXH64(at, FV_SECTION_HEADER, digest);
        bytes += FV_SECTION_HEADER + length;
        at = payload + length;
        n -= FV_SECTION_HEADER + (size_t)length;
    }
}
