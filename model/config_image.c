/* preprocessor_config.json (or processor_config.json, where version 5 nests it under
 * "image_processor") -> what it says of sizes, and the constants of image preprocessing.
 *
 * Sizes have been written in four forms over the years: 336, {"shortest_edge": 336},
 * {"height": 336, "width": 336} and, for crops, either of the first and the last. Whatever the
 * steps are, they must end at the size that the vision tower takes; that is checked here, so
 * that no request finds out. */
#include <math.h>
#include <string.h>

#include "model/config.h"
#include "model/families/keys.h"

/* Reads what a family's file says of sizes. Without keys, they are the tower's. */
typedef fv_status read_sizes(const json_t *obj, const char *where, fv_layout_config *layout);
static read_sizes read_square, read_anyres, read_longest;

/* Resampling, mean and standard deviation without keys. */
#define CLIP                                                                                       \
    3, {0.48145466F, 0.4578275F, 0.40821073F}, { 0.26862954F, 0.26130258F, 0.27577711F }
#define IDEFICS                                                                                    \
    1, {0.5F, 0.5F, 0.5F}, { 0.5F, 0.5F, 0.5F }

static const struct processor {
    read_sizes *read;
    int32_t resample;
    float mean[3], std[3];
} processors[FV_N_LAYOUT] = {
    [FV_LAYOUT_LLAVA] = {read_square, CLIP},
    [FV_LAYOUT_LLAVA_NEXT] = {read_anyres, CLIP},
    [FV_LAYOUT_LLAVA_ONEVISION] = {read_anyres, CLIP},
    [FV_LAYOUT_IDEFICS3] = {read_longest, IDEFICS},
};

/* Suffixes, as in LlavaNextImageProcessorFast, are cut off before the comparison. */
static const struct {
    const char *type;
    fv_layout_family family;
} types[] = {{"CLIPImageProcessor", FV_LAYOUT_LLAVA},
             {"CLIPFeatureExtractor", FV_LAYOUT_LLAVA},
             {"LlavaImageProcessor", FV_LAYOUT_LLAVA},
             {"LlavaNextImageProcessor", FV_LAYOUT_LLAVA_NEXT},
             {"LlavaOnevisionImageProcessor", FV_LAYOUT_LLAVA_ONEVISION},
             {"Idefics3ImageProcessor", FV_LAYOUT_IDEFICS3},
             {"SmolVLMImageProcessor", FV_LAYOUT_IDEFICS3}};

static fv_layout_family family_of(const char *type) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const size_t n = strlen(types[i].type);
        if (strncmp(type, types[i].type, n) != 0) continue;
        type += n;
        if (!*type || !strcmp(type, "Fast") || !strcmp(type, "Pil")) return types[i].family;
        return FV_LAYOUT_NONE;
    }
    return FV_LAYOUT_NONE;
}

static fv_status read_type(const json_t *obj, const char *where, const char **type) {
    FV_TRY(fv_json_str(obj, "feature_extractor_type", where, type)); /* oldest name of the key */
    return fv_json_str(obj, "image_processor_type", where, type);
}

/* The file must be of the family that config.json describes. */
static fv_status check_type(const json_t *obj, const char *where, fv_layout_family family) {
    const char *type = NULL;
    FV_TRY(read_type(obj, where, &type));
    if (!type || family_of(type) == family) return FV_OK;
    if (family_of(type) != FV_LAYOUT_NONE)
        return FV_FAIL(FV_EDATA,
                       "%s: key 'image_processor_type' is '%s', but config.json is of a %s model: "
                       "one of the two files is another checkpoint's",
                       where, type, fv_layout_family_name(family));
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'image_processor_type' is '%s'; the engine has CLIP's and those of "
                   "LLaVA, LLaVA-NeXT, LLaVA-OneVision, Idefics3 and SmolVLM",
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

/* One number, or {"shortest_edge"}, to *edge; otherwise *edge is 0 and the box is in *box. */
static fv_status read_size(const json_t *obj, const char *where, int32_t *edge,
                           fv_layout_size *box) {
    const json_t *v = fv_config_member(obj, "size");
    if (!v) return FV_OK;
    if (!json_is_object(v)) return read_edge(obj, "size", where, edge);
    if (json_object_size(v) == 1 && fv_config_member(v, "shortest_edge"))
        return read_edge(v, "shortest_edge", where, edge);
    *edge = 0;
    return read_box(v, "size", where, box);
}

static fv_status read_crop(const json_t *obj, const char *where, fv_layout_size *crop) {
    const json_t *v = fv_config_member(obj, "crop_size");
    if (!v) return FV_OK;
    if (json_is_object(v)) return read_box(v, "crop_size", where, crop);
    FV_TRY(read_edge(obj, "crop_size", where, &crop->h));
    crop->w = crop->h;
    return FV_OK;
}

/* ---- LLaVA-1.5 -------------------------------------------------------------------------- */

/* Without a crop, the resize must give what the tower reads. */
static fv_status check_resize(const fv_layout_config *l, const char *where) {
    /* A square image resized by its shortest edge is as good as a box. */
    if (l->pad_square && l->shortest_edge == l->tile) return FV_OK;
    if (!l->shortest_edge && l->resize.h == l->tile && l->resize.w == l->tile) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: without 'do_center_crop' keys 'do_resize' and 'size' must give the vision "
                   "tower's %dx%d for every image",
                   where, l->tile, l->tile);
}

