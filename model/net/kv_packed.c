/* Manages the memory of packed layers: which layer owns which part, and dropping rows. Factors come from
 * prefill-worker/pack or over the network. One thread at a time. */
#include "model/net/kv_packed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/config.h"
#include "model/net/kv_internal.h"
#include "packed/latent.h"

_Static_assert(sizeof(fv_kv_packed) <= FV_PACKED_BLOCK_FIXED &&
                   sizeof(fv_kv_packed_set) <= FV_PACKED_SET_FIXED,
               "bounds on tables are made with these");

fv_kv_packed *fv_kv_packed_of(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    return *fv_kv_packed_slot(kv, layer, seg);
}

fv_kv_packed *fv_kv_packed_at(const fv_kv *kv, int32_t layer) {
    return fv_kv_packed_of(kv, layer, FV_SEG_VISUAL);
}

fv_kv_packed *fv_kv_packed_text(const fv_kv *kv, int32_t layer) {
    return fv_kv_packed_of(kv, layer, FV_SEG_TEXT);
}

bool fv_kv_packed_owns_keys(const fv_kv_packed *p, int32_t layer) {
    return p->source_layer == layer || fv_kv_packed_format_of(p)->own_keys;
}

size_t fv_kv_packed_bytes(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    size_t bytes = 0;
    for (const fv_kv_packed *p = fv_kv_packed_of(kv, layer, seg); p; p = p->next)
        bytes += p->part_buf[FV_PACKED_K].bytes + p->part_buf[FV_PACKED_V].bytes;
    return bytes;
}

int32_t fv_kv_packed_text_rows(const fv_kv *kv, int32_t layer) {
    int32_t n = 0;
    for (const fv_kv_packed *p = fv_kv_packed_text(kv, layer); p; p = p->next) n += p->rows.n;
    return n;
}

/* Returns the block of the same number in the source layer, which owns the block's keys, directions or
 * coefficients. */
static fv_kv_packed *lead_of(const fv_kv *kv, const fv_kv_packed *p) {
    fv_kv_packed *lead = fv_kv_packed_of(kv, p->source_layer, p->seg);
    while (lead && lead->number < p->number) lead = lead->next;
    return lead;
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void packed_free(fv_kv *kv, fv_kv_packed *p) {
    for (int k = 0; k < 2; k++) fv_kv_memory_give(kv, &p->part_buf[k]);
    (void)fv_kv_tables_charge(kv, 0, &p->charged);
    fv_kv_packed_set_give(kv, p->set);
    fv_buf_free(&p->rows_buf);
    fv_buf_free(&p->turn_buf);
    free(p->importance);
    free(p->host);
    free(p);
}

void fv_kv_packed_drop(fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    fv_kv_packed **slot = fv_kv_packed_slot(kv, layer, seg);
    while (*slot) {
        fv_kv_packed *next = (*slot)->next;
        packed_free(kv, *slot);
        *slot = next;
    }
}

static size_t host_bytes(const fv_kv_packed *p) {
    size_t rows = (size_t)p->rows.n, blocks = (size_t)p->rows.n_anchor;
    return (blocks + (p->rank ? rows : 0)) * sizeof(int32_t) + rows;
}

static bool tiled(const fv_packed_shape *s) { return fv_packed_format_of(s->form)->tiled; }

/* Returns whether angles are of the tokens' own positions: keys are unrotated and have no
 * anchors. */
static bool turned(const fv_packed_shape *s, fv_kv_segment seg) {
    return fv_packed_format_of(s->form)->turned ||
           (seg == FV_SEG_TEXT && s->form == FV_PACKED_QUANTIZED);
}

size_t fv_kv_packed_tables(const fv_kv *kv) {
    size_t bytes = 0;
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer; l++)
        for (int seg = 0; seg < FV_N_SEG; seg++)
            for (const fv_kv_packed *p = fv_kv_packed_of(kv, l, (fv_kv_segment)seg); p; p = p->next)
                bytes += p->charged;
    for (const fv_kv_packed_set *s = kv->sets; s; s = s->next) bytes += s->charged;
    return bytes;
}

