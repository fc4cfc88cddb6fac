/* Turns sections of a layer's rows into KV entries, and takes its source layer, mask and ranks. Lengths are
 * compared with the grant before memory is allocated. For the pool's thread. */
#include <stdlib.h>
#include <string.h>

#include "decode-worker/receive/internal.h"
#include "handoff/bytes.h"
#include "model/net/accum.h"

size_t fv_import_row_bytes(const fv_kv_shape *s) {
    return (size_t)s->d_head * fv_dtype_bytes(s->dtype);
}

uint32_t fv_import_rows(const fv_import *l, int32_t layer, int32_t head, fv_kv_segment seg) {
    return l->rows[((size_t)layer * (size_t)l->shape->n_kv + (size_t)head) * FV_N_SEG + seg];
}

uint64_t fv_import_rows_due(const fv_import *l, int32_t h0, int32_t h1) {
    uint64_t rows = 0;
    for (int32_t g = h0; g < h1; g++) rows += fv_import_rows(l, l->layer, g, l->seg);
    return rows;
}

uint64_t fv_import_accum_due(const fv_import *l) {
    uint64_t left_out = (uint64_t)fv_import_left_out(l, l->seg) * (uint64_t)l->shape->n_kv;
    return fv_import_rows_due(l, 0, l->shape->n_kv) + left_out;
}

uint64_t fv_import_parts(const fv_import *l, int32_t layer, fv_kv_segment seg) {
    return fv_kv_borrows(l->got.kv, layer, seg) ? 1 : 2;
}

fv_status fv_import_fill_state(fv_import *l, uint64_t offset, const void *p, size_t n) {
    fv_device *dev = fv_kv_get_device(l->got.kv);
    return dev->ops->copy_async(dev, (char *)fv_kv_state(l->got.kv, l->layer) + offset, p, n);
}

fv_status fv_import_take_rank(fv_import *l) {
    int32_t *rows = (int32_t *)(void *)l->payload;
    const uint8_t *at = l->payload;
    for (int32_t g = 0; g < l->shape->n_kv; g++) {
        uint32_t n = fv_get_u32(&at);
        if (n > l->hello.n_visual)
            return FV_REFUSE(MALFORMED, "head %d of layer %d ranked %u tokens of %u", g, l->layer,
                             n, l->hello.n_visual);
        rows[g] = (int32_t)n;
    }
    fv_kv_set_ranked(l->got.kv, l->layer, rows);
    l->ranked = true;
    return FV_OK;
}

fv_status fv_import_take_mask(fv_import *l) {
    const uint8_t *at = l->payload;
    uint32_t n = fv_get_u32(&at);
    if (n == 0 || n > l->hello.n_visual)
        return FV_REFUSE(MALFORMED, "layer %d masks %u visual tokens of %u", l->layer, n,
                         l->hello.n_visual);
    l->mask[l->layer] = (int32_t)n;
    return FV_OK;
}

/* Checks that masked tokens are among those received, and that the layer never evicts any. */
static fv_status check_mask(const fv_import *l, int32_t layer) {
    bool leave = fv_accum_kind_of(l->got.kv) || l->ranked;
    for (int32_t g = 0; l->mask[layer] && g < l->shape->n_kv; g++)
        if (leave || fv_import_rows(l, layer, g, FV_SEG_VISUAL) < (uint32_t)l->mask[layer])
            return FV_REFUSE(MALFORMED,
                             "layer %d masks %d visual tokens that it does not hold or may evict",
                             layer, l->mask[layer]);
    return FV_OK;
}

/* Checks that no head has more rows left than were ranked. */
static fv_status check_ranked(const fv_import *l) {
    for (int32_t g = 0; l->ranked && g < l->shape->n_kv; g++)
        if (fv_import_rows(l, l->layer, g, FV_SEG_VISUAL) >
            (uint32_t)fv_kv_ranked(l->got.kv, l->layer, g))
            return FV_REFUSE(MALFORMED,
                             "head %d of layer %d has more visual tokens than were ranked", g,
                             l->layer);
    return FV_OK;
}

