/* packed/lowrank.c: sizes to the byte, and how numbers are stored in a block. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "packed/lowrank.h"
#include "tests/support/rendered.h"

static const fv_packed_shape vicuna = {.n = 576,
                                       .lowrank.rank = 64,
                                       .lowrank.rank2 = 64,
                                       .n_kv = 32,
                                       .d_head = 128,
                                       .dtype = FV_F16,
                                       .kind = FV_PACKED_K,
                                       .lowrank.bits = 16};

static float normal(uint64_t *state) {
    double sum = 0;
    for (int i = 0; i < 6; i++) {
        uint64_t z = *state += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        sum += (double)((z ^ z >> 31) >> 11) * 0x1p-53;
    }
    return (float)((sum - 3) * sqrt(2));
}

/* Factors as compaction leaves them: columns of U shrink, rows of B have length 1. */
static void make_factors(const fv_packed_shape *s, float *u, float *basis) {
    uint64_t state = 7;
    size_t R = (size_t)s->lowrank.rank, width = fv_packed_width(s);
    for (size_t j = 0; j < (size_t)s->n; j++)
        for (size_t r = 0; r < R; r++)
            u[j * R + r] = 50 * powf((float)r + 1, -0.7f) * (normal(&state) + (r == 0 ? 4 : 0));
    for (size_t i = 0; i < R * width; i++) basis[i] = normal(&state) / sqrtf((float)width);
}

static double relative_error(const float *a, const float *b, size_t n) {
    double d = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        d += pow((double)a[i] - (double)b[i], 2);
        sum += pow((double)b[i], 2);
    }
    return sqrt(d / sum);
}

/* Factors, the block made of them, and the numbers read back. */
typedef struct trip {
    fv_packed_part part;
    float *u, *basis, *u2, *basis2;
    size_t nu, nb;
} trip;

static trip travel(fv_packed_shape s) {
    trip t = {.part.shape = s, .nu = (size_t)s.n * (size_t)s.lowrank.rank};
    t.nb = (size_t)s.lowrank.rank * fv_packed_width(&s);
    t.u = malloc(2 * (t.nu + t.nb) * sizeof *t.u);
    t.part.data = malloc(fv_packed_bytes(&s)); /* exact, so that a sanitizer detects an overrun */
    cr_assert(t.u && t.part.data);
    t.basis = t.u + t.nu;
    t.u2 = t.basis + t.nb;
    t.basis2 = t.u2 + t.nu;
    make_factors(&s, t.u, t.basis);
    fv_packed_write(&s, t.u, t.basis, t.part.data);
    fv_packed_read_u(&t.part, 0, s.n, t.u2);
    fv_packed_read_basis(&t.part, t.basis2);
    return t;
}

static void trip_free(trip *t) {
    free(t->u);
    free(t->part.data);
}

Test(lowrank, bytes_and_operations_are_those_of_the_closed_form) {
    static const struct {
        int32_t n;
        size_t bytes, bytes_low;
        int64_t flops, flops_low;
    } rows[] = {{576, 1196032, 1154560, 5767168, 4440064},
                {4096, 2097152, 1802240, 34603008, 25165824}};
    for (int i = 0; i < 2; i++) {
        fv_packed_shape k = vicuna, v;
        k.n = rows[i].n;
        v = k;
        v.kind = FV_PACKED_V;
        v.lowrank.rank2 = 16;
        int32_t n_low = k.n - k.n / 4;
        cr_expect_eq(fv_packed_bytes(&k) + fv_packed_bytes(&v), rows[i].bytes);
        cr_expect_eq(fv_packed_read_bytes(&k, 0) + fv_packed_read_bytes(&v, 0), rows[i].bytes);
        cr_expect_eq(fv_packed_read_bytes(&k, 0) + fv_packed_read_bytes(&v, n_low),
                     rows[i].bytes_low);
        cr_expect_eq(fv_packed_flops_k(&k, 32, 1) + fv_packed_flops_v(&v, 32, 0), rows[i].flops);
        cr_expect_eq(fv_packed_flops_k(&k, 32, 1) + fv_packed_flops_v(&v, 32, n_low),
                     rows[i].flops_low);
    }
    /* anchors of 8, 16, 24 and 64 rows */
    cr_expect_eq(fv_packed_flops_k(&vicuna, 32, 72), 40108032);
    cr_expect_eq(fv_packed_flops_k(&vicuna, 32, 36), 21233664);
    cr_expect_eq(fv_packed_flops_k(&vicuna, 32, 24), 14942208);
    cr_expect_eq(fv_packed_flops_k(&vicuna, 32, 9), 7077888);
}

