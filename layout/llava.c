/* LLaVA-1.5: CLIPImageProcessor's steps. One tile: the image, [padded to a square,] is scaled so that its
 * shorter side fits the tower's input, which is then cropped from the centre. */
#include <inttypes.h>

#include "layout/internal.h"

static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

static fv_status check(const fv_layout_config *c) {
    const fv_layout_size r = c->resize;
    if (c->shortest_edge < 0 || c->shortest_edge > FV_LAYOUT_SIDE_MAX)
        return FV_FAIL(FV_EINVAL, "shortest_edge is %" PRId32 "; 0..%d are possible",
                       c->shortest_edge, FV_LAYOUT_SIDE_MAX);
    if (r.w < 0 || r.h < 0 || r.w > FV_LAYOUT_SIDE_MAX || r.h > FV_LAYOUT_SIDE_MAX ||
        (r.w == 0) != (r.h == 0))
        return FV_FAIL(FV_EINVAL,
                       "images are resized to %" PRId32 " x %" PRId32
                       " pixels; sides of 1..%d, or 0 x 0 for none, are possible",
                       r.w, r.h, FV_LAYOUT_SIDE_MAX);
    return FV_OK;
}

/* Scales the shorter side to `edge`; the longer one is int(edge * long / short) as in Python, in double,
 * rounded once. */
static fv_status scale_to_edge(fv_layout_size in, int32_t edge, fv_layout_size *out) {
    const bool upright = in.w <= in.h;
    const int64_t shorter = upright ? in.w : in.h, longer = upright ? in.h : in.w;
    const int64_t other = (int64_t)((double)(edge * longer) / (double)shorter);
    if (other > INT32_MAX)
        return FV_FAIL(FV_EINVAL,
                       "an image of %" PRId32 " x %" PRId32 " pixels is too narrow to resize", in.w,
                       in.h);
    *out = (fv_layout_size){upright ? edge : (int32_t)other, upright ? (int32_t)other : edge};
    return FV_OK;
}

/* Start of the crop: floor((size - crop) / 2). Below 0, there is black around the image. */
static int32_t crop_offset(int32_t size, int32_t crop) {
    const int32_t more = size - crop;
    return more >= 0 ? more / 2 : -((1 - more) / 2);
}

static fv_status add_view(const fv_layout_config *c, fv_layout *l) {
    fv_layout_view v = {.w = c->tile, .h = c->tile, .cols = 1, .rows = 1};
    fv_layout_size size = {l->image_w, l->image_h};
    v.pad_square = c->pad_square && size.w != size.h;
    if (v.pad_square) size.w = size.h = larger(size.w, size.h);
    if (c->shortest_edge || c->resize.w) {
        if (c->shortest_edge)
            FV_TRY(scale_to_edge(size, c->shortest_edge, &size));
        else
            size = c->resize;
        v.resize[v.n_resize++] = size;
    }
    v.x = -crop_offset(size.w, c->tile);
    v.y = -crop_offset(size.h, c->tile);
    return fv_layout_add_view(l, &v);
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    (void)n_image;
    FV_TRY(add_view(c, l));
    return fv_layout_add_tile(c, l, 0);
}

/* Video-LLaVA (arXiv 2311.10122): frame after frame, each with its class token. */
static fv_status video(const fv_layout_config *c, const fv_layout_clip *v, fv_layout *l) {
    if (v->n > FV_LAYOUT_TILES_MAX)
        return FV_FAIL(FV_EINVAL, "a video of %" PRId32 " frames; at most %d are possible", v->n,
                       FV_LAYOUT_TILES_MAX);
    l->tile = (fv_layout_size){c->tile, c->tile};
    FV_TRY(add_view(c, l));
    for (int32_t i = 0; i < v->n; i++) {
        fv_layout_span span = fv_layout_tile_span(c, i);
        span.class_token = true;
        FV_TRY(fv_layout_add_span(l, &span));
    }
    l->n_tile = v->n;
    return FV_OK;
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    return (int64_t)fv_layout_side(c) * fv_layout_side(c) + c->class_token;
}

const fv_layout_rules fv_layout_llava = {.name = "llava",
                                         .video_token = "<video>",
                                         .check = check,
                                         .image = image,
                                         .video = video,
                                         .frames = {.multiple = 1},
                                         .tokens_max = tokens_max};
