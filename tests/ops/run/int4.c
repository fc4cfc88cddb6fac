/* Products with weights in groups of 4- or 8-bit integers: the plain path's bits, and results computed by hand. Groups of
 * 32 or 16 in int8 are summed as integers where they have no min, all others with `integers`. The CPU only. */
#include "kernels/number_tables.h"
#include "tests/ops/run/run.h"

/* Weights [N, K] whose integers and scales end at the end of a mapping. */
typedef struct weights {
    guarded at, scales;
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
    fv_dtype type = (fv_dtype)random_int(0, FV_N_DTYPE - 1);
    fv_tensor scale = tensor_guarded(&w->scales, type, 1, (int)n);
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
    q->integers = (dtype == FV_INT4 || group % 32 == 0 || group == 16) && random_int(0, 2) > 0;
    if (q->integers && random_int(0, 1)) {
        float *offset = room(n * sizeof *offset);
        for (size_t i = 0; i < n; i++) offset[i] = random_normal();
        q->offset = offset;
    }
    w->w = fv_tensor_of(codes.data, dtype, N, K);
    w->w.quant = q;
}

static void weights_free(weights *w) {
    tensor_unguard(&w->scales);
    free((void *)(uintptr_t)w->quant.zero);
    free((void *)(uintptr_t)w->quant.min);
    free((void *)(uintptr_t)w->quant.order);
    free((void *)(uintptr_t)w->quant.offset);
    tensor_unguard(&w->at);
}

/* Makes the integers codes of a table. The codes of E4M3 that are NaN become others: a single one would make the
 * whole output NaN. */
static void add_table(weights *w) {
    static const float *const of_int8[] = {fv_e4m3, fv_e2m1_bytes}, *const of_int4[] = {fv_nf4,
                                                                                        fv_e2m1};
    const bool int8 = w->w.dtype == FV_INT8;
    w->quant.table = (int8 ? of_int8 : of_int4)[random_int(0, 1)];
    w->quant.integers = false;
    free((void *)(uintptr_t)w->quant.offset);
    w->quant.offset = NULL;
    if (w->quant.table != fv_e4m3) return;
    uint8_t *code = w->w.data;
    for (size_t i = 0; i < (size_t)w->w.rows * w->quant.row_bytes; i++)
        if ((code[i] & 0x7f) == 0x7f) code[i] ^= 1;
}

static void add_order(weights *w) {
    int32_t *order = room((size_t)w->w.cols * sizeof *order);
    for (int k = 0; k < w->w.cols; k++) order[k] = random_int(0, w->w.cols - 1);
    w->quant.order = order;
}

