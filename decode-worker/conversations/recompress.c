/* Compresses text keys again, a layer at a time: see recompress.h. Blocks are made in the host's memory and
 * the old block is freed before the new one is allocated, so that a full pool is no obstacle. */
#include "decode-worker/conversations/recompress.h"

#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "factor/factor_part.h"
#include "model/net/rope.h"
#include "model/net/row_matrix.h"

/* A layer that owns its text keys, and those that borrow them. */
typedef struct block {
    const fv_text_keys *keys;
    fv_kv *kv;
    int32_t source_layer;
    const fv_kv_packed *old;  /* the source layer's factors; NULL: there are none */
    int32_t n_old, n_wait, n; /* rows in factors, uncompressed rows, both */
} block;

static block block_of(const fv_text_keys *keys, fv_kv *kv, int32_t source_layer) {
    block b = {keys, kv, source_layer, fv_kv_packed_of(kv, source_layer, FV_SEG_TEXT), 0, 0, 0};
    b.n_old = b.old ? b.old->rows.n : 0;
    b.n_wait = fv_kv_len(kv, source_layer, 0, FV_SEG_TEXT);
    b.n = b.n_old + b.n_wait;
    return b;
}

/* The next layer of the block after l, or -1. */
static int32_t next_layer(const block *b, int32_t l) {
    for (l++; l < fv_kv_get_shape(b->kv)->n_layer; l++)
        if (fv_kv_borrows(b->kv, l, FV_SEG_TEXT) && fv_kv_source_layer(b->kv, l) == b->source_layer)
            return l;
    return -1;
}

/* ---- when it is worth it ------------------------------------------------------------------- */

/* Whether all heads and layers of the block hold the same rows, as a packed row spans them all. */
static bool same_rows(const block *b) {
    for (int32_t l = b->source_layer; l >= 0; l = next_layer(b, l)) {
        const fv_kv_packed *p = fv_kv_packed_of(b->kv, l, FV_SEG_TEXT);
        if ((p ? p->rows.n : 0) != b->n_old) return false;
        for (int32_t g = 0; g < fv_kv_get_shape(b->kv)->n_kv; g++)
            if (fv_kv_len(b->kv, l, g, FV_SEG_TEXT) != b->n_wait ||
                memcmp(fv_kv_positions(b->kv, l, g, FV_SEG_TEXT),
                       fv_kv_positions(b->kv, b->source_layer, 0, FV_SEG_TEXT),
                       (size_t)b->n_wait * sizeof(int32_t)) != 0)
                return false;
    }
    return true;
}

static bool is_due(const block *b) {
    const fv_kv_shape *s = fv_kv_get_shape(b->kv);
    return b->n_wait >= b->keys->again && fv_text_keys_pack(b->keys, b->n, s->n_kv * s->d_head) &&
           same_rows(b);
}

/* The first layer from l on whose block is due, or the number of layers. */
static int32_t next_due(const fv_text_keys *keys, fv_kv *kv, int32_t l) {
    for (; l < fv_kv_get_shape(kv)->n_layer; l++) {
        block b = block_of(keys, kv, l);
        if (!fv_kv_borrows(kv, l, FV_SEG_TEXT) && is_due(&b)) break;
    }
    return l;
}

/* ---- rows ---------------------------------------------------------------------------------- */

