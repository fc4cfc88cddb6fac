/* Packed blocks: their memory, which layer owns which part, and what readers need. The bytes come from
 * prefill-worker/pack or over the network. One thread at a time. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kv/internal.h"
#include "packed/latent.h"

_Static_assert(sizeof(fv_kv_packed) <= FV_PACKED_BLOCK_FIXED &&
                   sizeof(fv_kv_packed_set) <= FV_PACKED_SET_FIXED,
               "bounds on tables are made with these");

fv_kv_packed *fv_kv_packed_of(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    return *fv_kv_packed_slot(kv, layer, seg);
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
    for (const fv_kv_packed *p = fv_kv_packed_of(kv, layer, FV_SEG_TEXT); p; p = p->next)
        n += p->rows.n;
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
    for (int k = 0; k < 2; k++) fv_kv_give(&kv->account, &p->part_buf[k]);
    (void)fv_kv_charge_tables(&kv->account, 0, &p->charged);
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

/* Returns whether angles are of the rows' own positions: keys are unrotated and have no
 * anchors. */
static bool turned(const fv_packed_shape *s, fv_kv_segment seg) {
    return fv_packed_format_of(s->form)->turned ||
           (seg == FV_SEG_TEXT && s->form == FV_PACKED_QUANTIZED);
}

/* The set of a form's rows; arrays are borrowed. */
static fv_kv_packed_set set_of(const fv_kv_packed_form *f) {
    const fv_packed_shape *own = &f->part[FV_PACKED_V];
    return (fv_kv_packed_set){.n = f->n,
                              .n_anchor = f->n_anchor,
                              .pos = f->pos,
                              .first = f->first,
                              .anchor = f->anchor,
                              .tiles = fv_packed_format_of(own->form)->tiled,
                              .turned = turned(own, f->seg)};
}

size_t fv_kv_packed_tables(const fv_kv *kv) {
    size_t bytes = 0;
    for (int32_t l = 0; l < kv->account.shape->n_layer; l++)
        for (int seg = 0; seg < FV_N_SEG; seg++)
            for (const fv_kv_packed *p = fv_kv_packed_of(kv, l, (fv_kv_segment)seg); p; p = p->next)
                bytes += p->charged;
    for (const fv_kv_packed_set *s = kv->sets; s; s = s->next) bytes += s->charged;
    return bytes;
}

size_t fv_kv_packed_cost(const fv_kv *kv, const fv_kv_packed_form *f, bool alone) {
    size_t n = (size_t)f->n, blocks = (size_t)f->n_anchor;
    size_t there = kv->account.device == fv_device_host() ? 0 : 1; /* copies on the device */
    size_t bytes = sizeof(fv_kv_packed) + (1 + there) * (blocks * sizeof(int32_t) + n);
    if (f->rank) bytes += n * sizeof *f->rank;
    if (kv->sequence->expand.on && f->seg == FV_SEG_VISUAL) bytes += 2 * n * sizeof(float);
    if (!alone) return bytes;
    fv_kv_packed_set like = set_of(f);
    return bytes + fv_kv_packed_set_bytes(kv, &like) + there * (n + blocks + 1) * sizeof(int32_t);
}

/* Charges the pool for the block as it is now; `observed`: also for importance and turn. */
fv_status fv_kv_packed_charge(fv_kv *kv, fv_kv_packed *p, bool observed) {
    size_t n = (size_t)p->rows.n, bytes = sizeof *p + host_bytes(p) + p->rows_buf.bytes;
    size_t turn = p->turn_buf.bytes ? p->turn_buf.bytes : n * sizeof *p->turn;
    if (observed) bytes += n * sizeof *p->importance + turn;
    p->pays_observed = observed;
    return fv_kv_charge_tables(&kv->account, bytes, &p->charged);
}

