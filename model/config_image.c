/* preprocessor_config.json (or processor_config.json, where version 5 nests it under
 * "image_processor") -> the constants of image preprocessing.
 *
 * Sizes have been written in four forms over the years: 336, {"shortest_edge": 336},
 * {"height": 336, "width": 336} and, for crops, either of the first and the last. Whatever the
 * steps are, they must end at the size that the vision tower takes; that is checked here, so
 * that no request finds out. */
#include <math.h>
#include <string.h>

#include "model/config.h"
#include "model/families/keys.h"

enum { SIDE_MAX = 8192 };

/* Types with CLIP's steps; version suffixes are cut off before the comparison. */
static const char *const known_types[] = {"CLIPImageProcessor", "CLIPFeatureExtractor",
                                          "LlavaImageProcessor"};

/* As the file has them. */
typedef struct steps {
    bool do_resize, do_center_crop;
    int32_t shortest_edge; /* size.shortest_edge; 0: size is fixed to resize_w x resize_h */
    int32_t resize_h, resize_w;
    int32_t crop_h, crop_w;
    bool pad_square; /* image_aspect_ratio=pad: to a square, with the mean colour, first */
    fv_image_config pixels;
} steps;

static steps clip_defaults(int32_t image) {
    return (steps){.do_resize = true,
                   .do_center_crop = true,
                   .shortest_edge = image,
                   .crop_h = image,
                   .crop_w = image,
                   .pixels = {.do_rescale = true,
                              .do_normalize = true,
                              .do_convert_rgb = true,
                              .resample = 3,
                              .rescale_factor = 0.00392156862745098,
                              .mean = {0.48145466F, 0.4578275F, 0.40821073F},
                              .std = {0.26862954F, 0.26130258F, 0.27577711F}}};
}

static fv_status check_type(const json_t *obj, const char *where, bool *is_llava) {
    const char *type = NULL;
    FV_TRY(fv_json_str(obj, "feature_extractor_type", where, &type)); /* oldest name of the key */
    FV_TRY(fv_json_str(obj, "image_processor_type", where, &type));
    *is_llava = false;
    if (!type) return FV_OK;
    for (size_t i = 0; i < sizeof known_types / sizeof *known_types; i++) {
        size_t n = strlen(known_types[i]);
        if (strncmp(type, known_types[i], n) != 0) continue;
        if (strcmp(type + n, "") != 0 && strcmp(type + n, "Fast") != 0 &&
            strcmp(type + n, "Pil") != 0)
            continue;
        *is_llava = type[0] == 'L';
        return FV_OK;
    }
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'image_processor_type' is '%s'; the engine has CLIPImageProcessor and "
                   "LlavaImageProcessor",
                   where, type);
}

/* {"height": h, "width": w}, both there. */
static fv_status read_box(const json_t *v, const char *key, const char *where, int32_t *h,
                          int32_t *w) {
    int32_t height = 0, width = 0;
    FV_TRY(fv_json_i32(v, "height", where, 1, SIDE_MAX, &height));
    FV_TRY(fv_json_i32(v, "width", where, 1, SIDE_MAX, &width));
    if (height == 0 || width == 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key '%s' must be a number, {\"shortest_edge\"} or {\"height\", "
                       "\"width\"}",
                       where, key);
    *h = height;
    *w = width;
    return FV_OK;
}

static fv_status read_size(const json_t *obj, const char *where, steps *c) {
    const json_t *v = fv_config_member(obj, "size");
    if (!v) return FV_OK;
    if (!json_is_object(v)) return fv_json_i32(obj, "size", where, 1, SIDE_MAX, &c->shortest_edge);
    if (json_object_size(v) == 1 && fv_config_member(v, "shortest_edge"))
        return fv_json_i32(v, "shortest_edge", where, 1, SIDE_MAX, &c->shortest_edge);
    FV_TRY(read_box(v, "size", where, &c->resize_h, &c->resize_w));
    c->shortest_edge = 0;
    return FV_OK;
}

static fv_status read_crop(const json_t *obj, const char *where, steps *c) {
    const json_t *v = fv_config_member(obj, "crop_size");
    if (!v) return FV_OK;
    if (json_is_object(v)) return read_box(v, "crop_size", where, &c->crop_h, &c->crop_w);
    FV_TRY(fv_json_i32(obj, "crop_size", where, 1, SIDE_MAX, &c->crop_h));
    c->crop_w = c->crop_h;
    return FV_OK;
}

/* image_mean, image_std: three numbers, or one for all channels. */
static fv_status read_channels(const json_t *obj, const char *key, const char *where,
                               float out[3]) {
    const json_t *v = fv_config_member(obj, key);
    if (!v) return FV_OK;
    bool list = json_is_array(v);
    if (list && json_array_size(v) != 3)
        return FV_FAIL(FV_EDATA, "%s: key '%s' must be three numbers", where, key);
    for (size_t i = 0; i < 3; i++) {
        const json_t *item = list ? json_array_get(v, i) : v;
        if (!json_is_number(item) || !isfinite((float)json_number_value(item)))
            return FV_FAIL(FV_EDATA, "%s: key '%s' must be three numbers", where, key);
        out[i] = (float)json_number_value(item);
    }
    return FV_OK;
}

/* The last step that sets the size must give the tower's. */
static fv_status check_result(const steps *c, int32_t image, const char *where) {
    if (c->do_center_crop) {
        if (c->crop_h == image && c->crop_w == image) return FV_OK;
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'crop_size' is %dx%d, but the vision tower needs %dx%d", where,
                       c->crop_h, c->crop_w, image, image);
    }
    /* A square image resized by its shortest edge is as good as a box. */
    bool to_edge = c->shortest_edge == image && c->pad_square;
    bool to_box = !c->shortest_edge && c->resize_h == image && c->resize_w == image;
    if (c->do_resize && (to_edge || to_box)) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: without 'do_center_crop' keys 'do_resize' and 'size' must give the vision "
                   "tower's %dx%d for every image",
                   where, image, image);
}

