/* layout/layout.c: errors name invalid numbers, limits hold, text has a mark for each span. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"

static fv_layout_config sane(void) {
    return (fv_layout_config){
        .family = FV_LAYOUT_LLAVA, .tile = 336, .patch = 14, .merge = 1, .shortest_edge = 336};
}

static void expect_wrong(const fv_layout_config *c, const char *words) {
    cr_assert_eq(fv_layout_check(c), FV_EINVAL, "%s", words);
    cr_assert_not_null(strstr(fv_last_error(), words), "'%s' lacks '%s'", fv_last_error(), words);
}

Test(layout, numbers_that_cannot_be_are_named) {
    fv_layout_config c = sane();
    cr_assert_eq(fv_layout_check(&c), FV_OK);
    c.family = FV_LAYOUT_NONE, expect_wrong(&c, "reads no images");
    c.family = FV_N_LAYOUT, expect_wrong(&c, "reads no images");
    c.family = (fv_layout_family)-1, expect_wrong(&c, "reads no images");
    c = sane(), c.tile = 0, expect_wrong(&c, "the tower's image size is 0; 1..8192");
    c = sane(), c.tile = 8193, expect_wrong(&c, "the tower's image size is 8193");
    c = sane(), c.patch = 337, expect_wrong(&c, "the patch size is 337; 1..336");
    c = sane(), c.patch = -1, expect_wrong(&c, "the patch size is -1");
    c = sane(), c.merge = 25, expect_wrong(&c, "patches of a token's side is 25; 1..24");
    c = sane(), c.merge = 5,
    expect_wrong(&c, "the 24 patches of a tile's side are not a multiple of the 5");
    c = sane(), c.shortest_edge = -1, expect_wrong(&c, "shortest_edge is -1");
    c = sane(), c.resize.w = 3, expect_wrong(&c, "resized to 3 x 0");
    c = sane(), c.resize.h = c.resize.w = 8193, expect_wrong(&c, "resized to 8193 x 8193");
}

Test(layout, numbers_of_tiles_that_cannot_be_are_named) {
    fv_layout_config next = {.family = FV_LAYOUT_LLAVA_NEXT,
                             .tile = 10,
                             .patch = 5,
                             .merge = 1,
                             .n_pinpoint = 1,
                             .pinpoint = {{20, 10}}};
    fv_layout_config c = next;
    cr_assert_eq(fv_layout_check(&c), FV_OK);
    c.n_pinpoint = 0, expect_wrong(&c, "fitted to 0 sizes; 1..64 are possible: see image_grid_pin");
    c.n_pinpoint = 65, expect_wrong(&c, "fitted to 65 sizes");
    c = next, c.pinpoint[0].h = 15;
    expect_wrong(&c, "fitted to 20 x 15 pixels, which tiles of 10 do not divide");
    c = next, c.pinpoint[0].w = 0, expect_wrong(&c, "fitted to 0 x 10");
    c = next, c.pinpoint[0].w = -10, expect_wrong(&c, "fitted to -10 x 10");
    c = next, c.pinpoint[0].w = 2560, expect_wrong(&c, "256 tiles of 10; fewer than 256");
    c = next, c.class_token = true, expect_wrong(&c, "images of llava_next have no class token");
    c = next, c.family = FV_LAYOUT_LLAVA_ONEVISION, expect_wrong(&c, "as many tokens as 0 tiles");
    c.tiles_max = 9;
    cr_assert_eq(fv_layout_check(&c), FV_OK);
    c.n_pinpoint = 0, expect_wrong(&c, "fitted to 0 sizes");
    c = next, c.family = FV_LAYOUT_IDEFICS3, expect_wrong(&c, "longest_edge is 0; 1..8192");
    c.longest_edge = 8193, expect_wrong(&c, "longest_edge is 8193");
    c = next, c.family = FV_LAYOUT_INTERNVL, c.tiles_min = 1, c.tiles_max = 12;
    cr_assert_eq(fv_layout_check(&c), FV_OK);
    c.tiles_min = 13, expect_wrong(&c, "cut into 13 to 12 tiles; 1 to 255 are possible: see min_p");
    c.tiles_min = 0, expect_wrong(&c, "cut into 0 to 12 tiles");
    c.tiles_min = 1, c.tiles_max = 256, expect_wrong(&c, "cut into 1 to 256 tiles");
    c = next, c.family = FV_LAYOUT_QWEN_VL, c.pixels_min = 1;
    expect_wrong(&c, "scaled to 1 to 0 pixels, of which both must be at least 1");
}

Test(layout, too_many_tiles_are_refused_with_the_images_size_and_the_limit) {
    const fv_layout_config c = {.family = FV_LAYOUT_IDEFICS3,
                                .tile = 16,
                                .patch = 8,
                                .merge = 1,
                                .longest_edge = 256,
                                .split = true};
    fv_layout l;
    cr_assert_eq(fv_layout_image(&c, 640, 600, 1, &l), FV_OK);
    cr_assert_eq(l.n_tile, 16 * 15 + 1);
    cr_assert_eq(fv_layout_image(&c, 640, 640, 1, &l), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "640 x 640 pixels has 257 tiles; at most 256"), "%s",
                       fv_last_error());
}

Test(layout, a_strip_whose_rows_would_all_be_scaled_away_is_refused) {
    const fv_layout_config c = {.family = FV_LAYOUT_LLAVA_ONEVISION,
                                .tile = 10,
                                .patch = 10,
                                .merge = 1,
                                .tiles_max = 1,
                                .n_pinpoint = 1,
                                .pinpoint = {{40, 10}}};
    fv_layout l;
    cr_assert_eq(fv_layout_check(&c), FV_OK);
    cr_assert_eq(fv_layout_image(&c, 80, 20, 1, &l), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "80 x 20 pixels has 4 x 1 visual tokens"), "%s",
                       fv_last_error());
    cr_assert_eq(fv_layout_image(&c, 80, 20, 2, &l), FV_OK, "of several images none has tiles");
    cr_assert(l.n_visual == 2 && l.span[0].newline_end && l.view[0].pad_square);
}

Test(layout, an_image_that_is_one_tile_of_its_own_shape_has_limits) {
    fv_layout_config c = {.family = FV_LAYOUT_MISTRAL3, .tile = 64, .patch = 4, .merge = 3};
    fv_layout l;
    expect_wrong(&c,
                 "scaled down to 0 x 0 pixels; sides of 1..8192 are possible: see longest_edge");
    c.resize = (fv_layout_size){60, 30};
    cr_assert_eq(fv_layout_check(&c), FV_OK, "a tile need not be whole tokens");
    cr_assert_eq(fv_layout_image(&c, 100, 30, 1, &l), FV_OK);
    cr_assert(l.tile.w == 60 && l.tile.h == 24 && l.n_span == 2 && l.n_visual == 10);
    cr_assert_eq(fv_layout_image(&c, 1, 61, 1, &l), FV_EINVAL);
    cr_assert_not_null(
        strstr(fv_last_error(), "1 x 61 pixels, scaled down to 60 x 30, has no pixels"), "%s",
        fv_last_error());
    c = (fv_layout_config){
        .family = FV_LAYOUT_MISTRAL3, .tile = 64, .patch = 1, .merge = 1, .resize = {300, 300}};
    cr_assert_eq(fv_layout_image(&c, 9, 256, 1, &l), FV_OK);
    cr_assert_eq(fv_layout_image(&c, 9, 257, 1, &l), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "more than 256 rows of tokens"), "%s",
                       fv_last_error());
}

Test(layout, sides_are_rounded_half_to_even_between_two_areas) {
    static const struct {
        int32_t w, h, cols, rows;
    } size[] = {{70, 42, 2, 2},    {98, 126, 4, 4}, {1, 1, 2, 2},
                {2800, 14, 29, 1}, {14, 14, 2, 2},  {500, 300, 5, 3}};
    const fv_layout_config c = {.family = FV_LAYOUT_QWEN_VL,
                                .tile = 28,
                                .patch = 14,
                                .merge = 2,
                                .pixels_min = 4 * 784,
                                .pixels_max = 20 * 784};
    static fv_layout l;
    cr_assert_eq(fv_layout_check(&c), FV_OK, "%s", fv_last_error());
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        cr_assert_eq(fv_layout_image(&c, size[i].w, size[i].h, 1, &l), FV_OK);
        const fv_layout_span *s = &l.span[0];
        cr_expect(s->w == size[i].cols && s->h == size[i].rows, "%d x %d: %d x %d", size[i].w,
                  size[i].h, s->w, s->h);
        cr_expect(fv_layout_is_of_tiles(&l) && l.n_text == 0 && l.n_visual == s->w * s->h);
        cr_expect_leq(l.n_visual, fv_layout_tokens_max(&c, 1));
    }
    cr_assert_eq(fv_layout_image(&c, 201, 1, 1, &l), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "201 x 1 pixels is more than 200 times"));
}

/* Lays out a video of n frames without times of their own. */
static fv_status lay_video(const fv_layout_config *c, int32_t w, int32_t h, int32_t n, double fps,
                           fv_layout *out) {
    return fv_layout_video(c, w, h, &(fv_layout_clip){.n = n, .fps = fps}, out);
}

