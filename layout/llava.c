/* LLaVA-1.5 (arXiv 2310.03744): every image becomes one square of the tower's size, as
 * CLIPImageProcessor makes it, or with LLaVA's padding to a square ahead of that. */
#include "layout/family.h"

static fv_status check(const fv_layout_config *c) {
    bool fixed = c->shortest_edge == 0;
    if (c->merge != 1)
        return FV_FAIL(FV_EINVAL, "llava: each patch is a token, not %d x %d", c->merge, c->merge);
    if (c->shortest_edge < 0 || c->shortest_edge > FV_LAYOUT_SIDE_MAX || c->resize.w < 0 ||
        c->resize.w > FV_LAYOUT_SIDE_MAX || c->resize.h < 0 || c->resize.h > FV_LAYOUT_SIDE_MAX ||
        (fixed && (c->resize.w == 0) != (c->resize.h == 0)))
        return FV_FAIL(FV_EINVAL, "llava: images cannot be resized to %d or %d x %d pixels",
                       c->shortest_edge, c->resize.w, c->resize.h);
    return FV_OK;
}

/* The shorter side becomes `edge`; the longer one is int(edge * long / short), as Python
 * divides: in double, rounded once. */
static fv_status by_shortest_edge(int32_t w, int32_t h, int32_t edge, fv_layout_size *out) {
    bool upright = w <= h;
    int64_t shorter = upright ? w : h, longer = upright ? h : w;
    int64_t other = (int64_t)((double)(edge * longer) / (double)shorter);
    if (other > INT32_MAX)
        return FV_FAIL(FV_EINVAL, "an image of %d x %d pixels is too narrow to resize", w, h);
    *out = (fv_layout_size){(int32_t)(upright ? edge : other), (int32_t)(upright ? other : edge)};
    return FV_OK;
}

/* Where the image stands: half of what is left, rounded down. */
static int32_t centre(int32_t size, int32_t tile) {
    int32_t more = size - tile;
    return more >= 0 ? -(more / 2) : (1 - more) / 2;
}

static fv_status lay(const fv_layout_config *c, int32_t w, int32_t h, int32_t n_image,
                     fv_layout *out) {
    fv_layout_view view = {
        .pad_square = c->pad_square && w != h, .w = c->tile, .h = c->tile, .cols = 1, .rows = 1};
    fv_layout_size size = {w, h};
    (void)n_image;
    if (view.pad_square) size.w = size.h = w > h ? w : h;
    if (c->shortest_edge || c->resize.w) {
        if (c->shortest_edge)
            FV_TRY(by_shortest_edge(size.w, size.h, c->shortest_edge, &size));
        else
            size = c->resize;
        view.resize[view.n_resize++] = size;
    }
    view.x = centre(size.w, c->tile);
    view.y = centre(size.h, c->tile);
    fv_layout_add_view(out, &view);
    return fv_layout_add_span(out, fv_layout_tile_span(c, 0));
}

static int32_t tokens_max(const fv_layout_config *c, int32_t n_image) {
    int32_t side = fv_layout_side(c);
    (void)n_image;
    return side * side + c->class_token;
}

const fv_layout_rules fv_layout_llava = {
    .name = "llava", .check = check, .lay = lay, .tokens_max = tokens_max};
