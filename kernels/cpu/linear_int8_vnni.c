/* Integer sums with VPDPBUSD, whose first operand is unsigned: w + 128 in place of w, and 128 times
 * the sum of the row of x is taken off at the end. The 16 sums of a register wrap around, as do
 * their sums: what is left fits. */
#include <immintrin.h>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/linear_int8.h"

enum { ROWS = 6, COLUMNS = 4, STEP = 64 };

bool fv_vnni_runs_here(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512vnni");
}

/* mr rows of x from m on times nr rows of w from n on; both are constants after inlining. */
static ALWAYS_INLINE void tile(const int8_product *a, int m, int n, const int mr, const int nr) {
    const int8_t *x = a->x + (size_t)m * a->ldx, *w = a->w + (size_t)n * a->K;
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i acc[ROWS * COLUMNS];
    UNROLL for (int i = 0; i < mr * nr; i++) acc[i] = _mm512_setzero_si512();
    for (size_t k = 0; k < a->K; k += STEP) {
        __mmask64 in = a->K - k < STEP ? ((__mmask64)1 << (a->K - k)) - 1 : ~(__mmask64)0;
        __m512i wk[COLUMNS];
        UNROLL for (int j = 0; j < nr; j++) {
            wk[j] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(in, w + (size_t)j * a->K + k), flip);
        }
        UNROLL for (int i = 0; i < mr; i++) {
            __m512i xk = _mm512_loadu_si512(x + (size_t)i * a->ldx + k);
            UNROLL for (int j = 0; j < nr; j++) {
                acc[i * nr + j] = _mm512_dpbusd_epi32(acc[i * nr + j], wk[j], xk);
            }
        }
    }
    for (int i = 0; i < mr; i++)
        for (int j = 0; j < nr; j++)
            a->out[(m + i) * a->ld + n + j] =
                (int32_t)((uint32_t)_mm512_reduce_add_epi32(acc[i * nr + j]) -
                          128u * (uint32_t)a->x_sum[m + i]);
}

static NEVER_INLINE void tile_whole(const int8_product *a, int m, int n) {
    tile(a, m, n, ROWS, COLUMNS);
}

static NEVER_INLINE void tile_row(const int8_product *a, int m, int n) {
    tile(a, m, n, 1, COLUMNS);
}

static NEVER_INLINE void tile_one(const int8_product *a, int m, int n) { tile(a, m, n, 1, 1); }

void fv_vnni_int8_products(const int8_product *a) {
    for (int m = 0; m < a->M; m += ROWS)
        for (int n = 0; n < a->N; n += COLUMNS) {
            int rows = a->M - m < ROWS ? a->M - m : ROWS;
            int columns = a->N - n < COLUMNS ? a->N - n : COLUMNS;
            if (rows == ROWS && columns == COLUMNS) {
                tile_whole(a, m, n);
                continue;
            }
            for (int i = 0; i < rows; i++) {
                if (columns == COLUMNS)
                    tile_row(a, m + i, n);
                else
                    for (int j = 0; j < columns; j++) tile_one(a, m + i, n + j);
            }
        }
}
