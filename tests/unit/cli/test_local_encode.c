/* cli/local_encode.c: an image that comes again gets the rows it had, and no other does. */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/local_internal.h"

#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"
enum { SIDE = 24 };

static fv_local *l;

static void begin(void) {
    fv_local_options opt = {.checkpoint = NANO, .backend = "cpu", .isa = "auto", .threads = 1};
    cr_assert_eq(fv_local_open(&opt, &l), FV_OK, "%s", fv_last_error());
}
static void end(void) { fv_local_close(l); }

TestSuite(local_encode, .init = begin, .fini = end, .timeout = 300);

static uint8_t pixels[2][SIDE * SIDE * 3];

/* Stripes: the same bytes with other sides are another image. */
static fv_image stripes(int which, int32_t w, int32_t h) {
    for (size_t i = 0; i < sizeof pixels[which]; i++)
        pixels[which][i] = (uint8_t)((i / SIDE) * 7 * (size_t)(which + 1));
    return (fv_image){.rgb = pixels[which], .w = w, .h = h};
}

static fv_encoded encode(const fv_image *images, int32_t n) {
    fv_encoded e;
    cr_assert_eq(fv_local_encode(l, images, n, NULL, &e), FV_OK, "%s", fv_last_error());
    return e;
}

/* What the tower says without any cache. */
static fv_encoded encode_anew(const fv_image *images, int32_t n) {
    fv_encoded e;
    cr_assert_eq(fv_encode_images(l->vision, fv_checkpoint_config(l->ck),
                                  fv_checkpoint_image(l->ck),
                                  &(fv_encode_job){.n = n, .images = images}, l->be.device, &e),
                 FV_OK, "%s", fv_last_error());
    return e;
}

static void same(fv_encoded *a, fv_encoded *b) {
    cr_assert_eq(a->embeds.bytes, b->embeds.bytes);
    cr_assert_eq(memcmp(a->embeds.data, b->embeds.data, a->embeds.bytes), 0);
    fv_encoded_free(a);
    fv_encoded_free(b);
}

Test(local_encode, rows_are_those_of_the_tower_the_first_time_and_again) {
    fv_image images[2] = {stripes(0, SIDE, SIDE), stripes(1, SIDE, SIDE)};
    fv_encoded first = encode(images, 1), both = encode(images, 2), again = encode(images, 2);
    fv_encoded anew = encode_anew(images, 1), both_anew = encode_anew(images, 2);
    cr_assert_gt(first.s_vision, 0);
    cr_assert_gt(both.s_vision, 0);
    cr_assert_eq(again.s_vision, 0);
    cr_assert_eq(fv_image_cache_count(l->images).hits, 3);
    cr_assert_eq(fv_image_cache_count(l->images).misses, 2);
    same(&first, &anew);
    cr_assert_eq(memcmp(again.embeds.data, both.embeds.data, both.embeds.bytes), 0);
    fv_encoded_free(&again);
    same(&both, &both_anew);
}

Test(local_encode, the_same_bytes_with_other_sides_are_another_image) {
    fv_image square = stripes(0, SIDE, SIDE), wide = stripes(0, 2 * SIDE, SIDE / 2);
    fv_encoded a = encode(&square, 1), b = encode(&wide, 1), anew = encode_anew(&wide, 1);
    cr_assert_eq(fv_image_cache_count(l->images).misses, 2);
    cr_assert_neq(memcmp(a.embeds.data, b.embeds.data, a.embeds.bytes), 0);
    fv_encoded_free(&a);
    same(&b, &anew);
}

Test(local_encode, no_image_has_no_rows) {
    fv_encoded e = encode(NULL, 0);
    cr_assert_eq(e.n_image, 0);
    cr_assert_null(e.embeds.data);
    fv_encoded_free(&e);
}

Test(local_encode, condensed_rows_are_kept_oob_the_others) {
    fv_policy p;
    fv_image images[2] = {stripes(0, SIDE, SIDE), stripes(1, SIDE, SIDE)};
    fv_encoded e[2], whole = encode(images, 2);
    cr_assert_eq(fv_policy_parse("condense=hired,keep=0.5", &p), FV_OK);
    const fv_choice *hired = &p.stage[FV_STAGE_CONDENSE];
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fv_local_encode(l, images, 2, hired, &e[i]), FV_OK, "%s", fv_last_error());
    cr_assert_gt(e[0].s_vision, 0);
    cr_assert_eq(e[1].s_vision, 0, "the second time they are there");
    int32_t d = fv_local_config(l)->text.d_model;
    size_t row = (size_t)d * sizeof(float);
    for (int i = 0; i < 2; i++) {
        cr_assert(e[i].n_row == 144 && e[i].each[0] == 72 && e[i].each[1] == 72);
        for (int32_t r = 0; r < e[i].n_row; r++)
            cr_assert_eq(memcmp((char *)e[i].embeds.data + (size_t)r * row,
                                (char *)whole.embeds.data + (size_t)e[i].source[r] * row, row),
                         0);
        fv_encoded_free(&e[i]);
    }
    fv_encoded_free(&whole);
}
