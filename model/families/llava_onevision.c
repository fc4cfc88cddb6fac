/* LLaVA-OneVision (arXiv 2408.03326): a SigLIP tower, and the tiles of LLaVA-NeXT, scaled down if
 * they have more tokens than vision_aspect_ratio allows. */
#include <stdlib.h>
#include <string.h>

#include "model/families/keys.h"

enum { TILE = 384, TILES = 6 };

/* Parses N of "anyres_max_N". */
static fv_status parse_aspect_ratio(const json_t *root, const char *where, int32_t *tiles_max) {
    static const char start[] = "anyres_max_";
    const char *value = "anyres_max_9";
    FV_TRY(fv_json_str(root, "vision_aspect_ratio", where, &value));
    char *end = NULL;
    long n = strncmp(value, start, strlen(start)) ? 0 : strtol(value + strlen(start), &end, 10);
    if (n < 1 || n > FV_LAYOUT_TILES_MAX || *end)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'vision_aspect_ratio' is '%s'; anyres_max_1 to anyres_max_%d are "
                       "possible",
                       where, value, FV_LAYOUT_TILES_MAX);
    *tiles_max = (int32_t)n;
    return FV_OK;
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    fv_layout_size pinpoint[TILES * TILES];
    for (int32_t i = 0; i < TILES * TILES; i++)
        pinpoint[i] = (fv_layout_size){.w = TILE * (i % TILES + 1), .h = TILE * (i / TILES + 1)};
    FV_TRY(parse_aspect_ratio(root, where, &cfg->layout.tiles_max));
    return fv_config_tiles_parse(root, where, TILES * TILES, pinpoint, cfg);
}

const fv_family fv_family_llava_onevision = {
    .name = "llava_onevision",
    .architecture = "LlavaOnevisionForConditionalGeneration",
    .layout = FV_LAYOUT_LLAVA_ONEVISION,
    .text = "qwen2",
    .tower = "siglip_vision_model",
    .vision =
        {.d_model = 1152, .d_ffn = 4304, .n_layer = 26, .n_head = 16, .image = TILE, .patch = 14},
    .image_token = 151646,
    .strategy = "full",
    .feature_layer = -1,
    .parse = parse,
    .processor = {"LlavaOnevisionImageProcessor"},
    .read_sizes = fv_config_read_anyres,
    .pixels = {FV_PIXELS_CLIP},
};
