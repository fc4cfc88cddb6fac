/* Products in bf16: the plain path's bits, for any numbers. On a GPU a library computes them;
 * linear's test covers that. */
#include <immintrin.h>

#include "tests/ops/run/run.h"

/* Kinds of operands. Products near 2^-126 are where flushing decides. */
typedef enum numbers {
    NORMAL,
    TINY,     /* sums of products below 2^-126 */
    TIMES,    /* subnormal x, large w */
    BORDER,   /* products about 2^-126 */
    SPECIALS, /* zeros, infinities and NaN among others */
    BITS,     /* any pattern */
    N_NUMBERS
} numbers;

static float number(numbers kind, bool is_x) {
    float r = random_normal();
    uint32_t bits = (uint32_t)random_bits();
    switch (kind) {
    case TINY: return r * 1e-20f;
    case TIMES: return is_x ? r * 1e-39f : r * 1e30f;
    case BORDER:
        return (bits & 1 ? 1 : -1) *
               ldexpf(1 + (float)random_int(0, 7) / 8, -63 - random_int(0, 13));
    case BITS: memcpy(&r, &bits, sizeof r); return r;
    default: return r;
    }
}

static void fill(const fv_tensor *t, numbers kind, bool is_x) {
    for (int r = 0; r < t->rows; r++)
        for (int c = 0; c < t->cols; c++) put(t, r, c, number(kind, is_x));
    if (kind == SPECIALS) fill_specials(t, PICK(20, 200, 1000));
}

/* Multiplies x with up to three parts, whose weights of type t (or any) lie at the end of a
 * mapping, or some numbers before it and then not at a multiple of 64 bytes. */
static void linear_once(device_test *d, int M, int K, const int *N, int n_part, int type,
                        numbers kind) {
    fv_tensor x = tensor_new(FV_F32, M, K, random_int(0, 3));
    guarded g[FV_LINEAR_MAX_PARTS];
    fv_linear_args plain = {.x = x, .n_part = n_part}, there = plain;
    bool accumulate = random_int(0, 1), bias = random_int(0, 1);
    fill(&x, kind, true);
    for (int i = 0; i < n_part; i++) {
        fv_dtype t = (fv_dtype)(type < 0 ? random_int(0, FV_N_DTYPE - 1) : type);
        fv_linear_part p = {.accumulate = accumulate};
        p.w = tensor_guarded_by(&g[i], t, N[i], K,
                                fv_dtype_bytes(t) * (size_t)PICK(0, 0, 1, 4, 17, 31));
        p.y = tensor_new(FV_F32, M, N[i], random_int(0, 2));
        fill(&p.w, kind, false);
        fill(&p.y, kind, true);
        if (bias) {
            p.bias = tensor_new((fv_dtype)random_int(0, FV_N_DTYPE - 1), 1, N[i], 0);
            fill(&p.bias, kind, true);
        }
        plain.part[i] = there.part[i] = p;
        there.part[i].y.data = room(tensor_bytes(&p.y));
        if (M) memcpy(there.part[i].y.data, p.y.data, tensor_bytes(&p.y));
    }
    must(d->plain.ops->linear(&d->plain, &plain));
    must(d->be.ops->linear(&d->be, &there));
    for (int i = 0; i < n_part; i++) {
        const fv_tensor *y = &plain.part[i].y;
        const float *a = y->data, *b = there.part[i].y.data;
        long at = first_difference(a, b, tensor_bytes(y) / sizeof *a);
        check(at < 0, "%d x %d x %d of %s, numbers %d: element %ld is %a, not %a", M, K, y->cols,
              fv_dtype_name(plain.part[i].w.dtype), (int)kind, at, at < 0 ? 0. : (double)b[at],
              at < 0 ? 0. : (double)a[at]);
        free(there.part[i].y.data);
        free(y->data);
        free(plain.part[i].bias.data);
        tensor_unguard(&g[i]);
    }
    free(x.data);
}

