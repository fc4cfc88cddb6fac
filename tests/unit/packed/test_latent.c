/* A request's own directions in latent parts (packed/latent.h): numbers, bytes, evicted rows, and
 * refusals. The directions of a checkpoint: tests/unit/model/latent/test_latent.c. */
#include "packed/latent.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/latent/latent.h"
#include "tests/support/latent.h"

enum { ROWS = 37, HEADS = 2, D = 9, W = HEADS * D };

typedef struct pair {
    fv_latent *directions;
    fv_packed_part part[2];
    float z[ROWS * LATENT_RANK], u[ROWS * FV_LATENT_OWN], o[2][FV_LATENT_OWN * W];
} pair;

static fv_packed_shape shape_of(int32_t n, int32_t n_own, int kind) {
    return (fv_packed_shape){.n = n,
                             .n_kv = HEADS,
                             .d_head = D,
                             .dtype = FV_F32,
                             .kind = (fv_packed_kind)kind,
                             .form = FV_PACKED_LATENT,
                             .borrows = kind == 1,
                             .latent.row_bits = 21,
                             .latent.n_own = n_own};
}

static void *room_for(const fv_packed_shape *s) {
    return aligned_alloc(FV_PACKED_ALIGN, fv_packed_bytes(s) + FV_PACKED_ALIGN);
}

static void make(pair *p, int32_t n_own) {
    fv_latent_info info = latent_info(1, HEADS, D, "", "", "");
    p->directions = latent_open(&info);
    for (int i = 0; i < ROWS * LATENT_RANK; i++) p->z[i] = sinf((float)i);
    for (int i = 0; i < ROWS * n_own; i++) p->u[i] = (float)(i * 71 % 256 - 128);
    for (int k = 0; k < 2; k++) {
        fv_packed_shape s = shape_of(ROWS, n_own, k);
        cr_assert_eq(fv_packed_check(&s), FV_OK, "%s", fv_last_error());
        p->part[k] =
            (fv_packed_part){.shape = s, .data = room_for(&s), .latent = &p->directions->layer[0]};
        for (int i = 0; i < n_own * W; i++) p->o[k][i] = 0.1f * sinf((float)(3 * i + k));
    }
    p->part[1].base = p->part[0].data;
    cr_assert_eq(fv_latent_write(p->part[0].latent, &p->part[0].shape, p->z, p->part[0].data),
                 FV_OK);
    fv_latent_write_own(&p->part[0].shape, p->u, p->part[0].data);
    for (int k = 0; k < 2; k++)
        fv_latent_write_directions(&p->part[k].shape, p->o[k], p->part[k].data);
}

static void drop(pair *p) {
    for (int k = 0; k < 2; k++) free(p->part[k].data);
    fv_latent_close(p->directions);
}

/* Directions of keys in whole numbers: half a step off at most, and columns without anything stay so. */
Test(latent, keys_are_whole_numbers_with_a_scale_for_each_column) {
    enum { R = 70, LINE = 128 };
    static float deviation[R], mean[W], decode[R * W], was[R * W], affine[2 * W], sigma[W];
    static int8_t key[W * LINE];
    for (int r = 0; r < R; r++) deviation[r] = r == 3 ? 0 : 4 * expf(-0.1f * (float)r);
    for (int i = 0; i < R * W; i++) decode[i] = was[i] = i % W == 5 ? 0 : sinf((float)(7 * i));
    for (int c = 0; c < W; c++) mean[c] = (float)c;
    memset(key, 77, sizeof key);
    cr_assert_eq(fv_latent_line(R), LINE);
    fv_latent_lay_keys(deviation, mean, decode, R, W, key, affine, sigma);
    for (int c = 0; c < W; c++) {
        float scale = affine[2 * c + 1];
        int most = 0;
        cr_assert_eq(affine[2 * c], mean[c]);
        cr_assert(c == 5 ? scale == 0 : scale > 0);
        for (int r = 0; r < R; r++) {
            float unit = deviation[r] * FV_LATENT_UNIT, k = key[c * LINE + r];
            most = abs(key[c * LINE + r]) > most ? abs(key[c * LINE + r]) : most;
            cr_assert(fabsf(was[r * W + c] * unit - scale * k) <= 0.501f * scale, "%d, %d", c, r);
            cr_assert_float_eq(decode[r * W + c] * unit, scale * k, 1e-4f * scale);
            if (r == 3) cr_assert(k == 0 && decode[r * W + c] == 0);
        }
        cr_assert_eq(most, c == 5 ? 0 : 127);
        for (int r = R; r < LINE; r++) cr_assert_eq(key[c * LINE + r], 0);
        double square = 0;
        for (int r = 0; r < R; r++) square += pow((double)(decode[r * W + c] * deviation[r]), 2);
        cr_assert_float_eq(sigma[c], sqrt(square), 1e-5 * sqrt(square));
    }
}

