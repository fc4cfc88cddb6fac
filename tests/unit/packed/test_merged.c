/* Tokens of two layers with shared directions (packed/merged.h): the numbers they represent, the
 * tokens kept exactly, and their bytes. */
#include "packed/merged.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed/codes.h"
#include "tests/support/rendered.h"

enum { NUMBERS_MAX = 400 };

/* Two layers' tokens, their blocks, and the numbers these represent. */
typedef struct pair {
    fv_packed_shape s[2];
    float m[2][NUMBERS_MAX], back[2][NUMBERS_MAX];
    uint8_t kept[NUMBERS_MAX];
    fv_packed_part part[2];
    double error[2];
} pair;

static fv_packed_shape shape(fv_packed_kind kind, int32_t n, int32_t n_kv, int32_t d_head,
                             fv_dtype dtype) {
    return (fv_packed_shape){.n = n,
                             .n_kv = n_kv,
                             .d_head = d_head,
                             .dtype = dtype,
                             .kind = kind,
                             .form = FV_PACKED_MERGED};
}

static fv_status merge(pair *p, fv_packed_shape s, double t, double gamma) {
    const float *const rows[2] = {p->m[0], p->m[1]};
    void *data[2];
    s.merged.n_exact = fv_merged_keep(&s, rows, gamma, p->kept);
    p->s[0] = p->s[1] = s;
    p->s[1].borrows = true;
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(fv_packed_check(&p->s[i]), FV_OK, "%s", fv_last_error());
        data[i] = aligned_alloc(64, fv_packed_aligned(fv_packed_bytes(&p->s[i]) + 1));
        p->part[i] =
            (fv_packed_part){.shape = p->s[i], .data = data[i], .base = i ? data[0] : NULL};
    }
    return fv_merged_write(p->s, rows, t, p->kept, data, p->error);
}

static void merge_and_read(pair *p, fv_packed_shape s, double t, double gamma) {
    cr_assert_eq(merge(p, s, t, gamma), FV_OK, "%s", fv_last_error());
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(fv_codes_check_outliers(&p->part[i]), FV_OK, "%s", fv_last_error());
        fv_codes_read(&p->part[i], 0, s.n, p->back[i]);
    }
}

static void drop(pair *p) {
    for (int i = 0; i < 2; i++) free(p->part[i].data);
}

/* ---- by hand ------------------------------------------------------------------------- */

/* e = (sin 45, sin 45) / sin 90, and with t = 1/3 (sin 60, sin 30). */
Test(merged, two_orthogonal_vectors_share_the_one_between_them) {
    for (int kind = 0; kind < 2; kind++) {
        pair p = {.m = {{3, 0}, {0, 4}}};
        merge_and_read(&p, shape((fv_packed_kind)kind, 1, 1, 2, FV_F32), 0.5, 0);
        cr_assert_eq(p.s[0].merged.n_exact, 0, "an angle that all have is no outlier");
        for (int d = 0; d < 2; d++) {
            cr_expect_float_eq(p.back[0][d], 3 * sqrtf(0.5f), 1e-6f);
            cr_expect_float_eq(p.back[1][d], 4 * sqrtf(0.5f), 1e-6f);
        }
        /* |3 e - (3, 0)| = 3 * 2 sin 22.5 */
        cr_expect_float_eq(p.error[0], 2 * sin(acos(-1) / 8), 1e-6);
        cr_expect_float_eq(p.error[1], p.error[0], 1e-6);
        drop(&p);
        merge_and_read(&p, shape((fv_packed_kind)kind, 1, 1, 2, FV_F32), 1.0 / 3, 0);
        cr_expect_float_eq(p.back[0][0], 3 * sqrtf(0.75f), 1e-6f);
        cr_expect_float_eq(p.back[0][1], 1.5f, 1e-6f);
        cr_expect_float_eq(p.back[1][0], 4 * sqrtf(0.75f), 1e-6f);
        cr_expect_float_eq(p.back[1][1], 2, 1e-6f);
        drop(&p);
    }
}