static void linear_once(device_test *d, fv_dtype dtype, int M, int K, int N, int group,
                        bool specials) {
    fv_tensor x = tensor_new(FV_F32, M, K, random_int(0, 3)), y = tensor_new(FV_F32, M, N, 0);
    weights w;
    weights_new(&w, dtype, N, K, group, random_int(0, 1), random_int(0, 1), specials);
    if (!w.quant.zero && random_int(0, 1)) add_table(&w);
    if (random_int(0, 3) == 0) add_order(&w);
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

/* Products of one to three rows of x with codes of E4M3, some of which may be NaN, and scales that may be tiny or huge. */
static void few_codes(device_test *d, int M, int K, int N, int group, bool specials) {
    fv_tensor x = tensor_new(FV_F32, M, K, 2);
    fv_tensor y[2] = {tensor_new(FV_F32, M, N, 0), tensor_new(FV_F32, M, N, 0)};
    fv_tensor bias = tensor_new(FV_F32, 1, N, 0);
    weights w;
    weights_new(&w, FV_INT8, N, K, group, false, false, specials);
    while (w.quant.table != fv_e4m3) add_table(&w);
    for (int i = 0; specials && i < 3; i++)
        ((uint8_t *)w.w.data)[random_int(0, N * K - 1)] = PICK(0x7f, 0xff);
    fill_normal(&x, 1);
    fill_normal(&bias, 1);
    for (int isa = 0; isa < 2; isa++) {
        fv_backend *be = isa ? &d->be : &d->plain;
        fv_linear_args a = {.x = x, .n_part = 1};
        a.part[0] = (fv_linear_part){.w = w.w, .bias = bias, .y = y[isa]};
        must(be->ops->linear(be, &a));
    }
    long at = first_difference(y[0].data, y[1].data, (size_t)M * (size_t)N);
    check(at < 0, "%d x %d x %d of E4M3 in groups of %d: bits differ at %ld", M, K, N, group, at);
    for (int i = 0; i < 2; i++) free(y[i].data);
    free(x.data);
    free(bias.data);
    weights_free(&w);
}

/* Groups that have only a scale in bf16, which takes all of its values where M is 1; K is whole
 * blocks and a part of one. */
static void every_scale(device_test *d, int M, int group, bool integers) {
    enum { K = 288, SCALES = 1 << 16 };
    int groups = (K + group - 1) / group, N = M > 1 ? 1000 : SCALES / groups;
    fv_tensor x = tensor_new(FV_F32, M, K, 0);
    fv_tensor y[2] = {tensor_new(FV_F32, M, N, 0), tensor_new(FV_F32, M, N, 0)};
    uint8_t *codes = room((size_t)N * K / 2);
    uint16_t *scale = room((size_t)N * (size_t)groups * sizeof *scale);
    fill_normal(&x, 1);
    for (size_t i = 0; i < (size_t)N * K / 2; i++) codes[i] = (uint8_t)random_bits();
    for (int i = 0; i < N * groups; i++) scale[i] = (uint16_t)(i * 37);
    fv_quant q = {.scale = scale,
                  .scale_type = FV_BF16,
                  .group = group,
                  .groups = groups,
                  .row_bytes = K / 2,
                  .integers = integers};
    fv_linear_args a = {.x = x, .n_part = 1};
    a.part[0].w = fv_tensor_of(codes, FV_INT4, N, K);
    a.part[0].w.quant = &q;
    for (int isa = 0; isa < 2; isa++) {
        fv_backend *be = isa ? &d->be : &d->plain;
        a.part[0].y = y[isa];
        must(be->ops->linear(be, &a));
    }
    long at = first_difference(y[0].data, y[1].data, (size_t)M * (size_t)N);
    check(at < 0, "%d rows in groups of %d: bits differ at %ld", M, group, at);
    free(codes);
    free(scale);
    free(x.data);
    free(y[0].data);
    free(y[1].data);
}

/* Each weight of a row against its equation in double; x picks one at a time. */
static void decoded(device_test *d, fv_dtype dtype, int group, bool zero, bool table) {
    enum { K = 70 };
    weights w;
    weights_new(&w, dtype, 1, K, group, zero, true, false);
    if (table) add_table(&w);
    w.quant.integers = false;
    free((void *)(uintptr_t)w.quant.offset);
    w.quant.offset = NULL;
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
        double number = table ? (double)q->table[(uint8_t)code] : code;
        double want = get(&scale, 0, g) * number - (double)q->min[g];
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

/* The same in groups of 16: the two halves of 32 share the scale of x, and the third group is a part of one. */
static void halves_by_hand(device_test *d) {
    int8_t w[35] = {100, -128, 7};
    float x[35] = {1.0f, -0.5f}, y[1], scale[3] = {0.01f, -0.5f, 3.0f};
    x[2] = 0.26f, w[31] = -77, x[31] = -1.0f;
    w[34] = -5, x[34] = 0.0005f;
    fv_quant quant = {
        .scale = scale, .scale_type = FV_F32, .group = 16, .groups = 3, .row_bytes = 35};
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, 35), .n_part = 1};
    a.part[0].w = fv_tensor_of(w, FV_INT8, 1, 35);
    a.part[0].w.quant = &quant;
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 1);
    for (int isa = 0; isa < 2; isa++) {
        fv_backend *be = isa ? &d->be : &d->plain;
        must(be->ops->linear(be, &a));
        float want = fmaf(0.01f * (1.0f / 127.0f), 127 * 100 + -64 * -128 + 33 * 7, 0.0f);
        want = fmaf(-0.5f * (1.0f / 127.0f), -127 * -77, want);
        want = fmaf(3.0f * (0.0005f / 127.0f), 127 * -5, want);
        check(same_f32(y[0], want), "%a, not %a", (double)y[0], (double)want);
    }
}