static fv_status read_square(const json_t *obj, const char *where, fv_layout_config *l) {
    const char *type = "", *aspect = "";
    bool do_resize = true, do_crop = true, do_pad = false;
    fv_layout_size crop = {l->tile, l->tile};
    l->shortest_edge = l->tile;
    FV_TRY(read_type(obj, where, &type));
    FV_TRY(fv_json_bool(obj, "do_resize", where, &do_resize));
    FV_TRY(fv_json_bool(obj, "do_center_crop", where, &do_crop));
    FV_TRY(read_size(obj, where, &l->shortest_edge, &l->resize));
    FV_TRY(read_crop(obj, where, &crop));
    if (!do_resize) l->shortest_edge = l->resize.w = l->resize.h = 0;
    /* Two spellings of "pad to a square with the mean colour". */
    FV_TRY(fv_json_str(obj, "image_aspect_ratio", where, &aspect));
    FV_TRY(fv_json_bool(obj, "do_pad", where, &do_pad));
    l->pad_square = !strcmp(aspect, "pad") || (do_pad && type[0] == 'L');
    if (!strcmp(aspect, "anyres"))
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'image_aspect_ratio' is 'anyres', but LLaVA-1.5 has no tiles; for "
                       "LLaVA-NeXT config.json must say 'llava_next'",
                       where);
    if (!do_crop) return check_resize(l, where);
    if (crop.h == l->tile && crop.w == l->tile) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'crop_size' is %dx%d, but the vision tower needs %dx%d", where, crop.h,
                   crop.w, l->tile, l->tile);
}

/* ---- LLaVA-NeXT, LLaVA-OneVision --------------------------------------------------------- */

/* config.json lists the sizes too; the network is built for those. */
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

static fv_status read_anyres(const json_t *obj, const char *where, fv_layout_config *l) {
    int32_t edge = l->tile;
    fv_layout_size size, crop = {l->tile, l->tile};
    FV_TRY(read_size(obj, where, &edge, &size));
    FV_TRY(read_crop(obj, where, &crop));
    if (edge) size = (fv_layout_size){edge, edge};
    if (size.w != l->tile || size.h != l->tile || crop.w != l->tile || crop.h != l->tile)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: keys 'size' and 'crop_size' are %dx%d and %dx%d, but tiles are of the "
                       "vision tower's %dx%d",
                       where, size.h, size.w, crop.h, crop.w, l->tile, l->tile);
    return check_pinpoints(obj, where, l);
}

/* ---- Idefics3, SmolVLM ------------------------------------------------------------------- */

static fv_status read_longest_edge(const json_t *obj, const char *key, const char *where,
                                   int32_t *out) {
    const json_t *v = fv_config_member(obj, key);
    if (!v) return FV_OK;
    if (!json_is_object(v) || !fv_config_member(v, "longest_edge"))
        return FV_FAIL(FV_EUNSUPPORTED, "%s: key '%s' must be {\"longest_edge\"}", where, key);
    return read_edge(v, "longest_edge", where, out);
}

static fv_status read_longest(const json_t *obj, const char *where, fv_layout_config *l) {
    int32_t tile = l->tile;
    bool do_resize = true;
    l->longest_edge = 4 * l->tile;
    l->split = true;
    FV_TRY(read_longest_edge(obj, "size", where, &l->longest_edge));
    FV_TRY(read_longest_edge(obj, "max_image_size", where, &tile));
    FV_TRY(fv_json_bool(obj, "do_image_splitting", where, &l->split));
    FV_TRY(fv_json_bool(obj, "do_resize", where, &do_resize));
    if (!do_resize)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "%s: key 'do_resize' is false, but images have any size: it must be true",
                       where);
    if (tile == l->tile) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'max_image_size' is %d, but tiles are of the vision tower's %d", where,
                   tile, l->tile);
}

/* ---- values --------------------------------------------------------------------------------- */

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
    const struct processor *p = &processors[layout->family];
    fv_layout_config l = *layout;
    fv_image_config c = {.resample = p->resample,
                         .do_rescale = true,
                         .do_normalize = true,
                         .do_convert_rgb = true,
                         .rescale_factor = 0.00392156862745098};
    memcpy(c.mean, p->mean, sizeof c.mean);
    memcpy(c.std, p->std, sizeof c.std);
    json_t *root = NULL;
    if (n > 0) FV_TRY(fv_json_object(json, n, where, &root));
    const json_t *nested = fv_config_member(root, "image_processor"), *obj = nested ? nested : root;
    fv_status st = FV_OK;
    if (nested && !json_is_object(nested))
        st = FV_FAIL(FV_EDATA, "%s: key 'image_processor' must be an object", where);
    if (st == FV_OK) st = check_type(obj, where, layout->family);
    if (st == FV_OK) st = p->read(obj, where, &l);
    if (st == FV_OK) st = read_values(obj, where, &c);
    json_decref(root);
    FV_TRY(st);
    if (fv_layout_check(&l) != FV_OK) return fv_fail_prefix(FV_EDATA, "%s", where);
    *layout = l;
    *out = c;
    return FV_OK;
}