/* Lays out the rows: old anchor blocks stay, and uncompressed rows continue from the last of them. */
static fv_status lay_out_rows(const block *b, fv_arena *scratch, fv_kv_packed_form *form) {
    const int32_t *wait = fv_kv_positions(b->kv, b->source_layer, 0, FV_SEG_TEXT);
    bool anchored = b->old ? b->old->anchor != NULL : b->keys->block > 0;
    int32_t size = anchored ? b->keys->block : 0, *pos, *first, *anchor;
    FV_TRY(FV_ARENA_NEW(scratch, b->n, pos));
    FV_TRY(FV_ARENA_NEW(scratch, b->n + 1, first));
    FV_TRY(FV_ARENA_NEW(scratch, b->n, anchor));
    int32_t n_anchor = b->old ? b->old->rows.n_anchor : 0;
    for (int32_t j = 0; j < b->n; j++) pos[j] = j < b->n_old ? b->old->pos[j] : wait[j - b->n_old];
    for (int32_t a = 0; a < n_anchor; a++) {
        first[a] = b->old->first[a];
        anchor[a] = b->old->anchor ? b->old->anchor[a] : 0;
    }
    for (int32_t j = b->n_old; j < b->n; j++) {
        int32_t at = size > 0 ? pos[0] + (pos[j] - pos[0]) / size * size : 0;
        if (n_anchor > 0 && anchor[n_anchor - 1] == at) continue;
        anchor[n_anchor] = at;
        first[n_anchor++] = j;
    }
    first[n_anchor] = b->n;
    *form = (fv_kv_packed_form){.n = b->n,
                                .n_anchor = n_anchor,
                                .pos = pos,
                                .first = first,
                                .anchor = anchored ? anchor : NULL,
                                .source_layer = b->source_layer,
                                .seg = FV_SEG_TEXT};
    return FV_OK;
}

/* Expands anchors to one per row. */
static fv_status anchors_of_rows(const fv_kv_packed_form *form, fv_arena *scratch, int32_t **out) {
    FV_TRY(FV_ARENA_NEW(scratch, form->n, *out));
    for (int32_t a = 0; a < form->n_anchor; a++)
        for (int32_t j = form->first[a]; j < form->first[a + 1]; j++) (*out)[j] = form->anchor[a];
    return FV_OK;
}

/* Builds M [n, Hkv D] of the keys: rebuilt from factors, then uncompressed ones, rotated back to their
 * anchors. */
static fv_status key_matrix(const block *b, fv_matrices *in, const fv_rope *rope,
                            const fv_kv_packed_form *form, fv_tensor *m) {
    const fv_kv_shape *s = fv_kv_get_shape(b->kv);
    int32_t *each, *anchor;
    FV_TRY(FV_ARENA_NEW(in->scratch, b->n, each));
    for (int32_t j = 0; j < b->n; j++) each[j] = j;
    FV_TRY(fv_matrix_new(in, b->n, s->n_kv * s->d_head, m));
    if (b->old) {
        fv_packed_part part;
        FV_TRY(fv_kv_packed_on_host(b->kv, &b->old->part[FV_PACKED_K], in->scratch, &part));
        FV_TRY(fv_rows_rebuild(in, &part, each, fv_tensor_rows(*m, 0, b->n_old)));
    }
    fv_tensor wait = fv_tensor_rows(*m, b->n_old, b->n_wait);
    fv_row_set rows = {.layer = b->source_layer, .seg = FV_SEG_TEXT, .n = b->n_wait, .row = each};
    FV_TRY(fv_rows_gather(b->kv, in->be, &rows, wait));
    if (!form->anchor) return FV_OK;
    FV_TRY(anchors_of_rows(form, in->scratch, &anchor));
    return fv_rows_rotate(in, rope, fv_kv_rope_map(b->kv), anchor + b->n_old, true, s->n_kv, wait);
}

/* Sets the share e' of M's squared norm to keep if the policy asks for a share e. Old factors have lost
 * their 1 - e before, so only the new rows may lose it now, or losses would multiply from turn to turn:
 *     1 - e' = (1 - e) ||uncompressed rows||^2 / ||M||^2 */
static fv_status energy_for(const block *b, fv_matrices *in, const fv_tensor *m, double *energy) {
    double sum[2] = {0, 0};
    float *at;
    *energy = b->keys->energy;
    if (*energy == 0) return FV_OK;
    FV_TRY(fv_matrix_fetch(in, m, &at));
    for (int32_t j = 0; j < b->n; j++)
        for (int32_t i = 0; i < m->cols; i++, at++) sum[j >= b->n_old] += (double)*at * (double)*at;
    double all = sum[0] + sum[1];
    if (all > 0) *energy = 1 - (1 - b->keys->energy) * sum[1] / all;
    return FV_OK;
}

