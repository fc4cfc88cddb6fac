/* LLaVA-OneVision (arXiv 2408.03326): like LLaVA-NeXT, but a grid with more tokens than N tiles
 * (anyres_max_N) is scaled down to about that many. If a prompt has several images, each is one tile,
 * the image on a square, and ends with a newline. */
#include <inttypes.h>
#include <math.h>

#include "layout/internal.h"

/* A grid is scaled down if its sides are too long by more than this factor. */
#define RATIO_MAX 1.1

static fv_status check(const fv_layout_config *c) {
    if (c->tiles_max < 1 || c->tiles_max > FV_LAYOUT_TILES_MAX)
        return FV_FAIL(FV_EINVAL,
                       "an image may have as many tokens as %" PRId32
                       " tiles; 1..%d are possible: see vision_aspect_ratio",
                       c->tiles_max, FV_LAYOUT_TILES_MAX);
    return fv_layout_check_pinpoints(c);
}

/* Python's a // b. */
static int32_t floor_quotient(int32_t a, double b) {
    const double quotient = (a - fmod(a, b)) / b, below = floor(quotient);
    return (int32_t)(quotient - below > 0.5 ? below + 1 : below);
}

static int64_t area_of(const fv_layout_config *c) {
    return (int64_t)c->tiles_max * fv_layout_side(c) * fv_layout_side(c);
}

static fv_status add_tiles(const fv_layout_config *c, fv_layout *l) {
    fv_layout_span mosaic;
    FV_TRY(fv_layout_add_anyres(c, l, &mosaic));
    const double ratio =
        sqrt((double)((int64_t)mosaic.crop_h * mosaic.crop_w) / (double)area_of(c));
    if (ratio > RATIO_MAX) {
        mosaic.h = floor_quotient(mosaic.crop_h, ratio);
        mosaic.w = floor_quotient(mosaic.crop_w, ratio) + 1;
        if (mosaic.h == 0 || mosaic.w == 1)
            return FV_FAIL(FV_EINVAL,
                           "an image of %" PRId32 " x %" PRId32 " pixels has %" PRId32 " x %" PRId32
                           " visual tokens, of which no row or column is left when "
                           "they are as many as %" PRId32 " tiles have: send it less narrow",
                           l->image_w, l->image_h, mosaic.crop_w, mosaic.crop_h, c->tiles_max);
    }
    return fv_layout_add_mosaic(l, &mosaic);
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    if (n_image == 1) return add_tiles(c, l);
    FV_TRY(fv_layout_add_view(l, &(fv_layout_view){.pad_square = l->image_w != l->image_h,
                                                   .n_resize = 1,
                                                   .resize = {{c->tile, c->tile}},
                                                   .w = c->tile,
                                                   .h = c->tile,
                                                   .cols = 1,
                                                   .rows = 1}));
    fv_layout_span tile = fv_layout_tile_span(c, 0);
    tile.newline_end = true;
    return fv_layout_add_span(l, &tile);
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    if (n_image == 1)
        return fv_layout_anyres_max(c, RATIO_MAX * RATIO_MAX * (double)area_of(c) + 1);
    return (int64_t)fv_layout_side(c) * fv_layout_side(c) + 1;
}

const fv_layout_rules fv_layout_llava_onevision = {.name = "llava_onevision",
                                                   .pads = true,
                                                   .check = check,
                                                   .image = image,
                                                   .tokens_max = tokens_max};
