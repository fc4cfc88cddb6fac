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

/* Types with CLIP's steps; version suffixes are cut off before the comparison. */
static const char *const known_types[] = {"CLIPImageProcessor", "CLIPFeatureExtractor",
                                          "LlavaImageProcessor"};

/* What becomes of the sizes; read into one place, checked, and only then a layout. */
typedef struct steps {
    bool do_resize, do_center_crop;
    int32_t shortest_edge; /* 0: to resize */
    fv_layout_size resize, crop;
    bool pad_square;
} steps;

static const fv_image_config clip_defaults = {.resample = 3,
                                              .do_rescale = true,
                                              .do_normalize = true,
                                              .do_convert_rgb = true,
                                              .rescale_factor = 0.00392156862745098,
                                              .mean = {0.48145466F, 0.4578275F, 0.40821073F},
                                              .std = {0.26862954F, 0.26130258F, 0.27577711F}};

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
static fv_status read_box(const json_t *v, const char *key, const char *where,
                          fv_layout_size *out) {
    fv_layout_size box = {0};
    FV_TRY(fv_json_i32(v, "height", where, 1, FV_LAYOUT_SIDE_MAX, &box.h));
    FV_TRY(fv_json_i32(v, "width", where, 1, FV_LAYOUT_SIDE_MAX, &box.w));
    if (box.h == 0 || box.w == 0)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key '%s' must be a number, {\"shortest_edge\"} or {\"height\", "
                       "\"width\"}",
                       where, key);
    *out = box;
    return FV_OK;
}

static fv_status read_edge(const json_t *obj, const char *key, const char *where, int32_t *edge) {
    return fv_json_i32(obj, key, where, 1, FV_LAYOUT_SIDE_MAX, edge);
}

static fv_status read_size(const json_t *obj, const char *where, steps *s) {
    const json_t *v = fv_config_member(obj, "size");
    if (!v) return FV_OK;
    if (!json_is_object(v)) return read_edge(obj, "size", where, &s->shortest_edge);
    if (json_object_size(v) == 1 && fv_config_member(v, "shortest_edge"))
        return read_edge(v, "shortest_edge", where, &s->shortest_edge);
    s->shortest_edge = 0;
    return read_box(v, "size", where, &s->resize);
}

static fv_status read_crop(const json_t *obj, const char *where, steps *s) {
    const json_t *v = fv_config_member(obj, "crop_size");
    if (!v) return FV_OK;
    if (json_is_object(v)) return read_box(v, "crop_size", where, &s->crop);
    FV_TRY(read_edge(obj, "crop_size", where, &s->crop.h));
    s->crop.w = s->crop.h;
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
static fv_status check_result(const steps *s, int32_t tile, const char *where) {
    if (s->do_center_crop) {
        if (s->crop.h == tile && s->crop.w == tile) return FV_OK;
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'crop_size' is %dx%d, but the vision tower needs %dx%d", where,
                       s->crop.h, s->crop.w, tile, tile);
    }
    /* A square image resized by its shortest edge is as good as a box. */
    bool to_edge = s->shortest_edge == tile && s->pad_square;
    bool to_box = !s->shortest_edge && s->resize.h == tile && s->resize.w == tile;
    if (s->do_resize && (to_edge || to_box)) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: without 'do_center_crop' keys 'do_resize' and 'size' must give the vision "
                   "tower's %dx%d for every image",
                   where, tile, tile);
}

static fv_status read_steps(const json_t *obj, const char *where, int32_t tile, steps *s) {
    bool is_llava = false, do_pad = false;
    FV_TRY(check_type(obj, where, &is_llava));
    FV_TRY(fv_json_bool(obj, "do_resize", where, &s->do_resize));
    FV_TRY(fv_json_bool(obj, "do_center_crop", where, &s->do_center_crop));
    FV_TRY(read_size(obj, where, s));
    FV_TRY(read_crop(obj, where, s));

    /* Two spellings of "pad to a square with the mean colour". */
    const char *aspect = "";
    FV_TRY(fv_json_str(obj, "image_aspect_ratio", where, &aspect));
    FV_TRY(fv_json_bool(obj, "do_pad", where, &do_pad));
    s->pad_square = !strcmp(aspect, "pad") || (do_pad && is_llava);
    if (!strcmp(aspect, "anyres"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'image_aspect_ratio' is 'anyres': tiles are not "
                       "done by this engine",
                       where);
    return check_result(s, tile, where);
}

static fv_status read_values(const json_t *obj, const char *where, fv_image_config *c) {
    FV_TRY(fv_json_bool(obj, "do_rescale", where, &c->do_rescale));
    FV_TRY(fv_json_bool(obj, "do_normalize", where, &c->do_normalize));
    FV_TRY(fv_json_bool(obj, "do_convert_rgb", where, &c->do_convert_rgb));
    FV_TRY(fv_json_i32(obj, "resample", where, 0, INT32_MAX, &c->resample));
    if (c->resample > 3)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'resample' is %d; 0 nearest, 1 lanczos, 2 bilinear and 3 bicubic "
                       "are possible",
                       where, c->resample);
    FV_TRY(fv_json_f64(obj, "rescale_factor", where, &c->rescale_factor));
    FV_TRY(read_channels(obj, "image_mean", where, c->mean));
    FV_TRY(read_channels(obj, "image_std", where, c->std));
    for (int i = 0; i < 3; i++)
        if (c->std[i] == 0)
            return FV_FAIL(FV_EDATA, "%s: key 'image_std' holds 0; pixels are divided by it",
                           where);
    return FV_OK;
}

fv_status fv_image_config_parse(const char *json, size_t n, const char *where,
                                fv_layout_config *layout, fv_image_config *out) {
    fv_image_config c = clip_defaults;
    steps s = {.do_resize = true,
               .do_center_crop = true,
               .shortest_edge = layout->tile,
               .crop = {layout->tile, layout->tile}};
    if (n > 0) {
        json_t *root = NULL;
        FV_TRY(fv_json_object(json, n, where, &root));
        const json_t *obj = fv_config_member(root, "image_processor");
        fv_status st = FV_OK;
        if (obj && !json_is_object(obj))
            st = FV_FAIL(FV_EDATA, "%s: key 'image_processor' must be an object", where);
        if (st == FV_OK) st = read_steps(obj ? obj : root, where, layout->tile, &s);
        if (st == FV_OK) st = read_values(obj ? obj : root, where, &c);
        json_decref(root);
        FV_TRY(st);
    }
    layout->pad_square = s.pad_square;
    layout->shortest_edge = s.do_resize ? s.shortest_edge : 0;
    layout->resize = s.do_resize ? s.resize : (fv_layout_size){0};
    *out = c;
    return FV_OK;
}
