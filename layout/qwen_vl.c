/* Qwen2-VL (arXiv 2409.12191), Qwen2.5-VL and Qwen3-VL: an image of about its own shape, whose sides are
 * whole tokens and whose area is between two limits. As smart_resize of transformers: quotients in double,
 * rounded half to even. Text around an image is the chat template's. */
#include <inttypes.h>
#include <math.h>

#include "layout/internal.h"

enum { ASPECT_MAX = 200 };

static fv_status check(const fv_layout_config *c) {
    if (c->pixels_min >= 1 && c->pixels_max >= 1) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "images are scaled to %" PRId32 " to %" PRId32
                   " pixels, of which both must be at least 1: see size, min_pixels and max_pixels",
                   c->pixels_min, c->pixels_max);
}

static fv_layout_size smart_resize(const fv_layout_config *c, double w, double h) {
    const double side = c->patch * c->merge;
    double cols = rint(w / side), rows = rint(h / side);
    const double area = cols * side * (rows * side);
    if (area > c->pixels_max) {
        const double beta = sqrt(h * w / c->pixels_max);
        cols = fmax(1, floor(w / beta / side)), rows = fmax(1, floor(h / beta / side));
    } else if (area < c->pixels_min) {
        const double beta = sqrt(c->pixels_min / (h * w));
        cols = ceil(w * beta / side), rows = ceil(h * beta / side);
    }
    return (fv_layout_size){(int32_t)(cols * side), (int32_t)(rows * side)};
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    (void)n_image;
    const int32_t side = c->patch * c->merge, w = l->image_w, h = l->image_h;
    if ((w > h ? w : h) > (int64_t)ASPECT_MAX * (w > h ? h : w))
        return FV_FAIL(FV_EINVAL,
                       "an image of %" PRId32 " x %" PRId32
                       " pixels is more than %d times as long as it is narrow: send it less narrow",
                       w, h, ASPECT_MAX);
    l->tile = smart_resize(c, w, h);
    const int32_t cols = l->tile.w / side, rows = l->tile.h / side;
    FV_TRY(fv_layout_add_view(l, &(fv_layout_view){.n_resize = 1,
                                                   .resize = {l->tile},
                                                   .w = l->tile.w,
                                                   .h = l->tile.h,
                                                   .cols = 1,
                                                   .rows = 1}));
    return fv_layout_add_span(
        l, &(fv_layout_span){
               .t = 1, .h = rows, .w = cols, .cols = 1, .rows = 1, .crop_w = cols, .crop_h = rows});
}

/* Sides a and b in tokens: at most pixels_max; a strip of one token's height, of which the length is cut
 * down alone; or, scaled up, (a + 1)(b + 1) with ab = pixels_min. */
static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    const double side = c->patch * c->merge, most = c->pixels_max / (side * side),
                 least = c->pixels_min / (side * side);
    const double strip = sqrt(ASPECT_MAX * most),
                 up = least + sqrt(least) * (sqrt(ASPECT_MAX) + sqrt(1.0 / ASPECT_MAX)) + 1;
    return (int64_t)ceil(fmax(fmax(most, strip), up));
}

const fv_layout_rules fv_layout_qwen_vl = {.name = "qwen_vl",
                                           .token = "<|image_pad|>",
                                           .any_size = true,
                                           .check = check,
                                           .image = image,
                                           .tokens_max = tokens_max};