/* Qwen2.5-VL: two frames to a tile, tiles of one grid; the step is positions of two frames' time. */
Test(layout, a_video_is_one_grid_of_tiles_of_two_frames) {
    fv_layout_config c = {.family = FV_LAYOUT_QWEN_VL,
                          .tile = 8192,
                          .patch = 14,
                          .merge = 2,
                          .pixels_min = 784,
                          .pixels_max = 784 * 100,
                          .video_pixels_min = 784 * 4,
                          .video_pixels_max = 784 * 20,
                          .tokens_per_second = 4};
    fv_layout l;
    cr_assert_eq(fv_layout_check(&c), FV_OK, "%s", fv_last_error());
    cr_assert(fv_layout_reads_video(&c));
    for (int32_t n = 1; n <= 5; n++) {
        cr_assert_eq(lay_video(&c, 200, 100, n, 2.5, &l), FV_OK, "%s", fv_last_error());
        const fv_layout_span *s = &l.span[0];
        cr_assert(l.video && l.frames == 2 && l.n_tile == (n + 1) / 2 && l.n_span == 1);
        cr_assert(s->t == l.n_tile && s->h == 3 && s->w == 6 && fv_layout_is_of_tiles(&l),
                  "%d x %d", s->h, s->w);
        cr_assert_eq(l.n_visual, s->t * s->h * s->w);
        cr_assert(s->step == 4 * (float)(2 / 2.5));
    }
    cr_assert_eq(lay_video(&c, 200, 100, 2 * FV_LAYOUT_TILES_MAX, 1, &l), FV_OK);
    cr_assert_eq(lay_video(&c, 200, 100, 2 * FV_LAYOUT_TILES_MAX + 1, 1, &l), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "at most 512 are possible"), "%s", fv_last_error());
    static const double wrong[] = {0, -1, 1001, NAN, INFINITY};
    for (int i = 0; i < 5; i++)
        cr_assert_eq(lay_video(&c, 200, 100, 4, wrong[i], &l), FV_EINVAL, "%g", wrong[i]);
    cr_assert_eq(lay_video(&c, 200, 100, 0, 1, &l), FV_EINVAL);
    cr_assert_eq(lay_video(&c, 0, 100, 1, 1, &l), FV_EINVAL);
    c.tokens_per_second = -1;
    cr_assert_eq(fv_layout_check(&c), FV_EINVAL);
    c.tokens_per_second = 0, c.video_pixels_min = 0;
    cr_assert_eq(fv_layout_check(&c), FV_EINVAL);
    c.video_pixels_max = 0;
    cr_assert_eq(fv_layout_check(&c), FV_OK, "%s", fv_last_error());
    cr_assert_eq(lay_video(&c, 200, 100, 4, 1, &l), FV_EUNSUPPORTED);
    c = (fv_layout_config){.family = FV_LAYOUT_LLAVA, .tile = 56, .patch = 14, .merge = 1};
    c.video_pixels_max = 9;
    cr_assert_eq(fv_layout_check(&c), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "read videos only as images"), "%s", fv_last_error());
}

