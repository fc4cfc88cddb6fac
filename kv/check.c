/* Asserts invariants that hold after every successful operation on a store. Builds without tests omit
 * them (FV_NO_CHECKS). */
#include <assert.h>

#include "kv/internal.h"

#ifdef FV_NO_CHECKS
void fv_kv_check(const fv_kv *kv, int32_t layer) {
    (void)kv;
    (void)layer;
}
#else

/* Checks that a segment's rows have blocks and values, and that borrowed keys are the source
 * layer's. */
static void check_run(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    size_t at = fv_kv_run_at(kv, layer, head, seg);
    const fv_kv_run_state *st = &kv->state[at];
    const fv_kv_block *block = kv->run[at].block;
    int32_t n = kv->run[at].len + (seg == FV_SEG_VISUAL ? kv->masked[layer] : 0);
    int32_t n_block = fv_kv_blocks_for(n);
    const int32_t *pos = st->column[FV_KV_POSITION];
    assert(kv->run[at].len >= 0 && n <= st->cap && n_block <= st->cap_block);
    if (seg == FV_SEG_TEXT) assert(n_block <= st->n_block && st->n_block <= st->cap_block);
    if (n == 0) return;
    assert(block[n_block - 1].v && pos[n - 1] >= 0);
    size_t source = fv_kv_run_at(kv, kv->source_layer[layer], head, seg);
    if (seg == FV_SEG_VISUAL && source != at && kv->run[source].len > 0) {
        assert(kv->run[at].len <= kv->run[source].len);
        assert(block[n_block - 1].k == kv->run[source].block[n_block - 1].k);
    }
}

static void check_visual(const fv_kv *kv, int32_t layer) {
    int32_t n_kv = kv->account.shape->n_kv, source = kv->source_layer[layer];
    size_t bytes = 0, parts = source == layer ? 2 : 1;
    for (int32_t g = 0; g < n_kv; g++) {
        size_t at = fv_kv_run_at(kv, layer, g, FV_SEG_VISUAL);
        int32_t held = kv->run[at].len + kv->masked[layer], was = kv->ranked[layer * n_kv + g];
        int32_t own = held > kv->shared_visual ? held - kv->shared_visual : 0;
        bytes += parts * (size_t)own * fv_kv_row_bytes(kv->account.shape);
        assert(was == 0 || held <= was);
        assert(!*fv_kv_packed_slot(kv, layer, FV_SEG_VISUAL) || held == 0);
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

/* The bytes of a layer's pages, buffers and tables. */
static size_t layer_bytes(const fv_kv *kv, int32_t layer) {
    size_t bytes = kv->extent[layer].bytes, pages = 0;
    for (int32_t g = 0; g < kv->account.shape->n_kv; g++)
        pages +=
            (size_t)(kv->state[fv_kv_run_at(kv, layer, g, FV_SEG_TEXT)].n_block - kv->shared_text);
    for (int seg = 0; seg < FV_N_SEG; seg++)
        for (const fv_kv_packed *p = *fv_kv_packed_slot(kv, layer, (fv_kv_segment)seg); p;
             p = p->next)
            bytes += p->part_buf[0].bytes + p->part_buf[1].bytes + p->charged;
    return bytes + (kv->reused_text[layer] ? 1 : 2) * pages * fv_kv_page_bytes(kv->account.shape);
}

/* The first blocks are the share's, and what is the share's is not packed, borrowed or ranked. */
static void check_shared(const fv_kv *kv) {
    if (!kv->share) {
        assert(kv->shared_text == 0 && kv->shared_visual == 0);
        return;
    }
    fv_kv_share_check(kv->share, kv);
    for (int32_t l = 0; l < kv->account.shape->n_layer; l++) {
        assert(kv->source_layer[l] == l && !kv->reused_text[l]);
        assert(!*fv_kv_packed_slot(kv, l, FV_SEG_VISUAL) &&
               !*fv_kv_packed_slot(kv, l, FV_SEG_TEXT));
        for (int32_t g = 0; g < kv->account.shape->n_kv; g++) assert(fv_kv_ranked(kv, l, g) == 0);
    }
}

/* The account has every byte, and no other. */
static void check_account(const fv_kv *kv) {
    size_t bytes = kv->account.reserved + kv->recurrent.bytes;
    for (const fv_kv_packed_set *s = kv->sets; s; s = s->next) bytes += s->charged;
    for (int32_t l = 0; l < kv->account.shape->n_layer; l++) bytes += layer_bytes(kv, l);
    assert(bytes == kv->account.held);
    assert(kv->account.held <= fv_kv_pool_used(kv->account.pool));
    (void)bytes;
}

void fv_kv_check(const fv_kv *kv, int32_t layer) {
    for (int32_t l = 0; layer < 0 && l < kv->account.shape->n_layer; l++) fv_kv_check(kv, l);
    if (layer < 0) {
        check_account(kv);
        check_shared(kv);
        return;
    }
    check_visual(kv, layer);
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        const fv_kv_packed *p = *fv_kv_packed_slot(kv, layer, (fv_kv_segment)seg);
        for (int32_t g = 0; g < kv->account.shape->n_kv; g++)
            check_run(kv, layer, g, (fv_kv_segment)seg);
        for (; p; p = p->next) check_packed(p);
    }
}
#endif
