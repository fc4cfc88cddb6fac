/* model/config: preprocessor_config.json of the families with tiles. */
#include "tests/unit/model/config_rig.h"

/* The image configuration that a file makes for a tower of 336 pixels. */
typedef struct prepared {
    fv_layout_config layout;
    fv_image_config c;
} prepared;

static fv_layout_config tiles_of(fv_layout_family family) {
    return (fv_layout_config){.family = family,
                              .tile = 336,
                              .patch = 14,
                              .merge = 1,
                              .tiles_max = 9,
                              .n_pinpoint = 2,
                              .pinpoint = {{336, 672}, {672, 336}}};
}

static prepared image_of(fv_layout_family family, const char *json) {
    prepared p = {.layout = tiles_of(family)};
    cr_assert_eq(fv_image_config_parse(json, strlen(json), "pre.json", &p.layout, &p.c), FV_OK,
                 "%s: %s", json, fv_last_error());
    return p;
}

Test(preprocessor_tiles, tiles_of_llava_next_and_onevision_are_of_the_towers_size) {
    static const struct {
        fv_layout_family family;
        const char *json;
    } list[] = {
        {FV_LAYOUT_LLAVA_NEXT, "{}"},
        {FV_LAYOUT_LLAVA_NEXT, "{\"image_processor_type\":\"LlavaNextImageProcessorFast\",\"size\":"
                               "{\"shortest_edge\":336},"
                               "\"crop_size\":{\"height\":336,\"width\":336},\"do_pad\":true,"
                               "\"image_grid_pinpoints\":[[672,336],[336,672]]}"},
        {FV_LAYOUT_LLAVA_ONEVISION,
         "{\"image_processor\":{\"image_processor_type\":\"LlavaOnevisionImageProcessorPil\","
         "\"size\":{\"height\":336,\"width\":336},\"crop_size\":null,\"do_center_crop\":null}}"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fv_layout_config before = tiles_of(list[i].family);
        prepared p = image_of(list[i].family, list[i].json);
        cr_assert_eq(memcmp(&p.layout, &before, sizeof before), 0, "%s", list[i].json);
        cr_assert(p.c.resample == 3 && p.c.mean[0] == 0.48145466F);
    }
}

Test(preprocessor_tiles, idefics3_and_smolvlm_have_a_longest_edge_and_may_split) {
    prepared p = image_of(FV_LAYOUT_IDEFICS3, "{}");
    cr_assert(p.layout.longest_edge == 1344 && p.layout.split);
    cr_assert(p.c.resample == 1 && p.c.mean[1] == 0.5F && p.c.std[2] == 0.5F);
    p = image_of(
        FV_LAYOUT_IDEFICS3,
        "{\"image_processor_type\":\"SmolVLMImageProcessor\",\"size\":{\"longest_edge\":2048},"
        "\"max_image_size\":{\"longest_edge\":336},\"do_image_splitting\":false,"
        "\"resample\":3,\"image_mean\":0.25}");
    cr_assert(p.layout.longest_edge == 2048 && !p.layout.split);
    cr_assert(p.c.resample == 3 && p.c.mean[2] == 0.25F);
    p = image_of(FV_LAYOUT_IDEFICS3, "{\"image_processor_type\":\"Idefics3ImageProcessorFast\"}");
    cr_assert(p.layout.split);
}

Test(preprocessor_tiles, mistral3_is_scaled_down_to_an_edge_or_a_box) {
    prepared p = image_of(FV_LAYOUT_MISTRAL3, "{}");
    cr_assert(p.layout.resize.w == 1024 && p.layout.resize.h == 1024 && p.c.resample == 3);
    p = image_of(FV_LAYOUT_MISTRAL3, "{\"image_processor_type\":\"PixtralImageProcessorFast\","
                                     "\"size\":{\"longest_edge\":1540},\"patch_size\":14}");
    cr_assert(p.layout.resize.w == 1540 && p.layout.resize.h == 1540);
    p = image_of(FV_LAYOUT_MISTRAL3, "{\"size\":{\"height\":60,\"width\":90}}");
    cr_assert(p.layout.resize.w == 90 && p.layout.resize.h == 60);
}

Test(preprocessor_tiles, qwen_vl_is_scaled_to_areas_under_either_of_their_names) {
    prepared p = image_of(FV_LAYOUT_QWEN_VL, "{}");
    cr_assert(p.layout.pixels_min == 3136 && p.layout.pixels_max == 1003520 && p.c.resample == 3);
    p = image_of(FV_LAYOUT_QWEN_VL, "{\"image_processor_type\":\"Qwen2VLImageProcessorFast\","
                                    "\"size\":{\"shortest_edge\":9,\"longest_edge\":70}}");
    cr_assert(p.layout.pixels_min == 9 && p.layout.pixels_max == 70);
    p = image_of(FV_LAYOUT_QWEN_VL,
                 "{\"size\":{\"max_pixels\":12845056,\"min_pixels\":3136},\"min_pixels\":3136,"
                 "\"max_pixels\":12845056,\"temporal_patch_size\":2}");
    cr_assert(p.layout.pixels_min == 3136 && p.layout.pixels_max == 12845056);
}

Test(preprocessor_tiles, internvl_has_a_range_of_tiles_whatever_crop_to_patches_says) {
    prepared p = image_of(FV_LAYOUT_INTERNVL,
                          "{\"image_processor_type\":\"GotOcr2ImageProcessorFast\",\"size\":{"
                          "\"height\":336,\"width\":336},\"crop_to_patches\":false}");
    cr_assert(p.layout.tiles_min == 1 && p.layout.tiles_max == 12 && p.c.resample == 3);
    p = image_of(FV_LAYOUT_INTERNVL, "{\"size\":{\"height\":336,\"width\":336},\"min_patches\":2,"
                                     "\"max_patches\":6}");
    cr_assert(p.layout.tiles_min == 2 && p.layout.tiles_max == 6);
}

Test(preprocessor_tiles, preprocessing_with_tiles_that_cannot_be_is_named) {
    static const struct {
        fv_layout_family family;
        wrong w;
    } list[] = {
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_processor_type\":\"CLIPImageProcessor\"}", FV_EDATA,
          "'CLIPImageProcessor', but config.json is of a llava_next model"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"size\":{\"shortest_edge\":224}}", FV_EUNSUPPORTED,
          "keys 'size' and 'crop_size' are 224x224 and 336x336, but tiles are of the vision "
          "tower's "
          "336x336"}},
        {FV_LAYOUT_LLAVA_NEXT, {"{\"crop_size\":224}", FV_EUNSUPPORTED, "336x336 and 224x224"}},
        {FV_LAYOUT_LLAVA_ONEVISION,
         {"{\"size\":{\"height\":336,\"width\":384}}", FV_EUNSUPPORTED, "336x384"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_grid_pinpoints\":[[336,672],[672,336]]}", FV_EDATA,
          "'image_grid_pinpoints' is not the list of config.json: make them the same"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_grid_pinpoints\":[[672,336]]}", FV_EDATA, "'image_grid_pinpoints'"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_grid_pinpoints\":{\"a\":1}}", FV_EDATA, "'image_grid_pinpoints'"}},
        {FV_LAYOUT_LLAVA_NEXT,
         {"{\"image_grid_pinpoints\":[[672],7]}", FV_EDATA, "'image_grid_pinpoints'"}},
        {FV_LAYOUT_IDEFICS3,
         {"{\"size\":{\"height\":3,\"width\":3}}", FV_EUNSUPPORTED,
          "key 'size' must be {\"longest_edge\"}"}},
        {FV_LAYOUT_IDEFICS3,
         {"{\"max_image_size\":{\"longest_edge\":364}}", FV_EUNSUPPORTED,
          "key 'max_image_size' is 364, but tiles are of the vision tower's 336"}},
        {FV_LAYOUT_IDEFICS3, {"{\"do_resize\":false}", FV_EUNSUPPORTED, "it must be true"}},
        {FV_LAYOUT_INTERNVL,
         {"{}", FV_EUNSUPPORTED, "key 'size' must be {\"height\": 336, \"width\": 336}"}},
        {FV_LAYOUT_MISTRAL3, {"{\"do_resize\":false}", FV_EUNSUPPORTED, "it must be true"}},
        {FV_LAYOUT_MISTRAL3,
         {"{\"size\":{\"longest_edge\":9000}}", FV_EDATA, "key 'longest_edge' is 9000"}},
        {FV_LAYOUT_QWEN_VL, {"{\"do_resize\":false}", FV_EUNSUPPORTED, "it must be true"}},
        {FV_LAYOUT_QWEN_VL,
         {"{\"patch_size\":9}", FV_EUNSUPPORTED, "'patch_size' is 9; it must be"}},
        {FV_LAYOUT_QWEN_VL,
         {"{\"size\":{\"longest_edge\":9}}", FV_EUNSUPPORTED, "key 'size' must be {\"shortest"}},
        {FV_LAYOUT_QWEN_VL, {"{\"min_pixels\":0}", FV_EDATA, "key 'min_pixels' is 0"}},
        {FV_LAYOUT_INTERNVL, {"{\"size\":336}", FV_EUNSUPPORTED, "key 'size' must be"}},
        {FV_LAYOUT_INTERNVL, {"{\"do_resize\":false}", FV_EUNSUPPORTED, "it must be true"}},
        {FV_LAYOUT_INTERNVL, {"{\"max_patches\":0}", FV_EDATA, "'max_patches' is 0"}},
        {FV_LAYOUT_INTERNVL,
         {"{\"size\":{\"height\":336,\"width\":336},\"min_patches\":9,\"max_patches\":3}", FV_EDATA,
          "pre.json: images are cut into 9 to 3 tiles"}},
        {FV_LAYOUT_IDEFICS3,
         {"{\"size\":{\"longest_edge\":0}}", FV_EDATA,
          "key 'longest_edge' is 0; it must be 1..8192"}},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        const wrong *w = &list[i].w;
        fv_layout_config layout = tiles_of(list[i].family);
        fv_image_config c;
        cr_assert_eq(fv_image_config_parse(w->json, strlen(w->json), "pre.json", &layout, &c),
                     w->st, "%s", w->json);
        cr_assert_not_null(strstr(fv_last_error(), w->words), "'%s' lacks '%s'", fv_last_error(),
                           w->words);
    }
    fv_layout_config odd = tiles_of(FV_LAYOUT_LLAVA_NEXT);
    fv_image_config c;
    odd.pinpoint[1].w = 700;
    cr_assert_eq(fv_image_config_parse("", 0, "pre.json", &odd, &c), FV_EDATA);
    cr_assert_not_null(strstr(fv_last_error(), "pre.json: images may be fitted to 700 x 336"), "%s",
                       fv_last_error());
}
