/* Asserts invariants that hold after every successful operation on a store. Builds without tests omit
 * them (FV_NO_CHECKS). */
#include <assert.h>

#include "model/net/kv_internal.h"

#ifdef FV_NO_CHECKS
void fv_kv_check(const fv_kv *kv, int32_t layer) {
    (void)kv;
    (void)layer;
}
#else

/* Checks that a segment's tokens have blocks and values, and that borrowed keys are the source
 * layer's. */
static void check_run(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    size_t at = fv_kv_run_at(kv, layer, head, seg);
    const fv_kv_run_state *st = &kv->state[at];
    const fv_kv_block *block = kv->run[at].block;
    int32_t n = fv_kv_held(kv, layer, head, seg), n_block = fv_kv_blocks_for(n);
    assert(kv->run[at].len >= 0 && n <= st->cap && n_block <= st->cap_block);
    if (seg == FV_SEG_TEXT) assert(n_block <= st->n_block && st->n_block <= st->cap_block);
    if (n == 0) return;
    assert(block[n_block - 1].v && fv_kv_positions(kv, layer, head, seg)[n - 1] >= 0);
    size_t source = fv_kv_run_at(kv, kv->source_layer[layer], head, seg);
    if (seg == FV_SEG_VISUAL && source != at && kv->run[source].len > 0) {
        assert(kv->run[at].len <= kv->run[source].len);
        assert(block[n_block - 1].k == kv->run[source].block[n_block - 1].k);
    }
}

static void check_visual(const fv_kv *kv, int32_t layer) {
    int32_t n_kv = kv->pool->shape.n_kv, source = kv->source_layer[layer];
    size_t bytes = 0, parts = source == layer ? 2 : 1;
    for (int32_t g = 0; g < n_kv; g++) {
        int32_t held = fv_kv_held(kv, layer, g, FV_SEG_VISUAL), was = fv_kv_ranked(kv, layer, g);
        bytes += parts * (size_t)held * fv_kv_row_bytes(&kv->pool->shape);
        assert(was == 0 || held <= was);
        assert(!fv_kv_packed_at(kv, layer) || held == 0);
    }
    assert(bytes <= kv->extent[layer].bytes);
    assert(source <= layer && kv->source_layer[source] == source);
}

static void check_packed(const fv_kv_packed *p) {
    int32_t valid = 0;
    for (int32_t a = 0; a < p->rows.n_anchor; a++) {
        assert(p->alive[a] >= 0 && p->alive[a] <= p->first[a + 1] - p->first[a]);
        valid += p->alive[a];
    }
    assert(valid == p->n_alive && p->first[p->rows.n_anchor] == p->rows.n);
}

void fv_kv_check(const fv_kv *kv, int32_t layer) {
    const fv_kv_pool *pool = kv->pool;
    for (int32_t l = 0; layer < 0 && l < pool->shape.n_layer; l++) fv_kv_check(kv, l);
    if (layer < 0) {
        assert(fv_kv_bytes_held(kv) <= pool->bytes_used);
        assert(!pool->bytes_max || pool->bytes_used <= pool->bytes_max);
        return;
    }
    check_visual(kv, layer);
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        const fv_kv_packed *p = fv_kv_packed_of(kv, layer, (fv_kv_segment)seg);
        for (int32_t g = 0; g < pool->shape.n_kv; g++) check_run(kv, layer, g, (fv_kv_segment)seg);
        for (; p; p = p->next) check_packed(p);
    }
}
#endif