/* Integers of 4 bits, less 8: four sums of 32 with one scale, and a part of the next 128. */
static void nibbles_by_hand(device_test *d) {
    enum { K = 133 };
    uint8_t w[(K + 7) / 8 * 4];
    float x[K] = {0}, y[1], scale[2] = {0.01f, -0.5f};
    memset(w, 0x88, sizeof w);              /* zeros */
    w[0] = 0xf0, x[0] = 1.0f, x[1] = -0.5f; /* -8 and 7 */
    w[49] = 0x2f, x[98] = 0.25f, x[99] = 0.26f;
    w[66] = 0xd9, x[132] = 0.001f; /* 1; behind the last column lies a 5 */
    fv_quant quant = {.scale = scale,
                      .scale_type = FV_F32,
                      .group = 128,
                      .groups = 2,
                      .row_bytes = sizeof w,
                      .integers = true};
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, K), .n_part = 1};
    a.part[0].w = fv_tensor_of(w, FV_INT4, 1, K);
    a.part[0].w.quant = &quant;
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 1);
    for (int isa = 0; isa < 2; isa++) {
        fv_backend *be = isa ? &d->be : &d->plain;
        must(be->ops->linear(be, &a));
        float want = fmaf(0.01f * (1.0f / 127.0f), 127 * -8 + -64 * 7, 0.0f);
        want = fmaf(0.01f * (0.26f / 127.0f), 122 * 7 + 127 * -6, want);
        want = fmaf(-0.5f * (0.001f / 127.0f), 127 * 1, want);
        check(same_f32(y[0], want), "%a, not %a", (double)y[0], (double)want);
    }
}

/* Offsets: each group's offset times the sum of its columns is added after the bias; x is not quantized there. */
static void offsets_by_hand(device_test *d) {
    enum { K = 40 };
    uint8_t w[K / 2];
    float x[K] = {0}, y[1], bias = 0.5f;
    const float scale[2] = {0.01f, 0.5f}, offset[2] = {3.0f, -0.25f};
    memset(w, 0x88, sizeof w);                             /* zeros */
    w[0] = 0x9b, x[0] = 1.0f, x[1] = 0.123f, x[39] = 0.7f; /* 3 and 1 */
    fv_quant quant = {.scale = scale,
                      .scale_type = FV_F32,
                      .group = 32,
                      .groups = 2,
                      .row_bytes = sizeof w,
                      .offset = offset,
                      .integers = true};
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, K), .n_part = 1};
    a.part[0].w = fv_tensor_of(w, FV_INT4, 1, K);
    a.part[0].w.quant = &quant;
    a.part[0].bias = fv_tensor_of(&bias, FV_F32, 1, 1);
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 1);
    for (int isa = 0; isa < 2; isa++) {
        fv_backend *be = isa ? &d->be : &d->plain;
        must(be->ops->linear(be, &a));
        float want = fmaf(0.01f * (1.0f / 127.0f), 127 * 3 + 16, 0.0f) + bias;
        want = (3.0f * (1.0f + 0.123f) + -0.25f * 0.7f) + want;
        check(same_f32(y[0], want), "%a, not %a", (double)y[0], (double)want);
    }
}

/* Every code of E4M3 by its equation, and the codes of E2M1 in a byte. */
static void tables_by_hand(void) {
    for (int code = 0; code < 256; code++) {
        int e = code >> 3 & 15, m = code & 7;
        double want = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
        if (code & 128) want = -want;
        double found = (double)fv_e4m3[code];
        bool same =
            (code & 127) == 127 ? isnan(found) : found == want && !signbit(found) == !signbit(want);
        check(same, "code %d of E4M3 is %g, not %g", code, found, want);
        check(same_f32(fv_e2m1_bytes[code], fv_e2m1[code & 15]), "code %d of E2M1 differs", code);
    }
}

