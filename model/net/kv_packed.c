/* Packed layers: who holds which part, and how rows leave one. Factors are made elsewhere
 * (prefill-worker/pack) or come over the network; here is their memory. One thread at a time. */
#include "model/net/kv_packed.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/kv_internal.h"

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
    return p->leader == layer || p->part[FV_PACKED_V].shape.form == FV_PACKED_MERGED;
}

size_t fv_kv_packed_bytes(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    const fv_kv_packed *p = fv_kv_packed_of(kv, layer, seg);
    return p ? p->part_buf[FV_PACKED_K].bytes + p->part_buf[FV_PACKED_V].bytes : 0;
}

/* ---- opening and closing ----------------------------------------------------------------- */

static void packed_free(fv_kv *kv, fv_kv_packed *p) {
    for (int k = 0; k < 2; k++) fv_kv_memory_give(kv, &p->part_buf[k]);
    fv_buf_free(&p->rows_buf);
    fv_buf_free(&p->angle_buf);
    fv_buf_free(&p->turn_buf);
    free(p->importance);
    free(p->host);
    free(p);
}

void fv_kv_packed_drop(fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    fv_kv_packed **slot = fv_kv_packed_slot(kv, layer, seg);
    if (*slot) packed_free(kv, *slot);
    *slot = NULL;
}

/* Host arrays, one after the other: pos, first, alive, anchor, rank, group. */
static fv_status host_arrays(fv_kv_packed *p, int32_t n, int32_t n_anchor) {
    size_t rows = (size_t)n, blocks = (size_t)n_anchor;
    size_t ints = 2 * rows + 3 * blocks + 1;
    p->host = calloc(1, ints * sizeof(int32_t) + rows);
    if (!p->host) return FV_FAIL(FV_ENOMEM, "out of memory for %d packed rows", n);
    p->pos = p->host;
    p->first = p->pos + rows;
    p->alive = p->first + blocks + 1;
    p->anchor = p->alive + blocks;
    p->rank = p->anchor + blocks;
    p->group = (uint8_t *)(p->rank + rows);
    return FV_OK;
}

static fv_status put(fv_kv *kv, char **at, const void *from, size_t bytes, const void **out) {
    fv_device *dev = fv_kv_get_device(kv);
    *out = *at;
    FV_TRY(dev->ops->copy_async(dev, *at, from, bytes));
    *at += bytes;
    return FV_OK;
}

/* The device's copies of pos, first, alive and group. */
static fv_status device_arrays(fv_kv *kv, fv_kv_packed *p, int32_t n, int32_t n_anchor) {
    size_t rows = (size_t)n, blocks = (size_t)n_anchor;
    FV_TRY(fv_buf_alloc(fv_kv_get_device(kv), (rows + 2 * blocks + 1) * sizeof(int32_t) + rows,
                        FV_BUF_DEVICE, &p->rows_buf));
    char *at = p->rows_buf.data;
    const void *pos, *first, *alive, *group;
    FV_TRY(put(kv, &at, p->pos, rows * sizeof(int32_t), &pos));
    FV_TRY(put(kv, &at, p->first, (blocks + 1) * sizeof(int32_t), &first));
    FV_TRY(put(kv, &at, p->alive, blocks * sizeof(int32_t), &alive));
    FV_TRY(put(kv, &at, p->group, rows, &group));
    p->rows = (fv_packed_rows){.n = n, .n_anchor = n_anchor, .pos = pos, .first = first};
    p->rows.alive = p->n_alive < n ? alive : NULL;
    p->rows.group = memchr(p->group, 1, rows) ? group : NULL;
    return FV_OK;
}

static fv_status take_part(fv_kv *kv, fv_kv_packed *p, int kind, const fv_packed_shape *shape) {
    FV_TRY(fv_kv_memory_take(kv, fv_packed_bytes(shape), &p->part_buf[kind]));
    p->part[kind] = (fv_packed_part){.shape = *shape, .data = p->part_buf[kind].data};
    return FV_OK;
}

