/* layout/layout.c: numbers that cannot be are named, limits hold, text has a mark for each span. */
#include <criterion/criterion.h>
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
    c = sane(), c.merge = 5, expect_wrong(&c, "24 patches a side, which tokens of 5");
    c = sane(), c.shortest_edge = -1, expect_wrong(&c, "shortest_edge is -1");
    c = sane(), c.resize.w = 3, expect_wrong(&c, "resized to 3 x 0");
    c = sane(), c.resize.h = c.resize.w = 8193, expect_wrong(&c, "resized to 8193 x 8193");
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
    cr_assert_str_eq(fv_layout_family_name(FV_LAYOUT_NONE), "none");
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