/* Costs of a layer's step at rank 64, 16 bits, D = 128, K and V: uncompressed, rebuilt first, and in
 * rank space. Rebuilding costs 4 T R Hkv D plus the cost of uncompressed tokens. */
Test(lowrank, a_step_reads_and_computes_less_than_rows_or_rebuilding_do) {
    static const struct {
        int32_t n, n_head, n_kv;
        size_t raw_bytes, bytes;
        double raw_flops, rebuild, flops, gain; /* of 1e6 operations */
    } rows[] = {{576, 32, 32, 9437184, 1196032, 9.437, 603.98, 5.767, 7.890},
                {4096, 32, 32, 67108864, 2097152, 67.109, 4294.97, 34.603, 32},
                {576, 32, 8, 2359296, 409600, 9.44, 151.0, 5.77, 5.76},
                {4096, 32, 8, 16777216, 1310720, 67.1, 1073.7, 34.6, 12.8},
                {576, 28, 4, 1179648, 278528, 8.26, 75.5, 5.05, 4.24},
                {4096, 28, 4, 8388608, 1179648, 58.7, 536.9, 30.3, 7.11},
                {576, 32, 1, 294912, 180224, 9.44, 18.9, 5.77, 1.64}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fv_packed_shape k = vicuna, v;
        k.n = rows[i].n;
        k.n_kv = rows[i].n_kv;
        v = k;
        v.kind = FV_PACKED_V;
        double full = 4.0 * k.n * rows[i].n_head * k.d_head;
        double rebuild = 4.0 * k.n * k.lowrank.rank * k.n_kv * k.d_head;
        double flops = (double)(fv_packed_flops_k(&k, rows[i].n_head, 1) +
                                fv_packed_flops_v(&v, rows[i].n_head, 0));
        cr_expect_eq(fv_packed_raw_bytes(&k) + fv_packed_raw_bytes(&v), rows[i].raw_bytes);
        cr_expect_eq(fv_packed_bytes(&k) + fv_packed_bytes(&v), rows[i].bytes);
        cr_expect(fabs(full / 1e6 - rows[i].raw_flops) < 6e-4 * rows[i].raw_flops, "%zu", i);
        cr_expect(fabs(rebuild / 1e6 - rows[i].rebuild) < 2e-3 * rows[i].rebuild, "%zu", i);
        cr_expect(fabs(flops / 1e6 - rows[i].flops) < 2e-3 * rows[i].flops, "%zu", i);
        double gain = (double)rows[i].raw_bytes / (double)rows[i].bytes;
        cr_expect(fabs(gain - rows[i].gain) < 3e-3 * rows[i].gain, "%zu: %g", i, gain);
    }
}

/* Compression pays from these ranks on: R < T D / (T + D) for operations, R < T HD / (T + HD) for
 * bytes. */
Test(lowrank, ranks_break_even_where_the_closed_form_says) {
    static const struct { int32_t n, flops, bytes; } rows[] = {{576, 104, 504}, {4096, 124, 2047}};
    for (int i = 0; i < 2; i++)
        for (int more = 0; more < 2; more++) {
            fv_packed_shape k = vicuna, v;
            k.n = rows[i].n;
            k.lowrank.rank = k.lowrank.rank2 = rows[i].flops + more;
            v = k;
            v.kind = FV_PACKED_V;
            double raw = 4.0 * k.n * 32 * 128;
            double flops = (double)(fv_packed_flops_k(&k, 32, 1) + fv_packed_flops_v(&v, 32, 0));
            cr_expect_eq(flops < raw, !more, "%d rows, rank %d", k.n, k.lowrank.rank);
            k.lowrank.rank = k.lowrank.rank2 = rows[i].bytes + more;
            cr_expect_eq(fv_packed_bytes(&k) < fv_packed_raw_bytes(&k), !more, "%d rows, rank %d",
                         k.n, k.lowrank.rank);
        }
}