/* Qwen3-VL: each tile is a grid after its time; the limits are of all frames together. */
Test(layout, a_video_of_qwen3_vl_has_its_times_between_its_tiles) {
    static char text[FV_LAYOUT_TEXT_MAX];
    static fv_layout l;
    const double at[] = {0, 0.5, 7.25, 8, 11};
    const fv_layout_config c = {.family = FV_LAYOUT_QWEN3_VL,
                                .tile = 32,
                                .patch = 16,
                                .merge = 2,
                                .pixels_min = 1024,
                                .pixels_max = 1024 * 100,
                                .video_pixels_min = 1024 * 8,
                                .video_pixels_max = 1024 * 24};
    cr_assert_eq(fv_layout_check(&c), FV_OK, "%s", fv_last_error());
    fv_layout_clip v = {.n = 5, .fps = 2, .seconds = at, .n_seconds = 5};
    cr_assert_eq(fv_layout_video(&c, 96, 64, &v, &l), FV_OK, "%s", fv_last_error());
    cr_assert(l.video && l.frames == 2 && l.n_tile == 3 && l.n_span == 3 && l.n_text == 9);
    for (int32_t i = 0; i < 3; i++) {
        const fv_layout_span *s = &l.span[i];
        cr_assert(s->tile == i && s->t == 1 && s->step == 0 && s->h == 2 && s->w == 3);
        cr_assert_eq(fv_layout_span_place(&c, &l, i).view, 0);
    }
    cr_assert_eq(fv_layout_text(&c, &l, "M", text), FV_OK);
    cr_assert_str_eq(text, "<0.2 seconds><|vision_start|>M<|vision_end|>"
                           "<7.6 seconds><|vision_start|>M<|vision_end|>"
                           "<11.0 seconds><|vision_start|>M<|vision_end|>");
    v.n_seconds = 0;
    cr_assert_eq(fv_layout_video(&c, 96, 64, &v, &l), FV_OK);
    cr_assert(l.span[0].seconds == 0.25 && l.span[1].seconds == 1.25 && l.span[2].seconds == 2);
    v.n = 20; /* 20 x 6 tokens are more than 24 */
    cr_assert_eq(fv_layout_video(&c, 96, 64, &v, &l), FV_OK);
    cr_assert(l.span[0].h == 1 && l.span[0].w == 1 && l.n_span == 10);
    v.n = 1; /* counts twice */
    cr_assert_eq(fv_layout_video(&c, 32, 32, &v, &l), FV_OK);
    cr_assert(l.span[0].h == 2 && l.span[0].w == 2 && l.n_span == 1);
}