/* Where that lies which is its leader's: keys, or directions. */
static void follow_leader(const fv_kv *kv, fv_kv_packed *p, int32_t layer) {
    if (p->leader == layer) return;
    const fv_kv_packed *lead = fv_kv_packed_of(kv, p->leader, p->seg);
    if (!fv_kv_packed_owns_keys(p, layer)) p->part[FV_PACKED_K] = lead->part[FV_PACKED_K];
    for (int k = 0; k < 2; k++)
        if (p->part[k].shape.borrows) p->part[k].base = lead->part[k].data;
}

static fv_status fill(fv_kv *kv, int32_t layer, const fv_kv_packed_form *f, fv_kv_packed *p) {
    size_t rows = (size_t)f->n, blocks = (size_t)f->n_anchor;
    FV_TRY(host_arrays(p, f->n, f->n_anchor));
    memcpy(p->pos, f->pos, rows * sizeof *p->pos);
    memcpy(p->first, f->first, (blocks + 1) * sizeof *p->first);
    for (size_t a = 0; a < blocks; a++) p->alive[a] = p->first[a + 1] - p->first[a];
    if (f->anchor)
        memcpy(p->anchor, f->anchor, blocks * sizeof *p->anchor);
    else
        p->anchor = NULL;
    if (f->rank)
        memcpy(p->rank, f->rank, rows * sizeof *p->rank);
    else
        p->rank = NULL;
    int32_t had = f->seg == FV_SEG_VISUAL ? fv_kv_ranked(kv, layer, 0) : 0;
    p->n_alive = f->n;
    p->n_first = had > f->n ? had : f->n;
    p->leader = f->leader;
    p->seg = f->seg;
    p->n_small = -1;
    FV_TRY(device_arrays(kv, p, f->n, f->n_anchor));
    FV_TRY(take_part(kv, p, FV_PACKED_V, &f->part[FV_PACKED_V]));
    if (fv_kv_packed_owns_keys(p, layer))
        FV_TRY(take_part(kv, p, FV_PACKED_K, &f->part[FV_PACKED_K]));
    follow_leader(kv, p, layer);
    return FV_OK;
}

fv_status fv_kv_pack(fv_kv *kv, int32_t layer, const fv_kv_packed_form *f, fv_kv_packed **out) {
    assert(!fv_kv_packed_of(kv, layer, f->seg) && f->n > 0 && f->first[f->n_anchor] == f->n);
    assert(f->leader == layer || fv_kv_packed_of(kv, f->leader, f->seg)->rows.n == f->n);
    fv_kv_packed *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a packed layer");
    fv_status st = FV_OK;
    if (f->seg == FV_SEG_VISUAL)
        fv_kv_drop_visual(kv, layer);
    else
        st = fv_kv_drop_text(kv, layer, f->n);
    if (st == FV_OK) st = fill(kv, layer, f, p);
    if (st != FV_OK) {
        packed_free(kv, p);
        return st;
    }
    *fv_kv_packed_slot(kv, layer, f->seg) = p;
    if (out) *out = p;
    return FV_OK;
}

fv_status fv_kv_clear_text(fv_kv *kv, int32_t layer) {
    fv_kv_packed_drop(kv, layer, FV_SEG_TEXT);
    return fv_kv_drop_text(kv, layer, fv_kv_len(kv, layer, 0, FV_SEG_TEXT));
}

/* ---- what readers need ------------------------------------------------------------------- */

/* For codes and directions: each row's own, in tiles of rows (kernels/packed_part.h). */
static void tile_angles(const fv_kv_packed *p, const fv_rope *rope, float *cosine, float *sine) {
    float c[FV_ROPE_MAX_HALF], s[FV_ROPE_MAX_HALF];
    size_t half = (size_t)rope->half;
    for (int32_t a = 0; a < p->rows.n_anchor; a++) {
        fv_rope_angles(rope, &p->anchor[a], 1, c, s);
        for (size_t j = (size_t)p->first[a]; j < (size_t)p->first[a + 1]; j++)
            for (size_t i = 0; i < half; i++) {
                size_t tile = j / FV_PACKED_TILE * half + i;
                cosine[tile * FV_PACKED_TILE + j % FV_PACKED_TILE] = c[i];
                sine[tile * FV_PACKED_TILE + j % FV_PACKED_TILE] = s[i];
            }
    }
}