Test(lowrank, gains_are_those_of_the_published_tables) {
    static const double rank[] = {256, 128, 64, 32, 16}, c[] = {1.973, 3.945, 7.890, 15.78, 31.56},
                        whole[] = {1.830, 3.194, 5.089, 7.237, 9.172};
    for (int i = 0; i < 5; i++) {
        double gain = fv_packed_gain(576, rank[i], 4096);
        cr_expect(fabs(gain - c[i]) < 6e-4 * c[i], "rank %g: %g", rank[i], gain);
        gain = (576 + 50) / (576 / gain + 50);
        cr_expect(fabs(gain - whole[i]) < 6e-4, "rank %g: %g", rank[i], gain);
        fv_packed_shape s = vicuna;
        s.lowrank.rank = s.lowrank.rank2 = (int32_t)rank[i];
        double bytes = (double)fv_packed_raw_bytes(&s) / (double)fv_packed_bytes(&s);
        cr_expect(fabs(bytes - fv_packed_gain(576, rank[i], 4096)) < 1e-9);
    }
    cr_expect(fabs(fv_packed_gain(1000, 64, 5120) - 13.07) < 5e-3);
    cr_expect(fv_packed_gain(65, 64, 4096) < 1 && fv_packed_gain(66, 64, 4096) > 1);
    cr_expect_eq(fv_packed_gain(0, 64, 4096), 0);
}

Test(lowrank, eight_and_four_bits_count_their_scales) {
    fv_packed_shape s = vicuna;
    s.lowrank.rank2 = 16;
    for (s.lowrank.bits = 8; s.lowrank.bits >= 4; s.lowrank.bits = (uint8_t)(s.lowrank.bits / 2)) {
        size_t codes = (576 * 64 + 64 * 4096) * (size_t)s.lowrank.bits / 8,
               basis_pairs = 64 * 32 * 4;
        s.kind = FV_PACKED_K;
        cr_expect_eq(fv_packed_bytes(&s), codes + basis_pairs + 64 * 8);
        s.kind = FV_PACKED_V;
        cr_expect_eq(fv_packed_bytes(&s), codes + basis_pairs + 576 * 4 + 64 * 4);
    }
    s = (fv_packed_shape){.n = 3, /* odd everywhere */
                          .lowrank.rank = 5,
                          .lowrank.rank2 = 2,
                          .n_kv = 1,
                          .d_head = 7,
                          .dtype = FV_BF16,
                          .kind = FV_PACKED_V,
                          .lowrank.bits = 4};
    fv_packed_layout l = fv_packed_layout_of(&s);
    cr_expect_eq(l.stride[0], 1);
    cr_expect_eq(l.stride[1], 2);
    cr_expect_eq(l.basis_stride, 4);
    cr_expect_eq(l.bytes, 6 * 64);
    s.kind = FV_PACKED_K; /* keys in tiles of 16 rows: one here */
    s.lowrank.rank = 33;
    l = fv_packed_layout_of(&s);
    cr_expect_eq(l.stride[0], 2 * 8);
    cr_expect_eq(l.stride[1], 31 * 8);
    cr_expect_eq(l.tier[1], 64);
    cr_expect_eq(l.pair, 64 + 256);
}