/* Coding tile by tile, in any order, gives the codes of all rows at once. */
Test(latent, rows_in_pieces_have_the_codes_of_all) {
    pair p;
    static float z[2][ROWS * LATENT_RANK];
    make(&p, 0);
    fv_packed_shape s = p.part[0].shape;
    void *pieces = room_for(&s);
    for (int i = 0; i < ROWS * LATENT_RANK; i++) z[0][i] = z[1][i] = cosf((float)(i * 5));
    cr_assert_eq(fv_latent_write(p.part[0].latent, &s, z[0], p.part[0].data), FV_OK);
    memset(pieces, 0xff, fv_latent_bytes(&s));
    fv_latent_clear(&s, pieces);
    cr_assert_eq(
        fv_latent_write_rows(p.part[0].latent, &s, 32, ROWS - 32, z[1] + 32 * LATENT_RANK, pieces),
        FV_OK);
    cr_assert_eq(fv_latent_write_rows(p.part[0].latent, &s, 0, 32, z[1], pieces), FV_OK);
    cr_assert(memcmp(pieces, p.part[0].data, fv_latent_bytes(&s)) == 0);
    cr_assert(memcmp(z[0], z[1], sizeof z[0]) == 0);
    z[1][3] = NAN;
    cr_assert_eq(fv_latent_write_rows(p.part[0].latent, &s, 16, 16, z[1], pieces), FV_EINVAL);
    cr_assert_str_eq(fv_last_error(), "row 16 of the KV to be packed has a NaN or infinity");
    free(pieces);
    drop(&p);
}

/* A row is its part on the checkpoint's directions plus u O, with the numbers as stored. */
Test(latent, own_directions_are_added_to_the_others) {
    pair with, without;
    make(&with, 3);
    make(&without, 0);
    for (int k = 0; k < 2; k++) {
        float a[ROWS * W], b[ROWS * W];
        fv_latent_read(&with.part[k], 0, ROWS, a);
        fv_latent_read(&without.part[k], 0, ROWS, b);
        for (int j = 0; j < ROWS; j++)
            for (int c = 0; c < W; c++) {
                float x = b[j * W + c];
                for (int i = 0; i < 3; i++) x = fmaf(with.u[j * 3 + i], with.o[k][i * W + c], x);
                cr_assert_eq(a[j * W + c], x, "part %d, row %d, number %d", k, j, c);
            }
    }
    drop(&with);
    drop(&without);
}

/* Numbers are at most half a step off, and nearer than with the largest number's scale. */
Test(latent, directions_have_the_nearest_of_sixteen_numbers) {
    fv_packed_shape s = shape_of(ROWS, 2, 1);
    uint8_t *data = room_for(&s);
    float o[2 * W], was[2 * W], scale;
    for (int c = 0; c < W; c++) was[c] = sinf((float)(5 * c)), was[W + c] = 0;
    was[4] = 6; /* one is far from the others */
    memcpy(o, was, sizeof o);
    fv_latent_write_directions(&s, o, data);
    memcpy(&scale, data, sizeof scale);
    double off = 0, coarse = 0;
    for (int c = 0; c < W; c++) {
        float level = roundf((o[c] / scale + 15) / 2);
        cr_assert_float_eq(o[c], scale * (2 * level - 15), 1e-6);
        if (fabsf(was[c]) < 15 * scale) cr_assert_leq(fabsf(o[c] - was[c]), scale * 1.0001f);
        double step = 0.8, x = step * (floor((double)was[c] / step) + 0.5);
        off += pow((double)(o[c] - was[c]), 2);
        coarse += pow((double)was[c] - fmin(x, 6), 2);
        cr_assert_eq(o[W + c], 0, "a direction of zeros");
    }
    cr_assert_leq(off, coarse * 1.001);
    free(data);
}

Test(latent, rows_that_stay_keep_their_bits_and_the_directions) {
    static const int32_t idx[] = {0, 3, 15, 16, 17, 30, 36};
    enum { KEPT = sizeof idx / sizeof *idx };
    pair p;
    make(&p, FV_LATENT_OWN);
    fv_packed_part kept[2];
    for (int k = 0; k < 2; k++) {
        kept[k] = p.part[k];
        kept[k].shape = fv_packed_kept(&p.part[k], idx, KEPT);
        kept[k].data = room_for(&kept[k].shape);
        cr_assert_eq(kept[k].shape.latent.n_own, FV_LATENT_OWN);
        fv_packed_keep(&p.part[k], idx, &kept[k]);
    }
    kept[1].base = kept[0].data;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < KEPT; i++) {
            float a[W], b[W];
            fv_latent_read(&kept[k], i, 1, a);
            fv_latent_read(&p.part[k], idx[i], 1, b);
            cr_assert(memcmp(a, b, sizeof a) == 0, "part %d, row %d", k, i);
        }
    for (int k = 0; k < 2; k++) free(kept[k].data);
    drop(&p);
}