fv_status fv_kv_packed_angles(fv_kv *kv, fv_kv_packed *p, const fv_rope *rope) {
    if (!p->anchor || p->rows.cos) return FV_OK;
    bool tiles = p->part[FV_PACKED_K].shape.form != FV_PACKED_FACTORS;
    size_t rows =
        tiles ? fv_packed_tiles((size_t)p->rows.n) * FV_PACKED_TILE : (size_t)p->rows.n_anchor;
    size_t n = rows * (size_t)rope->half, bytes = n * sizeof(float);
    float *angles = calloc(2, bytes);
    if (!angles) return FV_FAIL(FV_ENOMEM, "out of memory for %d anchors", p->rows.n_anchor);
    if (tiles)
        tile_angles(p, rope, angles, angles + n);
    else
        fv_rope_angles(rope, p->anchor, p->rows.n_anchor, angles, angles + n);
    fv_device *dev = fv_kv_get_device(kv);
    fv_status st = fv_buf_alloc(dev, 2 * bytes, FV_BUF_DEVICE, &p->angle_buf);
    if (st == FV_OK) st = dev->ops->copy_async(dev, p->angle_buf.data, angles, 2 * bytes);
    if (st == FV_OK) {
        p->rows.cos = p->angle_buf.data;
        p->rows.sin = p->rows.cos + n;
    }
    free(angles);
    return st;
}

fv_status fv_kv_packed_observe(fv_kv *kv, fv_kv_packed *p) {
    if (p->importance) return FV_OK;
    size_t n = (size_t)p->rows.n;
    if (!p->turn_buf.data) /* or it is there from a call that failed */
        FV_TRY(fv_buf_alloc(fv_kv_get_device(kv), n * sizeof(float), FV_BUF_DEVICE, &p->turn_buf));
    p->importance = calloc(n, sizeof *p->importance);
    if (!p->importance) return FV_FAIL(FV_ENOMEM, "out of memory for %d packed rows", p->rows.n);
    p->turn = p->turn_buf.data;
    return FV_OK;
}

/* How many means of this turn the layer has. */
static size_t turn_rows(const fv_kv_packed *p) {
    return p && p->importance && p->n_turn > 0 ? (size_t)p->rows.n : 0;
}

/* One wait for all layers. */
fv_status fv_kv_packed_turns(fv_kv *kv, const float **out) {
    fv_device *dev = fv_kv_get_device(kv);
    int32_t n_layer = fv_kv_get_shape(kv)->n_layer;
    size_t n = 0;
    void *home;
    for (int32_t l = 0; l < n_layer; l++) n += turn_rows(fv_kv_packed_at(kv, l));
    *out = NULL;
    if (n == 0) return FV_OK;
    FV_TRY(fv_kv_pool_home(kv->pool, n * sizeof(float), &home));
    float *to = home;
    *out = home;
    for (int32_t l = 0; l < n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_at(kv, l);
        size_t rows = turn_rows(p);
        if (rows) FV_TRY(dev->ops->copy_async(dev, to, p->turn, rows * sizeof *to));
        to += rows;
    }
    return fv_device_wait(dev);
}

/* Directions that a part borrows, which lie ahead of all else where they are. */
static fv_status base_home(fv_device *dev, const fv_packed_part *part, fv_arena *arena,
                           const void **out) {
    fv_packed_shape own = part->shape;
    void *base;
    own.borrows = false;
    own.n_outlier = 0;
    FV_TRY(fv_arena_alloc(arena, fv_packed_bytes(&own), &base));
    *out = base;
    return fv_device_copy(dev, base, part->base, fv_packed_bytes(&own));
}