Test(lowrank, sixteen_bits_keep_what_the_type_can_hold) {
    fv_packed_shape s = {.n = 77,
                         .lowrank.rank = 24,
                         .lowrank.rank2 = 10,
                         .n_kv = 3,
                         .d_head = 20,
                         .dtype = FV_F32,
                         .kind = FV_PACKED_V,
                         .lowrank.bits = 16};
    static const double worst[FV_N_DTYPE] = {0, 0x1p-8, 0x1p-11};
    for (int t = FV_F32; t < FV_N_DTYPE; t++) {
        s.dtype = (fv_dtype)t;
        trip x = travel(s);
        cr_expect_leq(relative_error(x.u2, x.u, x.nu), worst[t]);
        cr_expect_leq(relative_error(x.basis2, x.basis, x.nb), worst[t]);
        float tail[24];
        fv_packed_read_u(&x.part, 76, 1, tail);
        cr_expect_arr_eq(tail, x.u2 + 76 * 24, sizeof tail);
        trip_free(&x);
    }
}

Test(lowrank, codes_are_as_near_as_their_step_allows) {
    /* Uniform noise of one step has variance step^2 / 12, whose root is the tolerance; rows and
     * columns span up to 8 times their root mean square. */
    for (int bits = 8; bits >= 4; bits /= 2)
        for (int kind = FV_PACKED_K; kind <= FV_PACKED_V; kind++) {
            fv_packed_shape s = {.form = FV_PACKED_LOWRANK,
                                 .kind = (fv_packed_kind)kind,
                                 .n = 300,
                                 .n_kv = 4,
                                 .d_head = 64,
                                 .dtype = FV_BF16,
                                 .lowrank = {.rank = 64, .rank2 = 16, .bits = (uint8_t)bits}};
            trip x = travel(s);
            double allowed = 8.0 / ((1 << bits) - 1) / sqrt(12);
            double u = relative_error(x.u2, x.u, x.nu), b = relative_error(x.basis2, x.basis, x.nb);
            cr_expect(u < allowed && u > 0, "%d bits, kind %d: u %g", bits, kind, u);
            cr_expect(b < allowed && b > 0, "%d bits, kind %d: basis %g", bits, kind, b);
            /* The last column is 18 times smaller than the first, and no worse off. */
            double last = 0, size = 0;
            for (size_t j = 0; j < 300; j++) {
                last += pow((double)(x.u2[j * 64 + 63] - x.u[j * 64 + 63]), 2);
                size += pow((double)x.u[j * 64 + 63], 2);
            }
            cr_expect(sqrt(last / size) < 1.5 * allowed, "last column %g", sqrt(last / size));
            trip_free(&x);
        }
}

static void assert_codes(const json_t *c) {
    bool keys = strcmp(rendered_text(c, "kind"), "keys") == 0;
    fv_packed_shape s = {.n = rendered_int(c, "rows"),
                         .lowrank.rank = rendered_int(c, "rank"),
                         .lowrank.rank2 = 1,
                         .n_kv = rendered_int(c, "heads"),
                         .d_head = rendered_int(c, "width"),
                         .dtype = FV_F32,
                         .kind = keys ? FV_PACKED_K : FV_PACKED_V,
                         .lowrank.bits = (uint8_t)rendered_int(c, "bits")};
    float u[64], basis[64];
    uint64_t seed = (uint64_t)rendered_int(c, "seed");
    size_t R = (size_t)s.lowrank.rank, nu = (size_t)s.n * R, nb = R * fv_packed_width(&s);
    cr_assert(nu <= 64 && nb <= 64);
    rendered_uniform(&seed, u, nu);
    rendered_uniform(&seed, basis, nb);
    for (size_t i = 0; i < nu; i++) u[i] *= powf(0.5f, (float)(i % R));
    fv_packed_part p = {.shape = s, .data = malloc(fv_packed_bytes(&s))};
    fv_packed_write(&s, u, basis, p.data);
    fv_packed_read_u(&p, 0, s.n, u);
    fv_packed_read_basis(&p, basis);
    cr_expect_lt(rendered_off(u, rendered_at(c, "u")), 1e-6, "%d bits", s.lowrank.bits);
    cr_expect_lt(rendered_off(basis, rendered_at(c, "basis")), 1e-6, "%d bits", s.lowrank.bits);
    free(p.data);
}

