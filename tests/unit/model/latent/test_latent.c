/* latent.bin: written files are read back, damaged ones refused; and directions from rows. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file.h"
#include "model/latent/fit.h"
#include "tests/support/latent.h"

enum { N = 3, HKV = 2, D = 8, W = HKV * D };

static void *file_of(const fv_latent_info *info, size_t *n) {
    float *numbers = latent_numbers(info);
    void *file;
    cr_assert_eq(fv_latent_encode(info, numbers, &file, n), FV_OK);
    free(numbers);
    return file;
}

Test(latent, what_was_written_is_read_by_its_checkpoint_alone) {
    char dir[512];
    fv_latent_info info = latent_info(N, HKV, D, "0123456789abcdef", "bf16", "f32");
    float *numbers = latent_numbers(&info);
    fv_latent *l;
    snprintf(dir, sizeof dir, "%s/latent-%d", FOVEA_TEST_TMP, (int)getpid());
    cr_assert_eq(fv_dir_make(dir), FV_OK);
    cr_assert_eq(fv_latent_open(dir, "0123456789abcdef", &l), FV_ENOTFOUND);
    cr_assert_eq(fv_latent_save(dir, &info, numbers), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_latent_open(dir, "0123456789abcdef", &l), FV_OK, "%s", fv_last_error());
    cr_assert(l->info.n_layer == N && l->info.n_dir == LATENT_RANK && l->checksum != 0);
    cr_assert_str_eq(l->info.dtype, "bf16");
    for (int32_t n = 0; n < N; n++)
        for (size_t c = 0; c < W; c++)
            for (size_t r = 0; r < LATENT_RANK; r++) {
                const fv_latent_layer *at = &l->layer[n];
                float key = at->key[c * fv_latent_line(LATENT_RANK) + r];
                float unit = at->deviation[r] * FV_LATENT_UNIT;
                cr_assert_eq(key * at->affine[2 * c + 1] / unit, at->decode[0][r * W + c]);
                cr_assert_eq(at->value[(c / D * (LATENT_RANK + 1) + r + 1) * D + c % D],
                             at->decode[1][r * W + c]);
            }
    fv_latent_close(l);
    cr_assert_eq(fv_latent_open(dir, "f123456789abcdef", &l), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "calibrate --latent"), "%s", fv_last_error());
    free(numbers);
}

Test(latent, every_changed_byte_and_length_is_refused) {
    fv_latent_info info = latent_info(2, 1, 2, "", "", "");
    size_t n;
    char *file = file_of(&info, &n);
    for (size_t i = 0; i < n + 200; i += i < 100 ? 1 : 97) {
        char *bad = malloc(n);
        fv_latent *l;
        memcpy(bad, file, n);
        if (i < n) bad[i] ^= 4;
        size_t length = i < n ? n : n - 1 - (i - n) * 7;
        cr_assert_eq(fv_latent_decode(bad, length, "latent.bin", &l), FV_EDATA, "byte %zu", i);
    }
    free(file);
}

Test(latent, levels_that_are_no_whole_steps_are_refused) {
    static const float bad[] = {0.01f, 4, -4.03125f, 1e30f};
    fv_latent_info info = latent_info(2, 1, 2, "", "", "");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        float *numbers = latent_numbers(&info);
        fv_latent *l;
        void *file;
        size_t n;
        numbers[100 * i] = bad[i];
        cr_assert_eq(fv_latent_encode(&info, numbers, &file, &n), FV_OK);
        cr_assert_eq(fv_latent_decode(file, n, "latent.bin", &l), FV_EDATA, "%g", (double)bad[i]);
        cr_assert(strstr(fv_last_error(), "whole step"), "%s", fv_last_error());
        free(numbers);
    }
}

/* ---- bits ---------------------------------------------------------------------------------- */