Test(merged, vectors_that_differ_in_length_alone_are_exact) {
    for (fv_dtype type = 0; type < FV_N_DTYPE; type++) {
        pair p = {.m = {{1, 2, 3, -1, 0, 1}, {2, 4, 6, -0.5f, 0, 0.5f}}};
        merge_and_read(&p, shape(FV_PACKED_K, 2, 1, 3, type), 0.6, 0.05);
        for (int i = 0; i < 2; i++) {
            cr_expect_lt(p.error[i], type == FV_F32 ? 1e-6 : 4e-3);
            for (int c = 0; c < 6; c++)
                cr_expect_float_eq(p.back[i][c], p.m[i][c], type == FV_F32 ? 1e-5f : 0.03f);
        }
        drop(&p);
    }
}

/* Fills many similar vectors, and a pair at a right angle. */
static void plant(pair *p, size_t n, size_t D, size_t odd) {
    uint64_t seed = 3;
    rendered_uniform(&seed, p->m[0], n * D);
    rendered_uniform(&seed, p->m[1], n * D);
    for (size_t i = 0; i < n * D; i++) p->m[1][i] = 2 * p->m[0][i] + p->m[1][i] / 50;
    for (size_t d = 0; d < D; d++) p->m[0][odd * D + d] = p->m[1][odd * D + d] = 0;
    p->m[0][odd * D] = 1.75f;
    p->m[1][odd * D + 1] = -0.3125f;
}

Test(merged, the_least_similar_are_kept_exactly) {
    for (int kind = 0; kind < 2; kind++) {
        static pair p;
        plant(&p, 2 * 33, 5, 2 * 20 + 1);
        merge_and_read(&p, shape((fv_packed_kind)kind, 33, 2, 5, FV_BF16), 0.6, 0.05);
        cr_assert_eq(p.s[0].merged.n_exact, 1);
        for (int i = 0; i < 66; i++) cr_assert_eq(p.kept[i], i == 41);
        for (int i = 0; i < 2; i++) {
            cr_expect_arr_eq(p.back[i] + 41 * 5, p.m[i] + 41 * 5, 5 * sizeof(float));
            cr_expect(p.error[i] > 0 && p.error[i] < 0.02, "%g", p.error[i]);
        }
        drop(&p);
    }
}

Test(merged, a_full_range_keeps_all_but_the_most_similar) {
    static pair p;
    plant(&p, 12, 6, 7);
    merge_and_read(&p, shape(FV_PACKED_V, 6, 2, 6, FV_F32), 0.6, 1);
    cr_assert_eq(p.s[0].merged.n_exact, 11);
    for (int i = 0; i < 2; i++)
        for (int v = 0; v < 12; v++)
            if (p.kept[v]) cr_assert_arr_eq(p.back[i] + v * 6, p.m[i] + v * 6, 6 * sizeof(float));
    drop(&p);
}

/* Tokens: both 0, either 0, opposite, two ordinary ones. */
Test(merged, zeros_are_exact_and_opposites_are_defined) {
    pair p = {.m = {{0, 0, 0, 0, 3, 4, 1, 1, 1, 0, 1, 2}, {0, 0, 5, 12, 0, 0, -2, -2, 1, 1, 1, 3}}};
    merge_and_read(&p, shape(FV_PACKED_V, 6, 1, 2, FV_F32), 0.6, 0);
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < 6; c++) cr_expect_float_eq(p.back[i][c], p.m[i][c], 1e-6f);
    cr_assert_eq(p.s[0].merged.n_exact, 0, "gamma = 0 keeps nothing");
    for (int d = 0; d < 2; d++) { /* (1 - t) u - t u */
        cr_expect_float_eq(p.back[0][6 + d], -0.2f, 1e-6f);
        cr_expect_float_eq(p.back[1][6 + d], -0.4f, 1e-6f);
    }
    drop(&p);
    merge_and_read(&p, shape(FV_PACKED_V, 6, 1, 2, FV_F32), 0.6, 0.05);
    cr_assert_eq(p.s[0].merged.n_exact, 1, "opposites are least alike");
    cr_expect_arr_eq(p.back[1] + 6, p.m[1] + 6, 2 * sizeof(float));
    drop(&p);
    pair none = {.s = {{0}}};
    merge_and_read(&none, shape(FV_PACKED_K, 3, 2, 4, FV_F16), 0.6, 0.05);
    cr_assert(none.error[0] == 0 && none.error[1] == 0);
    for (int i = 0; i < 2; i++)
        for (int c = 0; c < 24; c++) cr_assert_eq(none.back[i][c], 0);
    drop(&none);
}