/* Allocates the layer's own arrays, one after the other: alive, rank, group. */
fv_status fv_kv_packed_own_arrays(fv_kv_packed *p, int32_t n, int32_t n_anchor, bool ranked) {
    size_t rows = (size_t)n, blocks = (size_t)n_anchor;
    size_t ints = blocks + (ranked ? rows : 0);
    p->host = calloc(1, ints * sizeof(int32_t) + rows);
    if (!p->host) return FV_FAIL(FV_ENOMEM, "out of memory for %d packed rows", n);
    p->alive = p->host;
    p->rank = ranked ? p->alive + blocks : NULL;
    p->group = (uint8_t *)p->host + ints * sizeof(int32_t);
    return FV_OK;
}

static bool on_host(const fv_kv *kv) { return kv->account.device == fv_device_host(); }

/* Points kernels to alive[] or group[]: on the host to the array itself, elsewhere to its copy,
 * which is made now. */
fv_status fv_kv_packed_send_alive(fv_kv *kv, fv_kv_packed *p) {
    fv_device *dev = kv->account.device;
    p->rows.valid = p->alive;
    if (on_host(kv)) return FV_OK;
    p->rows.valid = p->rows_buf.data;
    return dev->ops->copy_async(dev, p->rows_buf.data, p->alive,
                                (size_t)p->rows.n_anchor * sizeof *p->alive);
}

fv_status fv_kv_packed_regroup(fv_kv *kv, fv_kv_packed *p) {
    fv_device *dev = kv->account.device;
    p->rows.group = p->group;
    if (on_host(kv)) return FV_OK;
    char *at = (char *)p->rows_buf.data + (size_t)p->rows.n_anchor * sizeof *p->alive;
    p->rows.group = (const uint8_t *)at;
    return dev->ops->copy_async(dev, at, p->group, (size_t)p->rows.n);
}

/* Fills p->rows, which kernels take, from the set; on a device also allocates copies of alive and
 * group. */
fv_status fv_kv_packed_lay_rows(fv_kv *kv, fv_kv_packed *p, fv_kv_packed_set *set) {
    size_t rows = (size_t)set->n, blocks = (size_t)set->n_anchor;
    p->set = set;
    p->pos = set->pos;
    p->first = set->first;
    p->anchor = set->anchor;
    p->rows = (fv_packed_rows){
        .n = set->n, .n_anchor = set->n_anchor, .pos = set->there, .first = set->there + rows};
    if (!on_host(kv))
        FV_TRY(fv_buf_alloc(kv->account.device, blocks * sizeof *p->alive + rows, FV_BUF_DEVICE,
                            &p->rows_buf));
    if (p->n_alive < set->n) FV_TRY(fv_kv_packed_send_alive(kv, p));
    return memchr(p->group, 1, rows) ? fv_kv_packed_regroup(kv, p) : FV_OK;
}

/* Allocates a part; a part that borrows everything has no memory. */
fv_status fv_kv_packed_take_part(fv_kv *kv, fv_kv_packed *p, int kind,
                                 const fv_packed_shape *shape) {
    size_t bytes = fv_packed_bytes(shape);
    if (bytes) FV_TRY(fv_kv_take(&kv->account, bytes, &p->part_buf[kind]));
    p->part[kind] = (fv_packed_part){.shape = *shape, .data = p->part_buf[kind].data};
    return FV_OK;
}

/* Points latent parts to the coefficients, which the source layer's keys hold, and to the layer's
 * own directions. */
static void follow_latent(const fv_kv *kv, fv_kv_packed *p, int32_t layer) {
    const fv_kv_packed *lead = p->source_layer == layer ? p : lead_of(kv, p);
    for (int k = 0; k < 2; k++) {
        p->part[k].latent = &kv->account.shape->latent[layer];
        if (p->part[k].shape.borrows) p->part[k].base = lead->part[FV_PACKED_K].data;
    }
}

/* Points parts to what the source layer owns: keys, directions or coefficients. */
void fv_kv_packed_follow(const fv_kv *kv, fv_kv_packed *p, int32_t layer) {
    if (p->part[FV_PACKED_V].shape.form == FV_PACKED_LATENT) follow_latent(kv, p, layer);
    if (p->source_layer == layer || p->part[FV_PACKED_V].shape.form == FV_PACKED_LATENT) return;
    const fv_kv_packed *lead = lead_of(kv, p);
    if (!fv_kv_packed_owns_keys(p, layer)) p->part[FV_PACKED_K] = lead->part[FV_PACKED_K];
    for (int k = 0; k < 2; k++)
        if (p->part[k].shape.borrows) p->part[k].base = lead->part[k].data;
}

