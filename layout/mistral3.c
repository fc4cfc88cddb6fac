/* Mistral Small 3.1 and later, with Pixtral's tower (arXiv 2410.07073): an image of any shape is scaled down
 * if it is too large, and its sides are rounded up to whole tokens. Each row of tokens ends with a text
 * token. Quotients are in double, as in transformers' PixtralImageProcessor. */
#include <inttypes.h>
#include <math.h>

#include "layout/internal.h"

fv_status fv_layout_fit_check(const fv_layout_config *c) {
    const fv_layout_size r = c->resize;
    if (r.w >= 1 && r.h >= 1 && r.w <= FV_LAYOUT_SIDE_MAX && r.h <= FV_LAYOUT_SIDE_MAX)
        return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "images are scaled down to %" PRId32 " x %" PRId32
                   " pixels; sides of 1..%d are possible: see longest_edge",
                   r.w, r.h, FV_LAYOUT_SIDE_MAX);
}

static int32_t whole(int32_t pixels, int32_t token) { return (pixels - 1) / token + 1; }

fv_status fv_layout_fit(const fv_layout_config *c, int32_t unit, fv_layout *l) {
    const double ratio = fmax((double)l->image_h / c->resize.h, (double)l->image_w / c->resize.w);
    fv_layout_size size = {l->image_w, l->image_h};
    if (ratio > 1)
        size = (fv_layout_size){(int32_t)(l->image_w / ratio), (int32_t)(l->image_h / ratio)};
    if (size.w < 1 || size.h < 1)
        return FV_FAIL(FV_EINVAL,
                       "an image of %" PRId32 " x %" PRId32 " pixels, scaled down to %" PRId32
                       " x %" PRId32 ", has no pixels left: send it less narrow",
                       l->image_w, l->image_h, c->resize.w, c->resize.h);
    l->tile = (fv_layout_size){whole(size.w, unit) * unit, whole(size.h, unit) * unit};
    return FV_OK;
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    (void)n_image;
    const int32_t token = c->patch * c->merge;
    FV_TRY(fv_layout_fit(c, token, l));
    const int32_t cols = l->tile.w / token, rows = l->tile.h / token;
    l->n_text = rows;
    FV_TRY(fv_layout_add_view(l, &(fv_layout_view){.n_resize = 1,
                                                   .resize = {l->tile},
                                                   .w = l->tile.w,
                                                   .h = l->tile.h,
                                                   .cols = 1,
                                                   .rows = 1}));
    for (int32_t y = 0; y < rows; y++)
        FV_TRY(fv_layout_add_span(l, &(fv_layout_span){.t = 1,
                                                       .h = 1,
                                                       .w = cols,
                                                       .cols = 1,
                                                       .rows = 1,
                                                       .crop_y = y,
                                                       .crop_w = cols,
                                                       .crop_h = 1}));
    return FV_OK;
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    const int32_t token = c->patch * c->merge;
    return (int64_t)whole(c->resize.w, token) * whole(c->resize.h, token);
}

static void text(const fv_layout *l, const char *mark, fv_layout_writer *w) {
    for (int32_t i = 0; i < l->n_span; i++)
        fv_layout_write(w, "%s%s", mark, i + 1 < l->n_span ? "[IMG_BREAK]" : "[IMG_END]");
}

const fv_layout_rules fv_layout_mistral3 = {.name = "mistral3",
                                            .token = "[IMG]",
                                            .any_size = true,
                                            .check = fv_layout_fit_check,
                                            .image = image,
                                            .tokens_max = tokens_max,
                                            .text = text};
