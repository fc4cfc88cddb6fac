/* Gemma 4: the image is scaled, keeping about its aspect ratio, to the largest area that is at most
 * pixels_max, with sides of whole tokens. Products are in double and rounded down, as in transformers'
 * get_aspect_ratio_preserving_size. */
#include <inttypes.h>
#include <math.h>

#include "layout/internal.h"

static int32_t side_of(const fv_layout_config *c) { return c->patch * c->merge; }

/* Tokens of an image at most. */
static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    return c->pixels_max / ((int64_t)side_of(c) * side_of(c));
}

static fv_status check(const fv_layout_config *c) {
    const int64_t area = (int64_t)side_of(c) * side_of(c);
    if (c->pixels_max >= area) return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "images are scaled to at most %" PRId32 " pixels, less than a token of %" PRId64
                   ": see max_soft_tokens",
                   c->pixels_max, area);
}

/* Tokens of one side where the other is shorter than a token, which it is made. */
static double strip(double longer, double shorter, double most) {
    return fmin(floor(longer / shorter), most);
}

static fv_status resize(const fv_layout_config *c, double most, fv_layout *l) {
    const double side = side_of(c), w = l->image_w, h = l->image_h, factor = sqrt(most / (w * h));
    const double tokens = floor(most / (side * side));
    double rows = floor(factor * h / side), cols = floor(factor * w / side);
    if (rows == 0 && cols == 0)
        return FV_FAIL(FV_EINVAL,
                       "an image of %" PRId32 " x %" PRId32
                       " pixels would be scaled to less than a token: send it in another size",
                       l->image_w, l->image_h);
    if (rows == 0) rows = 1, cols = strip(w, h, tokens);
    if (cols == 0) cols = 1, rows = strip(h, w, tokens);
    l->tile = (fv_layout_size){(int32_t)(cols * side), (int32_t)(rows * side)};
    return FV_OK;
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    fv_layout_span span;
    (void)n_image;
    FV_TRY(resize(c, c->pixels_max, l));
    FV_TRY(fv_layout_qwen_view(c, l, &span));
    l->n_text = 2;
    return fv_layout_add_span(l, &span);
}

static void text(const fv_layout *l, const char *mark, fv_layout_writer *w) {
    (void)l;
    fv_layout_write(w, "<|image>%s<image|>", mark);
}

const fv_layout_rules fv_layout_gemma4 = {.name = "gemma4",
                                          .token = "<|image|>",
                                          .any_size = true,
                                          .check = check,
                                          .image = image,
                                          .tokens_max = tokens_max,
                                          .text = text};
