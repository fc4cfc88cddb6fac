/* Reads preprocessor_config.json and, for videos, video_preprocessor_config.json (or
 * processor_config.json, in which version 5 nests both): sizes, and the constants of image
 * preprocessing.
 *
 * Sizes come in four forms: 336, {"shortest_edge": 336}, {"height": 336, "width": 336} and, for
 * crops, the first or the last. Whatever the steps are, they must end at the vision tower's size;
 * this is checked when the model is opened, not for each request. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/families/keys.h"

/* Compares class names without the suffixes Fast and Pil (LlavaNextImageProcessorFast). */
static bool is_class(const char *type, const char *name) {
    const size_t n = strlen(name);
    return !strncmp(type, name, n) &&
           (!type[n] || !strcmp(type + n, "Fast") || !strcmp(type + n, "Pil"));
}

static bool has_processor(const fv_family *f, const char *type) {
    for (int k = 0; k < FV_FAMILY_PROCESSORS && f->processor[k]; k++)
        if (is_class(type, f->processor[k])) return true;
    return false;
}

/* Finds a family with this image processor class, if possible with this layout too; NULL: none. */
static const fv_family *family_of(const char *type, fv_layout_family layout) {
    const fv_family *f, *other = NULL;
    for (int32_t i = 0; (f = fv_family_at(i)); i++) {
        if (!has_processor(f, type)) continue;
        if (f->layout == layout) return f;
        other = f;
    }
    return other;
}

/* The first row with this layout; rows that share a layout read the same files. */
static const fv_family *family_with(fv_layout_family layout) {
    const fv_family *f;
    for (int32_t i = 0; (f = fv_family_at(i)); i++)
        if (f->layout == layout) return f;
    return &fv_family_text;
}

fv_status fv_config_read_type(const json_t *obj, const char *where, const char **type) {
    FV_TRY(fv_json_str(obj, "feature_extractor_type", where, type)); /* oldest name of the key */
    return fv_json_str(obj, "image_processor_type", where, type);
}

static fv_status refuse_type(const char *where, const char *type) {
    char names[512] = "";
    const fv_family *f;
    for (int32_t i = 0; (f = fv_family_at(i)); i++)
        for (int k = 0; k < FV_FAMILY_PROCESSORS && f->processor[k]; k++) {
            const size_t n = strlen(names);
            if (strstr(names, f->processor[k])) continue; /* some are in several families */
            snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", f->processor[k]);
        }
    return FV_FAIL(FV_EUNSUPPORTED, "%s: unsupported image_processor_type '%s'; supported: %s",
                   where, type, names);
}

/* Checks that the file belongs to the family that config.json describes. */
static fv_status check_type(const json_t *obj, const char *where, fv_layout_family layout) {
    const char *type = NULL;
    FV_TRY(fv_config_read_type(obj, where, &type));
    const fv_family *f = type ? family_of(type, layout) : NULL;
    if (!type || (f && f->layout == layout)) return FV_OK;
    if (!f) return refuse_type(where, type);
    return FV_FAIL(FV_EDATA,
                   "%s: key 'image_processor_type' is '%s', but config.json is of a %s model: "
                   "one of the two files is another checkpoint's",
                   where, type, fv_layout_family_name(layout));
}

/* Reads {"height": h, "width": w}; both must be present. */
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

fv_status fv_config_read_edge(const json_t *obj, const char *key, const char *where,
                              int32_t *edge) {
    return fv_json_i32(obj, key, where, 1, FV_LAYOUT_SIDE_MAX, edge);
}

/* Reads one number or {"shortest_edge"} to *edge; otherwise sets *edge to 0 and reads a box to
 * *box. */
fv_status fv_config_read_size(const json_t *obj, const char *where, int32_t *edge,
                              fv_layout_size *box) {
    const json_t *v = fv_config_member(obj, "size");
    if (!v) return FV_OK;
    if (!json_is_object(v)) return fv_config_read_edge(obj, "size", where, edge);
    if (json_object_size(v) == 1 && fv_config_member(v, "shortest_edge"))
        return fv_config_read_edge(v, "shortest_edge", where, edge);
    *edge = 0;
    return read_box(v, "size", where, box);
}

fv_status fv_config_require_resize(const json_t *obj, const char *where) {
    bool do_resize = true;
    FV_TRY(fv_json_bool(obj, "do_resize", where, &do_resize));
    if (do_resize) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED,
                   "%s: key 'do_resize' is false, but images have any size: it must be true",
                   where);
}

fv_status fv_config_read_crop(const json_t *obj, const char *where, fv_layout_size *crop) {
    const json_t *v = fv_config_member(obj, "crop_size");
    if (!v) return FV_OK;
    if (json_is_object(v)) return read_box(v, "crop_size", where, crop);
    FV_TRY(fv_config_read_edge(obj, "crop_size", where, &crop->h));
    crop->w = crop->h;
    return FV_OK;
}

/* ---- values --------------------------------------------------------------------------------- */

/* Reads image_mean or image_std: three numbers, or one for all channels. */
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
    const fv_family *family = family_with(layout->family);
    fv_layout_config l = *layout;
    fv_image_config c = family->pixels;
    c.do_rescale = c.do_convert_rgb = true;
    c.do_normalize = !c.no_normalize;
    c.rescale_factor = 0.00392156862745098;
    json_t *root = NULL;
    if (n > 0) FV_TRY(fv_json_object(json, n, where, &root));
    const json_t *nested = fv_config_member(root, "image_processor"), *obj = nested ? nested : root;
    fv_status st = FV_OK;
    if (nested && !json_is_object(nested))
        st = FV_FAIL(FV_EDATA, "%s: key 'image_processor' must be an object", where);
    if (st == FV_OK) st = check_type(obj, where, layout->family);
    if (st == FV_OK) st = family->read_sizes(obj, where, &l);
    if (st == FV_OK) st = read_values(obj, where, &c);
    json_decref(root);
    FV_TRY(st);
    if (fv_layout_check(&l) != FV_OK) return fv_fail_prefix(FV_EDATA, "%s", where);
    *layout = l;
    *out = c;
    return FV_OK;
}

fv_status fv_video_config_parse(const fv_family *family, const char *json, size_t n,
                                const char *where, const fv_image_config *image,
                                fv_layout_config *layout) {
    fv_layout_config l = *layout;
    fv_image_config c = *image;
    json_t *root;
    FV_TRY(fv_json_object(json, n, where, &root));
    const json_t *nested = fv_config_member(root, "video_processor"), *obj = nested ? nested : root;
    fv_status st = family->read_video(obj, where, &l);
    if (st == FV_OK) st = read_values(obj, where, &c);
    json_decref(root);
    FV_TRY(st);
    if (c.resample != image->resample || c.do_rescale != image->do_rescale ||
        c.do_normalize != image->do_normalize || c.rescale_factor != image->rescale_factor ||
        memcmp(c.mean, image->mean, sizeof c.mean) != 0 ||
        memcmp(c.std, image->std, sizeof c.std) != 0)
        return FV_FAIL(
            FV_EUNSUPPORTED,
            "%s: frames of videos are resampled or normalized in another way than images", where);
    if (fv_layout_check(&l) != FV_OK) return fv_fail_prefix(FV_EDATA, "%s", where);
    *layout = l;
    return FV_OK;
}