static fv_status parse(const json_t *obj, const char *where, int32_t image, steps *c) {
    bool is_llava = false, do_pad = false;
    FV_TRY(check_type(obj, where, &is_llava));
    FV_TRY(fv_json_bool(obj, "do_resize", where, &c->do_resize));
    FV_TRY(fv_json_bool(obj, "do_center_crop", where, &c->do_center_crop));
    FV_TRY(fv_json_bool(obj, "do_rescale", where, &c->pixels.do_rescale));
    FV_TRY(fv_json_bool(obj, "do_normalize", where, &c->pixels.do_normalize));
    FV_TRY(fv_json_bool(obj, "do_convert_rgb", where, &c->pixels.do_convert_rgb));
    FV_TRY(read_size(obj, where, c));
    FV_TRY(read_crop(obj, where, c));
    FV_TRY(fv_json_i32(obj, "resample", where, 0, INT32_MAX, &c->pixels.resample));
    if (c->pixels.resample > 3)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'resample' is %d; 0 nearest, 1 lanczos, 2 bilinear and 3 bicubic "
                       "are possible",
                       where, c->pixels.resample);
    FV_TRY(fv_json_f64(obj, "rescale_factor", where, &c->pixels.rescale_factor));
    FV_TRY(read_channels(obj, "image_mean", where, c->pixels.mean));
    FV_TRY(read_channels(obj, "image_std", where, c->pixels.std));
    for (int i = 0; i < 3; i++)
        if (c->pixels.std[i] == 0)
            return FV_FAIL(FV_EDATA, "%s: key 'image_std' holds 0; pixels are divided by it",
                           where);

    /* Two spellings of "pad to a square with the mean colour". */
    const char *aspect = "";
    FV_TRY(fv_json_str(obj, "image_aspect_ratio", where, &aspect));
    FV_TRY(fv_json_bool(obj, "do_pad", where, &do_pad));
    c->pad_square = !strcmp(aspect, "pad") || (do_pad && is_llava);
    if (!strcmp(aspect, "anyres"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'image_aspect_ratio' is 'anyres': tiles are not "
                       "done by this engine",
                       where);
    return check_result(c, image, where);
}

/* What the checks above let through is a resize and a crop to the tower's square. */
static void set_layout(const steps *c, fv_layout_config *l) {
    l->pad_square = c->pad_square;
    if (!c->do_resize) return;
    l->shortest_edge = c->shortest_edge;
    if (!c->shortest_edge) l->resize = (fv_layout_size){c->resize_w, c->resize_h};
}

fv_status fv_image_config_parse(const char *json, size_t n, const char *where, fv_model_config *cfg,
                                fv_image_config *out) {
    int32_t image = cfg->vision.image;
    steps c = clip_defaults(image);
    if (n > 0) {
        json_t *root = NULL;
        FV_TRY(fv_json_object(json, n, where, &root));
        const json_t *obj = fv_config_member(root, "image_processor");
        fv_status st = obj && !json_is_object(obj)
                           ? FV_FAIL(FV_EDATA, "%s: key 'image_processor' must be an object", where)
                           : parse(obj ? obj : root, where, image, &c);
        json_decref(root);
        FV_TRY(st);
    }
    set_layout(&c, &cfg->layout);
    FV_TRY(fv_layout_check(&cfg->layout));
    *out = c.pixels;
    return FV_OK;
}
