/* PaddleOCR-VL: Qwen2-VL's images, except that a side shorter than a token is first enlarged to one, the
 * other by the same factor, rounded half to even. The text around an image comes from the chat template. */
#include <math.h>

#include "layout/internal.h"

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    const double side = c->patch * c->merge;
    double w = l->image_w, h = l->image_h;
    fv_layout_span span;
    (void)n_image;
    FV_TRY(fv_layout_qwen_aspect(l));
    if (h < side) w = rint(w * side / h), h = side;
    if (w < side) h = rint(h * side / w), w = side;
    /* twice the limits for two frames */
    l->tile = fv_layout_qwen_resize(side, 2.0 * c->pixels_min, 2.0 * c->pixels_max, 2, w, h);
    FV_TRY(fv_layout_qwen_view(c, l, &span));
    return fv_layout_add_span(l, &span);
}

const fv_layout_rules fv_layout_paddleocr_vl = {.name = "paddleocr_vl",
                                                .token = "<|IMAGE_PLACEHOLDER|>",
                                                .any_size = true,
                                                .check = fv_layout_qwen_check,
                                                .image = image,
                                                .tokens_max = fv_layout_qwen_tokens_max};
