/* LightOnOCR: an image of any shape is scaled down if it is too large, like Mistral 3's, and its sides
 * are rounded up to multiples of shortest_edge pixels, which are patches or whole tokens as the image
 * processor's file says. Patches beyond the last whole token are seen by the tower alone. No text is
 * added. */
#include <inttypes.h>

#include "layout/internal.h"

static fv_status check(const fv_layout_config *c) {
    FV_TRY(fv_layout_fit_check(c));
    if (c->shortest_edge >= 1 && c->shortest_edge <= FV_LAYOUT_SIDE_MAX) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "sides of images are multiples of %" PRId32
                   " pixels; 1..%d are possible: see patch_size",
                   c->shortest_edge, FV_LAYOUT_SIDE_MAX);
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    fv_layout_span span;
    (void)n_image;
    const int32_t token = c->patch * c->merge;
    FV_TRY(fv_layout_fit(c, c->shortest_edge, l));
    if (l->tile.w < token || l->tile.h < token)
        return FV_FAIL(FV_EINVAL,
                       "an image of %" PRId32 " x %" PRId32
                       " pixels is less than a token of %" PRId32 " x %" PRId32 ": enlarge it",
                       l->image_w, l->image_h, token, token);
    FV_TRY(fv_layout_qwen_view(c, l, &span));
    return fv_layout_add_span(l, &span);
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    const int64_t side = c->patch * c->merge, w = c->resize.w + c->shortest_edge,
                  h = c->resize.h + c->shortest_edge;
    (void)n_image;
    return (w / side + 1) * (h / side + 1);
}

const fv_layout_rules fv_layout_lighton_ocr = {.name = "lighton_ocr",
                                               .token = "<|image_pad|>",
                                               .any_size = true,
                                               .check = check,
                                               .image = image,
                                               .tokens_max = tokens_max};