static fv_status fill(fv_kv *kv, int32_t layer, const fv_kv_packed_form *f, fv_kv_packed *p) {
    fv_kv_packed_set *set, like = set_of(f);
    FV_TRY(fv_kv_packed_own_arrays(p, f->n, f->n_anchor, f->rank != NULL));
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
    FV_TRY(fv_kv_packed_lay_rows(kv, p, set));
    FV_TRY(fv_kv_packed_charge(kv, p, kv->sequence->expand.on && f->seg == FV_SEG_VISUAL));
    FV_TRY(fv_kv_packed_take_part(kv, p, FV_PACKED_V, &f->part[FV_PACKED_V]));
    if (fv_kv_packed_owns_keys(p, layer))
        FV_TRY(fv_kv_packed_take_part(kv, p, FV_PACKED_K, &f->part[FV_PACKED_K]));
    fv_kv_packed_follow(kv, p, layer);
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

fv_status fv_kv_packed_ready(fv_kv *kv, fv_kv_packed *p, fv_backend *be, const fv_rope *rope) {
    const fv_packed_part *k = &p->part[FV_PACKED_K];
    if ((p->anchor || p->set->turned) && !p->rows.cos) {
        FV_TRY(fv_kv_packed_set_angles(kv, p->set, rope));
        p->rows.cos = p->set->angle_buf.data;
        p->rows.sin = p->rows.cos + p->set->angle_buf.bytes / sizeof(float) / 2;
    }
    bool coded = k->shape.form == FV_PACKED_LATENT && k->shape.latent.coded;
    if (!coded || p->coded) return FV_OK;
    FV_TRY(be->ops->latent_codes(be, &(fv_latent_codes_args){k}));
    p->coded = true;
    return FV_OK;
}

fv_status fv_kv_packed_observe(fv_kv *kv, fv_kv_packed *p) {
    if (p->importance) return FV_OK;
    size_t n = (size_t)p->rows.n;
    if (!p->pays_observed) FV_TRY(fv_kv_packed_charge(kv, p, true));
    if (!p->turn_buf.data) /* not allocated by an earlier call that failed */
        FV_TRY(fv_buf_alloc(kv->account.device, n * sizeof(float), FV_BUF_DEVICE, &p->turn_buf));
    p->importance = calloc(n, sizeof *p->importance);
    if (!p->importance) return FV_FAIL(FV_ENOMEM, "out of memory for %d packed rows", p->rows.n);
    p->turn = p->turn_buf.data;
    return FV_OK;
}

/* Starts the copies of all layers, then waits once. */
fv_status fv_kv_packed_turns(fv_kv *kv, const float **out) {
    fv_device *dev = kv->account.device;
    int32_t n_layer = kv->account.shape->n_layer;
    size_t n = 0;
    void *staging;
    for (int32_t l = 0; l < n_layer; l++)
        n += fv_kv_packed_turn_rows(fv_kv_packed_of(kv, l, FV_SEG_VISUAL));
    *out = NULL;
    if (n == 0) return FV_OK;
    FV_TRY(fv_kv_staging(kv->account.pool, n * sizeof(float), &staging));
    float *to = staging;
    *out = staging;
    for (int32_t l = 0; l < n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        size_t rows = fv_kv_packed_turn_rows(p);
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
    fv_device *dev = kv->account.device;
    size_t bytes = fv_packed_bytes(&part->shape);
    *out = *part;
    if (dev == fv_device_host()) return FV_OK;
    FV_TRY(fv_arena_alloc(arena, bytes, &out->data));
    FV_TRY(fv_device_copy(dev, out->data, part->data, bytes));
    return part->base ? base_home(dev, part, arena, &out->base) : FV_OK;
}
