/* A scale in bf16 is 2^e (128 + m) / 128. Its product with an integer a, rounded to bf16, differs from the
 * scale by bits that depend on m and a alone.
 *
 * P = (128 + m) a has n bits more than 8, which are rounded off to nearest even; a carry goes into the
 * exponent, as it should. */
#include "kernels/cpu/int4_offsets.h"

#define P(m, a) ((128 + (m)) * (a))
#define N(p) (((p) > 255) + ((p) > 511) + ((p) > 1023))
#define ROUNDED(p, n) (((p) + (((1 << (n)) - 1) >> 1) + ((p) >> (n) & ((n) > 0))) >> (n))
#define OF(m, a) ((uint16_t)((N(P(m, a)) << 7) + ROUNDED(P(m, a), N(P(m, a))) - 128 - (m)))
#define NEGATIVE(m, a) ((uint16_t)(OF(m, a) | 0x8000))
#define ROW(m)                                                                                     \
    {                                                                                              \
        NEGATIVE(m, 8), NEGATIVE(m, 7), NEGATIVE(m, 6), NEGATIVE(m, 5), NEGATIVE(m, 4),            \
            NEGATIVE(m, 3), NEGATIVE(m, 2), NEGATIVE(m, 1), 0, OF(m, 1), OF(m, 2), OF(m, 3),       \
            OF(m, 4), OF(m, 5), OF(m, 6), OF(m, 7)                                                 \
    }
#define ROWS_4(m) ROW(m), ROW((m) + 1), ROW((m) + 2), ROW((m) + 3)
#define ROWS_32(m)                                                                                 \
    ROWS_4(m), ROWS_4((m) + 4), ROWS_4((m) + 8), ROWS_4((m) + 12), ROWS_4((m) + 16),               \
        ROWS_4((m) + 20), ROWS_4((m) + 24), ROWS_4((m) + 28)

_Alignas(64) const uint16_t fv_int4_offsets[128][16] = {ROWS_32(0), ROWS_32(32), ROWS_32(64),
                                                        ROWS_32(96)};