Test(layout, an_image_of_lighton_ocr_has_whole_tokens_of_its_patches) {
    static fv_layout l;
    fv_layout_config c = {.family = FV_LAYOUT_LIGHTON_OCR,
                          .tile = 1540,
                          .patch = 14,
                          .merge = 2,
                          .resize = {1540, 1540},
                          .shortest_edge = 14};
    cr_assert_eq(fv_layout_image(&c, 100, 60, 1, &l), FV_OK, "%s", fv_last_error());
    cr_assert(l.tile.w == 112 && l.tile.h == 70 && l.n_visual == 4 * 2 && l.n_text == 0);
    cr_assert_eq(fv_layout_image(&c, 3080, 1000, 1, &l), FV_OK);
    cr_assert(l.tile.w == 1540 && l.tile.h == 504 && l.n_visual == 55 * 18);
    cr_assert_leq(l.n_visual, fv_layout_tokens_max(&c, 1));
    cr_assert_eq(fv_layout_image(&c, 14, 60, 1, &l), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "less than a token of 28 x 28"), "%s", fv_last_error());
    c.shortest_edge = 28;
    cr_assert_eq(fv_layout_image(&c, 100, 60, 1, &l), FV_OK);
    cr_assert(l.tile.w == 112 && l.tile.h == 84 && l.n_visual == 4 * 3);
    c.shortest_edge = 0;
    cr_assert_eq(fv_layout_check(&c), FV_EINVAL);
}

