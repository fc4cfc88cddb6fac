/* LLaVA-NeXT: the whole image, then the tiles' tokens as one grid, each row with a newline. */
#include "layout/internal.h"

#include <math.h>

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    (void)n_image;
    fv_layout_span mosaic;
    FV_TRY(fv_layout_add_anyres(c, l, &mosaic));
    return fv_layout_add_mosaic(l, &mosaic);
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    return fv_layout_anyres_max(c, INFINITY);
}

const fv_layout_rules fv_layout_llava_next = {.name = "llava_next",
                                              .check = fv_layout_check_pinpoints,
                                              .image = image,
                                              .tokens_max = tokens_max};