/* Copies a layer's values, head by head: those of the old block, then the uncompressed ones. */
static fv_status copy_values(const block *b, int32_t layer, const fv_packed_shape *shape,
                             fv_arena *scratch, void **out) {
    fv_device *dev = fv_kv_get_device(b->kv);
    const fv_kv_packed *old = fv_kv_packed_of(b->kv, layer, FV_SEG_TEXT);
    size_t row = (size_t)shape->d_head * fv_dtype_bytes(shape->dtype);
    FV_TRY(fv_arena_alloc(scratch, fv_packed_bytes(shape), out));
    char *to = (char *)*out + fv_packed_layout_of(shape).rows;
    for (int32_t g = 0; g < shape->n_kv; g++) {
        size_t part = (size_t)b->n_old * row;
        if (old) {
            const fv_packed_part *v = &old->part[FV_PACKED_V];
            const char *from = (const char *)v->data + fv_packed_layout_of(&v->shape).rows;
            FV_TRY(dev->ops->copy_async(dev, to, from + (size_t)g * part, part));
        }
        to += part;
        for (int32_t j = 0, n; j < b->n_wait; j += n, to += (size_t)n * row) {
            void *at;
            n = fv_kv_contiguous(b->kv, layer, g, FV_SEG_TEXT, true, j, b->n_wait, &at);
            FV_TRY(dev->ops->copy_async(dev, to, at, (size_t)n * row));
        }
    }
    return FV_OK;
}

/* ---- a block ------------------------------------------------------------------------------- */

/* The new parts, in the host's memory. */
typedef struct made {
    fv_kv_packed_form form;
    void *keys, **values; /* [N] of the block's layers */
    double error;
} made;

static fv_status make(const block *b, fv_matrices *in, const fv_rope *rope, made *x) {
    const fv_kv_shape *s = fv_kv_get_shape(b->kv);
    fv_arena *scratch = in->scratch;
    fv_factor_part what = {.layer = b->source_layer, .segment = FV_SEG_TEXT};
    fv_tensor m;
    FV_TRY(lay_out_rows(b, scratch, &x->form));
    for (int k = 0; k < 2; k++)
        x->form.part[k] =
            fv_text_keys_shape(b->keys, (fv_packed_kind)k, b->n, s->n_kv, s->d_head, s->dtype);
    fv_packed_shape *keys = &x->form.part[FV_PACKED_K];
    FV_TRY(FV_ARENA_NEW(scratch, s->n_layer, x->values));
    FV_TRY(fv_arena_alloc(scratch, fv_packed_bytes(keys), &x->keys));
    for (int32_t l = b->source_layer; l >= 0; l = next_layer(b, l))
        FV_TRY(copy_values(b, l, &x->form.part[FV_PACKED_V], scratch, &x->values[l]));
    FV_TRY(key_matrix(b, in, rope, &x->form, &m));
    FV_TRY(energy_for(b, in, &m, &what.energy));
    return fv_factor_write(in->be, scratch, &m, &what, keys, x->keys, &x->error);
}

static bool is_smaller(const block *b, const made *x, uint64_t *saved) {
    fv_kv_shape layer = *fv_kv_get_shape(b->kv);
    uint64_t now = 0, then = fv_packed_bytes(&x->form.part[FV_PACKED_K]);
    layer.n_layer = 1;
    for (int32_t l = b->source_layer; l >= 0; l = next_layer(b, l)) {
        now += fv_kv_packed_bytes(b->kv, l, FV_SEG_TEXT) +
               fv_kv_text_bytes(&layer, b->n_wait, l == b->source_layer ? 0 : 1);
        then += fv_packed_bytes(&x->form.part[FV_PACKED_V]);
    }
    *saved = then < now ? now - then : 0;
    return then < now;
}

/* Whether the pool has room: the new parts are smaller, but their tables longer. If they are larger
 * together and the pool has no room for the difference, rows stay as they are. */
static bool reserve_difference(const block *b, const made *x, uint64_t saved) {
    uint64_t need = 0;
    for (int32_t l = b->source_layer; l >= 0; l = next_layer(b, l)) {
        const fv_kv_packed *p = fv_kv_packed_of(b->kv, l, FV_SEG_TEXT);
        need += fv_kv_packed_cost(b->kv, &x->form, l == b->source_layer);
        saved += p ? p->charged : 0;
    }
    return need <= saved || fv_kv_reserve_bytes(b->kv, need - saved) == FV_OK;
}

