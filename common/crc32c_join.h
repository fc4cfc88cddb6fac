#ifndef FOVEA_COMMON_CRC32C_JOIN_H
#define FOVEA_COMMON_CRC32C_JOIN_H

/* The CRC32C of a concatenation AB from the CRC32Cs of A and B: joins checksums computed in parts
 * (by the threads of a kernel, or frame by frame).
 *
 * A CRC is a remainder modulo a polynomial P over GF(2), with x^0 in the highest bit. Appended
 * bytes shift it, so  crc(AB) = crc(A) x^(8 |B|) + crc(B)  mod P; the initial and final constants
 * cancel out. (M. Adler's crc32_combine of zlib.) */
#include <stdint.h>

/* a b mod P. */
static inline uint32_t fv_crc32c_times(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit && a; bit >>= 1) {
        if (a & bit) product ^= b;
        a &= ~bit;
        b = b & 1 ? b >> 1 ^ 0x82f63b78u : b >> 1;
    }
    return product;
}

/* x^(8 n) mod P: what n bytes do to a remainder before them. */
static inline uint32_t fv_crc32c_shift(uint64_t n) {
    uint32_t power = 1u << 31, square = 1u << 23; /* 1, x^8 */
    for (; n; n >>= 1) {
        if (n & 1) power = fv_crc32c_times(power, square);
        square = fv_crc32c_times(square, square);
    }
    return power;
}

/* The CRC32C of AB, where B has n_b bytes. */
static inline uint32_t fv_crc32c_join(uint32_t a, uint32_t b, uint64_t n_b) {
    return fv_crc32c_times(fv_crc32c_shift(n_b), a) ^ b;
}

#endif
