/* Products with weights in groups of integers, of 4 or 8 bits: the plain path's bits, and numbers that are computed by hand.
 * Groups of 32 in int8 are summed as integers where they have no min. The CPU only. */
#include "tests/ops/run/run.h"

/* Weights [N, K] whose integers end at the end of a mapping. */
typedef struct weights {
    guarded at;
    fv_quant quant;
    fv_tensor w;
} weights;

static void weights_new(weights *w, fv_dtype dtype, int N, int K, int group, bool zero, bool min,
                        bool specials) {
    fv_quant *q = &w->quant;
    *q = (fv_quant){.group = group, .groups = (K + group - 1) / group};
    q->row_bytes = dtype == FV_INT8 ? (size_t)K : (size_t)(K + 7) / 8 * 4;
    fv_tensor codes = tensor_guarded(&w->at, FV_INT8, N, (int)q->row_bytes);
    size_t n = (size_t)N * (size_t)q->groups;
    for (size_t i = 0; i < (size_t)N * q->row_bytes; i++)
        ((uint8_t *)codes.data)[i] = (uint8_t)random_bits();
    fv_tensor scale = tensor_new((fv_dtype)random_int(0, FV_N_DTYPE - 1), 1, (int)n, 0);
    fill_normal(&scale, 0.1f);
    if (specials) fill_specials(&scale, 20);
    q->scale = scale.data;
    q->scale_type = scale.dtype;
    uint8_t *zeros = zero ? room(n) : NULL;
    float *mins = min ? room(n * sizeof *mins) : NULL;
    for (size_t i = 0; i < n; i++) {
        if (zero) zeros[i] = (uint8_t)random_int(0, 15);
        if (min) mins[i] = random_normal();
    }
    q->zero = zeros;
    q->min = mins;
    w->w = fv_tensor_of(codes.data, dtype, N, K);
    w->w.quant = q;
}

static void weights_free(weights *w) {
    free((void *)(uintptr_t)w->quant.scale);
    free((void *)(uintptr_t)w->quant.zero);
    free((void *)(uintptr_t)w->quant.min);
    tensor_unguard(&w->at);
}

static void linear_once(device_test *d, fv_dtype dtype, int M, int K, int N, int group,
                        bool specials) {
    fv_tensor x = tensor_new(FV_F32, M, K, random_int(0, 3)), y = tensor_new(FV_F32, M, N, 0);
    weights w;
    weights_new(&w, dtype, N, K, group, random_int(0, 1), random_int(0, 1), specials);
    fill_normal(&x, specials && random_int(0, 1) ? 0x1p-100f : 1);
    if (specials && M) fill_specials(&x, PICK(20, 1000));
    fill_normal(&y, 1);
    fv_linear_args plain = {.x = x, .n_part = 1}, there;
    plain.part[0] = (fv_linear_part){.w = w.w, .y = y, .accumulate = random_int(0, 1)};
    there = plain;
    there.part[0].y.data = room(tensor_bytes(&y));
    if (M) memcpy(there.part[0].y.data, y.data, tensor_bytes(&y));
    must(d->plain.ops->linear(&d->plain, &plain));
    must(d->be.ops->linear(&d->be, &there));
    const float *a = y.data, *b = there.part[0].y.data;
    long at = first_difference(a, b, tensor_bytes(&y) / sizeof *a);
    check(at < 0, "%d x %d x %d: element %ld is %a, not %a", M, K, N, at,
          at < 0 ? 0. : (double)b[at], at < 0 ? 0. : (double)a[at]);
    free(there.part[0].y.data);
    free(y.data);
    free(x.data);
    weights_free(&w);
}

/* Each weight of a row against its equation in double; x picks one at a time. */
static void decoded(device_test *d, fv_dtype dtype, int group, bool zero) {
    enum { K = 70 };
    weights w;
    weights_new(&w, dtype, 1, K, group, zero, true, false);
    const fv_quant *q = &w.quant;
    fv_tensor scale = fv_tensor_of((void *)(uintptr_t)q->scale, q->scale_type, 1, q->groups);
    for (int k = 0; k < K; k++) {
        float x[K] = {0}, y[1];
        x[k] = 1;
        fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, K), .n_part = 1};
        a.part[0] = (fv_linear_part){.w = w.w, .y = fv_tensor_of(y, FV_F32, 1, 1)};
        must(d->be.ops->linear(&d->be, &a));
        int g = k / group, code = ((uint8_t *)w.w.data)[k / 2] >> k % 2 * 4 & 15;
        if (dtype == FV_INT8) code = ((int8_t *)w.w.data)[k];
        if (zero) code -= q->zero[g];
        double want = get(&scale, 0, g) * code - (double)q->min[g];
        check(fabs((double)y[0] - want) <= fabs(want) * 0x1p-8, "column %d is %g, not %g", k,
              (double)y[0], want);
    }
    weights_free(&w);
}

