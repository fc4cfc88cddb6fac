/* A share of a copy, for a store whose own rows will move. One thread at a time. */
#include "kv/share.h"

#include "kv/internal.h"

/* Copies the rows that `to` lacks of the first n of a head. */
static fv_status copy_head(fv_kv *to, const fv_kv *from, int32_t layer, int32_t head,
                           fv_kv_segment seg, int32_t n) {
    fv_device *dev = fv_kv_get_device(to);
    const size_t row = fv_kv_row_bytes(fv_kv_get_shape(to));
    const int32_t first = fv_kv_len(to, layer, head, seg);
    if (first >= n) return FV_OK;
    FV_TRY(fv_kv_append_head(to, layer, head, seg, fv_kv_positions(from, layer, head, seg) + first,
                             n - first));
    for (int value = 0; value < 2; value++)
        for (int32_t i = first, k; i < n; i += k) {
            void *x, *y;
            k = fv_kv_contiguous(from, layer, head, seg, value, i, n, &x);
            int32_t there = fv_kv_contiguous(to, layer, head, seg, value, i, i + k, &y);
            if (there < k) k = there;
            FV_TRY(dev->ops->copy_async(dev, y, x, (size_t)k * row));
        }
    return FV_OK;
}

static fv_status copy_layer(fv_kv *to, const fv_kv *from, int32_t layer, int32_t n_text,
                            int32_t n_visual) {
    FV_TRY(fv_kv_reserve(to, layer, n_text - fv_kv_len(to, layer, 0, FV_SEG_TEXT)));
    for (int32_t g = 0; g < fv_kv_get_shape(to)->n_kv; g++) {
        FV_TRY(copy_head(to, from, layer, g, FV_SEG_VISUAL, n_visual));
        FV_TRY(copy_head(to, from, layer, g, FV_SEG_TEXT, n_text));
    }
    return FV_OK;
}

static fv_status fill(fv_kv *to, const fv_kv *from, fv_kv_share *base, const fv_kv_prefix *of_base,
                      int32_t n_text, int32_t n_visual) {
    const int32_t n_layer = fv_kv_get_shape(to)->n_layer;
    const fv_kv_prefix all = {
        .n_text = of_base->n_text, .n_visual = of_base->n_visual, .visual_rows = n_visual};
    FV_TRY(fv_kv_set_owner(to, fv_kv_owner(from)));
    if (base) FV_TRY(fv_kv_adopt(to, base, &all));
    for (int32_t l = 0; l < n_layer && !base; l++) FV_TRY(fv_kv_extent(to, l, n_visual));
    for (int32_t l = 0; l < n_layer; l++) FV_TRY(copy_layer(to, from, l, n_text, n_visual));
    return FV_OK;
}

fv_status fv_kv_share_copy(const fv_kv *kv, fv_kv_share *base, const fv_kv_prefix *of_base,
                           int32_t n_text, int32_t n_visual, fv_kv_share **out) {
    fv_kv *copy;
    FV_TRY(fv_kv_open(fv_kv_get_pool(kv), &copy));
    fv_status st = fill(copy, kv, base, of_base, n_text, n_visual);
    if (st == FV_OK) st = fv_kv_share_make(copy, n_text, n_visual, out);
    fv_kv_close(copy);
    return st;
}
