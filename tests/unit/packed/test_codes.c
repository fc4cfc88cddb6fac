/* Quantized tokens (packed/codes.h): the numbers they represent, outliers, and their bytes. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed/codes.h"
#include "tests/support/rendered.h"

/* 576 tokens of a 7B network's keys. */
static const fv_packed_shape vicuna = {.n = 576,
                                       .n_kv = 32,
                                       .d_head = 128,
                                       .dtype = FV_BF16,
                                       .kind = FV_PACKED_K,
                                       .codes.bits = 4,
                                       .form = FV_PACKED_QUANTIZED};

static fv_packed_shape shape(fv_packed_kind kind, int bits, int32_t n, double share) {
    fv_packed_shape s = {.n = n,
                         .n_kv = 2,
                         .d_head = 10,
                         .dtype = FV_F32,
                         .kind = kind,
                         .codes.bits = (uint8_t)bits,
                         .form = FV_PACKED_QUANTIZED};
    s.codes.n_outlier = (int32_t)fv_codes_all_outliers(&s, share);
    return s;
}

/* Numbers, the block made of them, and the numbers it represents. */
typedef struct trip {
    fv_packed_part part;
    float *m, *back;
    double error;
} trip;

static trip travel(fv_packed_shape s, uint64_t seed) {
    size_t n = (size_t)s.n * fv_packed_width(&s);
    trip t = {.part = {s, aligned_alloc(64, fv_packed_bytes(&s))},
              .m = malloc(n * sizeof *t.m),
              .back = malloc(n * sizeof *t.back)};
    rendered_uniform(&seed, t.m, n);
    for (size_t i = 0; i < n; i += 5) t.m[i] *= 4;
    cr_assert_eq(fv_codes_write(&s, t.m, t.part.data, &t.error), FV_OK, "%s", fv_last_error());
    fv_codes_read(&t.part, 0, s.n, t.back);
    return t;
}

static void trip_free(trip *t) {
    free(t->part.data);
    free(t->m);
    free(t->back);
}

/* ---- exact values -------------------------------------------------------------------- */

