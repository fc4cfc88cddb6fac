#ifndef FOVEA_KERNELS_CPU_INT4_OFFSETS_H
#define FOVEA_KERNELS_CPU_INT4_OFFSETS_H

/* Offset from the bits of a scale s in bf16 to those of bf16(s (i - 8)), modulo 2^16, indexed by the low
 * seven bits of s and by i in 0..15; sign and exponent come with s. The entry for i = 8, where the product
 * is 0, is 0. Valid where s is not subnormal and 8 s does not overflow. */
#include <stdint.h>

extern const uint16_t fv_int4_offsets[128][16];

#endif