/* Sizes are those of transformers' smart_resize. */
Test(layout, an_image_of_paddleocr_vl_is_first_enlarged_to_a_token) {
    static const struct {
        int32_t w, h, to_w, to_h;
    } sizes[] = {{640, 480, 644, 476}, {20, 300, 112, 1512}, {5000, 3000, 2156, 1288},
                 {7, 7, 392, 392},     {3000, 20, 4704, 56}, {1, 150, 56, 4704},
                 {13, 41, 224, 700}};
    static fv_layout l;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const fv_layout_config c = {.family = FV_LAYOUT_PADDLEOCR_VL,
                                    .tile = 28,
                                    .patch = 14,
                                    .merge = 2,
                                    .pixels_min = 147384,
                                    .pixels_max = 2822400};
        cr_assert_eq(fv_layout_image(&c, sizes[i].w, sizes[i].h, 1, &l), FV_OK, "%s",
                     fv_last_error());
        cr_assert(l.tile.w == sizes[i].to_w && l.tile.h == sizes[i].to_h, "%dx%d: %dx%d",
                  sizes[i].w, sizes[i].h, l.tile.w, l.tile.h);
        cr_assert_leq(l.n_visual, fv_layout_tokens_max(&c, 1));
    }
    cr_assert_str_eq(fv_layout_image_token(FV_LAYOUT_PADDLEOCR_VL), "<|IMAGE_PLACEHOLDER|>");
}

/* GLM counts an image as two frames. Sizes are those of transformers' smart_resize. */
Test(layout, an_image_of_glm_has_half_of_the_pixels_that_its_limits_say) {
    static const struct {
        int32_t w, h, least, most, to_w, to_h;
    } sizes[] = {
        {640, 480, 12544, 9633792, 644, 476},
        {640, 480, 1001, 50001, 168, 112},
        {20, 300, 12544, 9633792, 28, 420},
        {5000, 3000, 12544, 9633792, 2828, 1680},
        {5000, 3000, 12544, 11760000, 3108, 1876},
        {7, 7, 12544, 9633792, 84, 84},
        {7, 7, 1001, 50001, 28, 28},
        {3000, 20, 12544, 9633792, 4200, 28},
        {3000, 20, 1001, 50001, 1932, 28},
        {1, 150, 12544, 11760000, 28, 4200},
        {100, 9000, 1001, 50001, 28, 1484},
    };
    static fv_layout l;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const fv_layout_config c = {.family = FV_LAYOUT_GLM4V,
                                    .tile = 28,
                                    .patch = 14,
                                    .merge = 2,
                                    .pixels_min = sizes[i].least,
                                    .pixels_max = sizes[i].most};
        cr_assert_eq(fv_layout_image(&c, sizes[i].w, sizes[i].h, 1, &l), FV_OK, "%s",
                     fv_last_error());
        cr_assert(l.tile.w == sizes[i].to_w && l.tile.h == sizes[i].to_h, "%dx%d: %dx%d",
                  sizes[i].w, sizes[i].h, l.tile.w, l.tile.h);
        cr_assert_eq(l.n_visual, l.tile.w / 28 * (l.tile.h / 28));
        cr_assert_leq(l.n_visual, fv_layout_tokens_max(&c, 1));
    }
    const fv_layout_config c = {.family = FV_LAYOUT_GLM4V,
                                .tile = 28,
                                .patch = 14,
                                .merge = 2,
                                .pixels_min = 1,
                                .pixels_max = 9};
    cr_assert_eq(fv_layout_image(&c, 1, 300, 1, &l), FV_EINVAL);
    cr_assert_str_eq(fv_layout_image_token(FV_LAYOUT_GLM4V), "<|image|>");
}