Test(codes, values_beyond_a_percentile_at_each_end_are_outliers) {
    static const struct {
        double share;
        int32_t length, each;
    } cases[] = {{0, 576, 0},    {0.01, 576, 3}, {0.01, 4096, 21}, {0.01, 201, 1},
                 {0.01, 202, 2}, {0.01, 1, 0},   {0.01, 2, 1},     {0.5, 5, 1},
                 {0.5, 6, 2},    {0.02, 101, 1}, {0.02, 5001, 50}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(fv_codes_outliers(cases[i].share, cases[i].length), cases[i].each, "%g of %d",
                     cases[i].share, cases[i].length);
    fv_packed_shape v = vicuna;
    v.kind = FV_PACKED_V;
    cr_expect_eq(fv_codes_all_outliers(&vicuna, 0.01), 2 * 3 * 4096);
    cr_expect_eq(fv_codes_all_outliers(&v, 0.01), 2 * 21 * 576);
}

static void assert_rendered(const json_t *c) {
    bool keys = strcmp(rendered_text(c, "kind"), "keys") == 0;
    fv_packed_shape s = {.n = rendered_int(c, "rows"),
                         .n_kv = rendered_int(c, "heads"),
                         .d_head = rendered_int(c, "width"),
                         .dtype = FV_F32,
                         .kind = keys ? FV_PACKED_K : FV_PACKED_V,
                         .codes.bits = (uint8_t)rendered_int(c, "bits"),
                         .form = FV_PACKED_QUANTIZED};
    s.codes.n_outlier =
        (int32_t)fv_codes_all_outliers(&s, json_number_value(rendered_at(c, "outliers")));
    trip t = travel(s, (uint64_t)rendered_int(c, "seed"));
    cr_expect_eq((int32_t)fv_packed_bytes(&s), rendered_int(c, "bytes"));
    cr_expect_lt(rendered_off(t.back, rendered_at(c, "numbers")), 1e-6, "%s of %d bits",
                 rendered_text(c, "kind"), s.codes.bits);
    trip_free(&t);
}

Test(codes, they_stand_for_what_numpy_says_and_take_as_many_bytes) {
    json_t *root = rendered_read("quant");
    const json_t *cases = rendered_at(root, "codes");
    cr_assert_eq(json_array_size(cases), 8);
    for (size_t i = 0; i < json_array_size(cases); i++) assert_rendered(json_array_get(cases, i));
    json_decref(root);
}

/* A number within the range is off by half a step at most. */
Test(codes, no_number_is_off_by_more_than_half_a_step_and_outliers_by_nothing) {
    for (int kind = 0; kind < 2; kind++)
        for (int bits = 4; bits <= 8; bits += 4) {
            double last = INFINITY;
            for (int share = 0; share < 50; share += 10) {
                fv_packed_shape s = shape((fv_packed_kind)kind, bits, 83, share / 100.0);
                trip t = travel(s, 3);
                fv_codes_layout l = fv_codes_layout_of(&s);
                const float *pair = (const float *)((char *)t.part.data + l.pair);
                double off = 0, all = 0;
                int32_t exact = 0;
                for (int32_t j = 0; j < s.n; j++)
                    for (int32_t c = 0; c < 20; c++) {
                        float x = t.m[j * 20 + c], y = t.back[j * 20 + c];
                        float step = pair[2 * (kind == FV_PACKED_K ? c : j) + 1];
                        exact += x == y;
                        cr_assert_leq(fabsf(x - y), 0.5001f * step);
                        off += pow((double)x - (double)y, 2);
                        all += pow((double)x, 2);
                    }
                cr_assert_geq(exact, s.codes.n_outlier);
                cr_assert_float_eq(t.error, sqrt(off / all), 1e-9);
                cr_assert_lt(t.error, last, "more outliers, less error");
                last = t.error;
                trip_free(&t);
            }
        }
}

Test(codes, groups_of_one_value_and_of_zeros_are_exact) {
    for (int kind = 0; kind < 2; kind++) {
        fv_packed_shape s = shape((fv_packed_kind)kind, 4, 17, 0.2);
        float m[17 * 20], back[17 * 20];
        double error;
        fv_packed_part p = {.shape = s, .data = aligned_alloc(64, fv_packed_bytes(&s))};
        for (int way = 0; way < 2; way++) {
            for (int i = 0; i < 17 * 20; i++)
                m[i] = way ? (float)(kind == FV_PACKED_K ? i % 20 : i / 20) / 3 : 0;
            cr_assert_eq(fv_codes_write(&s, m, p.data, &error), FV_OK);
            fv_codes_read(&p, 0, 17, back);
            cr_assert_eq(memcmp(m, back, sizeof m), 0);
            cr_assert_eq(error, 0);
        }
        free(p.data);
    }
}

Test(codes, the_largest_numbers_there_are_overflow_nowhere) {
    for (int kind = 0; kind < 2; kind++)
        for (int bits = 4; bits <= 8; bits += 4) {
            fv_packed_shape s = shape((fv_packed_kind)kind, bits, 9, 0);
            float m[9 * 20], back[9 * 20];
            double error;
            fv_packed_part p = {.shape = s, .data = aligned_alloc(64, fv_packed_bytes(&s))};
            for (int i = 0; i < 9 * 20; i++) m[i] = (i / 20 + i) % 2 ? 3.4e38f : -3.4e38f;
            cr_assert_eq(fv_codes_write(&s, m, p.data, &error), FV_OK);
            fv_codes_read(&p, 0, 9, back);
            for (int i = 0; i < 9 * 20; i++) cr_assert(isfinite(back[i]));
            free(p.data);
        }
}

Test(codes, what_is_not_finite_or_too_large_is_refused_with_its_row) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    fv_packed_shape s = shape(FV_PACKED_V, 8, 3, 0.2);
    float m[60] = {0};
    double error;
    void *data = aligned_alloc(64, fv_packed_bytes(&s));
    for (int i = 0; i < 3; i++) {
        m[41] = bad[i];
        cr_assert_eq(fv_codes_write(&s, m, data, &error), FV_EINVAL);
        cr_assert(strstr(fv_last_error(), "row 2"), "%s", fv_last_error());
    }
    m[41] = 70000;
    s.dtype = FV_F16;
    cr_assert_eq(fv_codes_write(&s, m, data, &error), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "--kv-dtype bf16"), "%s", fv_last_error());
    free(data);
}

/* ---- bytes --------------------------------------------------------------------------- */

Test(codes, four_bits_with_all_that_belongs_to_them_are_less_than_a_third_of_the_rows) {
    fv_packed_shape k = vicuna, v = vicuna;
    v.kind = FV_PACKED_V;
    cr_expect_eq(fv_packed_bytes(&k), 576 * 4096 / 2 + 4096 * 8);
    cr_expect_eq(fv_packed_bytes(&v), 576 * 4096 / 2 + 576 * 8);
    k.codes.n_outlier = (int32_t)fv_codes_all_outliers(&k, 0.01);
    v.codes.n_outlier = (int32_t)fv_codes_all_outliers(&v, 0.01);
    size_t first = (577 * 4 + 63) / 64 * 64;
    cr_expect_eq(fv_packed_bytes(&k), 576 * 4096 / 2 + 4096 * 8 + first + 24576 * 4);
    cr_expect_eq(fv_packed_bytes(&v), 576 * 4096 / 2 + 576 * 8 + first + 24192 * 4);
    double bits = 8.0 * (double)(fv_packed_bytes(&k) + fv_packed_bytes(&v)) / (2.0 * 576 * 4096);
    cr_expect_float_eq(bits, 4.40, 0.01, "%g bits a number", bits);
}

/* ---- tokens that are pruned ---------------------------------------------------------- */