size_t fv_kv_packed_cost(const fv_kv *kv, const fv_kv_packed_form *f, bool alone) {
    size_t n = (size_t)f->n, blocks = (size_t)f->n_anchor;
    size_t there = fv_kv_get_device(kv) == fv_device_host() ? 0 : 1; /* copies on the device */
    size_t bytes = sizeof(fv_kv_packed) + (1 + there) * (blocks * sizeof(int32_t) + n);
    if (f->rank) bytes += n * sizeof *f->rank;
    if (kv->sequence->expand.on && f->seg == FV_SEG_VISUAL) bytes += 2 * n * sizeof(float);
    if (!alone) return bytes;
    fv_kv_packed_set like = {.n = f->n,
                             .n_anchor = f->n_anchor,
                             .anchor = f->anchor,
                             .tiles = tiled(&f->part[FV_PACKED_V]),
                             .turned = turned(&f->part[FV_PACKED_V], f->seg)};
    return bytes + fv_kv_packed_set_bytes(kv, &like) + there * (n + blocks + 1) * sizeof(int32_t);
}

/* Charges the pool for the block as it is now; `observed`: also for importance and turn. */
static fv_status pay_own(fv_kv *kv, fv_kv_packed *p, bool observed) {
    size_t n = (size_t)p->rows.n, bytes = sizeof *p + host_bytes(p) + p->rows_buf.bytes;
    size_t turn = p->turn_buf.bytes ? p->turn_buf.bytes : n * sizeof *p->turn;
    if (observed) bytes += n * sizeof *p->importance + turn;
    p->pays_observed = observed;
    return fv_kv_tables_charge(kv, bytes, &p->charged);
}

/* Allocates the layer's own arrays, one after the other: alive, rank, group. */
static fv_status own_arrays(fv_kv_packed *p, int32_t n, int32_t n_anchor, bool ranked) {
    size_t rows = (size_t)n, blocks = (size_t)n_anchor;
    size_t ints = blocks + (ranked ? rows : 0);
    p->host = calloc(1, ints * sizeof(int32_t) + rows);
    if (!p->host) return FV_FAIL(FV_ENOMEM, "out of memory for %d compressed tokens", n);
    p->alive = p->host;
    p->rank = ranked ? p->alive + blocks : NULL;
    p->group = (uint8_t *)p->host + ints * sizeof(int32_t);
    return FV_OK;
}

static bool on_host(const fv_kv *kv) { return fv_kv_get_device(kv) == fv_device_host(); }

/* Points kernels to alive[] or group[]: on the host to the array itself, elsewhere to its copy,
 * which is made now. */
static fv_status there_alive(fv_kv *kv, fv_kv_packed *p) {
    fv_device *dev = fv_kv_get_device(kv);
    p->rows.valid = p->alive;
    if (on_host(kv)) return FV_OK;
    p->rows.valid = p->rows_buf.data;
    return dev->ops->copy_async(dev, p->rows_buf.data, p->alive,
                                (size_t)p->rows.n_anchor * sizeof *p->alive);
}

static fv_status there_group(fv_kv *kv, fv_kv_packed *p) {
    fv_device *dev = fv_kv_get_device(kv);
    p->rows.group = p->group;
    if (on_host(kv)) return FV_OK;
    char *at = (char *)p->rows_buf.data + (size_t)p->rows.n_anchor * sizeof *p->alive;
    p->rows.group = (const uint8_t *)at;
    return dev->ops->copy_async(dev, at, p->group, (size_t)p->rows.n);
}

/* Fills p->rows, which kernels take, from the set; on a device also allocates copies of alive and
 * group. */
static fv_status lay_rows(fv_kv *kv, fv_kv_packed *p, fv_kv_packed_set *set) {
    size_t rows = (size_t)set->n, blocks = (size_t)set->n_anchor;
    p->set = set;
    p->pos = set->pos;
    p->first = set->first;
    p->anchor = set->anchor;
    p->rows = (fv_packed_rows){
        .n = set->n, .n_anchor = set->n_anchor, .pos = set->there, .first = set->there + rows};
    if (!on_host(kv))
        FV_TRY(fv_buf_alloc(fv_kv_get_device(kv), blocks * sizeof *p->alive + rows, FV_BUF_DEVICE,
                            &p->rows_buf));
    if (p->n_alive < set->n) FV_TRY(there_alive(kv, p));
    return memchr(p->group, 1, rows) ? there_group(kv, p) : FV_OK;
}

