/* cli/overlay.c: kept patches unchanged, others dimmed, scores as a heat map; and patch
 * coordinates. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "cli/overlay.h"

enum { ROWS = 4, TILE = 240, GAP = 8, LABEL = 20 }; /* 2 x 2 patches of 120 pixels */

static const fv_layout_config crop = {
    .family = FV_LAYOUT_LLAVA, .tile = 28, .patch = 14, .merge = 1, .shortest_edge = 28};

/* An image of one colour. */
static fv_image plain(int32_t w, int32_t h, uint8_t r, uint8_t g, uint8_t b) {
    fv_image image = {.rgb = malloc((size_t)w * (size_t)h * 3), .w = w, .h = h};
    for (int32_t i = 0; i < w * h; i++) memcpy(image.rgb + 3 * i, (uint8_t[]){r, g, b}, 3);
    return image;
}

static const uint8_t *at(const fv_image *image, int32_t x, int32_t y) {
    return image->rgb + ((size_t)y * (size_t)image->w + (size_t)x) * 3;
}

/* The middle of a patch of a tile with one line. */
static const uint8_t *patch(const fv_image *sheet, int32_t tile, bool heat, int32_t row) {
    int32_t x = GAP + tile * (TILE + GAP) + row % 2 * 120 + 60;
    int32_t y = GAP + LABEL + (heat ? TILE + GAP : 0) + row / 2 * 120 + 60;
    return at(sheet, x, y);
}

Test(overlay, kept_is_clear_dropped_is_dim_and_a_part_of_the_heads_is_between) {
    uint8_t all[ROWS] = {2, 2, 2, 2}, some[ROWS] = {2, 1, 0, 2}, score[ROWS] = {255, 128, 1, 0};
    fv_kept_map_group group[2] = {{0, 3, all, NULL}, {3, 5, some, score}};
    fv_kept_map kept = {.n_visual = ROWS, .n_group = 2, .n_kv = 2, .group = group};
    fv_image image = plain(40, 40, 200, 100, 50), sheet;
    fv_overlay o = {1, &image, &crop, &kept};
    cr_assert_eq(fv_overlay_draw(&o, &sheet), FV_OK, "%s", fv_last_error());
    cr_assert_eq(sheet.w, 2 * (TILE + GAP) + GAP);
    cr_assert_eq(sheet.h, LABEL + 2 * (TILE + GAP) + GAP);
    for (int32_t r = 0; r < ROWS; r++) cr_assert_eq(patch(&sheet, 0, false, r)[0], 200);
    cr_assert_eq(patch(&sheet, 1, false, 0)[0], 200);
    cr_assert_lt(patch(&sheet, 1, false, 2)[0], 60);
    cr_assert(patch(&sheet, 1, false, 1)[0] > 100 && patch(&sheet, 1, false, 1)[0] < 130);
    cr_assert_gt(patch(&sheet, 1, true, 0)[2], patch(&sheet, 1, true, 1)[2], "white is hottest");
    cr_assert_gt(patch(&sheet, 1, true, 1)[0], patch(&sheet, 1, true, 3)[0]);
    cr_assert_eq(patch(&sheet, 0, true, 0)[0], 24, "what was not ranked has no heat");
    fv_image_free(&sheet);
    fv_image_free(&image);
}

Test(overlay, many_sets_go_on_in_the_next_line_and_images_have_bands) {
    uint8_t heads[9][2 * ROWS];
    fv_kept_map_group group[9];
    for (int i = 0; i < 9; i++) {
        memset(heads[i], i % 2, sizeof heads[i]);
        group[i] = (fv_kept_map_group){i, 1, heads[i], NULL};
    }
    fv_kept_map kept = {.n_visual = 2 * ROWS, .n_group = 9, .n_kv = 1, .group = group};
    fv_image image[2] = {plain(8, 8, 9, 9, 9), plain(8, 8, 250, 250, 250)}, sheet;
    fv_overlay o = {2, image, &crop, &kept};
    cr_assert_eq(fv_overlay_draw(&o, &sheet), FV_OK, "%s", fv_last_error());
    int32_t cell = LABEL + TILE + GAP;
    cr_assert_eq(sheet.w, 8 * (TILE + GAP) + GAP);
    cr_assert_eq(sheet.h, 4 * cell + GAP);
    int32_t x = GAP + TILE + GAP + 60, y = GAP + LABEL + 60; /* the second tile holds all */
    cr_assert_eq(at(&sheet, x, y)[0], 9);
    cr_assert_eq(at(&sheet, x, y + 2 * cell)[0], 250, "the second picture's band");
    for (int i = 0; i < 2; i++) fv_image_free(&image[i]);
    fv_image_free(&sheet);
}

Test(overlay, tokens_of_other_images_are_refused) {
    uint8_t heads[8] = {0};
    fv_kept_map_group group = {0, 1, heads, NULL};
    fv_kept_map kept = {.n_visual = 5, .n_group = 1, .n_kv = 1, .group = &group};
    fv_layout_config with_class = crop;
    fv_image image = plain(4, 4, 0, 0, 0), sheet;
    fv_overlay o = {1, &image, &crop, &kept};
    cr_assert_eq(fv_overlay_draw(&o, &sheet), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "which should have 4"), "%s", fv_last_error());
    with_class.class_token = true;
    o.layout = &with_class;
    cr_assert_eq(fv_overlay_draw(&o, &sheet), FV_OK, "%s", fv_last_error());
    fv_image_free(&sheet);
    fv_image_free(&image);
}

static fv_layout_rect seen(const fv_layout_config *c, int32_t w, int32_t h) {
    fv_layout l;
    cr_assert_eq(fv_layout_image(c, w, h, 1, &l), FV_OK, "%s", fv_last_error());
    return fv_layout_view_rect(&l, &l.view[0]);
}

Test(overlay, the_model_sees_the_middle_or_the_whole_on_a_square) {
    fv_layout_config pad = crop, box = crop;
    pad.pad_square = true;
    box.shortest_edge = 0;
    box.resize = (fv_layout_size){28, 28};
    fv_layout_rect s = seen(&crop, 100, 50);
    cr_assert(s.x == 25 && s.y == 0 && s.w == 50 && s.h == 50, "%g %g %g %g", s.x, s.y, s.w, s.h);
    s = seen(&pad, 100, 50);
    cr_assert(s.x == 0 && s.y == -25 && s.w == 100 && s.h == 100);
    s = seen(&box, 100, 50);
    cr_assert(s.x == 0 && s.y == 0 && s.w == 100 && s.h == 50);
}
