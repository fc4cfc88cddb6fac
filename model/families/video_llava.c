/* Video-LLaVA (arXiv 2311.10122): LLaVA-1.5 with one tower for images and another of the same shape
 * for videos. Images are handled as in LLaVA; frames of a video keep the class token. */
#include "model/families/keys.h"

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    FV_TRY(fv_config_llava_parse(root, where, cfg));
    if (!cfg->vision.class_token)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: the towers of Video-LLaVA must have a class token",
                       where);
    cfg->video_tower = cfg->layout.video_class = true;
    cfg->video_token = 32001;
    FV_TRY(fv_json_i32(root, "video_token_index", where, 0, INT32_MAX, &cfg->video_token));
    FV_TRY(fv_json_i32(root, "video_token_id", where, 0, INT32_MAX, &cfg->video_token));
    if (cfg->video_token != cfg->image_token) return FV_OK;
    return FV_FAIL(FV_EDATA, "%s: keys 'video_token_index' and 'image_token_index' are both %d",
                   where, cfg->video_token);
}

/* Requires that frames are resized like images. */
static fv_status read_video(const json_t *obj, const char *where, fv_layout_config *l) {
    fv_layout_config v = *l;
    FV_TRY(fv_config_llava_sizes(obj, where, &v));
    if (v.shortest_edge == l->shortest_edge && v.resize.w == l->resize.w &&
        v.resize.h == l->resize.h && v.pad_square == l->pad_square)
        return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s: video frames must be resized like images (size, crop)",
                   where);
}

static const fv_tensor_names names = {.inside = FV_TOWER_NAMES_VIDEO_LLAVA};

/* The image processor's file is read like LLaVA's. */
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
    .read_video = read_video,
    .pixels = {FV_PIXELS_CLIP},
};