/* Planes of 21 + 8 r bits for 3 tiles; and in each part r scales and r W / 2 bytes of codes. */
Test(latent, bytes_follow_from_the_shape) {
    for (int32_t r = 0; r <= FV_LATENT_OWN; r++) {
        fv_packed_shape k = shape_of(ROWS, r, 0), v = shape_of(ROWS, r, 1);
        size_t own = fv_packed_aligned((size_t)r * (4 + W / 2));
        cr_assert_eq(fv_packed_bytes(&v), own);
        cr_assert_eq(fv_packed_bytes(&k), fv_packed_aligned(2 * 3 * (21 + 8 * (size_t)r)) + own);
    }
}

Test(latent, shapes_and_scales_that_no_part_has_are_refused) {
    static const int32_t bad[] = {-1, FV_LATENT_OWN + 1, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fv_packed_shape s = shape_of(ROWS, bad[i], 0);
        cr_assert_eq(fv_packed_check(&s), FV_EINVAL);
    }
    pair p;
    make(&p, 2);
    cr_assert_eq(fv_format_latent.check_data(&p.part[0]), FV_OK);
    float *scale = p.part[0].data;
    scale[1] = NAN;
    cr_assert_eq(fv_format_latent.check_data(&p.part[0]), FV_EINVAL);
    scale[1] = -INFINITY;
    cr_assert_eq(fv_format_latent.check_data(&p.part[0]), FV_EINVAL);
    drop(&p);
}

/* ---- the exact token ----------------------------------------------------------------------- */

static void with_exact(pair *p, int32_t n_own, int32_t row, fv_dtype dtype, float x[2][W]) {
    make(p, n_own);
    for (int k = 0; k < 2; k++) {
        fv_packed_shape *s = &p->part[k].shape;
        s->latent.exact = true;
        s->dtype = dtype;
        free(p->part[k].data);
        p->part[k].data = room_for(s);
        for (int c = 0; c < W; c++) x[k][c] = (float)(1 + c * 7 % 50 + k) / 8;
    }
    p->part[1].base = p->part[0].data;
    cr_assert_eq(fv_latent_write(p->part[0].latent, &p->part[0].shape, p->z, p->part[0].data),
                 FV_OK);
    fv_latent_write_own(&p->part[0].shape, p->u, p->part[0].data);
    fv_latent_write_row(&p->part[0].shape, row, p->part[0].data);
    for (int k = 0; k < 2; k++) {
        fv_latent_write_directions(&p->part[k].shape, p->o[k], p->part[k].data);
        fv_latent_write_exact(&p->part[k].shape, x[k], p->part[k].data);
    }
}

/* The exact token keeps its bits in every type that can represent them; other rows are
 * unchanged. */
Test(latent, the_exact_token_is_as_it_was) {
    for (int i = 0; i < 6; i++) {
        static const fv_dtype types[] = {FV_F32, FV_BF16, FV_F16};
        float x[2][W], a[W], b[W];
        int32_t n_own = i % 2 ? 3 : 0, row = i < 3 ? 0 : 20;
        pair p, plain;
        with_exact(&p, n_own, row, types[i % 3], x);
        make(&plain, n_own);
        for (int k = 0; k < 2; k++)
            for (int j = 0; j < ROWS; j++) {
                fv_latent_read(&p.part[k], j, 1, a);
                fv_latent_read(&plain.part[k], j, 1, b);
                cr_assert(memcmp(a, j == row ? x[k] : b, sizeof a) == 0, "%d: part %d, row %d", i,
                          k, j);
            }
        drop(&p);
        drop(&plain);
    }
}

Test(latent, the_exact_token_stays_exact_where_it_goes_until_it_leaves) {
    static const int32_t idx[2][3] = {{30, 20, 1}, {5, 6, 7}};
    float x[2][W], a[W];
    pair p;
    with_exact(&p, 2, 20, FV_F32, x);
    for (int i = 0; i < 2; i++) {
        fv_packed_part kept = p.part[0];
        kept.shape = fv_packed_kept(&p.part[0], idx[i], 3);
        kept.data = room_for(&kept.shape);
        cr_assert_eq(kept.shape.latent.exact, 1);
        fv_packed_keep(&p.part[0], idx[i], &kept);
        cr_assert_eq(fv_latent_exact(&kept.shape, kept.data), i ? -1 : 1);
        for (int j = 0; j < 3; j++) {
            float b[W];
            fv_latent_read(&kept, j, 1, a);
            fv_latent_read(&p.part[0], idx[i][j], 1, b);
            cr_assert(memcmp(a, b, sizeof a) == 0);
        }
        free(kept.data);
    }
    drop(&p);
}
