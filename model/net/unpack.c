/* Decompresses factors, codes and directions to raw rows. These are few (some dozens), so they pass
 * through F32. Runs on the thread that owns the store and the backend. */
#include "model/net/unpack.h"

#include <assert.h>
#include <string.h>

#include "model/net/row_matrix.h"

/* ---- which form is smaller ------------------------------------------------------------ */

typedef struct block_bytes {
    size_t held;  /* bytes of the parts now, */
    size_t tight; /* bytes of the parts for v rows, */
    size_t raw;   /* bytes of v raw rows */
} block_bytes;

/* Returns whether the layers that share the block's keys have different numbers of rows and drop
 * their own. */
static bool is_nested(const fv_kv_packed *p) { return fv_kv_packed_format_of(p)->nested; }

/* Bytes of all layers that share the keys or directions of `source_layer`, for v rows; of nested
 * for their valid rows. */
static block_bytes bytes_for(const fv_kv *kv, int32_t source_layer, int32_t v) {
    block_bytes b = {0, 0, 0};
    for (int32_t l = source_layer; l < fv_kv_get_shape(kv)->n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (!p || p->source_layer != source_layer) continue;
        b.held += fv_kv_packed_bytes(kv, l, FV_SEG_VISUAL);
        for (int k = fv_kv_packed_owns_keys(p, l) ? FV_PACKED_K : FV_PACKED_V; k < 2; k++) {
            const fv_packed_shape *of = &p->part[k].shape;
            fv_packed_shape s =
                fv_packed_format_of(of->form)->smallest(of, is_nested(p) ? p->n_alive : v);
            b.tight += fv_packed_bytes(&s);
            b.raw += fv_packed_raw_bytes(&s);
        }
    }
    return b;
}

/* Largest number of rows, up to those it had at first, that take less memory raw. Not for
 * latents. */
static int32_t small_of(const fv_kv *kv, int32_t source_layer) {
    for (int32_t v = fv_kv_packed_of(kv, source_layer, FV_SEG_VISUAL)->n_first; v > 0; v--) {
        block_bytes b = bytes_for(kv, source_layer, v);
        if (b.raw <= b.tight) return v;
    }
    return 0;
}