fv_status fv_import_take_lead(fv_import *l) {
    fv_wire_lead w;
    fv_kv *kv = l->got.kv;
    FV_TRY(fv_wire_lead_get(l->payload, &w));
    if (w.source_layer >= (uint32_t)l->layer ||
        fv_kv_source_layer(kv, (int32_t)w.source_layer) != (int32_t)w.source_layer)
        return FV_REFUSE(MALFORMED, "layer %d cannot have the keys of layer %u", l->layer,
                         w.source_layer);
    fv_kv_borrow(kv, l->layer, (int32_t)w.source_layer, w.text);
    l->n_reused_text += w.text;
    return FV_OK;
}

/* Number of a layer's text tokens that came in blocks. */
static uint32_t text_packed(const fv_import *l, int32_t layer) {
    return (uint32_t)fv_kv_packed_text_rows(l->got.kv, layer);
}

/* Checks that a layer that borrows keys has as many rows as its source layer. */
static fv_status check_reused(const fv_import *l, int32_t layer) {
    int32_t source_layer = fv_kv_source_layer(l->got.kv, layer);
    bool same = !fv_kv_borrows(l->got.kv, layer, FV_SEG_TEXT) ||
                text_packed(l, layer) == text_packed(l, source_layer);
    for (int32_t g = 0; g < l->shape->n_kv; g++)
        for (int seg = 0; seg < FV_N_SEG; seg++)
            same = same && (!fv_kv_borrows(l->got.kv, layer, (fv_kv_segment)seg) ||
                            fv_import_rows(l, layer, g, (fv_kv_segment)seg) ==
                                fv_import_rows(l, source_layer, g, (fv_kv_segment)seg));
    if (same) return FV_OK;
    return FV_REFUSE(MALFORMED,
                     "layer %d reuses the keys of layer %d but has a different number of tokens",
                     layer, source_layer);
}

/* The most text tokens of a layer that may come as rows. */
static uint32_t text_rows_most(const fv_import *l, int32_t layer) {
    uint32_t most = (uint32_t)fv_import_text_rows(l->shape, &l->got.plan, l->hello.n_text);
    uint32_t left = l->hello.n_text - text_packed(l, layer);
    return left < most ? left : most;
}

/* Reserves a layer's text pages for prompt and answer. Refuses more layers with text keys of their own than
 * were announced. */
static fv_status make_text(fv_import *l, int32_t layer) {
    int32_t own = layer + 1 - l->n_reused_text,
            most = l->shape->n_layer - (int32_t)l->hello.n_reused_text;
    if (own > most)
        return FV_REFUSE(OVER_BUDGET,
                         "%d layers have text keys of their own, but %d were announced", own, most);
    int64_t rows = (int64_t)l->hello.n_text - text_packed(l, layer) + l->got.plan.dup_max +
                   l->hello.max_tokens - fv_import_left_out(l, FV_SEG_TEXT);
    return fv_kv_reserve(l->got.kv, layer, fv_import_text_rows(l->shape, &l->got.plan, rows));
}

