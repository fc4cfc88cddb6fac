#ifndef FOVEA_HANDOFF_CRC32C_H
#define FOVEA_HANDOFF_CRC32C_H

/* CRC32C (Castagnoli, as in iSCSI and gRPC). */
#include <stddef.h>
#include <stdint.h>

/* Extends the checksum `crc` of earlier bytes (0: none) by n more. */
uint32_t fv_crc32c(uint32_t crc, const void *data, size_t n);

#endif
