#ifndef FOVEA_KERNELS_CPU_INT4_OFFSETS_H
#define FOVEA_KERNELS_CPU_INT4_OFFSETS_H

/* What is added to the bits of a scale s in bf16 for bf16(s (i - 8)): of a scale's low seven bits, and
 * i in 0..15. Modulo 2^16; sign and exponent come with s. Of i = 8, where the product is 0, 0. Holds
 * where neither s is subnormal nor 8 s too large. */
#include <stdint.h>

extern const uint16_t fv_int4_offsets[128][16];

#endif