/* Two groups of a row as integers: -63.5 is a tie, and -64 is even; the second has its own scale. */
static void integers_by_hand(device_test *d) {
    int8_t w[34] = {100, -128, 7};
    float x[34] = {1.0f, -0.5f, 0.26f}, y[1], scale[2] = {0.01f, 0.5f};
    w[32] = 3, w[33] = -5;
    x[32] = 0.001f, x[33] = 0.0005f;
    fv_quant quant = {
        .scale = scale, .scale_type = FV_F32, .group = 32, .groups = 2, .row_bytes = 34};
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, 34), .n_part = 1};
    a.part[0].w = fv_tensor_of(w, FV_INT8, 1, 34);
    a.part[0].w.quant = &quant;
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 1);
    for (int isa = 0; isa < 2; isa++) {
        fv_backend *be = isa ? &d->be : &d->plain;
        must(be->ops->linear(be, &a));
        float want = fmaf(0.01f * (1.0f / 127.0f), 127 * 100 + -64 * -128 + 33 * 7, 0.0f);
        want = fmaf(0.5f * (0.001f / 127.0f), 127 * 3 + 64 * -5, want);
        check(same_f32(y[0], want), "%a, not %a", (double)y[0], (double)want);
    }
}

static void test_linear_int4(device_test *d) {
    if (!on_cpu(d)) return;
    for (fv_dtype t = FV_INT8; t <= FV_INT4; t++) {
        group(t == FV_INT8 ? "linear in groups of int8: the bits of the plain path"
                           : "linear in int4: the bits of the plain path");
        for (int i = 0; i < cases(40); i++)
            linear_once(d, t, size_about(70), size_about(300), size_about(150),
                        i % 2          ? 32
                        : t == FV_INT8 ? 16
                                       : 128,
                        i % 5 == 0);
        linear_once(d, t, 0, 7, 9, 32, false);
        linear_once(d, t, 3, 0, 9, 32, false);
        linear_once(d, t, 1, 4099, 37, 128, false);
        linear_once(d, t, 33, 801, 300, 32, false);
        linear_once(d, t, 1, 801, 300, 32, true);
        linear_once(d, t, 801, 290, 67, 32, false);
    }
    group("linear in groups: each weight by hand");
    decoded(d, FV_INT4, 32, true);
    decoded(d, FV_INT4, 32, false);
    decoded(d, FV_INT8, 16, false);
    integers_by_hand(d);
}

static void perf_linear_int4(device_test *d) {
    enum { N = 11008, K = 4096, COPIES = 12, GROUPS = K / 32 };
    if (!on_cpu(d)) return;
    size_t one = (size_t)N * K / 2, n_scale = (size_t)N * GROUPS;
    uint8_t *w = room(one * COPIES);
    uint16_t *scale = room(n_scale * COPIES * sizeof *scale);
    for (size_t i = 0; i < n_scale * COPIES; i++) scale[i] = 0x3c00;
    for (size_t i = 0; i < one * COPIES; i++) w[i] = (uint8_t)(i * 2654435761u >> 13);
    static const int rows[] = {1, 4, 16, 32, 64, 128, 640};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        both x = both_normal(d, FV_F32, rows[r], K, 0), y = both_new(d, FV_F32, rows[r], N, 0);
        double least = (double)INFINITY;
        for (size_t c = 0; c < (size_t)2 * COPIES; c++) {
            fv_quant quant = {.scale = scale + c % COPIES * n_scale,
                              .scale_type = FV_BF16,
                              .group = 32,
                              .groups = GROUPS,
                              .row_bytes = K / 2};
            fv_linear_args a = {.x = x.there, .n_part = 1, .part = {{.y = y.there}}};
            a.part[0].w = fv_tensor_of(w + c % COPIES * one, FV_INT4, N, K);
            a.part[0].w.quant = &quant;
            double begin = now_s();
            must(d->be.ops->linear(&d->be, &a));
            double took = now_s() - begin;
            if (c > 0 && took < least) least = took;
        }
        report(least, 2.0 * rows[r] * N * K, (double)one + 2.0 * (double)n_scale,
               "[%d, %d] x [%d, %d]^T from memory", rows[r], K, N, K);
        both_free(&x);
        both_free(&y);
    }
    free(scale);
    free(w);
}

const op op_linear_int4 = {"linear_int4", "bits", test_linear_int4, perf_linear_int4};
