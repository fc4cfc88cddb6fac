#ifndef FOVEA_HANDOFF_CRC32C_H
#define FOVEA_HANDOFF_CRC32C_H

/* CRC32C (Castagnoli, as in iSCSI and gRPC). */
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The checksum of the bytes behind `crc` (0: none) followed by n more bytes. */
uint32_t fv_crc32c(uint32_t crc, const void *data, size_t n);

#ifdef __cplusplus
}
#endif
#endif
