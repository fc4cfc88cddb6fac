/* Turns sections into factors, codes, directions or coefficients: the description of a packed layer in
 * PACK is checked before memory is allocated by it; then the layer's parts are
 * copied as they arrive. For the pool's thread. */
#include <stdlib.h>
#include <string.h>

#include "decode-worker/receive/internal.h"
#include "packed/text_codes.h"

/* The block that is being filled: the layer's last one. */
static fv_kv_packed *last_block(const fv_import *l) {
    fv_kv_packed *p = fv_kv_packed_of(l->got.kv, l->layer, l->packed_seg);
    while (p && p->next) p = p->next;
    return p;
}

/* The block of another layer that the next block of this one corresponds to. */
static const fv_kv_packed *matching_block(const fv_import *l, int32_t layer) {
    const fv_kv_packed *last = last_block(l), *p = fv_kv_packed_of(l->got.kv, layer, l->packed_seg);
    int32_t number = last ? last->number + 1 : 0;
    while (p && p->number < number) p = p->next;
    return p;
}

/* Whether a segment may have several blocks, one after the other: only quantized text. */
static bool has_several_blocks(const fv_import *l) {
    return l->packed_seg == FV_SEG_TEXT && l->got.plan.text.again > 0;
}

fv_status fv_import_begin_packed(fv_import *l, const fv_section *s) {
    bool text =
        s->segment == FV_SEG_TEXT && (l->got.plan.text_keys.rank > 0 || l->got.plan.text.bits > 0);
    if (s->segment != FV_SEG_VISUAL && !text)
        return FV_REFUSE(MALFORMED, "layer %d has compressed tokens of segment %d", l->layer,
                         s->segment);
    l->packed_seg = (fv_kv_segment)s->segment;
    if (last_block(l) && !has_several_blocks(l))
        return FV_REFUSE(MALFORMED, "layer %d has compressed tokens of segment %d twice", l->layer,
                         s->segment);
    l->due = FV_DUE_PACKED;
    return FV_OK;
}

fv_status fv_import_packed_length(const fv_import *l, const fv_section *s, uint64_t *want) {
    const fv_kv_packed *p = last_block(l);
    uint32_t most = l->packed_seg == FV_SEG_TEXT ? l->hello.n_text : l->hello.n_visual;
    if (l->due == FV_DUE_FACTOR) {
        *want = fv_packed_sent_bytes(&p->part[l->kind].shape);
    } else if (l->due == FV_DUE_IMPORTANCE) {
        *want = 4 * (uint64_t)p->rows.n;
    } else {
        bool as_lead = s->dims[0] == 0 && s->dims[1] == 0; /* the tokens are its source layer's */
        if (!as_lead &&
            (s->dims[0] == 0 || s->dims[0] > most || s->dims[1] == 0 || s->dims[1] > s->dims[0]))
            return FV_REFUSE(
                OVER_BUDGET,
                "layer %d has %u compressed tokens in %u blocks, but the prompt has %u", l->layer,
                s->dims[0], s->dims[1], most);
        *want = fv_wire_packed_bytes(s->dims[0], s->dims[1]);
    }
    return FV_OK;
}

/* ---- PACK ------------------------------------------------------------------------------ */

static fv_status malformed(const fv_import *l, const char *what) {
    return FV_REFUSE(MALFORMED, "section PACK of layer %d: %s", l->layer, what);
}

/* Checks that blocks are contiguous, and none is empty. */
static fv_status check_blocks(const fv_import *l, const fv_kv_packed_form *f) {
    for (int32_t a = 0; a < f->n_anchor; a++)
        if (f->first[a] >= f->first[a + 1]) return malformed(l, "its blocks do not ascend");
    if (f->first[0] != 0 || f->first[f->n_anchor] != f->n)
        return malformed(l, "its blocks do not match its tokens");
    for (int32_t a = 0; f->anchor && a < f->n_anchor; a++)
        if (f->anchor[a] < 0 || f->anchor[a] >= l->opt->max_position)
            return malformed(l, "an anchor is outside the model's context");
    return FV_OK;
}