Test(lowrank, codes_stand_for_what_numpy_says) {
    json_t *root = rendered_read("svd");
    const json_t *cases = rendered_at(root, "codes");
    cr_assert_eq(json_array_size(cases), 4);
    for (size_t i = 0; i < 4; i++) assert_codes(json_array_get(cases, i));
    json_decref(root);
}

Test(lowrank, constant_and_empty_groups_are_exact) {
    for (int kind = FV_PACKED_K; kind <= FV_PACKED_V; kind++) {
        fv_packed_shape s = {.form = FV_PACKED_LOWRANK,
                             .kind = (fv_packed_kind)kind,
                             .n = 5,
                             .n_kv = 2,
                             .d_head = 4,
                             .dtype = FV_F32,
                             .lowrank = {.rank = 3, .rank2 = 1, .bits = 4}};
        float u[15] = {0}, basis[24], u2[15], basis2[24];
        for (int i = 0; i < 24; i++) basis[i] = 0.25f;
        fv_packed_part p = {.shape = s, .data = malloc(fv_packed_bytes(&s))};
        fv_packed_write(&s, u, basis, p.data);
        fv_packed_read_u(&p, 0, 5, u2);
        fv_packed_read_basis(&p, basis2);
        cr_expect_arr_eq(u2, u, sizeof u);
        cr_expect_arr_eq(basis2, basis, sizeof basis);
        free(p.data);
        s.n = 0;
        p = (fv_packed_part){.shape = s, .data = malloc(fv_packed_bytes(&s))};
        fv_packed_write(&s, NULL, basis, p.data);
        fv_packed_read_basis(&p, basis2);
        cr_expect_arr_eq(basis2, basis, sizeof basis);
        free(p.data);
    }
}

Test(lowrank, kept_rows_keep_their_bits) {
    static const int32_t idx[] = {0, 3, 4, 19};
    for (int bits = 16; bits >= 4; bits /= 2)
        for (int kind = FV_PACKED_K; kind <= FV_PACKED_V; kind++) {
            fv_packed_shape s = {.form = FV_PACKED_LOWRANK,
                                 .kind = (fv_packed_kind)kind,
                                 .n = 20,
                                 .n_kv = 2,
                                 .d_head = 6,
                                 .dtype = FV_BF16,
                                 .lowrank = {.rank = 9, .rank2 = 4, .bits = (uint8_t)bits}};
            trip x = travel(s);
            fv_packed_part kept = {.shape = s, .data = NULL};
            kept.shape.n = 4;
            kept.data = malloc(fv_packed_bytes(&kept.shape));
            fv_packed_keep(&x.part, idx, &kept);
            float u[4 * 9], basis[9 * 12];
            fv_packed_read_u(&kept, 0, 4, u);
            fv_packed_read_basis(&kept, basis);
            for (int j = 0; j < 4; j++)
                cr_expect_arr_eq(u + (ptrdiff_t)j * 9, x.u2 + (ptrdiff_t)idx[j] * 9, 9 * sizeof *u);
            cr_expect_arr_eq(basis, x.basis2, sizeof basis);
            free(kept.data);
            trip_free(&x);
        }
}

Test(lowrank, shapes_that_overflow_are_refused) {
    fv_packed_shape good = vicuna, bad[9];
    cr_expect_eq(fv_packed_check(&good), FV_OK);
    good.n = 0;
    cr_expect_eq(fv_packed_check(&good), FV_OK);
    for (int i = 0; i < 9; i++) bad[i] = vicuna;
    bad[0].lowrank.bits = 5;
    bad[1].dtype = (fv_dtype)7;
    bad[2].kind = (fv_packed_kind)-1;
    bad[3].n = -1;
    bad[4].n_kv = 0;
    bad[5].d_head = 1 << 20;
    bad[6].lowrank.rank = 0;
    bad[7].lowrank.rank = 5000;
    bad[8].lowrank.rank2 = 65;
    for (int i = 0; i < 9; i++) cr_expect_eq(fv_packed_check(&bad[i]), FV_EINVAL, "shape %d", i);
}