Test(latent, bits_go_where_they_reduce_the_error_most_or_are_the_same) {
    static const float deviation[] = {8, 4, 2, 1};
    static const float error[] = {1,        0.25f,    0x1p-4f,  0x1p-6f, 0x1p-8f,
                                  0x1p-10f, 0x1p-12f, 0x1p-14f, 0x1p-16f};
    uint16_t order[32];
    uint8_t bits[4];
    fv_latent_order(deviation, 4, error, order);
    fv_latent_layer l = {.n_dir = 4, .deviation = deviation, .order = order};
    /* A bit is worth a factor of 4 of the error, which is one step between these deviations. */
    static const struct {
        int32_t each, row_bits, n;
        uint8_t bits[4];
    } cases[] = {{0, 1, 1, {1}},           {0, 2, 1, {2}},           {0, 3, 2, {2, 1}},
                 {0, 10, 4, {4, 3, 2, 1}}, {0, 32, 4, {8, 8, 8, 8}}, {0, 99, 4, {8, 8, 8, 8}},
                 {1, 3, 3, {1, 1, 1}},     {4, 3, 0, {0}},           {4, 8, 2, {4, 4}},
                 {4, 11, 2, {4, 4}},       {8, 99, 4, {8, 8, 8, 8}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_packed_shape s = {
            .latent = {.row_bits = cases[i].row_bits, .each_bits = (uint8_t)cases[i].each}};
        int32_t n = fv_latent_bits(&l, &s, bits);
        cr_assert_eq(n, cases[i].n, "%d bits: %d", cases[i].row_bits, n);
        cr_assert(memcmp(bits, cases[i].bits, 4) == 0, "%d bits: %d %d %d %d", cases[i].row_bits,
                  bits[0], bits[1], bits[2], bits[3]);
    }
}

Test(latent, a_step_of_the_error_is_reached_with_no_bit_to_spare) {
    fv_latent_info info = latent_info(N, HKV, D, "", "", "");
    fv_latent *l;
    size_t n;
    void *file = file_of(&info, &n);
    cr_assert_eq(fv_latent_decode(file, n, "latent.bin", &l), FV_OK, "%s", fv_last_error());
    fv_latent_layer first = l->layer[0];
    uint32_t steps[FV_LATENT_STEPS];
    first.variance = 0; /* all of it is on the directions */
    for (int r = 0; r < first.n_dir; r++) first.variance += first.deviation[r] * first.deviation[r];
    fv_latent_steps(&first, l->error, steps);
    cr_assert(steps[0] > 0 && steps[FV_LATENT_STEPS - 1] > steps[0]);
    for (int i = 1; i <= FV_LATENT_STEPS; i++) {
        fv_packed_shape s = {.latent.row_bits = (int32_t)steps[i - 1]};
        double error = pow(10, -i / 40.0);
        cr_assert(sqrt(fv_latent_expected(&first, &s)) <= error * (1 + 1e-6), "step %d", i);
        s.latent.row_bits--;
        cr_assert(sqrt(fv_latent_expected(&first, &s)) > error * (1 - 1e-6), "step %d", i);
    }
    first.variance *= 1.02F; /* 0.02 of it is not: an error of 0.14 */
    fv_latent_steps(&first, l->error, steps);
    cr_assert(steps[33] > 0 && steps[34] == 0 && steps[FV_LATENT_STEPS - 1] == 0);
    cr_assert_eq(l->n_group, (N + info.n_group_layer - 1) / info.n_group_layer);
    fv_latent_close(l);
}

Test(latent, an_error_is_rounded_down_to_a_step) {
    cr_assert_eq(fv_latent_step(1), 1);
    cr_assert_eq(fv_latent_step(0.1), 40);
    cr_assert_eq(fv_latent_step(0.0999), 41);
    cr_assert_eq(fv_latent_step(0.0317), 60);
    cr_assert_eq(fv_latent_step(0.0316), 0, "none is as small");
}

/* ---- directions from rows ------------------------------------------------------------------ */

static double noise(uint64_t *state) { /* near normal */
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 11) * 0x1p-53;
    }
    return sum;
}

enum { ROWS = 400, HIDDEN = 5 };

