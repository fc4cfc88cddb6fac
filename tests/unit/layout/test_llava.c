/* layout/llava.c: one tile from the middle of the image, or all of it on a square. */
#include <criterion/criterion.h>
#include <string.h>

#include "layout/layout.h"

static fv_layout_config clip_336(void) {
    return (fv_layout_config){
        .family = FV_LAYOUT_LLAVA, .tile = 336, .patch = 14, .merge = 1, .shortest_edge = 336};
}

static fv_layout layout(const fv_layout_config *c, int32_t w, int32_t h) {
    fv_layout l;
    cr_assert_eq(fv_layout_check(c), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_layout_image(c, w, h, 1, &l), FV_OK, "%s", fv_last_error());
    cr_assert(l.image_w == w && l.image_h == h && l.n_view == 1 && l.n_tile == 1 && l.n_span == 1);
    cr_assert_eq(l.n_visual, l.span[0].n);
    cr_assert_eq(l.n_visual, fv_layout_tokens_max(c, 1));
    return l;
}

static void expect_seen(const fv_layout *l, double x, double y, double w, double h) {
    const fv_layout_rect r = fv_layout_view_rect(l, &l->view[0]);
    cr_assert(r.x == x && r.y == y && r.w == w && r.h == h, "%g %g %g %g", r.x, r.y, r.w, r.h);
}

Test(llava, the_shorter_side_is_resized_and_the_middle_is_seen) {
    const fv_layout_config c = clip_336();
    const fv_layout l = layout(&c, 640, 479);
    const fv_layout_view *v = &l.view[0];
    cr_assert(!v->pad_square && v->n_resize == 1 && v->cols == 1 && v->rows == 1);
    cr_assert(v->resize[0].w == 448 && v->resize[0].h == 336, "336 * 640 / 479 = 448.9");
    cr_assert(v->x == -56 && v->y == 0 && v->w == 336 && v->h == 336);
    const fv_layout_span *s = &l.span[0];
    cr_assert(s->n == 576 && s->t == 1 && s->h == 24 && s->w == 24 && s->tile == 0);
    cr_assert(s->cols == 1 && s->rows == 1 && s->crop_w == 24 && s->crop_h == 24 &&
              !s->class_token);
    const fv_layout half = layout(&c, 672, 1344);
    expect_seen(&half, 0, 336, 672, 672);
}

Test(llava, what_is_smaller_than_the_crop_lies_in_the_middle) {
    fv_layout_config c = clip_336();
    c.shortest_edge = 0;
    fv_layout l = layout(&c, 33, 1000);
    cr_assert_eq(l.view[0].n_resize, 0);
    cr_assert(l.view[0].x == 152 && l.view[0].y == -332, "(33 - 336) // 2 is -152");
    c.resize = (fv_layout_size){336, 300};
    l = layout(&c, 33, 1000);
    cr_assert(l.view[0].resize[0].w == 336 && l.view[0].x == 0 && l.view[0].y == 18);
}

Test(llava, a_padded_image_is_seen_whole) {
    fv_layout_config c = clip_336();
    c.pad_square = true;
    const fv_layout wide = layout(&c, 672, 300), square = layout(&c, 50, 50);
    cr_assert(wide.view[0].pad_square && wide.view[0].resize[0].w == 336 && wide.view[0].x == 0);
    cr_assert_not(square.view[0].pad_square, "nothing to pad");
    expect_seen(&wide, 0, -186, 672, 672);
    expect_seen(&square, 0, 0, 50, 50);
}

Test(llava, the_class_token_is_one_more) {
    fv_layout_config c = clip_336();
    c.class_token = true;
    const fv_layout l = layout(&c, 5, 5);
    cr_assert(l.span[0].class_token && l.n_visual == 577 && l.span[0].h * l.span[0].w == 576);
}

Test(llava, a_strip_that_would_have_more_pixels_than_can_be_counted_is_refused) {
    const fv_layout_config c = clip_336();
    fv_layout l;
    cr_assert_eq(fv_layout_image(&c, 1, 2147483647, 1, &l), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "1 x 2147483647 pixels is too narrow"), "%s",
                       fv_last_error());
}
