/* Products with weights in int8: the plain path's bits, for any numbers. The CPU only. */
#include "tests/ops/run/run.h"

/* Weights [N, K] at the end of a mapping, or [N, K] of another type. */
typedef struct weights {
    guarded at;
    fv_quant quant;
    fv_tensor w;
} weights;

static void weights_new(weights *w, int N, int K, bool extreme) {
    w->w = tensor_guarded(&w->at, FV_INT8, N, K);
    int8_t *code = w->w.data;
    for (size_t i = 0; i < (size_t)N * (size_t)K; i++)
        code[i] = (int8_t)(extreme ? random_int(0, 1) ? 127 : -128 : random_int(-128, 127));
    float *scale = room(sizeof *scale * (size_t)N);
    for (int n = 0; n < N; n++) scale[n] = fabsf(random_normal()) * 0.01f;
    w->quant = (fv_quant){.scale = scale};
    w->w.quant = &w->quant;
}

static void weights_free(weights *w) {
    free((void *)(uintptr_t)w->quant.scale);
    tensor_unguard(&w->at);
}

typedef enum numbers { NORMAL, EXTREME, SPECIALS, TINY, TIES, N_NUMBERS } numbers;

static void fill(const fv_tensor *x, numbers kind) {
    fill_normal(x, kind == TINY ? 0x1p-100f : 1);
    for (int r = 0; r < x->rows; r++)
        for (int c = 0; c < x->cols; c++) {
            if (kind == EXTREME) put(x, r, c, random_int(0, 1) ? 1 : -1);
            if (kind == TIES) put(x, r, c, c ? (float)random_int(-254, 254) / 2 : 127);
        }
    if (kind == SPECIALS) fill_specials(x, PICK(20, 1000, 10000));
}

/* Makes a call of up to three parts, the last in bf16 where `mixed`. */
static void linear_once(device_test *d, int M, int K, const int *N, int n_part, bool mixed,
                        numbers kind) {
    fv_tensor x = tensor_new(FV_F32, M, K, random_int(0, 3));
    weights w[FV_LINEAR_MAX_PARTS];
    fv_linear_args plain = {.x = x, .n_part = n_part}, there = plain;
    bool accumulate = random_int(0, 1), bias = random_int(0, 1);
    fill(&x, kind);
    for (int i = 0; i < n_part; i++) {
        fv_linear_part p = {.accumulate = accumulate};
        weights_new(&w[i], N[i], K, kind == EXTREME);
        p.w = w[i].w;
        if (mixed && i == n_part - 1) {
            p.w = tensor_new(FV_BF16, N[i], K, 0);
            fill_normal(&p.w, 1);
        }
        p.y = tensor_new(FV_F32, M, N[i], random_int(0, 2));
        fill_normal(&p.y, 1);
        if (bias) {
            p.bias = tensor_new((fv_dtype)random_int(0, FV_N_DTYPE - 1), 1, N[i], 0);
            fill_normal(&p.bias, 1);
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
        check(at < 0, "%d x %d x %d, numbers %d: element %ld is %a, not %a", M, K, y->cols,
              (int)kind, at, at < 0 ? 0. : (double)b[at], at < 0 ? 0. : (double)a[at]);
        free(there.part[i].y.data);
        free(y->data);
        free(plain.part[i].bias.data);
        if (mixed && i == n_part - 1) free(plain.part[i].w.data);
        weights_free(&w[i]);
    }
    free(x.data);
}

/* The plain path against a sum in double: one rounding for each of the three operations. */
static void by_hand(device_test *d) {
    int8_t w[3] = {100, -128, 7};
    float x[3] = {1.0f, -0.5f, 0.26f}, y[1], scale[1] = {0.01f};
    int q[3] = {127, -64, 33}; /* -63.5 is a tie, and -64 is even */
    fv_quant quant = {.scale = scale};
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, 3), .n_part = 1};
    a.part[0].w = fv_tensor_of(w, FV_INT8, 1, 3);
    a.part[0].w.quant = &quant;
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 1);
    must(d->plain.ops->linear(&d->plain, &a));
    float want = (float)(q[0] * 100 + q[1] * -128 + q[2] * 7) * (1.0f / 127.0f) * scale[0];
    check(same_f32(y[0], want), "%a, not %a", (double)y[0], (double)want);
}

