/* LLaVA-NeXT (LLaVA-1.6): LLaVA-1.5 on the whole image and on tiles of it, with a newline embedding
 * after each row of the tiles' tokens. */
#include "model/families/keys.h"

/* image_grid_pinpoints: a list of [height, width]. */
static fv_status parse_pinpoints(const json_t *list, const char *where, fv_layout_config *c) {
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n < 1 || n > FV_LAYOUT_PINPOINTS_MAX)
        return FV_FAIL(FV_EDATA, "%s: key 'image_grid_pinpoints' must be a list of 1..%d sizes",
                       where, FV_LAYOUT_PINPOINTS_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        const json_t *h = json_array_get(item, 0), *w = json_array_get(item, 1);
        json_int_t height = json_integer_value(h), width = json_integer_value(w);
        if (json_array_size(item) != 2 || height < 1 || width < 1 ||
            height > FV_LAYOUT_SIDE_MAX * FV_LAYOUT_TILES_MAX ||
            width > FV_LAYOUT_SIDE_MAX * FV_LAYOUT_TILES_MAX)
            return FV_FAIL(FV_EDATA,
                           "%s: key 'image_grid_pinpoints' must hold pairs of height and width",
                           where);
        c->pinpoint[i] = (fv_layout_size){.w = (int32_t)width, .h = (int32_t)height};
    }
    c->n_pinpoint = (int32_t)n;
    return FV_OK;
}

fv_status fv_config_tiles_parse(const json_t *root, const char *where, int32_t n,
                                const fv_layout_size *pinpoint, fv_model_config *cfg) {
    const json_t *list = fv_config_member(root, "image_grid_pinpoints");
    FV_TRY(fv_config_llava_parse(root, where, cfg));
    cfg->newline = true;
    if (list) return parse_pinpoints(list, where, &cfg->layout);
    cfg->layout.n_pinpoint = n;
    for (int32_t i = 0; i < n; i++) cfg->layout.pinpoint[i] = pinpoint[i];
    return FV_OK;
}

static fv_status parse(const json_t *root, const char *where, fv_model_config *cfg) {
    static const fv_layout_size pinpoint[] = {
        {672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
    return fv_config_tiles_parse(root, where, sizeof pinpoint / sizeof *pinpoint, pinpoint, cfg);
}

/* Checks the list against config.json's, for which the network is built. */
static fv_status check_pinpoints(const json_t *obj, const char *where,
                                 const fv_layout_config *layout) {
    const json_t *list = fv_config_member(obj, "image_grid_pinpoints");
    bool same = json_array_size(list) == (size_t)layout->n_pinpoint;
    if (!list) return FV_OK;
    for (size_t i = 0; same && i < json_array_size(list); i++) {
        const json_t *pair = json_array_get(list, i);
        same = json_array_size(pair) == 2 &&
               json_integer_value(json_array_get(pair, 0)) == layout->pinpoint[i].h &&
               json_integer_value(json_array_get(pair, 1)) == layout->pinpoint[i].w;
    }
    if (same) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "%s: key 'image_grid_pinpoints' is not the list of config.json: make them the "
                   "same",
                   where);
}

fv_status fv_config_read_anyres(const json_t *obj, const char *where, fv_layout_config *l) {
    int32_t edge = l->tile;
    fv_layout_size size, crop = {l->tile, l->tile};
    FV_TRY(fv_config_read_size(obj, where, &edge, &size));
    FV_TRY(fv_config_read_crop(obj, where, &crop));
    if (edge) size = (fv_layout_size){edge, edge};
    if (size.w != l->tile || size.h != l->tile || crop.w != l->tile || crop.h != l->tile)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: keys 'size' and 'crop_size' are %dx%d and %dx%d, but tiles are of the "
                       "vision tower's %dx%d",
                       where, size.h, size.w, crop.h, crop.w, l->tile, l->tile);
    return check_pinpoints(obj, where, l);
}

const fv_family fv_family_llava_next = {
    .name = "llava_next",
    .architecture = "LlavaNextForConditionalGeneration",
    .layout = FV_LAYOUT_LLAVA_NEXT,
    .text = "llama",
    .tower = "clip_vision_model",
    .vision =
        {.d_model = 1024, .d_ffn = 4096, .n_layer = 24, .n_head = 16, .image = 336, .patch = 14},
    .image_token = 32000,
    .strategy = "default",
    .feature_layer = -2,
    .parse = parse,
    .processor = {"LlavaNextImageProcessor"},
    .read_sizes = fv_config_read_anyres,
    .pixels = {FV_PIXELS_CLIP},
};