/* Checks the lengths of a layer group against the grant, then allocates memory for its rows. */
fv_status fv_import_take_rows(fv_import *l, const fv_section *s) {
    const uint8_t *at = l->payload;
    int32_t n_kv = l->shape->n_kv;
    uint32_t *first = l->rows + (size_t)s->layer0 * (size_t)n_kv * FV_N_SEG;
    size_t n = (size_t)s->length / 4;
    for (size_t i = 0; i < n; i++) {
        bool visual = i % FV_N_SEG == FV_SEG_VISUAL;
        int32_t layer = s->layer0 + (int32_t)(i / FV_N_SEG) / n_kv;
        uint32_t most = visual ? l->hello.n_visual : text_rows_most(l, layer);
        first[i] = fv_get_u32(&at);
        if (first[i] > most + (uint32_t)l->got.plan.dup_max)
            return FV_REFUSE(OVER_BUDGET,
                             "a head of layers %d to %d has %u tokens, more than the prompt",
                             s->layer0, s->layer1 - 1, first[i]);
        uint32_t left_out = (uint32_t)fv_import_left_out(l, visual ? FV_SEG_VISUAL : FV_SEG_TEXT);
        if (first[i] < left_out)
            return FV_REFUSE(MALFORMED,
                             "a head of layers %d to %d has %u tokens, fewer than the %u kept here",
                             s->layer0, s->layer1 - 1, first[i], left_out);
        l->n_rows += first[i] - left_out;
        if (visual && first[i] && fv_kv_packed_of(l->got.kv, layer, FV_SEG_VISUAL))
            return FV_REFUSE(MALFORMED,
                             "a layer of %d to %d is compressed but also has raw visual tokens",
                             s->layer0, s->layer1 - 1);
        if (visual)
            l->bytes_visual +=
                (uint64_t)first[i] * l->row_bytes * fv_import_parts(l, layer, FV_SEG_VISUAL);
        first[i] -= left_out;
    }
    if (l->bytes_visual > l->hello.bytes_visual)
        return FV_REFUSE(OVER_BUDGET,
                         "layers up to %d have %llu bytes of visual KV, but %llu were granted",
                         s->layer1 - 1, (unsigned long long)l->bytes_visual,
                         (unsigned long long)l->hello.bytes_visual);
    FV_TRY(check_ranked(l));
    FV_TRY(fv_import_room(l, (size_t)n_kv * sizeof(int32_t)));
    int32_t *each = (int32_t *)(void *)l->payload; /* reused: its data have been read */
    for (int32_t layer = s->layer0; layer < s->layer1; layer++) {
        FV_TRY(check_reused(l, layer));
        FV_TRY(check_mask(l, layer));
        FV_TRY(make_text(l, layer));
        for (int32_t g = 0; g < n_kv; g++)
            each[g] = (int32_t)fv_import_rows(l, layer, g, FV_SEG_VISUAL);
        if (!l->adopted) FV_TRY(fv_kv_extent_ragged(l->got.kv, layer, each));
    }
    l->layer_end = s->layer1;
    l->ranked = false;
    return FV_OK;
}

static fv_status allocate_seen(fv_import *l) {
    if (!l->seen && !(l->seen = calloc((size_t)l->got.n, 1)))
        return FV_FAIL(FV_ENOMEM, "out of memory for a hand-off");
    return FV_OK;
}

/* Checks that raw text tokens come after those in blocks; in a quantized layer the first comes before. */
static fv_status check_beside_blocks(const fv_import *l, const int32_t *pos, int32_t n) {
    const fv_kv_packed *p =
        l->seg == FV_SEG_TEXT ? fv_kv_packed_of(l->got.kv, l->layer, FV_SEG_TEXT) : NULL;
    int32_t before = p && l->got.plan.text.bits ? FV_TEXT_SINK : 0;
    bool good = true;
    if (!p) return FV_OK;
    for (int32_t i = 0; i < before && i < n; i++) good = good && pos[i] < p->pos[0];
    while (p->next) p = p->next;
    if (n > before) good = good && pos[before] > p->pos[p->rows.n - 1];
    if (good) return FV_OK;
    return FV_REFUSE(MALFORMED, "raw text tokens of layer %d are among the compressed ones",
                     l->layer);
}

/* Checks that text to be quantized is the same in all heads of a layer, and in all layers that share keys:
 * they are quantized together. */
static fv_status check_same_text(const fv_import *l, int32_t head) {
    const fv_kv *kv = l->got.kv;
    int32_t layer =
        fv_kv_borrows(kv, l->layer, FV_SEG_TEXT) ? fv_kv_source_layer(kv, l->layer) : l->layer;
    int32_t n = fv_kv_len(kv, l->layer, head, FV_SEG_TEXT);
    if (l->seg != FV_SEG_TEXT || l->got.plan.text.bits == 0) return FV_OK;
    if (n == fv_kv_len(kv, layer, 0, FV_SEG_TEXT) &&
        (n == 0 || memcmp(fv_kv_positions(kv, l->layer, head, FV_SEG_TEXT),
                          fv_kv_positions(kv, layer, 0, FV_SEG_TEXT), (size_t)n * 4) == 0))
        return FV_OK;
    return FV_REFUSE(
        MALFORMED,
        "the heads of layer %d hold different text tokens, but the policy quantizes text",
        l->layer);
}

/* Checks that positions are inside the prompt, of the right segment, and not repeated more often than
 * allowed. They must ascend, except in ranked layers, with accumulators, and with masked tokens, which come
 * last. */