static void too_long(device_test *d) {
    int K = FV_INT8_MAX_K + 1, N[1] = {1};
    weights w;
    weights_new(&w, 1, K, false);
    fv_tensor x = tensor_new(FV_F32, 1, K, 0);
    float y[1] = {0};
    fv_linear_args a = {.x = x, .n_part = 1};
    a.part[0].w = w.w;
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 1);
    check(d->be.ops->linear(&d->be, &a) == FV_EUNSUPPORTED, "%d columns", K);
    free(x.data);
    weights_free(&w);
    linear_once(d, 2, FV_INT8_MAX_K, N, 1, false, EXTREME);
}

static void test_linear_int8(device_test *d) {
    if (!on_cpu(d)) return;
    group("linear in int8: the bits of the plain path");
    for (int i = 0; i < cases(60); i++) {
        int N[3] = {size_about(150), size_about(150), size_about(150)};
        linear_once(d, size_about(70), size_about(300), N, random_int(1, 3), i % 3 == 0,
                    (numbers)(i % N_NUMBERS));
    }
    group("linear in int8: no rows, no K, several blocks of each");
    linear_once(d, 0, 7, (int[]){9}, 1, false, NORMAL);
    linear_once(d, 3, 0, (int[]){9}, 1, false, NORMAL);
    linear_once(d, 40, 0, (int[]){9}, 1, false, NORMAL);
    linear_once(d, 1, 4099, (int[]){37}, 1, false, NORMAL);
    for (int m = 2; m <= 27; m++) linear_once(d, m, 521 + m, (int[]){39, 16}, 2, false, NORMAL);
    linear_once(d, 33, 1601, (int[]){300}, 1, false, SPECIALS);
    linear_once(d, 801, 290, (int[]){67, 5}, 2, true, NORMAL);
    group("linear in int8: rounding by hand, the longest sum");
    by_hand(d);
    too_long(d);
}

/* ---- speed ------------------------------------------------------------------------------ */

/* A 7B network's largest matrix; COPIES of it: each has left the caches when its turn comes again. */
static void perf_linear_int8(device_test *d) {
    enum { N = 11008, K = 4096, COPIES = 8, OFFSET = 5 };
    if (!on_cpu(d)) return;
    size_t one = (size_t)N * K;
    int8_t *w = room(one * COPIES + OFFSET);
    float *scale = room(sizeof *scale * N);
    fv_quant quant = {.scale = scale};
    for (int i = 0; i < N; i++) scale[i] = 0.01f;
    for (size_t i = 0; i < one * COPIES + OFFSET; i++) w[i] = (int8_t)(i * 2654435761u >> 13);
    static const int rows[] = {1, 4, 16, 32, 64, 128, 640};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        both x = both_normal(d, FV_F32, rows[r], K, 0), y = both_new(d, FV_F32, rows[r], N, 0);
        double least = (double)INFINITY;
        for (int c = 0; c < 2 * COPIES; c++) {
            fv_linear_args a = {.x = x.there, .n_part = 1, .part = {{.y = y.there}}};
            a.part[0].w = fv_tensor_of(w + OFFSET + (size_t)(c % COPIES) * one, FV_INT8, N, K);
            a.part[0].w.quant = &quant;
            double begin = now_s();
            must(d->be.ops->linear(&d->be, &a));
            double took = now_s() - begin;
            if (c > 0 && took < least) least = took;
        }
        report(least, 2.0 * rows[r] * N * K, 1.0 * N * K, "[%d, %d] x [%d, %d]^T from memory",
               rows[r], K, N, K);
        both_free(&x);
        both_free(&y);
    }
    free(scale);
    free(w);
}

const op op_linear_int8 = {"linear_int8", "bits", test_linear_int8, perf_linear_int8};
