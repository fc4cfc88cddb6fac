/* CRC32C by Intel's ISA-L, which chooses instructions at run time. Its function takes the inverted checksum,
 * an int as length, and a non-const pointer that it only reads. Any thread. */
#include "handoff/crc32c.h"

#include <isa-l/crc.h>

enum { STEP = 1 << 30 };

uint32_t fv_crc32c(uint32_t crc, const void *data, size_t n) {
    unsigned char *p = (unsigned char *)(uintptr_t)data;
    crc = ~crc;
    while (n > 0) {
        size_t part = n < STEP ? n : STEP;
        crc = crc32_iscsi(p, (int)part, crc);
        p += part;
        n -= part;
    }
    return ~crc;
}
