/* Tiles at any resolution (LLaVA-NeXT, llava-vl.github.io/blog/2024-01-30-llava-next): the image is
 * fitted into the listed size that shows most of it, on black, and cut into tiles; the whole image, at
 * one tile's size, comes first. Tokens that are only padding are left out.
 *
 * Numbers are rounded as Python does in transformers' select_best_resolution,
 * get_patch_output_size and unpad_image: quotients in double, once each. */
#include <inttypes.h>
#include <math.h>

#include "layout/internal.h"

fv_status fv_layout_check_pinpoints(const fv_layout_config *c) {
    if (c->n_pinpoint < 1 || c->n_pinpoint > FV_LAYOUT_PINPOINTS_MAX)
        return FV_FAIL(FV_EINVAL,
                       "images may be fitted to %" PRId32 " sizes; 1..%d are possible: see "
                       "image_grid_pinpoints",
                       c->n_pinpoint, FV_LAYOUT_PINPOINTS_MAX);
    for (int32_t i = 0; i < c->n_pinpoint; i++) {
        const fv_layout_size p = c->pinpoint[i];
        const int64_t cols = p.w / c->tile, rows = p.h / c->tile;
        if (p.w < 1 || p.h < 1 || p.w % c->tile != 0 || p.h % c->tile != 0)
            return FV_FAIL(FV_EINVAL,
                           "images may be fitted to %" PRId32 " x %" PRId32
                           " pixels, which tiles of %" PRId32 " do not divide: see "
                           "image_grid_pinpoints",
                           p.w, p.h, c->tile);
        if (cols * rows >= FV_LAYOUT_TILES_MAX)
            return FV_FAIL(FV_EINVAL,
                           "images may be fitted to %" PRId32 " x %" PRId32 " pixels, %" PRId64
                           " tiles of %" PRId32 "; fewer than %d are possible: see "
                           "image_grid_pinpoints",
                           p.w, p.h, cols * rows, c->tile, FV_LAYOUT_TILES_MAX);
    }
    return FV_OK;
}

/* The size that shows most pixels of the image, at most the image's own number; among equals the one with
 * least padding, then the first. */
static fv_layout_size best_size(const fv_layout_config *c, int32_t w, int32_t h) {
    const int64_t own = (int64_t)w * h;
    fv_layout_size best = {0};
    int64_t most = 0, least_waste = INT64_MAX;
    for (int32_t i = 0; i < c->n_pinpoint; i++) {
        const fv_layout_size p = c->pinpoint[i];
        const double scale = fmin((double)p.w / w, (double)p.h / h);
        int64_t shown = (int64_t)(w * scale) * (int64_t)(h * scale);
        if (shown > own) shown = own;
        const int64_t waste = (int64_t)p.w * p.h - shown;
        if (shown < most || (shown == most && waste >= least_waste)) continue;
        most = shown;
        least_waste = waste;
        best = p;
    }
    return best;
}

/* The largest size with the image's aspect ratio inside `in`; sides are rounded up. */
static fv_layout_size fit(int32_t w, int32_t h, fv_layout_size in) {
    const double across = (double)in.w / w, down = (double)in.h / h;
    if (across < down) return (fv_layout_size){in.w, (int32_t)fmin(ceil(h * across), in.h)};
    return (fv_layout_size){(int32_t)fmin(ceil(w * down), in.w), in.h};
}

/* Tokens to cut off at each end of a side, of which `seen` tokens show the image. Adding 5e-8 equals
 * Python's int(round(seen, 7)): a fraction of an image's side is either more than 5e-8 below an integer,
 * or an integer up to rounding. */
static int32_t cut(int32_t size, double seen) { return (size - (int32_t)(seen + 5e-8)) / 2; }

static void unpad(int32_t w, int32_t h, fv_layout_span *s) {
    if ((double)w / h > (double)s->crop_w / s->crop_h) {
        s->crop_y = cut(s->crop_h, h * ((double)s->crop_w / w));
        s->crop_h -= 2 * s->crop_y;
    } else {
        s->crop_x = cut(s->crop_w, w * ((double)s->crop_h / h));
        s->crop_w -= 2 * s->crop_x;
    }
}

fv_status fv_layout_add_anyres(const fv_layout_config *c, fv_layout *l, fv_layout_span *mosaic) {
    const int32_t w = l->image_w, h = l->image_h, side = fv_layout_side(c);
    const fv_layout_size best = best_size(c, w, h), size = fit(w, h, best);
    const int32_t cols = best.w / c->tile, rows = best.h / c->tile;
    FV_TRY(fv_layout_add_view(l, &(fv_layout_view){.n_resize = 1,
                                                   .resize = {{c->tile, c->tile}},
                                                   .w = c->tile,
                                                   .h = c->tile,
                                                   .cols = 1,
                                                   .rows = 1}));
    FV_TRY(fv_layout_add_view(l, &(fv_layout_view){.n_resize = 1,
                                                   .resize = {size},
                                                   .x = (best.w - size.w) / 2,
                                                   .y = (best.h - size.h) / 2,
                                                   .w = best.w,
                                                   .h = best.h,
                                                   .cols = cols,
                                                   .rows = rows}));
    FV_TRY(fv_layout_add_tile(c, l, 0));
    *mosaic = (fv_layout_span){.t = 1,
                               .tile = 1,
                               .cols = cols,
                               .rows = rows,
                               .crop_w = cols * side,
                               .crop_h = rows * side,
                               .newline_column = true};
    unpad(w, h, mosaic);
    mosaic->h = mosaic->crop_h;
    mosaic->w = mosaic->crop_w + 1;
    return FV_OK;
}

fv_status fv_layout_add_mosaic(fv_layout *l, const fv_layout_span *mosaic) {
    return mosaic->h == 0 ? FV_OK : fv_layout_add_span(l, mosaic);
}

int64_t fv_layout_anyres_max(const fv_layout_config *c, double area_max) {
    const int64_t side = fv_layout_side(c);
    int64_t most = 0;
    for (int32_t i = 0; i < c->n_pinpoint; i++) {
        const int64_t w = c->pinpoint[i].w / c->tile * side, h = c->pinpoint[i].h / c->tile * side;
        const int64_t n = (int64_t)fmin((double)(w * h), area_max) + h;
        if (n > most) most = n;
    }
    return side * side + most;
}
