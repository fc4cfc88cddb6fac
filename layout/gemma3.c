/* Gemma 3 (arXiv 2503.19786): the image is resized to the tower's square, whatever its aspect ratio.
 * Pan and scan, which would add crops of the image, is off in transformers. */
#include "layout/internal.h"

static fv_status check(const fv_layout_config *c) {
    (void)c; /* the family reads nothing but tile, patch and merge */
    return FV_OK;
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    (void)n_image;
    FV_TRY(fv_layout_add_view(l, &(fv_layout_view){.n_resize = 1,
                                                   .resize = {{c->tile, c->tile}},
                                                   .w = c->tile,
                                                   .h = c->tile,
                                                   .cols = 1,
                                                   .rows = 1}));
    return fv_layout_add_tile(c, l, 0);
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    return (int64_t)fv_layout_side(c) * fv_layout_side(c);
}

const fv_layout_rules fv_layout_gemma3 = {
    .name = "gemma3",
    .token = "<start_of_image>",
    .written = "\n\n<start_of_image><image_soft_token><end_of_image>\n\n",
    .check = check,
    .image = image,
    .tokens_max = tokens_max};