Test(codes, values_beside_coded_keys_may_be_rows_of_16_bits) {
    fv_packed_shape s = shape(FV_PACKED_V, 16, 42, 0);
    cr_assert_eq(fv_packed_check(&s), FV_OK, "%s", fv_last_error());
    cr_expect_eq(fv_packed_bytes(&s), fv_packed_aligned(fv_packed_raw_bytes(&s)));
    trip t = travel(s, 3);
    cr_expect_arr_eq(t.back, t.m, 42 * 20 * sizeof *t.m);
    cr_expect_eq(t.error, 0.0);
    int32_t idx[5] = {40, 3, 4, 17, 0};
    fv_packed_part kept = {.shape = fv_packed_kept(&t.part, idx, 5)};
    kept.data = aligned_alloc(64, fv_packed_bytes(&kept.shape));
    fv_packed_keep(&t.part, idx, &kept);
    for (int32_t j = 0; j < 5; j++) {
        float row[20];
        fv_codes_read(&kept, j, 1, row);
        cr_expect_arr_eq(row, t.m + 20 * idx[j], sizeof row);
    }
    free(kept.data);
    trip_free(&t);
}

Test(codes, rows_that_stay_keep_their_bits_and_take_no_byte_more_than_they_need) {
    static const int32_t idx[] = {40, 3, 17, 16, 41};
    for (int kind = 0; kind < 2; kind++)
        for (int bits = 4; bits <= 8; bits += 4)
            for (int share = 0; share < 2; share++) {
                trip t = travel(shape((fv_packed_kind)kind, bits, 42, 0.1 * share), 9);
                fv_packed_shape s = fv_packed_kept(&t.part, idx, 5);
                int32_t in_each = kind == FV_PACKED_V ? t.part.shape.codes.n_outlier / 42 : 0;
                cr_assert_eq(s.n, 5);
                if (kind == FV_PACKED_V) cr_assert_eq(s.codes.n_outlier, 5 * in_each);
                fv_packed_part few = {.shape = s, .data = aligned_alloc(64, fv_packed_bytes(&s))};
                float back[5 * 20];
                memset(few.data, 0xff, fv_packed_bytes(&s));
                fv_packed_keep(&t.part, idx, &few);
                cr_assert_eq(fv_codes_check_outliers(&few), FV_OK, "%s", fv_last_error());
                fv_codes_read(&few, 0, 5, back);
                for (int i = 0; i < 5; i++)
                    cr_assert_eq(memcmp(back + i * 20, t.back + idx[i] * 20, 80), 0);
                free(few.data);
                trip_free(&t);
            }
}

/* ---- untrusted input ----------------------------------------------------------------- */

Test(codes, impossible_shapes_are_refused) {
    fv_packed_shape bad[9];
    for (int i = 0; i < 9; i++) bad[i] = vicuna;
    bad[0].codes.bits = 16;
    bad[1].borrows = true;
    bad[2].codes.n_outlier = -1;
    bad[3].codes.n_outlier = 576 * 4096 + 1;
    bad[4].n = -1;
    bad[5].d_head = 0;
    bad[6].n_kv = 1024, bad[6].d_head = 1024;
    bad[7].form = FV_N_PACKED_FORM;
    bad[8].dtype = FV_N_DTYPE;
    cr_assert_eq(fv_packed_check(&vicuna), FV_OK);
    for (int i = 0; i < 9; i++) cr_assert_eq(fv_packed_check(&bad[i]), FV_EINVAL, "%d", i);
}

Test(codes, outliers_with_invalid_indices_are_refused) {
    trip t = travel(shape(FV_PACKED_K, 4, 20, 0.2), 4);
    fv_codes_layout l = fv_codes_layout_of(&t.part.shape);
    uint32_t *first = (uint32_t *)((char *)t.part.data + l.first);
    uint16_t *channel = (uint16_t *)((char *)t.part.data + l.channel);
    uint32_t busy = 0;
    while (first[busy + 1] - first[busy] < 2) busy++;
    struct {
        void *at;
        uint32_t value;
        bool wide;
    } lies[] = {{&first[0], 1, true},
                {&first[20], (uint32_t)t.part.shape.codes.n_outlier + 1, true},
                {&first[7], UINT32_MAX, true},
                {&channel[first[busy]], 20, false},
                {&channel[first[busy] + 1], channel[first[busy]], false}};
    cr_assert_eq(fv_codes_check_outliers(&t.part), FV_OK);
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint32_t was = lies[i].wide ? *(uint32_t *)lies[i].at : *(uint16_t *)lies[i].at;
        if (lies[i].wide)
            *(uint32_t *)lies[i].at = lies[i].value;
        else
            *(uint16_t *)lies[i].at = (uint16_t)lies[i].value;
        cr_assert_eq(fv_codes_check_outliers(&t.part), FV_EINVAL, "lie %zu", i);
        if (lies[i].wide)
            *(uint32_t *)lies[i].at = was;
        else
            *(uint16_t *)lies[i].at = (uint16_t)was;
    }
    trip_free(&t);
}