/* Checks that no layer of a group has, now or later, coefficients of more tokens than a layer before it:
 * they are evicted from the end. */
static fv_status check_nested(const fv_import *l, const fv_kv_packed_form *f) {
    if (f->n_anchor != 1) return malformed(l, "its coefficients are in several blocks");
    for (int32_t j = 0; f->rank && j < f->n; j++)
        if (f->rank[j] != j) return malformed(l, "its tokens are not in the order of their rank");
    int32_t had = fv_kv_ranked(l->got.kv, l->layer, 0);
    for (int32_t at = l->layer - 1; at >= f->source_layer && at >= 0; at--) {
        const fv_kv_packed *before = fv_kv_packed_of(l->got.kv, at, f->seg);
        if (!before || before->source_layer != f->source_layer) continue;
        if (before->rows.n < f->n || before->n_first < had || (before->rank && !f->rank))
            return malformed(l, "it has tokens that an earlier layer of its group lacks");
        break;
    }
    return FV_OK;
}

/* Checks that RANK's number of rows is the same for all heads and no less than now, and that rows
 * are in the order of their rank inside each block. */
static fv_status check_ranks(const fv_import *l, const fv_kv_packed_form *f) {
    bool ranked = l->ranked && f->seg == FV_SEG_VISUAL;
    int32_t had = ranked ? fv_kv_ranked(l->got.kv, l->layer, 0) : f->n;
    for (int32_t g = 0; ranked && g < l->shape->n_kv; g++)
        if (fv_kv_ranked(l->got.kv, l->layer, g) != had || had < f->n)
            return malformed(l,
                             "its number of ranked tokens differs between heads or is too small");
    for (int32_t a = 0; f->rank && a < f->n_anchor; a++)
        for (int32_t j = f->first[a]; j < f->first[a + 1]; j++)
            if (f->rank[j] < 0 || f->rank[j] >= had ||
                (j > f->first[a] && f->rank[j] <= f->rank[j - 1]))
                return malformed(l, "its tokens are not in the order of their rank");
    return FV_OK;
}

/* Checks that each row is of the prompt and of its segment, and none comes twice; text must ascend. */
static fv_status check_rows(const fv_import *l, const fv_kv_packed_form *f) {
    uint8_t *seen = calloc(1, (size_t)l->got.n);
    if (!seen) return FV_FAIL(FV_ENOMEM, "out of memory for a packed layer");
    const fv_kv_packed *last = last_block(l);
    int32_t before = last && f->seg == FV_SEG_TEXT ? last->pos[last->rows.n - 1] + 1 : 0;
    fv_status st = FV_OK;
    for (int32_t j = 0; j < f->n && st == FV_OK; j++) {
        int32_t p = f->pos[j];
        if (p < 0 || p >= l->got.n || l->got.seg[p] != f->seg || seen[p])
            st = malformed(l, "a token's position is invalid or used twice");
        else if (f->seg == FV_SEG_TEXT && p < before)
            st = malformed(l, "its text tokens do not ascend");
        else
            seen[p] = 1;
        before = p;
    }
    free(seen);
    return st;
}

/* Checks that a layer uses its own keys, or those of an earlier compressed layer that owns its keys and has
 * as many tokens; likewise for directions of merged layers, whose keys are not shared. Coefficients may be
 * of more tokens. */
