/* Qwen2-VL (arXiv 2409.12191) and Qwen2.5-VL, and the images of Qwen3-VL: the image keeps about its aspect
 * ratio; its sides are whole tokens, and its area is between two limits. Quotients are in double, rounded
 * half to even, as in transformers' smart_resize. The text around an image comes from the chat template.
 *
 * For Qwen2-VL and Qwen2.5-VL each frame of a video has its own limits, and a token covers two frames; their
 * processor has no limit for all frames together. */
#include <inttypes.h>
#include <math.h>

#include "layout/internal.h"

enum { ASPECT_MAX = 200, SECOND_MAX = 1000 };

static fv_status check_pixels(const char *what, int32_t least, int32_t most) {
    if (least >= 1 && most >= 1) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "%s are scaled to %" PRId32 " to %" PRId32
                   " pixels, of which both must be at least 1: see size, min_pixels and max_pixels",
                   what, least, most);
}

fv_status fv_layout_qwen_check(const fv_layout_config *c) {
    FV_TRY(check_pixels("images", c->pixels_min, c->pixels_max));
    if (c->video_pixels_max)
        FV_TRY(check_pixels("frames of a video", c->video_pixels_min, c->video_pixels_max));
    if (c->tokens_per_second >= 0 && c->tokens_per_second <= SECOND_MAX) return FV_OK;
    return FV_FAIL(FV_EINVAL, "a second of a video takes %" PRId32 " positions; 0..%d are possible",
                   c->tokens_per_second, SECOND_MAX);
}

static fv_layout_size smart_resize(double side, double least, double most, double w, double h) {
    double cols = rint(w / side), rows = rint(h / side);
    const double area = cols * side * (rows * side);
    if (area > most) {
        const double beta = sqrt(h * w / most);
        cols = fmax(1, floor(w / beta / side)), rows = fmax(1, floor(h / beta / side));
    } else if (area < least) {
        const double beta = sqrt(least / (h * w));
        cols = ceil(w * beta / side), rows = ceil(h * beta / side);
    }
    return (fv_layout_size){(int32_t)(cols * side), (int32_t)(rows * side)};
}

fv_status fv_layout_qwen_view(const fv_layout_config *c, fv_layout *l, fv_layout_span *span) {
    const int32_t side = c->patch * c->merge, cols = l->tile.w / side, rows = l->tile.h / side;
    *span = (fv_layout_span){
        .t = 1, .h = rows, .w = cols, .cols = 1, .rows = 1, .crop_w = cols, .crop_h = rows};
    return fv_layout_add_view(l, &(fv_layout_view){.n_resize = 1,
                                                   .resize = {l->tile},
                                                   .w = l->tile.w,
                                                   .h = l->tile.h,
                                                   .cols = 1,
                                                   .rows = 1});
}

fv_status fv_layout_qwen_aspect(const fv_layout *l) {
    const int32_t w = l->image_w, h = l->image_h;
    if ((w > h ? w : h) <= (int64_t)ASPECT_MAX * (w > h ? h : w)) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "an image of %" PRId32 " x %" PRId32
                   " pixels is more than %d times as long as it is wide: crop or pad it",
                   w, h, ASPECT_MAX);
}

/* Adds one view of `least` to `most` pixels; *span is its grid. */
static fv_status view(const fv_layout_config *c, int32_t least, int32_t most, fv_layout *l,
                      fv_layout_span *span) {
    FV_TRY(fv_layout_qwen_aspect(l));
    l->tile = smart_resize(c->patch * c->merge, least, most, l->image_w, l->image_h);
    return fv_layout_qwen_view(c, l, span);
}

fv_status fv_layout_qwen_image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    fv_layout_span span;
    (void)n_image;
    FV_TRY(view(c, c->pixels_min, c->pixels_max, l, &span));
    return fv_layout_add_span(l, &span);
}

fv_status fv_layout_qwen_frames(int32_t n, int32_t *n_tile) {
    *n_tile = n / 2 + n % 2;
    if (*n_tile <= FV_LAYOUT_TILES_MAX) return FV_OK;
    return FV_FAIL(FV_EINVAL, "a video of %" PRId32 " frames; at most %d are possible", n,
                   2 * FV_LAYOUT_TILES_MAX);
}

/* Lays out a video: a patch covers two frames; Qwen2.5-VL's step is a product in float, as in transformers. */
static fv_status video(const fv_layout_config *c, const fv_layout_clip *v, fv_layout *l) {
    fv_layout_span span;
    int32_t t;
    FV_TRY(fv_layout_qwen_frames(v->n, &t));
    FV_TRY(view(c, c->video_pixels_min, c->video_pixels_max, l, &span));
    span.t = t;
    span.step = (float)c->tokens_per_second * (float)(2 / v->fps);
    FV_TRY(fv_layout_add_span(l, &span));
    l->frames = 2;
    l->n_tile = t;
    return FV_OK;
}

/* The largest of three cases, for sides a and b in tokens: an image of pixels_max; a strip one token high, of
 * which only the length is reduced; and an enlarged image, (a + 1)(b + 1) with ab = pixels_min. */
int64_t fv_layout_qwen_tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    const double side = c->patch * c->merge, most = c->pixels_max / (side * side),
                 least = c->pixels_min / (side * side);
    const double strip = sqrt(ASPECT_MAX * most),
                 up = least + sqrt(least) * (sqrt(ASPECT_MAX) + sqrt(1.0 / ASPECT_MAX)) + 1;
    return (int64_t)ceil(fmax(fmax(most, strip), up));
}

const fv_layout_rules fv_layout_qwen_vl = {.name = "qwen_vl",
                                           .token = "<|image_pad|>",
                                           .video_token = "<|video_pad|>",
                                           .any_size = true,
                                           .check = fv_layout_qwen_check,
                                           .image = fv_layout_qwen_image,
                                           .video = video,
                                           .frames = {.multiple = 2},
                                           .tokens_max = fv_layout_qwen_tokens_max};
