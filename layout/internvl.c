/* InternVL 2.5 and 3 (arXiv 2412.05271, 2504.10479): the image is resized, without keeping its aspect
 * ratio, to the grid of tiles whose aspect ratio is nearest, and cut; if there are several tiles, the whole
 * image follows as one more. Quotients are in double, as in transformers' GotOcr2ImageProcessor. */
#include <inttypes.h>
#include <math.h>

#include "layout/internal.h"

static fv_status check(const fv_layout_config *c) {
    if (c->tiles_min >= 1 && c->tiles_min <= c->tiles_max && c->tiles_max < FV_LAYOUT_TILES_MAX)
        return FV_OK;
    return FV_FAIL(FV_EINVAL,
                   "images are cut into %" PRId32 " to %" PRId32
                   " tiles; 1 to %d are possible: see min_patches and max_patches",
                   c->tiles_min, c->tiles_max, FV_LAYOUT_TILES_MAX - 1);
}

/* The columns and rows of the best grid, searched by area, then by width: the first with the nearest aspect
 * ratio, or a later one as near whose pixels are fewer than twice the image's. */
static fv_layout_size best_grid(const fv_layout_config *c, int32_t w, int32_t h) {
    const double aspect = (double)w / h, area = (double)w * h;
    fv_layout_size best = {1, 1};
    double least = INFINITY;
    for (int32_t n = c->tiles_min; n <= c->tiles_max; n++)
        for (int32_t cols = 1; cols <= n; cols++) {
            if (n % cols != 0) continue;
            const double off = fabs(aspect - (double)cols / (n / cols));
            if (off > least || (off == least && area <= 0.5 * c->tile * c->tile * n)) continue;
            least = off;
            best = (fv_layout_size){cols, n / cols};
        }
    return best;
}

static fv_status add_grid(const fv_layout_config *c, fv_layout *l, fv_layout_size grid) {
    const int32_t first = l->n_tile, w = grid.w * c->tile, h = grid.h * c->tile;
    FV_TRY(fv_layout_add_view(
        l, &(fv_layout_view){
               .n_resize = 1, .resize = {{w, h}}, .w = w, .h = h, .cols = grid.w, .rows = grid.h}));
    for (int32_t i = first; i < l->n_tile; i++) FV_TRY(fv_layout_add_tile(c, l, i));
    return FV_OK;
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    (void)n_image;
    const fv_layout_size grid = best_grid(c, l->image_w, l->image_h);
    l->n_text = 2;
    FV_TRY(add_grid(c, l, grid));
    return l->n_tile > 1 ? add_grid(c, l, (fv_layout_size){1, 1}) : FV_OK;
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    const int64_t n = c->tiles_max > 1 ? c->tiles_max + 1 : 1;
    return n * fv_layout_side(c) * fv_layout_side(c);
}

static void text(const fv_layout *l, const char *mark, fv_layout_writer *w) {
    fv_layout_write(w, "<img>");
    for (int32_t i = 0; i < l->n_span; i++) fv_layout_write(w, "%s", mark);
    fv_layout_write(w, "</img>");
}

const fv_layout_rules fv_layout_internvl = {.name = "internvl",
                                            .token = "<IMG_CONTEXT>",
                                            .check = check,
                                            .image = image,
                                            .tokens_max = tokens_max,
                                            .text = text};