/* Frees all old blocks before the new ones are allocated: only together do they free enough
 * memory. */
static fv_status replace_blocks(const block *b, fv_backend *be, const made *x) {
    fv_device *dev = be->device;
    for (int32_t l = b->source_layer; l >= 0; l = next_layer(b, l))
        FV_TRY(fv_kv_clear_text(b->kv, l));
    for (int32_t l = b->source_layer; l >= 0; l = next_layer(b, l)) {
        fv_kv_packed *p;
        FV_TRY(fv_kv_pack(b->kv, l, &x->form, &p));
        const fv_packed_part *part = p->part;
        FV_TRY(dev->ops->copy_async(dev, part[FV_PACKED_V].data, x->values[l],
                                    fv_packed_bytes(&part[FV_PACKED_V].shape)));
        if (l == b->source_layer)
            FV_TRY(dev->ops->copy_async(dev, part[FV_PACKED_K].data, x->keys,
                                        fv_packed_bytes(&part[FV_PACKED_K].shape)));
    }
    return be->ops->sync(be);
}

static void note(const block *b, const made *x, size_t bytes, fv_recompress_report *r) {
    for (int32_t l = b->source_layer; l >= 0; l = next_layer(b, l)) {
        r->n_layer++;
        r->rows += (uint64_t)b->n_wait;
    }
    r->bytes += bytes;
    if ((float)x->error > r->error) r->error = (float)x->error;
}

/* Bytes of the pool that rows take, packed or not, without tables. */
static size_t rows_bytes(const fv_kv *kv) { return fv_kv_bytes_held(kv) - fv_kv_packed_tables(kv); }

/* Compresses a block. Rows that cannot be factored, or do not get smaller, stay as they are. */
static fv_status run(const block *b, fv_decoder *dec, fv_arena *scratch, fv_recompress_report *r) {
    const fv_text_config *cfg = fv_decoder_config(dec);
    size_t held = rows_bytes(b->kv);
    fv_backend *be = fv_decoder_backend(dec);
    fv_rope rope;
    made x;
    fv_rope_init(&rope, &cfg->rope, cfg->d_head);
    fv_matrices in = {.be = be, .scratch = scratch};
    fv_status st = make(b, &in, &rope, &x);
    fv_matrices_fini(&in);
    if (st == FV_EINVAL) {
        FV_LOG(WARN, DECODE, "event=not-recompressed layer=%d reason=\"%s\"", b->source_layer,
               fv_last_error());
        return FV_OK;
    }
    FV_TRY(st);
    uint64_t saved;
    if (!is_smaller(b, &x, &saved)) return FV_OK;
    if (!reserve_difference(b, &x, saved)) {
        FV_LOG(WARN, DECODE, "event=not-recompressed layer=%d reason=\"%s\"", b->source_layer,
               fv_last_error());
        return FV_OK;
    }
    FV_TRY(replace_blocks(b, be, &x));
    fv_kv_release_unused(b->kv, 0);
    note(b, &x, held - rows_bytes(b->kv), r);
    return FV_OK;
}

/* ---- a store ------------------------------------------------------------------------------- */

bool fv_recompress_begin(fv_recompress *r, const fv_text_keys *keys, fv_kv *kv) {
    *r = (fv_recompress){.keys = *keys};
    if (keys->rank == 0 || keys->again == 0) return false;
    fv_kv_release_unused(kv, 0);
    r->layer = next_due(keys, kv, 0);
    return r->layer < fv_kv_get_shape(kv)->n_layer;
}

fv_status fv_recompress_next(fv_recompress *r, fv_decoder *dec, fv_kv *kv, bool *more) {
    double t = fv_clock_s();
    fv_arena scratch = {0};
    block b = block_of(&r->keys, kv, r->layer);
    fv_status st = run(&b, dec, &scratch, &r->report);
    fv_arena_fini(&scratch);
    r->report.seconds += fv_clock_s() - t;
    FV_TRY(st);
    r->layer = next_due(&r->keys, kv, r->layer + 1);
    *more = r->layer < fv_kv_get_shape(kv)->n_layer;
    return FV_OK;
}
