/* model/config: preprocessor_config.json of single images, and values that are refused. */
#include "tests/unit/model/config_rig.h"

/* The image configuration that a file makes for a tower of 336 pixels. */
typedef struct prepared {
    fv_layout_config layout;
    fv_image_config c;
} prepared;

static fv_layout_config tower_336(void) {
    return (fv_layout_config){.family = FV_LAYOUT_LLAVA, .tile = 336, .patch = 14, .merge = 1};
}

static prepared image(const char *json) {
    prepared p = {.layout = tower_336()};
    cr_assert_eq(fv_image_config_parse(json, strlen(json), "pre.json", &p.layout, &p.c), FV_OK,
                 "%s: %s", json, fv_last_error());
    cr_assert_eq(fv_layout_check(&p.layout), FV_OK, "%s: %s", json, fv_last_error());
    return p;
}

Test(preprocessor_config, without_a_file_images_are_prepared_as_clip_does_at_the_towers_size) {
    prepared p = image("");
    cr_assert(p.c.do_rescale && p.c.do_normalize && p.c.do_convert_rgb);
    cr_assert_eq(p.layout.shortest_edge, 336);
    cr_assert_eq(p.c.resample, 3);
    cr_assert_eq(p.c.rescale_factor, 0.00392156862745098);
    cr_assert_eq(p.c.mean[0], 0.48145466F);
    cr_assert_eq(p.c.std[2], 0.27577711F);
    cr_assert_not(p.layout.pad_square);
}

Test(preprocessor_config, sizes_come_in_all_their_forms) {
    static const char *const same[] = {
        "{\"size\":336,\"crop_size\":336}",
        "{\"size\":{\"shortest_edge\":336},\"crop_size\":{\"height\":336,\"width\":336}}",
        "{\"image_processor\":{\"size\":{\"shortest_edge\":336}}}",
        "{\"feature_extractor_type\":\"CLIPFeatureExtractor\",\"size\":336}",
        "{\"image_processor_type\":\"CLIPImageProcessorFast\"}",
        "{\"image_processor_type\":\"LlavaImageProcessorPil\",\"do_pad\":false}",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        cr_assert_eq(image(same[i]).layout.shortest_edge, 336, "%s", same[i]);
    fv_layout_config l =
        image("{\"size\":{\"height\":336,\"width\":336},\"do_center_crop\":false}").layout;
    cr_assert(l.shortest_edge == 0 && l.resize.h == 336 && l.resize.w == 336);
    cr_assert_eq(image("{\"size\":{\"shortest_edge\":400}}").layout.shortest_edge, 400);
    l = image("{\"do_resize\":false}").layout;
    cr_assert(l.shortest_edge == 0 && l.resize.h == 0, "the middle, as it is");
}

Test(preprocessor_config, padding_to_a_square_has_two_spellings) {
    cr_assert(image("{\"image_aspect_ratio\":\"pad\"}").layout.pad_square);
    cr_assert(image("{\"image_processor_type\":\"LlavaImageProcessor\",\"do_pad\":true}")
                  .layout.pad_square);
    cr_assert_not(image("{\"image_processor_type\":\"CLIPImageProcessor\",\"do_pad\":true}")
                      .layout.pad_square);
    cr_assert(image("{\"image_aspect_ratio\":\"pad\",\"do_center_crop\":false}").layout.pad_square);
}

Test(preprocessor_config, means_may_be_one_number) {
    fv_image_config c = image("{\"image_mean\":0.5,\"image_std\":[0.5,0.25,1]}").c;
    cr_assert(c.mean[0] == 0.5F && c.mean[2] == 0.5F && c.std[1] == 0.25F);
}

Test(preprocessor_config, invalid_preprocessing_is_named) {
    static const wrong list[] = {
        {"nul", FV_EDATA, "not valid JSON"},
        {"{\"image_processor\":[]}", FV_EDATA, "key 'image_processor' must be an object"},
        {"{\"image_processor_type\":\"SiglipImageProcessor\"}", FV_EUNSUPPORTED,
         "unsupported image_processor_type 'SiglipImageProcessor'"},
        {"{\"image_processor_type\":\"LlavaNextImageProcessorFast\"}", FV_EDATA,
         "'LlavaNextImageProcessorFast', but config.json is of a llava model"},
        {"{\"image_processor_type\":\"CLIPImageProcessorSlow\"}", FV_EUNSUPPORTED, "Slow"},
        {"{\"size\":{\"longest_edge\":336}}", FV_EUNSUPPORTED, "key 'size' must be a number"},
        {"{\"size\":{\"height\":336}}", FV_EUNSUPPORTED, "key 'size' must be a number"},
        {"{\"size\":{\"shortest_edge\":336,\"longest_edge\":672}}", FV_EUNSUPPORTED, "key 'size'"},
        {"{\"size\":0}", FV_EDATA, "key 'size' is 0"},
        {"{\"size\":{\"shortest_edge\":99999}}", FV_EDATA, "key 'shortest_edge' is 99999"},
        {"{\"crop_size\":224}", FV_EUNSUPPORTED,
         "key 'crop_size' is 224x224, but the vision tower needs 336x336"},
        {"{\"crop_size\":{\"shortest_edge\":336}}", FV_EUNSUPPORTED, "key 'crop_size' must be"},
        {"{\"do_center_crop\":false}", FV_EUNSUPPORTED, "without 'do_center_crop'"},
        {"{\"do_center_crop\":false,\"size\":{\"height\":336,\"width\":300}}", FV_EUNSUPPORTED,
         "must give the vision tower's 336x336"},
        {"{\"do_center_crop\":false,\"do_resize\":false}", FV_EUNSUPPORTED, "keys 'do_resize'"},
        {"{\"resample\":4}", FV_EUNSUPPORTED, "key 'resample' is 4"},
        {"{\"resample\":\"bicubic\"}", FV_EDATA, "key 'resample' must be an integer"},
        {"{\"image_mean\":[0.5,0.5]}", FV_EDATA, "key 'image_mean' must be three numbers"},
        {"{\"image_std\":[1,\"x\",1]}", FV_EDATA, "key 'image_std' must be three numbers"},
        {"{\"image_std\":[1,1e39,1]}", FV_EDATA, "key 'image_std' must be three numbers"},
        {"{\"image_std\":[1,0,1]}", FV_EDATA, "key 'image_std' holds 0"},
        {"{\"image_aspect_ratio\":\"anyres\"}", FV_EUNSUPPORTED, "'anyres'"},
        {"{\"do_rescale\":\"no\"}", FV_EDATA, "key 'do_rescale' must be true or false"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fv_layout_config layout = tower_336(), before = layout;
        fv_image_config c = {.resample = -7};
        fv_status st =
            fv_image_config_parse(list[i].json, strlen(list[i].json), "pre.json", &layout, &c);
        cr_assert_eq(st, list[i].st, "%s gives %s", list[i].json, fv_status_name(st));
        cr_assert_not_null(strstr(fv_last_error(), list[i].words), "'%s' lacks '%s'",
                           fv_last_error(), list[i].words);
        cr_assert_eq(c.resample, -7);
        cr_assert_eq(memcmp(&layout, &before, sizeof layout), 0);
    }
}