Test(layout, frames_of_video_llava_have_their_class_tokens) {
    static fv_layout l;
    fv_layout_config c = {.family = FV_LAYOUT_LLAVA,
                          .tile = 28,
                          .patch = 14,
                          .merge = 1,
                          .shortest_edge = 28,
                          .tower_class = true,
                          .video_class = true};
    cr_assert_eq(fv_layout_check(&c), FV_OK, "%s", fv_last_error());
    cr_assert(fv_layout_reads_video(&c));
    cr_assert_eq(lay_video(&c, 80, 60, 3, 1, &l), FV_OK, "%s", fv_last_error());
    cr_assert(l.video && l.frames == 1 && l.n_tile == 3 && l.n_span == 3 && l.n_visual == 15);
    for (int32_t i = 0; i < 3; i++) cr_assert(l.span[i].tile == i && l.span[i].class_token);
    cr_assert_eq(fv_layout_image(&c, 80, 60, 1, &l), FV_OK);
    cr_assert(l.n_visual == 4 && !l.span[0].class_token);
    cr_assert_eq(lay_video(&c, 80, 60, FV_LAYOUT_TILES_MAX + 1, 1, &l), FV_EINVAL);
    c.tower_class = false;
    cr_assert_eq(fv_layout_check(&c), FV_EINVAL);
}

Test(layout, times_of_frames_are_finite_and_ascend) {
    static fv_layout l;
    const fv_layout_config c = {.family = FV_LAYOUT_QWEN3_VL,
                                .tile = 32,
                                .patch = 16,
                                .merge = 2,
                                .pixels_min = 1024,
                                .pixels_max = 9999,
                                .video_pixels_min = 1024,
                                .video_pixels_max = 99999};
    const double wrong[][2] = {{-1, 0}, {1, 0.5}, {0, NAN}, {NAN, 1}, {0, INFINITY}, {0, 2e6}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_layout_clip v = {.n = 2, .fps = 1, .seconds = wrong[i], .n_seconds = 2};
        cr_assert_eq(fv_layout_video(&c, 64, 64, &v, &l), FV_EINVAL, "%zu", i);
        cr_assert(strstr(fv_last_error(), "its time must be from"), "%s", fv_last_error());
        v.n_seconds = 1;
        cr_assert_eq(fv_layout_video(&c, 64, 64, &v, &l), FV_EINVAL);
        cr_assert(strstr(fv_last_error(), "2 frames and the times of 1"), "%s", fv_last_error());
    }
}

Test(layout, patches_need_not_fill_a_tile) {
    fv_layout_config c = sane();
    fv_layout l;
    c.tile = 384;
    cr_assert_eq(fv_layout_check(&c), FV_OK);
    cr_assert_eq(fv_layout_image(&c, 9, 9, 1, &l), FV_OK);
    cr_assert_eq(l.n_visual, 27 * 27);
    c.merge = 3;
    cr_assert_eq(fv_layout_image(&c, 9, 9, 1, &l), FV_OK);
    cr_assert_eq(l.n_visual, 9 * 9);
}

Test(layout, too_many_tokens_are_refused_with_the_images_size_and_the_limit) {
    fv_layout_config c = sane();
    fv_layout l;
    c.patch = 1;
    cr_assert_eq(fv_layout_check(&c), FV_OK);
    cr_assert_eq(fv_layout_image(&c, 640, 480, 1, &l), FV_EINVAL);
    cr_assert_not_null(
        strstr(fv_last_error(), "640 x 480 pixels has 112896 visual tokens; 1..100000"), "%s",
        fv_last_error());
    cr_assert_eq(fv_layout_tokens_max(&c, 1), FV_LAYOUT_TOKENS_MAX);
}

Test(layout, an_empty_image_has_no_layout) {
    const fv_layout_config c = sane(), none = {0};
    fv_layout l;
    cr_assert_eq(fv_layout_image(&c, 0, 5, 1, &l), FV_EINVAL);
    cr_assert_eq(fv_layout_image(&c, 5, -1, 1, &l), FV_EINVAL);
    cr_assert_eq(fv_layout_image(&none, 5, 5, 1, &l), FV_EINVAL);
    cr_assert_eq(fv_layout_tokens_max(&none, 1), 0);
}