/* A NaN among the codes of E4M3 makes its row NaN, and no other. */
static void nan_by_hand(device_test *d) {
    enum { K = 70 };
    uint8_t w[2 * K];
    float x[K], y[2], scale[2] = {0.5f, 0.5f};
    memset(w, 0x38, sizeof w); /* 1 */
    w[67] = 0xff;
    for (int k = 0; k < K; k++) x[k] = 1;
    fv_quant quant = {.scale = scale,
                      .scale_type = FV_F32,
                      .group = 96,
                      .groups = 1,
                      .row_bytes = K,
                      .table = fv_e4m3};
    fv_linear_args a = {.x = fv_tensor_of(x, FV_F32, 1, K), .n_part = 1};
    a.part[0].w = fv_tensor_of(w, FV_INT8, 2, K);
    a.part[0].w.quant = &quant;
    a.part[0].y = fv_tensor_of(y, FV_F32, 1, 2);
    for (int isa = 0; isa < 2; isa++) {
        fv_backend *be = isa ? &d->be : &d->plain;
        must(be->ops->linear(be, &a));
        check(isnan(y[0]) && y[1] == 35.0f, "%g and %g, not NaN and 35", (double)y[0],
              (double)y[1]);
    }
}

/* Parts of one call, two of which read x in the same order and one as it is. */
static void orders(device_test *d, int M) {
    enum { N = 20, K = 96, PARTS = 3 };
    fv_tensor x = tensor_new(FV_F32, M, K, 3), there = tensor_new(FV_F32, M, K, 0);
    fv_tensor y[PARTS], want[PARTS];
    weights w[PARTS];
    fill_normal(&x, 1);
    fv_linear_args a = {.x = x, .n_part = PARTS};
    for (int p = 0; p < PARTS; p++) {
        weights_new(&w[p], FV_INT4, N, K, 32, true, false, false);
        y[p] = tensor_new(FV_F32, M, N, 0);
        want[p] = tensor_new(FV_F32, M, N, 0);
        a.part[p] = (fv_linear_part){.w = w[p].w, .y = y[p]};
    }
    add_order(&w[0]);
    const int32_t *order = w[0].quant.order;
    w[2].quant.order = order;
    must(d->be.ops->linear(&d->be, &a));
    w[0].quant.order = w[2].quant.order = NULL;
    for (int m = 0; m < M; m++)
        for (int k = 0; k < K; k++) put(&there, m, k, (float)get(&x, m, order[k]));
    for (int p = 0; p < PARTS; p++) {
        fv_linear_args one = {.x = p == 1 ? x : there, .n_part = 1, .part = {a.part[p]}};
        one.part[0].y = want[p];
        must(d->plain.ops->linear(&d->plain, &one));
        check(first_difference(y[p].data, want[p].data, (size_t)M * N) < 0,
              "part %d of %d rows in another order: bits differ", p, M);
        free(y[p].data);
        free(want[p].data);
    }
    w[0].quant.order = order;
    for (int p = 0; p < PARTS; p++) weights_free(&w[p]);
    free(x.data);
    free(there.data);
}

/* Parts of one call, in groups of 32 and of `second`, share x. */
static void parts(device_test *d, fv_dtype dtype, int M, int K, int second, bool specials) {
    enum { N = 35 };
    fv_tensor x = tensor_new(FV_F32, M, K, 1);
    float *y[2] = {room(sizeof(float) * (size_t)M * N * 2),
                   room(sizeof(float) * (size_t)M * N * 2)};
    weights w[2];
    fill_normal(&x, 1);
    if (specials) fill_specials(&x, 1000);
    for (int p = 0; p < 2; p++) {
        weights_new(&w[p], dtype, N, K, p ? second : 32, false, false, specials);
        w[p].quant.integers = w[p].quant.offset || dtype == FV_INT4 || second > 32;
    }
    for (int isa = 0; isa < 2; isa++) {
        fv_backend *be = isa ? &d->be : &d->plain;
        fv_linear_args a = {.x = x, .n_part = 2};
        for (int p = 0; p < 2; p++)
            a.part[p] =
                (fv_linear_part){.w = w[p].w, .y = fv_tensor_of(y[isa] + p * M * N, FV_F32, M, N)};
        must(be->ops->linear(be, &a));
    }
    check(first_difference(y[0], y[1], (size_t)M * N * 2) < 0,
          "%d x %d of %s in groups of 32 and %d: bits differ", M, K, fv_dtype_name(dtype), second);
    for (int p = 0; p < 2; p++) {
        weights_free(&w[p]);
        free(y[p]);
    }
    free(x.data);
}

/* Few rows with scales of random types; K is less than a block, some blocks, and more than are
 * summed at a time. */
