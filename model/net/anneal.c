/* Drops rows of each ranked layer, raw or packed, down to a share. Runs on the thread that owns the
 * store. */
#include "model/net/anneal.h"

#include <assert.h>
#include <math.h>

#include "model/net/config.h"
#include "model/net/expand.h"

/* 1e-9: shares are not exact in binary. */
static int32_t share_of(double share, int32_t n) { return (int32_t)floor(share * n + 1e-9); }

/* Drops rows of a group of latents; called for all its layers, acts at its source layer. */
static fv_status anneal_group(fv_kv *kv, int32_t layer, double share) {
    int32_t n[FV_MAX_LAYERS], n_layer = fv_kv_get_shape(kv)->n_layer;
    if (fv_kv_packed_of(kv, layer, FV_SEG_VISUAL)->source_layer != layer) return FV_OK;
    for (int32_t l = layer; l < n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        n[l] = p ? p->n_alive : 0;
        if (p && p->rank && share_of(share, p->n_first) < n[l]) n[l] = share_of(share, p->n_first);
    }
    return fv_expand_shrink_group(kv, layer, n);
}

static fv_status anneal_packed(fv_kv *kv, int32_t layer, double share, fv_anneal_order order) {
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
    bool nested = fv_kv_packed_format_of(p)->nested;
    bool by_importance = order == FV_ANNEAL_IMPORTANCE && p->observed;
    if (nested && by_importance) return anneal_group(kv, layer, share);
    if (!p->rank || (p->source_layer != layer && !nested))
        return FV_OK; /* annealed with the first layer of the pair */
    int32_t v = share_of(share, p->n_first);
    if (by_importance) return fv_expand_keep_top(kv, layer, v);
    return fv_kv_packed_shrink(kv, layer, v);
}

static fv_status anneal_raw(fv_kv *kv, int32_t layer, double share) {
    int32_t n_kv = fv_kv_get_shape(kv)->n_kv, n[1024];
    bool ranked = false;
    assert(n_kv <= 1024);
    for (int32_t g = 0; g < n_kv; g++) {
        int32_t was = fv_kv_ranked(kv, layer, g);
        n[g] = share_of(share, was);
        ranked |= was > 0;
    }
    return ranked ? fv_kv_truncate(kv, layer, n) : FV_OK;
}

fv_status fv_anneal(fv_kv *kv, double share, fv_anneal_order order) {
    for (int32_t l = fv_kv_get_shape(kv)->n_layer - 1; l >= 0; l--) { /* source layers last */
        if (fv_kv_borrows(kv, l, FV_SEG_VISUAL)) continue; /* annealed with its source layer */
        if (fv_kv_packed_of(kv, l, FV_SEG_VISUAL))
            FV_TRY(anneal_packed(kv, l, share, order));
        else
            FV_TRY(anneal_raw(kv, l, share));
    }
    return FV_OK;
}