fv_status fv_kv_packed_home(const fv_kv *kv, const fv_packed_part *part, fv_arena *arena,
                            fv_packed_part *out) {
    fv_device *dev = fv_kv_get_device(kv);
    size_t bytes = fv_packed_bytes(&part->shape);
    *out = *part;
    if (dev == fv_device_host()) return FV_OK;
    FV_TRY(fv_arena_alloc(arena, bytes, &out->data));
    FV_TRY(fv_device_copy(dev, out->data, part->data, bytes));
    return part->base ? base_home(dev, part, arena, &out->base) : FV_OK;
}

/* Behind pos, first and alive: see device_arrays. */
static char *device_alive(const fv_kv_packed *p) {
    return (char *)p->rows_buf.data +
           ((size_t)p->rows.n + (size_t)p->rows.n_anchor + 1) * sizeof(int32_t);
}

fv_status fv_kv_packed_regroup(fv_kv *kv, fv_kv_packed *p) {
    fv_device *dev = fv_kv_get_device(kv);
    char *at = device_alive(p) + (size_t)p->rows.n_anchor * sizeof(int32_t);
    FV_TRY(dev->ops->copy_async(dev, at, p->group, (size_t)p->rows.n));
    p->rows.group = (const uint8_t *)at;
    return FV_OK;
}

/* ---- rows leave -------------------------------------------------------------------------- */

/* What the layer had stays known when it is packed no more. */
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
    fv_device *dev = fv_kv_get_device(kv);
    p->n_alive = 0;
    for (int32_t a = 0; a < p->rows.n_anchor; a++) {
        assert(alive[a] >= 0 && alive[a] <= p->alive[a]);
        p->alive[a] = alive[a];
        p->n_alive += alive[a];
    }
    char *at = device_alive(p);
    FV_TRY(dev->ops->copy_async(dev, at, p->alive, (size_t)p->rows.n_anchor * sizeof *p->alive));
    p->rows.alive = (const int32_t *)(const void *)at;
    return FV_OK;
}

fv_status fv_kv_packed_shorten(fv_kv *kv, int32_t layer, const int32_t *alive) {
    for (int32_t l = layer; l < fv_kv_get_shape(kv)->n_layer; l++) {
        fv_kv_packed *p = fv_kv_packed_at(kv, l);
        if (!p || p->leader != layer) continue;
        note_first(kv, l);
        FV_TRY(shorten(kv, p, alive));
    }
    return FV_OK;
}

/* The part with fewer rows. What it was is set by first, so that a pool that is full to the last
 * byte does not stand in the way of giving some back; and it is laid anew on the host, wherever the
 * store is. */
static fv_status part_laid(fv_kv *kv, fv_kv_packed *p, int kind, const int32_t *idx, int32_t n,
                           fv_arena *arena) {
    fv_device *dev = fv_kv_get_device(kv);
    fv_packed_part old = p->part[kind];
    size_t bytes = fv_packed_bytes(&old.shape);
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

/* The means of this turn of rows idx[0 .. n), in the place of the others. */
static fv_status turn_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    fv_device *dev = fv_kv_get_device(kv);
    size_t had = turn_rows(p);
    if (had == 0) return FV_OK;
    float *turn = malloc((had + (size_t)n) * sizeof *turn);
    if (!turn) return FV_FAIL(FV_ENOMEM, "out of memory to let packed rows go");
    fv_status st = fv_device_copy(dev, turn, p->turn, had * sizeof *turn);
    for (int32_t j = 0; j < n; j++) turn[had + (size_t)j] = turn[idx[j]];
    if (st == FV_OK) st = dev->ops->copy_async(dev, p->turn, turn + had, (size_t)n * sizeof *turn);
    free(turn);
    return st;
}