static fv_status check_positions(fv_import *l, int32_t head, const int32_t *pos, int32_t n) {
    bool ranked = l->seg == FV_SEG_VISUAL && fv_kv_ranked(l->got.kv, l->layer, head) > 0;
    bool masked = l->seg == FV_SEG_VISUAL && l->mask[l->layer];
    bool any_order = ranked || masked || fv_accum_kind_of(l->got.kv);
    int32_t least = l->got.plan.dup_max ? 0 : 1; /* the smallest step to the next */
    int32_t first = fv_import_left_out(l, FV_SEG_TEXT) + fv_import_left_out(l, FV_SEG_VISUAL);
    FV_TRY(check_beside_blocks(l, pos, n));
    if (any_order) FV_TRY(allocate_seen(l));
    if (any_order) memset(l->seen, 0, (size_t)l->got.n);
    for (int32_t i = 0; i < n; i++) {
        bool good =
            pos[i] >= first && pos[i] < l->got.n && l->got.seg[pos[i]] == l->seg &&
            (any_order ? l->seen[pos[i]]++ <= 1 - least : i == 0 || pos[i] - pos[i - 1] >= least);
        if (!good)
            return FV_REFUSE(MALFORMED,
                             "token %d of a head of layer %d has the invalid position %d", i,
                             l->layer, pos[i]);
    }
    return FV_OK;
}

fv_status fv_import_take_positions(fv_import *l, const fv_section *s) {
    const int32_t *pos = (const int32_t *)(const void *)l->payload;
    int32_t len0 = (int32_t)fv_import_rows(l, l->layer, 0, l->seg);
    bool shared = s->dims[0] == 1;
    for (int32_t g = 0; g < l->shape->n_kv; g++) {
        int32_t n = (int32_t)fv_import_rows(l, l->layer, g, l->seg);
        if (shared && n != len0)
            return FV_REFUSE(MALFORMED,
                             "the heads of layer %d differ in length and share "
                             "positions",
                             l->layer);
        if (!shared || g == 0) FV_TRY(check_positions(l, g, pos, n));
        FV_TRY(fv_kv_append_head(l->got.kv, l->layer, g, l->seg, pos, n));
        FV_TRY(check_same_text(l, g));
        if (!shared) pos += n;
    }
    return FV_OK;
}

void fv_import_take_accum(fv_import *l) {
    const float *from = (const float *)(const void *)l->payload;
    for (int32_t g = 0; g < l->shape->n_kv; g++) {
        size_t rows =
            fv_import_rows(l, l->layer, g, l->seg) + (size_t)fv_import_left_out(l, l->seg);
        size_t n = rows * (size_t)fv_accum_width(l->got.kv);
        if (n > 0) memcpy(fv_accum_values(l->got.kv, l->layer, g, l->seg), from, n * sizeof *from);
        from += n;
    }
}

/* Copies the next bytes of heads, each K [len, D] unless shared and then V [len, D], to their
 * entries. */
fv_status fv_import_fill_rows(fv_import *l, const uint8_t *p, size_t n) {
    fv_device *dev = fv_kv_get_device(l->got.kv);
    while (n > 0) {
        int32_t len = (int32_t)fv_import_rows(l, l->layer, l->head_at, l->seg);
        size_t half = (size_t)len * l->row_bytes, parts = fv_import_parts(l, l->layer, l->seg);
        if (l->head_off == parts * half) { /* this head is full, perhaps because it has no rows */
            l->head_at++;
            l->head_off = 0;
            continue;
        }
        bool value = parts == 1 || l->head_off >= half;
        size_t off = l->head_off % half, in_row = off % l->row_bytes;
        int32_t row = (int32_t)(off / l->row_bytes) + fv_import_left_out(l, l->seg);
        void *at;
        int32_t rows = fv_kv_contiguous(l->got.kv, l->layer, l->head_at, l->seg, value, row,
                                        len + fv_import_left_out(l, l->seg), &at);
        size_t take = (size_t)rows * l->row_bytes - in_row;
        if (take > n) take = n;
        FV_TRY(dev->ops->copy_async(dev, (char *)at + in_row, p, take));
        l->head_off += take;
        p += take;
        n -= take;
    }
    return FV_OK;
}
