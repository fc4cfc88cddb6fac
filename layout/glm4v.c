/* GLM-4.1V and its kin: an image counts as two equal frames, and the limits of its area hold for both
 * together; a side shorter than a token is first enlarged to one. Otherwise as Qwen2-VL's images. The
 * text around an image comes from the chat template. */
#include "layout/internal.h"

enum { FRAMES = 2 };

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    fv_layout_span span;
    (void)n_image;
    FV_TRY(fv_layout_qwen_aspect(l));
    l->tile = fv_layout_qwen_resize(c->patch * c->merge, c->pixels_min, c->pixels_max, FRAMES,
                                    l->image_w, l->image_h);
    FV_TRY(fv_layout_qwen_view(c, l, &span));
    return fv_layout_add_span(l, &span);
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    fv_layout_config frame = *c;
    frame.pixels_min = c->pixels_min / FRAMES + 1;
    frame.pixels_max = c->pixels_max / FRAMES + 1;
    return fv_layout_qwen_tokens_max(&frame, n_image);
}

const fv_layout_rules fv_layout_glm4v = {.name = "glm4v",
                                         .token = "<|image|>",
                                         .any_size = true,
                                         .check = fv_layout_qwen_check,
                                         .image = image,
                                         .tokens_max = tokens_max};