static fv_status check_source_layer(const fv_import *l, const fv_kv_packed_form *f) {
    int32_t due = fv_kv_borrows(l->got.kv, l->layer, FV_SEG_TEXT)
                      ? fv_kv_source_layer(l->got.kv, l->layer)
                      : l->layer;
    if (f->seg == FV_SEG_TEXT && f->source_layer != due)
        return malformed(l, "its text keys must be its source layer's");
    if (f->source_layer == l->layer) return FV_OK;
    const fv_kv_packed *lead = f->source_layer >= 0 && f->source_layer < l->layer
                                   ? matching_block(l, f->source_layer)
                                   : NULL;
    const fv_packed_format *format = fv_packed_format_of(f->part[FV_PACKED_V].form);
    if (!lead || lead->source_layer != f->source_layer || lead->rows.n_anchor != f->n_anchor ||
        lead->part[FV_PACKED_K].shape.form != f->part[FV_PACKED_V].form ||
        !format->fits(&lead->part[FV_PACKED_K].shape, &f->part[FV_PACKED_K]) ||
        (f->seg == FV_SEG_TEXT && memcmp(lead->pos, f->pos, (size_t)f->n * sizeof *f->pos) != 0) ||
        (f->part[FV_PACKED_V].borrows && fv_kv_source_layer(l->got.kv, l->layer) != l->layer))
        return malformed(l, "its source layer has no matching keys");
    return FV_OK;
}

/* Whether a block is quantized text by the policy: its bits, one block of rows, and each key rotated by its
 * own position. */
static bool is_text_code(const fv_import *l, const fv_kv_packed_form *f) {
    const fv_kv_shape *s = l->shape;
    fv_text_width w = {s->n_kv, s->d_head, s->dtype};
    bool good = !f->anchor && f->n_anchor == 1;
    for (int k = 0; k < 2; k++) {
        const fv_packed_shape *is = &f->part[k];
        fv_packed_shape due = fv_text_shape(&l->got.plan.text, (fv_packed_kind)k, f->n, &w);
        good = good && is->form == due.form && is->codes.bits == due.codes.bits &&
               is->codes.n_outlier == 0;
    }
    return good;
}

/* The prefill worker makes no factors of a higher rank than they have rows. */
static int32_t rank_of(const fv_packed_shape *s) {
    return s->form == FV_PACKED_LOWRANK ? s->lowrank.rank : 0;
}

static fv_status check_form(const fv_import *l, const fv_kv_packed_form *f, uint64_t *bytes) {
    *bytes = 0;
    bool text = f->seg == FV_SEG_TEXT;
    bool coded = text && l->got.plan.text.bits > 0;
    bool latent = f->part[FV_PACKED_V].form == FV_PACKED_LATENT;
    if (fv_packed_is_rows(&f->part[FV_PACKED_V]) != (text && !coded))
        return malformed(l, "values of visual tokens must be compressed, those of text must not");
    if (coded && !is_text_code(l, f))
        return malformed(l, "its text is not quantized as the policy says");
    if (latent && (text || !l->shape->latent || f->anchor))
        return malformed(l, "it has coefficients, and there are no directions for them");
    if (text && (f->rank || l->importance))
        return malformed(l, "its text tokens are ranked, or have an importance");
    for (int k = 0; k < 2; k++) {
        if (k == FV_PACKED_K && f->source_layer != l->layer && !f->part[k].borrows) continue;
        if (fv_packed_check(&f->part[k]) != FV_OK || rank_of(&f->part[k]) > f->n)
            return malformed(l, "the shape of a part is invalid");
        *bytes += fv_packed_bytes(&f->part[k]);
    }
    if (!fv_packed_format_of(f->part[FV_PACKED_V].form)
             ->fits(&f->part[FV_PACKED_K], &f->part[FV_PACKED_V]))
        return malformed(l, "its keys and values have different coefficients");
    FV_TRY(check_source_layer(l, f));
    FV_TRY(check_blocks(l, f));
    FV_TRY(check_ranks(l, f));
    if (latent) FV_TRY(check_nested(l, f));
    return check_rows(l, f);
}