/* Allocates a part; a part that borrows everything has no memory. */
static fv_status take_part(fv_kv *kv, fv_kv_packed *p, int kind, const fv_packed_shape *shape) {
    size_t bytes = fv_packed_bytes(shape);
    if (bytes) FV_TRY(fv_kv_memory_take(kv, bytes, &p->part_buf[kind]));
    p->part[kind] = (fv_packed_part){.shape = *shape, .data = p->part_buf[kind].data};
    return FV_OK;
}

/* Points latent parts to the coefficients, which the source layer's keys hold, and to the layer's
 * own directions. */
static void follow_latent(const fv_kv *kv, fv_kv_packed *p, int32_t layer) {
    const fv_kv_packed *lead = p->source_layer == layer ? p : lead_of(kv, p);
    for (int k = 0; k < 2; k++) {
        p->part[k].latent = &fv_kv_get_shape(kv)->latent[layer];
        if (p->part[k].shape.borrows) p->part[k].base = lead->part[FV_PACKED_K].data;
    }
}

/* Points parts to what the source layer owns: keys, directions or coefficients. */
static void follow_source_layer(const fv_kv *kv, fv_kv_packed *p, int32_t layer) {
    if (p->part[FV_PACKED_V].shape.form == FV_PACKED_LATENT) follow_latent(kv, p, layer);
    if (p->source_layer == layer || p->part[FV_PACKED_V].shape.form == FV_PACKED_LATENT) return;
    const fv_kv_packed *lead = lead_of(kv, p);
    if (!fv_kv_packed_owns_keys(p, layer)) p->part[FV_PACKED_K] = lead->part[FV_PACKED_K];
    for (int k = 0; k < 2; k++)
        if (p->part[k].shape.borrows) p->part[k].base = lead->part[k].data;
}

static fv_status fill(fv_kv *kv, int32_t layer, const fv_kv_packed_form *f, fv_kv_packed *p) {
    fv_kv_packed_set *set, like = {.n = f->n,
                                   .n_anchor = f->n_anchor,
                                   .pos = f->pos,
                                   .first = f->first,
                                   .anchor = f->anchor,
                                   .tiles = tiled(&f->part[FV_PACKED_V]),
                                   .turned = turned(&f->part[FV_PACKED_V], f->seg)};
    FV_TRY(own_arrays(p, f->n, f->n_anchor, f->rank != NULL));
    for (int32_t a = 0; a < f->n_anchor; a++) p->alive[a] = f->first[a + 1] - f->first[a];
    if (f->rank) memcpy(p->rank, f->rank, (size_t)f->n * sizeof *p->rank);
    int32_t had = f->seg == FV_SEG_VISUAL ? fv_kv_ranked(kv, layer, 0) : 0;
    p->n_alive = f->n;
    p->n_first = had > f->n ? had : f->n;
    p->source_layer = f->source_layer;
    p->seg = f->seg;
    p->n_small = -1;
    const fv_kv_packed *lead = f->source_layer == layer ? NULL : lead_of(kv, p);
    const fv_packed_format *format = fv_packed_format_of(f->part[FV_PACKED_V].form);
    assert(!lead || lead->rows.n == f->n || (format->nested && lead->rows.n > f->n));
    (void)lead, (void)format;
    FV_TRY(fv_kv_packed_set_take(kv, &like, &set));
    FV_TRY(lay_rows(kv, p, set));
    FV_TRY(pay_own(kv, p, kv->sequence->expand.on && f->seg == FV_SEG_VISUAL));
    FV_TRY(take_part(kv, p, FV_PACKED_V, &f->part[FV_PACKED_V]));
    if (fv_kv_packed_owns_keys(p, layer))
        FV_TRY(take_part(kv, p, FV_PACKED_K, &f->part[FV_PACKED_K]));
    follow_source_layer(kv, p, layer);
    return FV_OK;
}

/* Returns the end of the layer's list of blocks; *number: the next block's number. */
static fv_kv_packed **next_slot(const fv_kv *kv, int32_t layer, fv_kv_segment seg,
                                int32_t *number) {
    fv_kv_packed **slot = fv_kv_packed_slot(kv, layer, seg);
    for (*number = 0; *slot; slot = &(*slot)->next) ++*number;
    return slot;
}