Test(layout, families_have_names) {
    cr_assert_str_eq(fv_layout_family_name(FV_LAYOUT_LLAVA), "llava");
    cr_assert_str_eq(fv_layout_family_name(FV_LAYOUT_IDEFICS3), "idefics3");
    cr_assert_str_eq(fv_layout_family_name(FV_LAYOUT_NONE), "none");
    cr_assert_str_eq(fv_layout_image_token(FV_LAYOUT_NONE), "<image>");
    cr_assert_str_eq(fv_layout_image_token(FV_LAYOUT_INTERNVL), "<IMG_CONTEXT>");
    cr_assert_str_eq(fv_layout_image_token(FV_LAYOUT_MISTRAL3), "[IMG]");
    cr_assert_str_eq(fv_layout_image_token(FV_LAYOUT_QWEN_VL), "<|image_pad|>");
    cr_assert_str_eq(fv_layout_image_token(FV_LAYOUT_GEMMA3), "<start_of_image>");
    cr_assert(strstr(fv_layout_replacement_text(FV_LAYOUT_GEMMA3), "<image_soft_token>"));
    cr_assert_null(fv_layout_replacement_text(FV_LAYOUT_QWEN_VL));
    cr_assert_str_eq(fv_layout_family_name((fv_layout_family)99), "none");
}

Test(layout, an_image_is_a_mark_for_each_span_in_the_prompt) {
    const fv_layout_config c = sane();
    fv_layout l;
    char text[FV_LAYOUT_TEXT_MAX];
    cr_assert_eq(fv_layout_image(&c, 9, 9, 1, &l), FV_OK);
    cr_assert_eq(fv_layout_text(&c, &l, "<image>", text), FV_OK);
    cr_assert_str_eq(text, "<image>");
    char *mark = calloc(1, FV_LAYOUT_TEXT_MAX + 1);
    memset(mark, 'x', FV_LAYOUT_TEXT_MAX);
    cr_assert_eq(fv_layout_text(&c, &l, mark, text), FV_EINVAL);
    free(mark);
}

Test(layout, a_request_narrows_the_area_of_images_within_the_models_limits) {
    const fv_layout_config model = {.family = FV_LAYOUT_QWEN_VL,
                                    .tile = 28,
                                    .patch = 14,
                                    .merge = 2,
                                    .pixels_min = 4 * 784,
                                    .pixels_max = 64 * 784};
    static const struct {
        uint32_t least, most;
        int32_t n_visual; /* of 280 x 280 pixels, 100 tokens; 0: refused */
        const char *words;
    } cases[] = {
        {0, 0, 64, NULL},
        {0, 16 * 784, 16, NULL},
        {64 * 784, 0, 64, NULL},
        {4 * 784, 4 * 784, 4, NULL},
        {0, 64 * 784 + 1, 0, "limits are 3136 to 50176"},
        {0, 4 * 784 - 1, 0, "max_pixels 3135"},
        {1, 0, 0, "min_pixels 1"},
        {UINT32_MAX, 0, 0, "min_pixels 4294967295"},
        {16 * 784, 9 * 784, 0, "must not exceed max_pixels"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_layout_config c = model;
        fv_layout l;
        fv_status st = fv_layout_bound(&c, cases[i].least, cases[i].most);
        cr_assert_eq(st, cases[i].n_visual ? FV_OK : FV_EINVAL, "case %zu", i);
        if (st != FV_OK) {
            cr_assert(strstr(fv_last_error(), cases[i].words), "%s", fv_last_error());
            continue;
        }
        cr_assert_eq(fv_layout_image(&c, 280, 280, 1, &l), FV_OK, "%s", fv_last_error());
        cr_assert_eq(l.n_visual, cases[i].n_visual, "case %zu: %d", i, l.n_visual);
    }
    fv_layout_config c = sane();
    cr_assert_eq(fv_layout_bound(&c, 0, 0), FV_OK);
    cr_assert_eq(fv_layout_bound(&c, 0, 784), FV_OK, "a family without such limits");
    cr_assert_eq(c.pixels_max, 0);
}