/* Refuses more quantized text rows, or shorter blocks, than memory was reserved for. */
static fv_status check_text_rows(const fv_import *l, int32_t n) {
    uint32_t all = (uint32_t)fv_kv_packed_text_rows(l->got.kv, l->layer) + (uint32_t)n;
    if (all > l->hello.n_text)
        return FV_REFUSE(OVER_BUDGET,
                         "layer %d has %u compressed text tokens, more than the prompt", l->layer,
                         all);
    /* The second block is one token shorter if the layer dropped the prompt's last token. */
    const fv_kv_packed *last = last_block(l);
    if (last && n < l->got.plan.text.again - (last->number == 0 ? FV_TEXT_LAST : 0))
        return malformed(l, "a block of text has too few tokens");
    return FV_OK;
}

/* Refuses more bytes than were reserved for n compressed text rows. */
static fv_status check_text_bytes(const fv_import *l, int32_t n, uint64_t bytes, bool own) {
    const fv_kv_shape *s = l->shape;
    uint64_t most =
        fv_text_keys_bytes(&l->got.plan.text_keys, n, s->n_kv, s->d_head, s->dtype, own);
    if (bytes <= most) return FV_OK;
    return FV_REFUSE(OVER_BUDGET,
                     "layer %d has %llu bytes for %d text tokens, but its policy allows %llu",
                     l->layer, (unsigned long long)bytes, n, (unsigned long long)most);
}

static fv_packed_form form_of(const fv_wire_packed *w) {
    if (w->latent) return FV_PACKED_LATENT;
    if (w->merged) return FV_PACKED_MERGED;
    return w->coded ? FV_PACKED_QUANTIZED : FV_PACKED_LOWRANK;
}

static fv_packed_shape shape_of(const fv_import *l, const fv_wire_packed *w, int kind) {
    bool own = w->source_layer == (uint32_t)l->layer;
    fv_packed_numbers numbers = {.rank = w->part[kind].rank,
                                 .rank2 = w->part[kind].rank2,
                                 .bits = w->part[kind].bits,
                                 .n_outlier = w->part[kind].n_outlier,
                                 .exact = w->exact};
    fv_packed_shape s = {.form = form_of(w),
                         .kind = (fv_packed_kind)kind,
                         .n = (int32_t)w->n,
                         .n_kv = l->shape->n_kv,
                         .d_head = l->shape->d_head,
                         .dtype = l->shape->dtype,
                         .borrows =
                             (w->merged && !own) || (w->latent && (!own || kind == FV_PACKED_V))};
    fv_packed_format_of(s.form)->take_numbers(&numbers, &s);
    if (w->latent) s.latent.coded = l->got.plan.coded_keys && kind == FV_PACKED_K;
    return s;
}

/* Tokens of a layer that reads its source layer's coefficients: its PACK names none, as they are the
 * first ones of that layer. */
typedef struct source_tokens {
    int32_t first[2];
    int32_t *rank; /* 0, 1, 2, ...; NULL if tokens are not ranked */
} source_tokens;

static fv_status take_tokens(const fv_import *l, fv_wire_packed *w, source_tokens *t) {
    const fv_kv_packed *lead =
        w->latent && w->source_layer < (uint32_t)l->layer
            ? fv_kv_packed_of(l->got.kv, (int32_t)w->source_layer, l->packed_seg)
            : NULL;
    if (w->n > 0)
        return w->n_source ? malformed(l, "it lists tokens, and names its source layer's as well")
                           : FV_OK;
    if (!lead || lead->part[FV_PACKED_V].shape.form != FV_PACKED_LATENT || w->anchored ||
        w->n_source == 0 || w->n_source > (uint32_t)lead->rows.n)
        return malformed(l, "it lists no tokens, and its source layer has none to share");
    w->n = w->n_source;
    w->n_anchor = 1;
    w->pos = lead->pos;
    w->first = t->first;
    t->first[1] = (int32_t)w->n;
    if (!w->ranked) return FV_OK;
    w->rank = t->rank = malloc(w->n * sizeof *t->rank);
    if (!t->rank) return FV_FAIL(FV_ENOMEM, "out of memory for a packed layer");
    for (int32_t j = 0; j < t->first[1]; j++) t->rank[j] = j;
    return FV_OK;
}