static bool is_small(const fv_kv *kv, fv_kv_packed *p, int32_t source_layer) {
    if (is_nested(p)) {
        block_bytes b = bytes_for(kv, source_layer, p->n_alive);
        return b.raw <= b.tight;
    }
    if (p->n_small < 0) p->n_small = small_of(kv, source_layer);
    return p->n_alive <= p->n_small;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* row[n_alive]: the valid rows in the order in which the layer will hold them: by rank, or by
 * position. */
static fv_status alive_rows(const fv_kv_packed *p, fv_arena *scratch, int32_t **row) {
    const int32_t *key = p->rank ? p->rank : p->pos;
    int32_t n = 0;
    FV_TRY(FV_ARENA_NEW(scratch, p->n_alive, *row));
    for (int32_t a = 0; a < p->rows.n_anchor; a++)
        for (int32_t j = p->first[a]; j < p->first[a] + p->alive[a]; j++) {
            int32_t at = n++;
            for (; at > 0 && key[(*row)[at - 1]] > key[j]; at--) (*row)[at] = (*row)[at - 1];
            (*row)[at] = j;
        }
    return FV_OK;
}

/* Decompresses rows row[n] of a part into m [n, Hkv D] F32. */
static fv_status rebuild(const fv_kv *kv, fv_matrices *in, const fv_packed_part *there,
                         const int32_t *row, int32_t n, fv_tensor *m) {
    fv_packed_part part;
    FV_TRY(fv_kv_packed_on_host(kv, there, in->scratch, &part));
    FV_TRY(fv_matrix_new(in, n, (int32_t)fv_packed_width(&part.shape), m));
    return fv_rows_rebuild(in, &part, row, *m);
}

/* Rotates keys to their positions: packed keys are relative to their block's anchor, or
 * unrotated. */
static fv_status rotate_on(const fv_kv *kv, fv_matrices *in, const fv_rope *rope,
                           const fv_kv_packed *p, const int32_t *row, int32_t n, fv_tensor m) {
    int32_t *anchor;
    bool turned = fv_kv_packed_format_of(p)->turned;
    if (!p->anchor && !turned) return FV_OK;
    FV_TRY(FV_ARENA_NEW(in->scratch, n, anchor));
    for (int32_t i = 0; i < n; i++) {
        int32_t a = 0;
        anchor[i] = p->pos[row[i]];
        if (turned) continue;
        while (row[i] >= p->first[a + 1]) a++;
        anchor[i] = p->anchor[a];
    }
    return fv_rows_rotate(in, rope, fv_kv_rope_map(kv), anchor, false,
                          p->part[FV_PACKED_K].shape.n_kv, m);
}

static fv_status write_rows(fv_kv *kv, fv_backend *be, int32_t layer, fv_tensor k, fv_tensor v,
                            fv_arena *scratch) {
    const fv_kv_shape *s = fv_kv_get_shape(kv);
    uint8_t *seg;
    int32_t *slot;
    FV_TRY(FV_ARENA_NEW(scratch, v.rows, seg));
    FV_TRY(FV_ARENA_NEW(scratch, v.rows, slot));
    memset(seg, FV_SEG_VISUAL, (size_t)v.rows);
    for (int32_t i = 0; i < v.rows; i++) slot[i] = i;
    fv_kv_write_seq seq = {.n_rows = v.rows,
                           .n_seg = FV_N_SEG,
                           .tables = fv_kv_runs(kv, layer),
                           .seg = seg,
                           .slot = slot};
    fv_kv_write_args a = {.k = k,
                          .v = v,
                          .kv_dtype = s->dtype,
                          .n_kv = s->n_kv,
                          .d_head = s->d_head,
                          .n_seq = 1,
                          .seqs = &seq};
    FV_TRY(be->ops->kv_write(be, &a));
    return be->ops->sync(be); /* `scratch` belongs to the caller */
}

/* A layer's rows, decompressed and not yet stored. */
typedef struct layer_rows {
    int32_t layer;
    fv_tensor k, v; /* [n, Hkv D] F32; k is absent if keys are another layer's */
    int32_t *pos;   /* [n] */
} layer_rows;

static fv_status rebuild_layer(const fv_kv *kv, fv_matrices *in, const fv_rope *rope,
                               const fv_kv_packed *p, const int32_t *row, int32_t n,
                               layer_rows *out) {
    FV_TRY(FV_ARENA_NEW(in->scratch, n, out->pos));
    for (int32_t i = 0; i < n; i++) out->pos[i] = p->pos[row[i]];
    if (fv_kv_packed_owns_keys(p, out->layer)) {
        FV_TRY(rebuild(kv, in, &p->part[FV_PACKED_K], row, n, &out->k));
        FV_TRY(rotate_on(kv, in, rope, p, row, n, out->k));
    }
    return rebuild(kv, in, &p->part[FV_PACKED_V], row, n, &out->v);
}

static fv_status lay_rows(fv_kv *kv, fv_backend *be, const layer_rows *x, fv_arena *scratch) {
    FV_TRY(fv_kv_extent(kv, x->layer, x->v.rows));
    FV_TRY(write_rows(kv, be, x->layer, x->k, x->v, scratch));
    return fv_kv_append(kv, x->layer, FV_SEG_VISUAL, x->pos, x->v.rows);
}

/* Frees the compressed blocks of all layers before allocating entries: in a full pool only all of
 * them together free enough memory. */
static fv_status unpack_block(fv_kv *kv, fv_matrices *in, const fv_rope *rope,
                              int32_t source_layer) {
    fv_backend *be = in->be;
    fv_arena *scratch = in->scratch;
    int32_t n_layer = fv_kv_get_shape(kv)->n_layer, n_x = 0, *row;
    layer_rows *x;
    FV_TRY(FV_ARENA_NEW(scratch, n_layer, x));
    for (int32_t l = source_layer; l < n_layer; l++) {
        const fv_kv_packed *at = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (!at || at->source_layer != source_layer) continue;
        FV_TRY(alive_rows(at, scratch, &row));
        x[n_x].layer = l;
        FV_TRY(rebuild_layer(kv, in, rope, at, row, at->n_alive, &x[n_x++]));
    }
    FV_TRY(be->ops->sync(be));
    for (int32_t i = 0; i < n_x; i++) fv_kv_packed_end(kv, x[i].layer);
    for (int32_t i = 0; i < n_x; i++) FV_TRY(lay_rows(kv, be, &x[i], scratch));
    return FV_OK;
}

fv_status fv_unpack(fv_kv *kv, fv_backend *be, const fv_rope *rope) {
    fv_status st = FV_OK;
    for (int32_t l = 0; l < fv_kv_get_shape(kv)->n_layer && st == FV_OK; l++) {
        fv_kv_packed *p = fv_kv_packed_of(kv, l, FV_SEG_VISUAL);
        if (!p || p->source_layer != l || p->n_alive == p->n_first) continue;
        if (!is_small(kv, p, l)) {
            block_bytes b = bytes_for(kv, l, p->n_alive);
            if (b.held > b.raw) st = fv_kv_packed_fit(kv, l);
            continue;
        }
        fv_arena scratch = {0};
        fv_matrices in = {.be = be, .scratch = &scratch};
        st = unpack_block(kv, &in, rope, l);
        fv_matrices_fini(&in);
        fv_arena_fini(&scratch);
    }
    return st;
}