static void few_rows(device_test *d, int M) {
    for (int i = 0; i < 12; i++) {
        int K = PICK(31, 77, 128, 251, 300, 2048, 2111, 2309, 4193);
        parts(d, FV_INT8, M, K, PICK(16, 32, 32, 32, 64, 96, 128, 4224), i % 6 == 5);
        parts(d, FV_INT4, M, K, PICK(64, 96, 128, 512, 1024), i % 6 == 5);
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
        linear_once(d, t, 40, 0, 9, 32, false);
        linear_once(d, t, 1, 4099, 37, 128, false);
        for (int i = 0; i < 4; i++) linear_once(d, t, 33, 801, 300, 32, false);
        linear_once(d, t, 1, 801, 300, 32, true);
        linear_once(d, t, 801, 290, 67, 32, false);
    }
    linear_once(d, FV_INT8, 1, 801, 300, 16, true);
    linear_once(d, FV_INT8, 33, 801, 300, 16, false);
    linear_once(d, FV_INT8, 801, 290, 67, 16, false);
    group("linear in groups: each weight by hand");
    decoded(d, FV_INT4, 32, true, false);
    decoded(d, FV_INT4, 32, false, false);
    decoded(d, FV_INT8, 16, false, false);
    decoded(d, FV_INT4, 32, false, true);
    decoded(d, FV_INT8, 16, false, true);
    tables_by_hand();
    nan_by_hand(d);
    for (int i = 0; i < cases(40); i++)
        few_codes(d, 1 + i % 3, PICK(1, 31, 32, 64, 257, 2048), PICK(1, 7, 8, 37),
                  PICK(32, 128, 4096), i % 4 == 3);
    for (int M = 1; M < 40; M += 19) orders(d, M);
    integers_by_hand(d);
    halves_by_hand(d);
    nibbles_by_hand(d);
    offsets_by_hand(d);
    parts(d, FV_INT8, 21, 300, 16, false);
    group("linear in groups: few rows");
    for (int M = 1; M <= 5; M++) few_rows(d, M);
    group("linear in int4: every scale in bf16");
    for (int integers = 0; integers < 2; integers++) {
        every_scale(d, 1, 32, integers);
        every_scale(d, 19, 128, integers);
        every_scale(d, 35, 32, integers);
    }
}

/* A form of weights; the last one is what the others are compared with. */
typedef struct perf_form {
    const char *name;
    fv_dtype dtype;
    int group; /* 0: numbers, or with FV_INT8 a scale for each row */
    bool integers, offset, zero, e4m3;
} perf_form;

static const perf_form perf_forms[] = {
    {"int4/32 (--weights int4)", FV_INT4, 32, true, false, false, false},
    {"int4/128 with offsets (AWQ, GPTQ)", FV_INT4, 128, true, true, true, false},
    {"int4/128 with zeros, exact", FV_INT4, 128, false, false, true, false},
    {"int4/32 with offsets (Q4_K)", FV_INT4, 32, true, true, false, false},
    {"int4/32, exact", FV_INT4, 32, false, false, false, false},
    {"int8 (--weights int8)", FV_INT8, 0, false, false, false, false},
    {"int8/32 (Q8_0)", FV_INT8, 32, true, false, false, false},
    {"int8/16 (Q6_K)", FV_INT8, 16, true, false, false, false},
    {"int8/128 with offsets (GPTQ)", FV_INT8, 128, true, true, false, false},
    {"int8/128, exact", FV_INT8, 128, false, false, false, false},
    {"E4M3/128", FV_INT8, 128, false, false, false, true},
    {"bf16", FV_BF16, 0, false, false, false, false},
};
enum { PERF_FORMS = sizeof perf_forms / sizeof *perf_forms - 1 };

typedef struct perf_weights {
    const perf_form *form;
    fv_dtype dtype;
    size_t bytes, n_scale, scale_bytes;
    uint8_t *codes, *zero; /* zero NULL: none */
    void *scale;
    float *offset; /* NULL: none */
} perf_weights;

enum { PERF_N = 11008, PERF_K = 4096, PERF_COPIES = 8 };