/* Tests the smallest sum that is not flushed, and the next smaller one in 24 bits: 2^-126 -
 * 2^-150. */
static void border(device_test *d) {
    uint16_t w[32] = {0};
    float x[32] = {0}, y[1] = {1};
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, 32), .n_part = 1};
    a.part[0].w = fv_tensor_of(w, FV_BF16, 1, 32);
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 1);
    x[0] = 0x1p-63f, w[0] = half_bits(0x1p-63f, FV_BF16);
    must(d->be.ops->linear(&d->be, &a));
    check(same_f32(y[0], 0x1p-126f), "2^-126 is %a", (double)y[0]);
    x[2] = -0x1p-75f, w[2] = half_bits(0x1p-75f, FV_BF16);
    must(d->be.ops->linear(&d->be, &a));
    check(same_f32(y[0], 0), "2^-126 - 2^-150 is %a", (double)y[0]);
    w[2] = half_bits(0x1p-76f, FV_BF16);
    must(d->be.ops->linear(&d->be, &a));
    check(same_f32(y[0], 0x1p-126f), "2^-126 - 2^-151 is %a", (double)y[0]);
}

/* Subnormal numbers outside products are kept, for M rows of K numbers. */
static void subnormal_bias(device_test *d, int M, int K) {
    uint16_t w[32] = {0};
    float x[33 * 32] = {1}, bias[1] = {0x1p-140f}, y[33];
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, M, K), .n_part = 1};
    for (int m = 0; m < M; m++) y[m] = 0x1p-141f;
    a.part[0] = (fv_linear_part){.w = fv_tensor_of(w, FV_BF16, 1, K),
                                 .bias = fv_tensor_of(bias, FV_F32, 1, 1),
                                 .y = fv_tensor_of(y, FV_F32, M, 1),
                                 .accumulate = true};
    must(d->be.ops->linear(&d->be, &a));
    for (int m = 0; m < M; m++)
        check(same_f32(y[m], 0x1.8p-140f), "%d x %d: bias and y are %a", M, K, (double)y[m]);
}

/* Rounding, masks and flushing of this thread, without the flags of what has happened. */
static unsigned float_modes(void) { return _mm_getcsr() & ~0x3fu; }

/* Flushing is set only around products, and the caller's modes are restored. */
static void modes_are_kept(device_test *d, int M) {
    enum { FLUSH_ZERO = 0x8000, FEW_MODES = 0x1f80 };
    float x[33 * 32] = {1}, y[33 * 32];
    uint16_t w[32 * 32] = {0};
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, M, 32), .n_part = 1};
    a.part[0].w = fv_tensor_of(w, FV_BF16, 32, 32);
    a.part[0].y = fv_tensor_of(y, FV_F32, M, 32);
    for (unsigned modes = FEW_MODES; modes <= (FEW_MODES | FLUSH_ZERO); modes += FLUSH_ZERO) {
        _mm_setcsr(modes);
        must(d->be.ops->linear(&d->be, &a));
        unsigned after = float_modes();
        _mm_setcsr(FEW_MODES);
        check(after == modes, "MXCSR is %x, not %x", after, modes);
    }
}