fv_status fv_kv_pack(fv_kv *kv, int32_t layer, const fv_kv_packed_form *f, fv_kv_packed **out) {
    int32_t number;
    fv_kv_packed **slot = next_slot(kv, layer, f->seg, &number), *p = calloc(1, sizeof *p);
    assert(f->n > 0 && f->first[f->n_anchor] == f->n);
    assert(number == 0 || turned(&f->part[FV_PACKED_V], f->seg));
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a packed layer");
    fv_status st = FV_OK;
    p->number = number;
    if (f->seg == FV_SEG_VISUAL)
        fv_kv_drop_visual(kv, layer);
    else
        st = fv_kv_drop_text(kv, layer, f->row0, f->n, f->room);
    if (st == FV_OK) st = fill(kv, layer, f, p);
    if (st != FV_OK) {
        packed_free(kv, p);
        return st;
    }
    *slot = p;
    if (out) *out = p;
    fv_kv_check(kv, layer);
    return FV_OK;
}

fv_status fv_kv_clear_text(fv_kv *kv, int32_t layer) {
    fv_kv_packed_drop(kv, layer, FV_SEG_TEXT);
    return fv_kv_drop_text(kv, layer, 0, fv_kv_len(kv, layer, 0, FV_SEG_TEXT), 0);
}

/* ---- data for readers -------------------------------------------------------------------- */

fv_status fv_kv_packed_angles(fv_kv *kv, fv_kv_packed *p, const fv_rope *rope) {
    if (!(p->anchor || p->set->turned) || p->rows.cos) return FV_OK;
    FV_TRY(fv_kv_packed_set_angles(kv, p->set, rope));
    p->rows.cos = p->set->angle_buf.data;
    p->rows.sin = p->rows.cos + p->set->angle_buf.bytes / sizeof(float) / 2;
    return FV_OK;
}

fv_status fv_kv_packed_codes(fv_kv_packed *p, fv_backend *be) {
    const fv_packed_part *k = &p->part[FV_PACKED_K];
    bool due = k->shape.form == FV_PACKED_LATENT && k->shape.latent.coded;
    if (!due || p->coded) return FV_OK;
    FV_TRY(be->ops->latent_codes(be, &(fv_latent_codes_args){k}));
    p->coded = true;
    return FV_OK;
}

fv_status fv_kv_packed_observe(fv_kv *kv, fv_kv_packed *p) {
    if (p->importance) return FV_OK;
    size_t n = (size_t)p->rows.n;
    if (!p->pays_observed) FV_TRY(pay_own(kv, p, true));
    if (!p->turn_buf.data) /* not allocated by an earlier call that failed */
        FV_TRY(fv_buf_alloc(fv_kv_get_device(kv), n * sizeof(float), FV_BUF_DEVICE, &p->turn_buf));
    p->importance = calloc(n, sizeof *p->importance);
    if (!p->importance)
        return FV_FAIL(FV_ENOMEM, "out of memory for %d compressed tokens", p->rows.n);
    p->turn = p->turn_buf.data;
    return FV_OK;
}

/* Returns the number of means that this layer has gathered in this turn. */
static size_t turn_rows(const fv_kv_packed *p) {
    return p && p->importance && p->n_turn > 0 ? (size_t)p->rows.n : 0;
}

/* Starts the copies of all layers, then waits once. */
fv_status fv_kv_packed_turns(fv_kv *kv, const float **out) {
    fv_device *dev = fv_kv_get_device(kv);
    int32_t n_layer = fv_kv_get_shape(kv)->n_layer;
    size_t n = 0;
    void *staging;
    for (int32_t l = 0; l < n_layer; l++) n += turn_rows(fv_kv_packed_at(kv, l));
    *out = NULL;
    if (n == 0) return FV_OK;
    FV_TRY(fv_kv_pool_on_host(kv->pool, n * sizeof(float), &staging));
    float *to = staging;
    *out = staging;
    for (int32_t l = 0; l < n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_at(kv, l);
        size_t rows = turn_rows(p);
        if (rows) FV_TRY(dev->ops->copy_async(dev, to, p->turn, rows * sizeof *to));
        to += rows;
    }
    return fv_device_wait(dev);
}