/* Rows of rank HIDDEN over all layers together, around a mean. */
static float *make_rows(uint64_t seed) {
    float *x = malloc(sizeof *x * 2 * N * ROWS * W);
    double mix[HIDDEN][2 * N * W];
    uint64_t state = 3;
    for (int h = 0; h < HIDDEN; h++)
        for (int c = 0; c < 2 * N * W; c++) mix[h][c] = noise(&state) / (1 + h);
    for (int j = 0; j < ROWS; j++) {
        double hidden[HIDDEN];
        for (int h = 0; h < HIDDEN; h++) hidden[h] = noise(&seed);
        for (int c = 0; c < 2 * N * W; c++) {
            double sum = 0.3 * (c % 7);
            for (int h = 0; h < HIDDEN; h++) sum += hidden[h] * mix[h][c];
            x[(size_t)(c / W * ROWS + j) * W + (size_t)(c % W)] = (float)sum;
        }
    }
    return x;
}

static int threads = 1; /* of a fit */

/* weights [2 N] of [HKV, D, D], or NULL. */
static fv_latent *fit_weighted(const fv_latent_info *info, const float *x, const double *weights,
                               double *energy) {
    fv_latent_fit *f;
    fv_latent *l;
    void *file;
    size_t n;
    cr_assert_eq(fv_latent_fit_open(info, threads, FV_LATENT_MOMENT_BYTES, &f), FV_OK, "%s",
                 fv_last_error());
    for (int pass = 0; pass < FV_LATENT_PASSES; pass++) {
        for (int from = 0; from < ROWS; from += 100) {
            for (int p = 0; p < 2 * N; p++)
                cr_assert_eq(
                    fv_latent_fit_rows(f, p / 2, p % 2, 100, x + (size_t)(p * ROWS + from) * W),
                    FV_OK);
            fv_latent_fit_end_rows(f);
        }
        for (int p = 0; p < 2 * N && weights && pass == 0; p++)
            cr_assert_eq(fv_latent_fit_weigh(f, p / 2, p % 2, weights + (size_t)p * W * D), FV_OK);
        cr_assert_eq(fv_latent_fit_end_pass(f), FV_OK, "%s", fv_last_error());
    }
    *energy = fv_latent_fit_energy(f, 0, HIDDEN);
    cr_assert_eq(fv_latent_encode(info, fv_latent_fit_numbers(f), &file, &n), FV_OK);
    cr_assert_eq(fv_latent_decode(file, n, "latent.bin", &l), FV_OK, "%s", fv_last_error());
    fv_latent_fit_close(f);
    return l;
}

static fv_latent *fit(const fv_latent_info *info, const float *x, double *energy) {
    return fit_weighted(info, x, NULL, energy);
}

/* Rows that were not seen, in 8 bits a direction, of columns [c0, c1):
 * ||X - X~||^2 / ||X - mean||^2. */
static double error_of(const fv_latent *l, const float *x, int c0, int c1) {
    int32_t R = l->info.n_dir;
    fv_packed_shape s = {
        .n = ROWS, .n_kv = HKV, .d_head = D, .form = FV_PACKED_LATENT, .latent.row_bits = 8 * R};
    double off = 0, all = 0;
    float *z = calloc((size_t)(ROWS * R), sizeof *z), row[W];
    void *data = aligned_alloc(64, fv_latent_bytes(&s));
    for (int j = 0; j < ROWS; j++)
        for (int32_t r = 0; r < R; r++) {
            double sum = -(double)l->layer[0].offset[r];
            for (int p = 0; p < 2 * N; p++)
                for (int c = 0; c < W; c++)
                    sum +=
                        (double)x[(size_t)(p * ROWS + j) * W + (size_t)c] *
                        (double)l->layer[p / 2]
                            .encode[p % 2][fv_latent_band_at(W, (size_t)R, (size_t)c, (size_t)r)];
            z[j * R + r] = (float)sum;
        }
    cr_assert_eq(fv_latent_write(&l->layer[0], &s, z, data), FV_OK, "%s", fv_last_error());
    for (int p = 0; p < 2 * N; p++) {
        fv_packed_part part = {.shape = s, .data = data, .latent = &l->layer[p / 2]};
        part.shape.kind = (fv_packed_kind)(p % 2);
        for (int j = 0; j < ROWS; j++) {
            fv_latent_read(&part, j, 1, row);
            for (int c = c0; c < c1; c++) {
                double v = (double)x[(size_t)(p * ROWS + j) * W + (size_t)c];
                double m = (double)l->layer[p / 2].mean[p % 2][c];
                off += (v - (double)row[c]) * (v - (double)row[c]);
                all += (v - m) * (v - m);
            }
        }
    }
    free(z);
    free(data);
    return off / all;
}