static void test_linear_bf16(device_test *d) {
    if (!on_cpu(d)) return;
    compute_in(d, FV_COMPUTE_BF16);
    group("linear in bf16: the bits of the plain path");
    for (int i = 0; i < cases(60); i++) {
        int N[3] = {size_about(150), size_about(150), size_about(150)};
        linear_once(d, size_about(70), size_about(300), N, random_int(1, 3), i % 2 ? FV_BF16 : -1,
                    (numbers)(i % N_NUMBERS));
    }
    group("linear in bf16: no rows, no K, several blocks of each");
    linear_once(d, 0, 7, (int[]){9}, 1, FV_BF16, NORMAL);
    linear_once(d, 0, 32, (int[]){9}, 1, FV_BF16, NORMAL);
    for (int m = 1; m <= 41; m += 8) linear_once(d, m, 0, (int[]){9}, 1, FV_BF16, NORMAL);
    linear_once(d, 1, 4099, (int[]){37}, 1, FV_BF16, BITS);
    for (int m = 1; m <= 41; m++)
        linear_once(d, m, 521 + m, (int[]){39, 16}, 2, FV_BF16, (numbers)(m % N_NUMBERS));
    for (int m = 1; m <= 41; m++) /* less than a step, and a few numbers more than steps */
        linear_once(d, m, PICK(1, 2, 3, 31, 33, 63, 65, 95), (int[]){PICK(1, 7, 8, 9, 37)}, 1,
                    FV_BF16, (numbers)(random_int(0, N_NUMBERS - 1)));
    for (int m = 1; m <= 20; m++)
        linear_once(d, m, 64 + m % 3, (int[]){83}, 1, m % 2 ? FV_F32 : FV_F16, BORDER);
    for (int m = 1; m <= 41; m++) /* K of whole steps: few rows read x in place */
        linear_once(d, m, 32 * PICK(1, 2, 17, 32), (int[]){PICK(1, 16, 37)}, 1, FV_BF16,
                    (numbers)(m % N_NUMBERS));
    linear_once(d, 17, 1055, (int[]){130}, 1, FV_BF16, BORDER);
    linear_once(d, 33, 800, (int[]){300}, 1, FV_BF16, NORMAL);
    linear_once(d, 801, 290, (int[]){67, 5}, 2, FV_BF16, SPECIALS);
    group("linear in bf16: what is below 2^-126 is 0, but in products alone");
    border(d);
    static const int rows[] = {1, 2, 3, 4, 5, 8, 9, 16, 20, 33};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        subnormal_bias(d, rows[i], 1);
        subnormal_bias(d, rows[i], 32);
    }
    modes_are_kept(d, 2);
    modes_are_kept(d, 7);
    modes_are_kept(d, 33);
    compute_in(d, FV_COMPUTE_F32);
}

/* ---- speed ------------------------------------------------------------------------------ */

/* A 7B network's largest matrix, one row to a prompt. COPIES of it: each has left the caches when
 * its turn comes again. */
static void perf_linear_bf16(device_test *d) {
    enum { N = 11008, K = 4096, COPIES = 6, OFFSET = 5 };
    if (!on_cpu(d)) return;
    size_t one = (size_t)N * K;
    uint16_t *w = room((one * COPIES + OFFSET) * sizeof *w);
    for (size_t i = 0; i < one * COPIES + OFFSET; i++)
        w[i] = (uint16_t)(0x3c00 + (i * 2654435761u >> 13 & 0x83ff));
    d->be.compute = FV_COMPUTE_BF16;
    static const int rows[] = {1, 4, 8, 16, 32, 64, 128, 640};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        both x = both_normal(d, FV_F32, rows[r], K, 0), y = both_new(d, FV_F32, rows[r], N, 0);
        double least = (double)INFINITY;
        for (int c = 0; c < 2 * COPIES; c++) {
            fv_linear_args a = {.x = x.there, .n_part = 1, .part = {{.y = y.there}}};
            a.part[0].w = fv_tensor_of(w + OFFSET + (size_t)(c % COPIES) * one, FV_BF16, N, K);
            double begin = now_s();
            must(d->be.ops->linear(&d->be, &a));
            double took = now_s() - begin;
            if (c > 0 && took < least) least = took;
        }
        report(least, 2.0 * rows[r] * N * K, 2.0 * N * K, "[%d, %d] x [%d, %d]^T from memory",
               rows[r], K, N, K);
        both_free(&x);
        both_free(&y);
    }
    d->be.compute = FV_COMPUTE_F32;
    free(w);
}

const op op_linear_bf16 = {"linear_bf16", "bits", test_linear_bf16, perf_linear_bf16};