/* Copies what a part borrows to the host; it comes first in the part that owns it. */
static fv_status base_home(fv_device *dev, const fv_packed_part *part, fv_arena *arena,
                           const void **out) {
    size_t bytes = fv_packed_format_of(part->shape.form)->lent_bytes(&part->shape);
    void *base;
    FV_TRY(fv_arena_alloc(arena, bytes, &base));
    *out = base;
    return fv_device_copy(dev, base, part->base, bytes);
}

fv_status fv_kv_packed_on_host(const fv_kv *kv, const fv_packed_part *part, fv_arena *arena,
                               fv_packed_part *out) {
    fv_device *dev = fv_kv_get_device(kv);
    size_t bytes = fv_packed_bytes(&part->shape);
    *out = *part;
    if (dev == fv_device_host()) return FV_OK;
    FV_TRY(fv_arena_alloc(arena, bytes, &out->data));
    FV_TRY(fv_device_copy(dev, out->data, part->data, bytes));
    return part->base ? base_home(dev, part, arena, &out->base) : FV_OK;
}

fv_status fv_kv_packed_regroup(fv_kv *kv, fv_kv_packed *p) { return there_group(kv, p); }

/* ---- dropping rows ----------------------------------------------------------------------- */

/* Records how many rows the layer had at first, for when it is no longer packed. */
static void note_first(fv_kv *kv, int32_t layer) {
    int32_t n[1024], n_kv = fv_kv_get_shape(kv)->n_kv;
    assert(n_kv <= 1024);
    for (int32_t g = 0; g < n_kv; g++) n[g] = fv_kv_packed_at(kv, layer)->n_first;
    fv_kv_set_ranked(kv, layer, n);
}

void fv_kv_packed_end(fv_kv *kv, int32_t layer) {
    note_first(kv, layer);
    fv_kv_packed_drop(kv, layer, FV_SEG_VISUAL);
}

static fv_status shorten(fv_kv *kv, fv_kv_packed *p, const int32_t *alive) {
    p->n_alive = 0;
    for (int32_t a = 0; a < p->rows.n_anchor; a++) {
        assert(alive[a] >= 0 && alive[a] <= p->alive[a]);
        p->alive[a] = alive[a];
        p->n_alive += alive[a];
    }
    return there_alive(kv, p);
}

fv_status fv_kv_packed_shorten(fv_kv *kv, int32_t layer, const int32_t *alive) {
    bool alone = fv_kv_packed_format_of(fv_kv_packed_at(kv, layer))->nested;
    for (int32_t l = layer; l < (alone ? layer + 1 : fv_kv_get_shape(kv)->n_layer); l++) {
        fv_kv_packed *p = fv_kv_packed_at(kv, l);
        if (!p || (!alone && p->source_layer != layer)) continue;
        note_first(kv, l);
        FV_TRY(shorten(kv, p, alive));
    }
    return FV_OK;
}

/* Builds the block with the remaining tokens. The old one is copied out first, so that a full pool
 * does not prevent freeing memory; and the new one is arranged on the host, wherever the store
 * is. */
static fv_status part_laid(fv_kv *kv, fv_kv_packed *p, int kind, const int32_t *idx, int32_t n,
                           fv_arena *arena) {
    fv_device *dev = fv_kv_get_device(kv);
    fv_packed_part old = p->part[kind];
    size_t bytes = fv_packed_bytes(&old.shape);
    if (bytes == 0) { /* borrows everything */
        p->part[kind].shape.n = n;
        return FV_OK;
    }
    FV_TRY(fv_arena_alloc(arena, bytes, &old.data));
    FV_TRY(fv_device_copy(dev, old.data, p->part[kind].data, bytes));
    fv_packed_part laid = {.shape = fv_packed_kept(&old, idx, n)};
    bytes = fv_packed_bytes(&laid.shape);
    FV_TRY(fv_arena_alloc(arena, bytes, &laid.data));
    fv_packed_keep(&old, idx, &laid);
    fv_kv_memory_give(kv, &p->part_buf[kind]);
    FV_TRY(take_part(kv, p, kind, &laid.shape));
    return dev->ops->copy_async(dev, p->part[kind].data, laid.data, bytes);
}