Test(latent, directions_of_low_rank_rows_rebuild_rows_that_were_not_seen) {
    fv_latent_info info = {
        .n_layer = N, .n_kv = HKV, .d_head = D, .n_group_layer = N, .n_dir = HIDDEN};
    float *x = make_rows(17), *other = make_rows(18);
    double energy, again;
    fv_latent *l = fit(&info, x, &energy);
    threads = 3;
    fv_latent *same = fit(&info, x, &again);
    cr_assert(energy > 0.9999 && energy < 1.0001, "%g", energy);
    cr_assert(energy == again && l->checksum == same->checksum,
              "the same rows on more threads, other bits");
    double error = error_of(l, other, 0, W);
    cr_assert(error < 5e-3, "%g", error); /* 255 levels from 3200 numbers */
    /* of a normal distribution: 0.363, 0.1175, 0.0345 (Lloyd, Max) */
    cr_assert_float_eq(l->error[1], 0.363f, 0.02f, "%g", (double)l->error[1]);
    cr_assert_float_eq(l->error[2], 0.1175f, 0.01f, "%g", (double)l->error[2]);
    for (int b = 1; b < 8; b++) cr_assert(l->error[b + 1] < l->error[b]);
    fv_latent_close(l);
    fv_latent_close(same);
    free(x);
    free(other);
}

/* Few directions are spent on the columns that attention reads. */
Test(latent, weighted_directions_are_of_what_is_read) {
    fv_latent_info info = {.n_layer = N, .n_kv = HKV, .d_head = D, .n_group_layer = N, .n_dir = 2};
    float *x = make_rows(17);
    static double weights[2 * N * W * D];
    double energy, plain_energy;
    for (int p = 0; p < 2 * N; p++) /* the second head's first two columns, and not the first's */
        for (int i = 0; i < 2; i++) weights[p * W * D + D * D + i * D + i] = 1;
    fv_latent *plain = fit(&info, x, &plain_energy);
    fv_latent *weighted = fit_weighted(&info, x, weights, &energy);
    double before = error_of(plain, x, D, D + 2), after = error_of(weighted, x, D, D + 2);
    cr_assert(after < 0.8 * before, "%g, and without weights %g", after, before);
    cr_assert(error_of(weighted, x, 0, D) > error_of(plain, x, 0, D));
    cr_assert(energy > 0.9999 && energy < 1.0001, "%g", energy);
    fv_latent_close(plain);
    fv_latent_close(weighted);
    free(x);
}

/* M^(-1/2) is bounded by the floor, and where nothing reads rows become their mean. */
Test(latent, weights_without_a_rank_give_finite_directions) {
    fv_latent_info info = {.n_layer = N, .n_kv = HKV, .d_head = D, .n_group_layer = N, .n_dir = 4};
    float *x = make_rows(17);
    static double weights[2 * N * W * D];
    double energy;
    weights[0] = 1e-12; /* one number of one part is read, and almost not */
    fv_latent *l = fit_weighted(&info, x, weights, &energy);
    cr_assert_float_eq(energy, 1.0 / (2 * N), 1e-4, "%g", energy); /* five parts have none */
    cr_assert(error_of(l, x, 0, 1) < 1);
    for (int p = 1; p < 2 * N; p++)
        for (int i = 0; i < info.n_dir * W; i++) cr_assert_eq(l->layer[p / 2].decode[p % 2][i], 0);
    fv_latent_close(l);
    free(x);
}

Test(latent, too_many_directions_and_no_rows_are_refused) {
    fv_latent_info info = {.n_layer = N, .n_kv = 1, .d_head = 4, .n_group_layer = 1, .n_dir = 9};
    fv_latent_fit *f;
    cr_assert_eq(fv_latent_fit_open(&info, 1, FV_LATENT_MOMENT_BYTES, &f), FV_EINVAL);
    info.n_dir = 8;
    cr_assert_eq(fv_latent_fit_open(&info, 1, FV_LATENT_MOMENT_BYTES, &f), FV_OK);
    cr_assert_eq(fv_latent_fit_end_pass(f), FV_EINVAL);
    fv_latent_fit_close(f);
}
