/* eval/scenes/render.c: images show what the facts say, and are bit-identical everywhere. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "eval/scenes/render.h"

static fv_scene make(fv_split split, uint64_t index) {
    fv_scene s;
    cr_assert_eq(fv_scene_make(&(fv_scene_key){.split = split, .index = index}, NULL, &s), FV_OK);
    return s;
}

/* Digest of the first `n` images of the test split. */
static uint64_t digest_of(int32_t side, int32_t n) {
    const size_t bytes = (size_t)side * (size_t)side * 3;
    uint8_t *rgb = malloc(bytes);
    uint64_t digest = 0;
    for (int32_t i = 0; i < n; i++) {
        fv_scene s = make(FV_SPLIT_TEST, (uint64_t)i);
        cr_assert_eq(fv_render(&s, side, rgb), FV_OK);
        digest = XXH64(rgb, bytes, digest);
    }
    free(rgb);
    return digest;
}

static void expect_digest(int32_t side, uint64_t golden) {
    uint64_t digest = digest_of(side, 40);
    cr_expect_eq(digest, golden, "side %d: %#llx", side, (unsigned long long)digest);
}

Test(render, pixels_are_those_of_the_day_they_were_fixed) {
    expect_digest(144, UINT64_C(0xd3564e4d6089028f));
    expect_digest(336, UINT64_C(0x3ccc5b8622dc9efe));
    expect_digest(97, UINT64_C(0xd7df73f8e7e8fd2a)); /* odd, and no multiple of anything */
}

Test(render, rich_images_are_those_of_the_day_they_were_fixed) {
    enum { SIDE = 288 };
    static uint8_t rgb[SIDE * SIDE * 3];
    const fv_scene_knobs rich = fv_scene_knobs_rich();
    uint64_t digest = 0;
    for (uint64_t i = 0; i < 40; i++) {
        fv_scene s;
        const fv_scene_key key = {.split = FV_SPLIT_TEST, .index = i};
        cr_assert_eq(fv_scene_make(&key, &rich, &s), FV_OK);
        cr_assert_eq(fv_render(&s, SIDE, rgb), FV_OK);
        digest = XXH64(rgb, sizeof rgb, digest);
    }
    cr_expect_eq(digest, UINT64_C(0x5604a95f405bb421), "%#llx", (unsigned long long)digest);
}

Test(render, writes_the_whole_image_and_no_more) {
    enum { SIDE = 96, BYTES = SIDE * SIDE * 3 };
    static uint8_t a[BYTES + 64], b[BYTES + 64];
    fv_scene s = make(FV_SPLIT_TRAIN, 3);
    memset(a, 0, sizeof a);
    memset(b, 255, sizeof b);
    cr_assert_eq(fv_render(&s, SIDE, a), FV_OK);
    cr_assert_eq(fv_render(&s, SIDE, b), FV_OK);
    cr_assert_arr_eq(a, b, BYTES);
    for (int i = BYTES; i < BYTES + 64; i++) cr_assert(a[i] == 0 && b[i] == 255);
}

/* The mean colour around a point, so that per-pixel noise counts little. */
static void mean_at(const uint8_t *rgb, int32_t side, int32_t x, int32_t y, int32_t mean[3]) {
    const int32_t px = (int32_t)((int64_t)x * side / FV_SCENE_UNIT);
    const int32_t py = (int32_t)((int64_t)y * side / FV_SCENE_UNIT);
    for (int c = 0; c < 3; c++) {
        mean[c] = 0;
        for (int32_t j = -2; j <= 2; j++)
            for (int32_t i = -2; i <= 2; i++) mean[c] += rgb[((py + j) * side + px + i) * 3 + c];
        mean[c] /= 25;
    }
}

Test(render, objects_have_their_colour_at_their_place) {
    enum { SIDE = 336 };
    static uint8_t rgb[SIDE * SIDE * 3];
    int32_t objects = 0;
    for (uint64_t i = 0; i < 60; i++) {
        fv_scene s = make(FV_SPLIT_TEST, i);
        cr_assert_eq(fv_render(&s, SIDE, rgb), FV_OK);
        for (int32_t k = 0; k < s.n_object; k++) {
            const fv_scene_object *o = &s.object[k];
            int32_t mean[3], x = o->x;
            if (o->shape == FV_SHAPE_RING) x += o->radius * 73 / 100; /* it is hollow */
            mean_at(rgb, SIDE, x, o->y, mean);
            for (int c = 0; c < 3; c++)
                cr_assert(abs(mean[c] - o->rgb[c]) < 32, "scene %d object %d: %d, not %d", (int)i,
                          k, mean[c], o->rgb[c]);
            objects++;
        }
    }
    cr_assert_gt(objects, 200);
}

Test(render, a_image_at_another_side_is_the_same_image) {
    static uint8_t small[144 * 144 * 3], large[288 * 288 * 3];
    fv_scene s = make(FV_SPLIT_TRAIN, 11);
    cr_assert_eq(fv_render(&s, 144, small), FV_OK);
    cr_assert_eq(fv_render(&s, 288, large), FV_OK);
    double difference = 0;
    for (int y = 0; y < 144; y++)
        for (int x = 0; x < 144; x++)
            for (int c = 0; c < 3; c++) {
                int sum = 0;
                for (int k = 0; k < 4; k++)
                    sum += large[((2 * y + k / 2) * 288 + 2 * x + k % 2) * 3 + c];
                difference += abs(small[(y * 144 + x) * 3 + c] - sum / 4);
            }
    cr_assert_lt(difference / (144 * 144 * 3), 12, "%f", difference / (144 * 144 * 3));
}

Test(render, sides_out_of_range_are_refused) {
    fv_scene s = make(FV_SPLIT_TRAIN, 0);
    uint8_t rgb[3];
    int32_t sides[] = {-1, 0, 95, 1025};
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(fv_render(&s, sides[i], rgb), FV_EINVAL);
        cr_assert(strstr(fv_last_error(), "out of range 96..1024"));
    }
}