static fv_status part_keep(fv_kv *kv, fv_kv_packed *p, int kind, const int32_t *idx, int32_t n) {
    fv_arena arena = {0};
    fv_status st = part_laid(kv, p, kind, idx, n, &arena);
    fv_arena_fini(&arena);
    return st;
}

/* Keeps the means of this turn for rows idx[0 .. n) only. */
static fv_status turn_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    fv_device *dev = fv_kv_get_device(kv);
    size_t had = turn_rows(p);
    if (had == 0) return FV_OK;
    float *turn = malloc((had + (size_t)n) * sizeof *turn);
    if (!turn) return FV_FAIL(FV_ENOMEM, "out of memory to evict compressed tokens");
    fv_status st = fv_device_copy(dev, turn, p->turn, had * sizeof *turn);
    for (int32_t j = 0; j < n; j++) turn[had + (size_t)j] = turn[idx[j]];
    if (st == FV_OK) st = dev->ops->copy_async(dev, p->turn, turn + had, (size_t)n * sizeof *turn);
    free(turn);
    return st;
}

/* Keeps importance and this turn's means for rows idx[0 .. n) only. */
static fv_status observed_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    if (!p->importance) return FV_OK;
    float *seen = malloc((size_t)n * sizeof *seen);
    if (!seen) return FV_FAIL(FV_ENOMEM, "out of memory to evict compressed tokens");
    for (int32_t j = 0; j < n; j++) seen[j] = p->importance[idx[j]];
    fv_status st = turn_keep(kv, p, idx, n);
    free(p->importance);
    p->importance = seen;
    p->stale = p->observed;
    return st;
}

/* Takes the set of rows idx[0 .. n), without anchor blocks that lose all their rows. */
static fv_status set_keep(fv_kv *kv, const fv_kv_packed *was, const int32_t *idx, int32_t n,
                          fv_arena *arena, fv_kv_packed_set **out) {
    int32_t *pos, *first, *anchor, n_anchor = 0;
    FV_TRY(FV_ARENA_NEW(arena, n, pos));
    FV_TRY(FV_ARENA_NEW(arena, was->rows.n_anchor + 1, first));
    FV_TRY(FV_ARENA_NEW(arena, was->rows.n_anchor, anchor));
    for (int32_t a = 0, j = 0; a < was->rows.n_anchor; a++) {
        int32_t from = j;
        for (; j < n && idx[j] < was->first[a + 1]; j++) {
            assert(idx[j] < was->first[a] + was->alive[a]);
            pos[j] = was->pos[idx[j]];
        }
        if (j == from) continue;
        if (was->anchor) anchor[n_anchor] = was->anchor[a];
        first[n_anchor++] = from;
    }
    first[n_anchor] = n;
    fv_kv_packed_set like = {.n = n,
                             .n_anchor = n_anchor,
                             .pos = pos,
                             .first = first,
                             .anchor = was->anchor ? anchor : NULL,
                             .tiles = tiled(&was->part[FV_PACKED_V].shape),
                             .turned = turned(&was->part[FV_PACKED_V].shape, was->seg)};
    return fv_kv_packed_set_take(kv, &like, out);
}

/* Updates the tables for rows idx[0 .. n). */
static fv_status rows_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    fv_kv_packed was = *p;
    fv_arena arena = {0};
    fv_kv_packed_set *set;
    FV_TRY(observed_keep(kv, p, idx, n));
    /* Reuse the old set's charge for the new one, so that no other request can take it in
     * between. */
    size_t before = was.set->charged, charged = was.set->refs == 1 ? 0 : before;
    FV_TRY(fv_kv_tables_charge(kv, charged, &was.set->charged));
    fv_status st = set_keep(kv, &was, idx, n, &arena, &set);
    fv_arena_fini(&arena);
    if (st != FV_OK) {
        (void)fv_kv_tables_charge(kv, before, &was.set->charged);
        return st;
    }
    if (set == was.set) FV_TRY(fv_kv_tables_charge(kv, charged, &set->charged));
    st = own_arrays(p, n, set->n_anchor, was.rank != NULL);
    if (st != FV_OK) {
        p->host = was.host;
        fv_kv_packed_set_give(kv, set);
        (void)fv_kv_tables_charge(kv, before, &was.set->charged);
        return st;
    }
    for (int32_t a = 0; a < set->n_anchor; a++) p->alive[a] = set->first[a + 1] - set->first[a];
    for (int32_t j = 0; j < n; j++) {
        p->group[j] = was.group[idx[j]];
        if (was.rank) p->rank[j] = was.rank[idx[j]];
    }
    p->n_alive = n;
    free(was.host);
    fv_buf_free(&p->rows_buf);
    fv_kv_packed_set_give(kv, was.set);
    FV_TRY(lay_rows(kv, p, set)); /* without angles: those belong to the old set */
    return pay_own(kv, p, p->pays_observed);
}

