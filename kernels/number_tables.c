/* The tables of kernels/number_tables.h. */
#include "kernels/number_tables.h"

#include <math.h>

/* E4M3: (of + i) unit for the numbers of one exponent. */
#define SEVEN(of, unit)                                                                            \
    (float)(of) * (unit), (float)((of) + 1) * (unit), (float)((of) + 2) * (unit),                  \
        (float)((of) + 3) * (unit), (float)((of) + 4) * (unit), (float)((of) + 5) * (unit),        \
        (float)((of) + 6) * (unit)
#define ROW(of, unit) SEVEN(of, unit), (float)((of) + 7) * (unit)
#define E4M3(sign)                                                                                 \
    ROW(0, sign 0x1p-9f), ROW(8, sign 0x1p-9f), ROW(8, sign 0x1p-8f), ROW(8, sign 0x1p-7f),        \
        ROW(8, sign 0x1p-6f), ROW(8, sign 0x1p-5f), ROW(8, sign 0x1p-4f), ROW(8, sign 0x1p-3f),    \
        ROW(8, sign 0x1p-2f), ROW(8, sign 0x1p-1f), ROW(8, sign 1.0f), ROW(8, sign 2.0f),          \
        ROW(8, sign 4.0f), ROW(8, sign 8.0f), ROW(8, sign 16.0f), SEVEN(8, sign 32.0f), NAN

const float fv_e4m3[256] = {E4M3(+), E4M3(-)};

#define E2M1 0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6
#define FOUR(row) row, row, row, row

const float fv_e2m1[16] = {E2M1};
const float fv_e2m1_bytes[256] = {FOUR(FOUR(E2M1))};

const float fv_nf4[16] = {-1.0f,
                          -0.6961928009986877f,
                          -0.5250730514526367f,
                          -0.39491748809814453f,
                          -0.28444138169288635f,
                          -0.18477343022823334f,
                          -0.09105003625154495f,
                          0.0f,
                          0.07958029955625534f,
                          0.16093020141124725f,
                          0.24611230194568634f,
                          0.33791524171829224f,
                          0.44070982933044434f,
                          0.5626170039176941f,
                          0.7229568362236023f,
                          1.0f};