static void perf_weights_new(perf_weights *w, const perf_form *form) {
    const fv_dtype t = form->dtype;
    size_t all = (size_t)PERF_N * PERF_K;
    *w = (perf_weights){.dtype = t, .form = form};
    w->bytes = t == FV_INT4 ? all / 2 : all * fv_dtype_bytes(t);
    if (t == FV_INT8 || form->group)
        w->n_scale = form->group ? all / (size_t)form->group : (size_t)PERF_N;
    if (form->offset) w->offset = room(w->n_scale * PERF_COPIES * sizeof *w->offset);
    if (form->zero) w->zero = room(w->n_scale * PERF_COPIES);
    w->scale_bytes = t == FV_INT4 ? 2 : 4;
    w->codes = room(w->bytes * PERF_COPIES);
    for (size_t i = 0; i < w->bytes * PERF_COPIES; i++)
        w->codes[i] = t == FV_BF16 ? 0x3f : (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; form->e4m3 && i < w->bytes * PERF_COPIES; i++)
        if ((w->codes[i] & 0x7f) == 0x7f) w->codes[i] = 0; /* files have no NaN */
    w->scale = room((w->n_scale + 1) * PERF_COPIES * w->scale_bytes);
    for (size_t i = 0; i < w->n_scale * PERF_COPIES; i++) {
        if (t == FV_INT4)
            ((uint16_t *)w->scale)[i] = 0x3c00;
        else
            ((float *)w->scale)[i] = 0.01f;
    }
}

/* Seconds of one product with copy c. */
static double perf_once(device_test *d, const perf_weights *w, size_t c, fv_tensor x, fv_tensor y) {
    fv_quant quant = {.scale = (char *)w->scale + c * w->n_scale * w->scale_bytes,
                      .scale_type = w->dtype == FV_INT4 ? FV_BF16 : FV_F32,
                      .group = w->form->group,
                      .row_bytes = w->bytes / PERF_N,
                      .zero = w->zero ? w->zero + c * w->n_scale : NULL,
                      .table = w->form->e4m3 ? fv_e4m3 : NULL,
                      .offset = w->offset ? w->offset + c * w->n_scale : NULL,
                      .integers = w->form->integers};
    fv_linear_args a = {.x = x, .n_part = 1, .part = {{.y = y}}};
    a.part[0].w = fv_tensor_of(w->codes + c * w->bytes, w->dtype, PERF_N, PERF_K);
    if (quant.group) quant.groups = PERF_K / quant.group;
    if (w->n_scale) a.part[0].w.quant = &quant;
    double begin = now_s();
    must(d->be.ops->linear(&d->be, &a));
    return now_s() - begin;
}

/* Times weights from memory, alternating with the same weights in bf16. */
static void perf_linear_int4(device_test *d) {
    static const int rows[] = {1, 4, 16, 32, 64, 128, 640};
    if (!on_cpu(d)) return;
    fv_compute was = d->be.compute;
    d->be.compute = FV_COMPUTE_BF16;
    for (int k = 0; k < PERF_FORMS; k++) {
        perf_weights w[2];
        perf_weights_new(&w[0], &perf_forms[k]);
        perf_weights_new(&w[1], &perf_forms[PERF_FORMS]);
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            both x = both_normal(d, FV_F32, rows[r], PERF_K, 0);
            both y = both_new(d, FV_F32, rows[r], PERF_N, 0);
            double least[2] = {(double)INFINITY, (double)INFINITY};
            for (size_t c = 0; c < (size_t)2 * PERF_COPIES; c++)
                for (int i = 0; i < 2; i++) {
                    double took = perf_once(d, &w[i], c % PERF_COPIES, x.there, y.there);
                    if (c > 0 && took < least[i]) least[i] = took;
                }
            report(
                least[0], 2.0 * rows[r] * PERF_N * PERF_K,
                (double)w[0].bytes +
                    (double)(w[0].n_scale * (w[0].scale_bytes + (w[0].offset ? sizeof(float) : 0))),
                "%s [%d, %d] x [%d, %d]^T from memory: %.2fx of bf16", perf_forms[k].name, rows[r],
                PERF_K, PERF_N, PERF_K, least[1] / least[0]);
            both_free(&x);
            both_free(&y);
        }
        for (int i = 0; i < 2; i++) {
            free(w[i].codes);
            free(w[i].scale);
            free(w[i].zero);
            free(w[i].offset);
        }
    }
    d->be.compute = was;
}

const op op_linear_int4 = {"linear_int4", "bits", test_linear_int4, perf_linear_int4};