static fv_status layer_keep(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n) {
    fv_kv_packed *p = fv_kv_packed_at(kv, layer);
    note_first(kv, layer);
    if (n == 0) {
        fv_kv_packed_drop(kv, layer, FV_SEG_VISUAL);
        return FV_OK;
    }
    if (fv_kv_packed_owns_keys(p, layer)) FV_TRY(part_keep(kv, p, FV_PACKED_K, idx, n));
    FV_TRY(part_keep(kv, p, FV_PACKED_V, idx, n));
    follow_source_layer(kv, p, layer);
    return rows_keep(kv, p, idx, n);
}

fv_status fv_kv_packed_keep(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n) {
    int32_t of[FV_MAX_LAYERS], n_layer = fv_kv_get_shape(kv)->n_layer;
    assert(n_layer <= FV_MAX_LAYERS);
    for (int32_t l = layer; l < n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_at(kv, l);
        of[l] = n;
        if (!p || p->source_layer != layer || !fv_kv_packed_format_of(p)->nested) continue;
        for (of[l] = 0; of[l] < n && idx[of[l]] < p->n_alive;) of[l]++;
    }
    return fv_kv_packed_nest(kv, layer, idx, of);
}

fv_status fv_kv_packed_nest(fv_kv *kv, int32_t layer, const int32_t *idx, const int32_t *n) {
    assert(fv_kv_packed_at(kv, layer)->source_layer == layer);
    for (int32_t l = layer; l < fv_kv_get_shape(kv)->n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_at(kv, l);
        if (p && p->source_layer == layer) FV_TRY(layer_keep(kv, l, idx, n[l]));
    }
    fv_kv_check(kv, -1);
    return FV_OK;
}

fv_status fv_kv_packed_fit(fv_kv *kv, int32_t layer) {
    const fv_kv_packed *p = fv_kv_packed_at(kv, layer);
    int32_t n = 0, *idx = malloc(((size_t)p->n_alive + 1) * sizeof *idx);
    if (!idx) return FV_FAIL(FV_ENOMEM, "out of memory to evict compressed tokens");
    for (int32_t a = 0; a < p->rows.n_anchor; a++)
        for (int32_t i = 0; i < p->alive[a]; i++) idx[n++] = p->first[a] + i;
    fv_status st = p->source_layer == layer ? fv_kv_packed_keep(kv, layer, idx, n)
                                            : layer_keep(kv, layer, idx, n);
    free(idx);
    return st;
}

fv_status fv_kv_packed_shrink(fv_kv *kv, int32_t layer, int32_t v) {
    const fv_kv_packed *p = fv_kv_packed_at(kv, layer);
    assert(p->rank);
    int32_t *alive = malloc((size_t)p->rows.n_anchor * sizeof *alive);
    if (!alive) return FV_FAIL(FV_ENOMEM, "out of memory to evict compressed tokens");
    for (int32_t a = 0; a < p->rows.n_anchor; a++) {
        int32_t left = p->alive[a];
        while (left > 0 && p->rank[p->first[a] + left - 1] >= v) left--;
        alive[a] = left;
    }
    fv_status st = fv_kv_packed_shorten(kv, layer, alive);
    free(alive);
    FV_TRY(st);
    return 4 * p->n_alive <= 3 * p->rows.n ? fv_kv_packed_fit(kv, layer) : FV_OK;
}