static fv_status take_form(fv_import *l, const fv_wire_packed *w) {
    fv_kv_packed_form f = {.part = {shape_of(l, w, FV_PACKED_K), shape_of(l, w, FV_PACKED_V)},
                           .n = (int32_t)w->n,
                           .n_anchor = (int32_t)w->n_anchor,
                           .pos = w->pos,
                           .first = w->first,
                           .anchor = w->anchored ? w->anchor : NULL,
                           .rank = w->ranked ? w->rank : NULL,
                           .source_layer =
                               w->source_layer > INT32_MAX ? -1 : (int32_t)w->source_layer,
                           .seg = l->packed_seg};
    uint64_t bytes;
    FV_TRY(check_form(l, &f, &bytes));
    if (f.seg == FV_SEG_TEXT && l->got.plan.text.bits)
        FV_TRY(check_text_rows(l, f.n));
    else if (f.seg == FV_SEG_TEXT)
        FV_TRY(check_text_bytes(l, f.n, bytes, f.source_layer == l->layer));
    else
        l->bytes_visual += bytes;
    if (l->bytes_visual > l->hello.bytes_visual)
        return FV_REFUSE(OVER_BUDGET,
                         "layers up to %d have %llu bytes of visual KV, but %llu were granted",
                         l->layer, (unsigned long long)l->bytes_visual,
                         (unsigned long long)l->hello.bytes_visual);
    return fv_kv_pack(l->got.kv, l->layer, &f, NULL);
}

fv_status fv_import_take_packed(fv_import *l, const fv_section *s) {
    fv_wire_packed w;
    source_tokens tokens = {{0}, NULL};
    FV_TRY(fv_wire_packed_get(l->payload, (size_t)s->length, &w));
    l->importance = w.importance;
    fv_status st = take_tokens(l, &w, &tokens);
    if (st == FV_OK) st = take_form(l, &w);
    free(tokens.rank);
    FV_TRY(st);
    l->n_rows += w.n;
    fv_import_next_factor(l, fv_kv_packed_owns_keys(last_block(l), l->layer) ? FV_PACKED_K
                                                                             : FV_PACKED_V);
    return FV_OK;
}

/* ---- FACT, IMPO ------------------------------------------------------------------------ */

fv_status fv_import_fill_factor(fv_import *l, uint64_t offset, const void *p, size_t n) {
    fv_device *dev = fv_kv_get_device(l->got.kv);
    const fv_packed_part *part = &last_block(l)->part[l->kind];
    return dev->ops->copy_async(dev, (char *)part->data + offset, p, n);
}

fv_status fv_import_end_factor(fv_import *l) {
    const fv_packed_part *part = &last_block(l)->part[l->kind];
    fv_arena arena = {0};
    fv_packed_part host;
    const fv_packed_format *format = fv_packed_format_of(part->shape.form);
    if (!format->check_data) return FV_OK;
    fv_status st = fv_kv_packed_on_host(l->got.kv, part, &arena, &host);
    if (st == FV_OK && format->check_data(&host) != FV_OK)
        st = FV_REFUSE(MALFORMED, "section FACT of layer %d: %s", l->layer, fv_last_error());
    fv_arena_fini(&arena);
    return st;
}

void fv_import_next_factor(fv_import *l, int kind) {
    while (kind < 2 && fv_packed_sent_bytes(&last_block(l)->part[kind].shape) == 0) kind++;
    if (kind < 2) l->kind = (fv_packed_kind)kind;
    l->due = kind < 2 ? FV_DUE_FACTOR : l->importance ? FV_DUE_IMPORTANCE : FV_DUE_ROWS;
}

fv_status fv_import_take_importance(fv_import *l) {
    fv_kv_packed *p = last_block(l);
    FV_TRY(fv_kv_packed_observe(l->got.kv, p));
    memcpy(p->importance, l->payload, (size_t)p->rows.n * sizeof *p->importance);
    p->observed = p->stale = true;
    return FV_OK;
}
