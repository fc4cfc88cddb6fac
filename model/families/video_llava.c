/* Video-LLaVA (arXiv 2311.10122): LLaVA-1.5 with a tower for images and another for videos. Images go the
 * way of LLaVA's; the second tower is in the files and is not read. */
#include "model/families/keys.h"

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    cfg->video_tower = true;
    return fv_config_llava_parse(root, where, cfg);
}

static const fv_tensor_names names = {.inside = FV_TOWER_NAMES_VIDEO_LLAVA};

/* Its image processor is read as LLaVA's. */
const fv_family fv_family_video_llava = {
    .name = "video_llava",
    .architecture = "VideoLlavaForConditionalGeneration",
    .layout = FV_LAYOUT_LLAVA,
    .text = "llama",
    .tower = "clip_vision_model",
    .vision =
        {.d_model = 1024, .d_ffn = 4096, .n_layer = 24, .n_head = 16, .image = 224, .patch = 14},
    .image_token = 32000,
    .strategy = "default",
    .feature_layer = -2,
    .names = &names,
    .parse = parse,
    .pixels = {FV_PIXELS_CLIP},
};
