/* A share of each ranked layer's rows, raw or packed. The thread that owns the store. */
#include "model/net/anneal.h"

#include <assert.h>
#include <math.h>

#include "model/net/expand.h"

/* 1e-9: shares are not exact in binary. */
static int32_t share_of(double share, int32_t n) { return (int32_t)floor(share * n + 1e-9); }

static fv_status anneal_packed(fv_kv *kv, int32_t layer, double share, fv_anneal_order order) {
    const fv_kv_packed *p = fv_kv_packed_at(kv, layer);
    if (!p->rank || p->source_layer != layer)
        return FV_OK; /* the second of a pair goes with the first */
    int32_t v = share_of(share, p->n_first);
    if (order == FV_ANNEAL_IMPORTANCE && p->observed) return fv_expand_least(kv, layer, v);
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
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++) {
        if (fv_kv_borrows(kv, l, FV_SEG_VISUAL)) continue; /* goes with its source layer */
        if (fv_kv_packed_at(kv, l))
            FV_TRY(anneal_packed(kv, l, share, order));
        else
            FV_TRY(anneal_raw(kv, l, share));
    }
    return FV_OK;
}