static void refused(float x, int layer, fv_dtype type, double gamma, const char *why) {
    pair p = {.m = {{1, 0, 1, 0}, {1, 0.25f, 0, 1}}};
    p.m[layer][2] = p.m[layer][3] = x;
    cr_assert_eq(merge(&p, shape(FV_PACKED_V, 2, 1, 2, type), 0.6, gamma), FV_EINVAL, "%s", why);
    cr_assert(strstr(fv_last_error(), why), "%s", fv_last_error());
    drop(&p);
}

Test(merged, values_out_of_range_are_refused) {
    for (int layer = 0; layer < 2; layer++) {
        refused(NAN, layer, FV_F32, 0, "row 1 of the KV to be packed has a NaN or infinity");
        refused(-INFINITY, layer, FV_BF16, 0.5, "NaN or infinity");
        refused(FLT_MAX, layer, FV_F32, 0, "overflows f32");
    }
    refused(1e5f, 0, FV_F16, 0.5, "--kv-dtype bf16");
}

/* ---- against NumPy ----------------------------------------------------------------------
 */

static void assert_rendered(const json_t *c) {
    bool keys = strcmp(rendered_text(c, "kind"), "keys") == 0;
    fv_packed_shape s = shape(keys ? FV_PACKED_K : FV_PACKED_V, rendered_int(c, "rows"),
                              rendered_int(c, "heads"), rendered_int(c, "width"), FV_F32);
    size_t D = (size_t)s.d_head, W = fv_packed_width(&s), n = (size_t)s.n * W;
    uint64_t seed = (uint64_t)rendered_int(c, "seed");
    static pair p;
    static float both[2 * NUMBERS_MAX];
    rendered_uniform(&seed, p.m[0], n);
    rendered_uniform(&seed, p.m[1], n);
    for (size_t i = 0; i < n; i++) p.m[1][i] += p.m[0][i];
    for (size_t i = 0; i < W; i++) {
        p.m[0][W + i] = p.m[1][2 * W + i] = 0;
        p.m[1][3 * W + i] = -p.m[0][3 * W + i];
        p.m[1][4 * W + i] = 2 * p.m[0][4 * W + i];
    }
    merge_and_read(&p, s, json_number_value(rendered_at(c, "t")),
                   json_number_value(rendered_at(c, "gamma")));
    for (size_t i = 0; i < n / D; i++)
        cr_assert_eq(p.kept[i], json_integer_value(json_array_get(rendered_at(c, "kept"), i)));
    for (size_t i = 0; i < 2; i++)
        cr_assert_eq((json_int_t)fv_packed_bytes(&p.s[i]),
                     json_integer_value(json_array_get(rendered_at(c, "bytes"), i)));
    memcpy(both, p.back[0], n * sizeof(float));
    memcpy(both + n, p.back[1], n * sizeof(float));
    cr_assert_lt(rendered_off(both, rendered_at(c, "numbers")), 1e-6);
    drop(&p);
}