/* What is observed of rows goes with them. */
static fv_status observed_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    if (!p->importance) return FV_OK;
    float *seen = malloc(((size_t)n + 1) * sizeof *seen);
    if (!seen) return FV_FAIL(FV_ENOMEM, "out of memory to let packed rows go");
    for (int32_t j = 0; j < n; j++) seen[j] = p->importance[idx[j]];
    fv_status st = turn_keep(kv, p, idx, n);
    free(p->importance);
    p->importance = seen;
    p->stale = p->observed;
    return st;
}

/* Bookkeeping of rows idx[0 .. n): blocks that lose all of theirs go too. */
static fv_status rows_keep(fv_kv *kv, fv_kv_packed *p, const int32_t *idx, int32_t n) {
    fv_kv_packed was = *p;
    int32_t n_anchor = 0;
    FV_TRY(observed_keep(kv, p, idx, n));
    fv_status st = host_arrays(p, n, was.rows.n_anchor);
    if (st != FV_OK) {
        p->host = was.host;
        return st;
    }
    for (int32_t a = 0, j = 0; a < was.rows.n_anchor; a++) {
        int32_t from = j;
        for (; j < n && idx[j] < was.first[a + 1]; j++) {
            assert(idx[j] < was.first[a] + was.alive[a]);
            p->pos[j] = was.pos[idx[j]];
            p->group[j] = was.group[idx[j]];
            if (was.rank) p->rank[j] = was.rank[idx[j]];
        }
        if (j == from) continue;
        if (was.anchor) p->anchor[n_anchor] = was.anchor[a];
        p->alive[n_anchor] = j - from;
        p->first[n_anchor++] = from;
    }
    p->first[n_anchor] = n;
    p->n_alive = n;
    if (!was.anchor) p->anchor = NULL;
    if (!was.rank) p->rank = NULL;
    free(was.host);
    fv_buf_free(&p->rows_buf);
    fv_buf_free(&p->angle_buf); /* angles are worked out anew */
    return device_arrays(kv, p, n, n_anchor);
}

static fv_status layer_keep(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n) {
    fv_kv_packed *p = fv_kv_packed_at(kv, layer);
    if (fv_kv_packed_owns_keys(p, layer)) FV_TRY(part_keep(kv, p, FV_PACKED_K, idx, n));
    FV_TRY(part_keep(kv, p, FV_PACKED_V, idx, n));
    follow_leader(kv, p, layer);
    return rows_keep(kv, p, idx, n);
}

fv_status fv_kv_packed_keep(fv_kv *kv, int32_t layer, const int32_t *idx, int32_t n) {
    assert(fv_kv_packed_at(kv, layer)->leader == layer);
    for (int32_t l = layer; l < fv_kv_get_shape(kv)->n_layer; l++) {
        const fv_kv_packed *p = fv_kv_packed_at(kv, l);
        if (!p || p->leader != layer) continue;
        note_first(kv, l);
        if (n == 0)
            fv_kv_packed_end(kv, l);
        else
            FV_TRY(layer_keep(kv, l, idx, n));
    }
    return FV_OK;
}

fv_status fv_kv_packed_fit(fv_kv *kv, int32_t layer) {
    const fv_kv_packed *p = fv_kv_packed_at(kv, layer);
    int32_t n = 0, *idx = malloc(((size_t)p->n_alive + 1) * sizeof *idx);
    if (!idx) return FV_FAIL(FV_ENOMEM, "out of memory to let packed rows go");
    for (int32_t a = 0; a < p->rows.n_anchor; a++)
        for (int32_t i = 0; i < p->alive[a]; i++) idx[n++] = p->first[a] + i;
    fv_status st = fv_kv_packed_keep(kv, layer, idx, n);
    free(idx);
    return st;
}

fv_status fv_kv_packed_shrink(fv_kv *kv, int32_t layer, int32_t v) {
    const fv_kv_packed *p = fv_kv_packed_at(kv, layer);
    assert(p->rank);
    int32_t *alive = malloc((size_t)p->rows.n_anchor * sizeof *alive);
    if (!alive) return FV_FAIL(FV_ENOMEM, "out of memory to let packed rows go");
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
