/* Idefics3 (arXiv 2408.12637) and SmolVLM (arXiv 2504.05299): the longer side is resized to
 * longest_edge, then each side up to a multiple of a tile's; tiles in raster order, each with its row
 * and column in the prompt, and the whole image last. Numbers are rounded as Python does in
 * transformers' Idefics3ImageProcessor: quotients in double. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layout/internal.h"

enum { RESIZED_MAX = 4096 }; /* pixels of a side, whatever longest_edge is */

#define FAKE "<fake_token_around_image>"

static fv_status check(const fv_layout_config *c) {
    if (c->longest_edge >= 1 && c->longest_edge <= FV_LAYOUT_SIDE_MAX) return FV_OK;
    return FV_FAIL(FV_EINVAL, "longest_edge is %" PRId32 "; 1..%d are possible", c->longest_edge,
                   FV_LAYOUT_SIDE_MAX);
}

static int32_t at_least_1(int32_t v) { return v < 1 ? 1 : v; }

/* Scales the longer side to `edge`, and the other one in proportion, to an even number. */
static fv_layout_size scale_to_edge(int32_t w, int32_t h, int32_t edge) {
    const double aspect = (double)w / h;
    const int32_t other = (int32_t)(w >= h ? edge / aspect : edge * aspect);
    const int32_t even = at_least_1(other + other % 2);
    return w >= h ? (fv_layout_size){edge, even} : (fv_layout_size){even, edge};
}

static fv_layout_size scale_below_max(fv_layout_size in) {
    const double aspect = (double)in.w / in.h;
    if (in.w >= in.h && in.w > RESIZED_MAX)
        return (fv_layout_size){RESIZED_MAX, at_least_1((int32_t)(RESIZED_MAX / aspect))};
    if (in.h > in.w && in.h > RESIZED_MAX)
        return (fv_layout_size){at_least_1((int32_t)(RESIZED_MAX * aspect)), RESIZED_MAX};
    return in;
}

static int32_t up_to_tiles(int32_t v, int32_t tile) { return (v + tile - 1) / tile * tile; }

/* Rounds up to whole tiles: first the longer side, then the other one at the same aspect ratio. */
static fv_layout_size scale_to_tiles(fv_layout_size in, int32_t tile) {
    const double aspect = (double)in.w / in.h;
    if (in.w >= in.h) {
        const int32_t w = up_to_tiles(in.w, tile);
        return (fv_layout_size){w, up_to_tiles((int32_t)(w / aspect), tile)};
    }
    const int32_t h = up_to_tiles(in.h, tile);
    return (fv_layout_size){up_to_tiles((int32_t)(h * aspect), tile), h};
}

/* Adds the whole image, resized in turn by `resize`, as one tile. */
static fv_status add_whole(const fv_layout_config *c, fv_layout *l, int32_t n_resize,
                           const fv_layout_size *resize) {
    fv_layout_view v = {.n_resize = n_resize, .w = c->tile, .h = c->tile, .cols = 1, .rows = 1};
    memcpy(v.resize, resize, (size_t)n_resize * sizeof *resize);
    FV_TRY(fv_layout_add_view(l, &v));
    return fv_layout_add_tile(c, l, l->n_tile - 1);
}

static fv_status image(const fv_layout_config *c, int32_t n_image, fv_layout *l) {
    (void)n_image;
    const fv_layout_size tile = {c->tile, c->tile};
    const fv_layout_size edge =
        scale_below_max(scale_to_edge(l->image_w, l->image_h, c->longest_edge));
    const fv_layout_size whole = c->split ? scale_to_tiles(edge, c->tile) : tile;
    const fv_layout_size resize[] = {edge, whole, tile};
    const int32_t cols = whole.w / c->tile, rows = whole.h / c->tile;
    l->n_text = 3;
    if (cols * rows == 1) return add_whole(c, l, 2, resize);
    l->n_text += rows * (2 * cols + 1);
    FV_TRY(fv_layout_add_view(l, &(fv_layout_view){.n_resize = 2,
                                                   .resize = {edge, whole},
                                                   .w = whole.w,
                                                   .h = whole.h,
                                                   .cols = cols,
                                                   .rows = rows}));
    for (int32_t i = 0; i < cols * rows; i++) FV_TRY(fv_layout_add_tile(c, l, i));
    return add_whole(c, l, 3, resize);
}

static int64_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    (void)n_image;
    const int64_t tile = (int64_t)fv_layout_side(c) * fv_layout_side(c);
    const fv_layout_size square = scale_below_max(scale_to_edge(1, 1, c->longest_edge));
    const int64_t cols = up_to_tiles(square.w > square.h ? square.w : square.h, c->tile) / c->tile;
    return c->split && cols > 1 ? (cols * cols + 1) * tile : tile;
}

static void text(const fv_layout *l, const char *mark, fv_layout_writer *w) {
    if (l->n_view > 1) {
        for (int32_t r = 1; r <= l->view[0].rows; r++) {
            for (int32_t c = 1; c <= l->view[0].cols; c++)
                fv_layout_write(w, FAKE "<row_%" PRId32 "_col_%" PRId32 ">%s", r, c, mark);
            fv_layout_write(w, "\n");
        }
        fv_layout_write(w, "\n");
    }
    fv_layout_write(w, FAKE "<global-img>%s" FAKE, mark);
}

const fv_layout_rules fv_layout_idefics3 = {
    .name = "idefics3", .check = check, .image = image, .tokens_max = tokens_max, .text = text};