Test(merged, they_are_read_as_numpy_says_and_take_as_many_bytes) {
    json_t *root = rendered_read("minicache");
    const json_t *cases = rendered_at(root, "parts");
    cr_assert_eq(json_array_size(cases), 8);
    for (size_t i = 0; i < json_array_size(cases); i++) assert_rendered(json_array_get(cases, i));
    json_decref(root);
}

/* ---- bytes, and tokens that are pruned --------------------------------------------------
 */

/* 576 tokens of a 7B network: one of two directions, and a norm for each of 128 numbers. */
Test(merged, two_layers_take_half_of_their_rows_and_a_norm_for_each_vector) {
    size_t all = 0, rows = 576ull * 4096 * 2, norms = 576ull * 32 * 4;
    for (int i = 0; i < 4; i++) {
        fv_packed_shape s = shape((fv_packed_kind)(i % 2), 576, 32, 128, FV_BF16);
        s.borrows = i / 2;
        cr_expect_eq(fv_packed_bytes(&s), (i / 2 ? 0 : rows) + norms);
        all += fv_packed_bytes(&s);
        s.merged.n_exact = 10;
        size_t kept = 2560 + 64 + (577 * 4 + 63) / 64 * 64;
        cr_expect_eq(fv_packed_bytes(&s), (i / 2 ? 0 : rows) + norms + kept);
    }
    cr_expect_eq(all, 2 * rows + 4 * norms);
}

Test(merged, impossible_shapes_are_refused) {
    fv_packed_shape good = shape(FV_PACKED_V, 5, 2, 4, FV_BF16), bad[6];
    for (int i = 0; i < 6; i++) bad[i] = good;
    bad[0].merged.n_exact = -1;
    bad[1].merged.n_exact = 11; /* of 10 vectors */
    bad[2].d_head = 1025;
    bad[3].form = FV_N_PACKED_FORM;
    bad[4].form = FV_PACKED_QUANTIZED;
    bad[4].codes = (fv_codes_shape){.bits = 8};
    bad[4].borrows = true;
    bad[5].form = FV_PACKED_LOWRANK;
    bad[5].lowrank = (fv_lowrank_shape){.rank = 1, .rank2 = 1, .bits = 16};
    bad[5].borrows = true;
    cr_assert_eq(fv_packed_check(&good), FV_OK, "%s", fv_last_error());
    for (int i = 0; i < 6; i++) cr_expect_eq(fv_packed_check(&bad[i]), FV_EINVAL, "%d", i);
}

Test(merged, rows_that_stay_keep_their_bits) {
    static const int32_t idx[] = {2, 20, 17, 32};
    for (int kind = 0; kind < 2; kind++) {
        static pair p;
        float back[2][4 * 10];
        fv_packed_part few[2];
        plant(&p, 2 * 33, 5, 2 * 20 + 1);
        merge_and_read(&p, shape((fv_packed_kind)kind, 33, 2, 5, FV_BF16), 0.6, 0.05);
        for (int i = 0; i < 2; i++) {
            fv_packed_shape s = fv_packed_kept(&p.part[i], idx, 4);
            cr_assert(s.n == 4 && s.merged.n_exact == 1);
            few[i] =
                (fv_packed_part){.shape = s,
                                 .data = aligned_alloc(64, fv_packed_aligned(fv_packed_bytes(&s))),
                                 .base = i ? few[0].data : NULL};
            memset(few[i].data, 0xff, fv_packed_bytes(&s));
            fv_packed_keep(&p.part[i], idx, &few[i]);
            cr_assert_eq(fv_codes_check_outliers(&few[i]), FV_OK, "%s", fv_last_error());
            fv_codes_read(&few[i], 0, 4, back[i]);
            for (int j = 0; j < 4; j++)
                cr_assert_arr_eq(back[i] + j * 10, p.back[i] + idx[j] * 10, 10 * sizeof(float));
        }
        for (int i = 0; i < 2; i++) free(few[i].data);
        drop(&p);
    }
}
