/* Keeps sets of packed rows: which rows, in which blocks, and the angles of the blocks' anchors. Layers
 * of a request with the same rows use the same set, so they need only one table of angles. Runs on
 * the store's thread. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kv/internal.h"

static bool same_set(const fv_kv_packed_set *a, const fv_kv_packed_set *b) {
    size_t rows = (size_t)a->n, blocks = (size_t)a->n_anchor;
    return a->n == b->n && a->n_anchor == b->n_anchor && a->tiles == b->tiles &&
           a->turned == b->turned && !a->anchor == !b->anchor &&
           memcmp(a->pos, b->pos, rows * sizeof *a->pos) == 0 &&
           memcmp(a->first, b->first, blocks * sizeof *a->first) == 0 &&
           (!a->anchor || memcmp(a->anchor, b->anchor, blocks * sizeof *a->anchor) == 0);
}

static size_t host_ints(const fv_kv_packed_set *s) {
    size_t blocks = (size_t)s->n_anchor;
    return (size_t)s->n + blocks + 1 + (s->anchor ? blocks : 0);
}

/* Copies pos, first and anchor into one array. */
static fv_status copy_host(const fv_kv_packed_set *like, fv_kv_packed_set *s) {
    size_t rows = (size_t)like->n, blocks = (size_t)like->n_anchor;
    int32_t *at = malloc(host_ints(like) * sizeof *at);
    if (!at) return FV_FAIL(FV_ENOMEM, "out of memory for %d packed rows", like->n);
    s->host = at;
    memcpy(at, like->pos, rows * sizeof *at);
    memcpy(at + rows, like->first, (blocks + 1) * sizeof *at);
    if (like->anchor) memcpy(at + rows + blocks + 1, like->anchor, blocks * sizeof *at);
    s->pos = at;
    s->first = at + rows;
    s->anchor = like->anchor ? at + rows + blocks + 1 : NULL;
    return FV_OK;
}

/* Points to pos and first for kernels: on the host the arrays themselves, elsewhere copies. */
static fv_status copy_there(fv_device *dev, fv_kv_packed_set *s) {
    size_t ints = (size_t)s->n + (size_t)s->n_anchor + 1;
    s->there = s->pos;
    if (dev != fv_device_host()) {
        FV_TRY(fv_buf_alloc(dev, ints * sizeof(int32_t), FV_BUF_DEVICE, &s->rows_buf));
        FV_TRY(dev->ops->copy_async(dev, s->rows_buf.data, s->host, ints * sizeof(int32_t)));
        s->there = s->rows_buf.data;
    }
    return FV_OK;
}

static size_t angle_rows(const fv_kv_packed_set *s) {
    return s->tiles ? fv_packed_tiles((size_t)s->n) * FV_PACKED_TILE : (size_t)s->n_anchor;
}

/* Returns the bytes of a set. Angles are charged from the beginning, because every reader needs them, and
 * a store that has its rows must not be refused memory for them. */
size_t fv_kv_packed_set_bytes(const fv_kv *kv, const fv_kv_packed_set *s) {
    size_t half = (size_t)kv->account.shape->d_head / 2;
    return sizeof *s + host_ints(s) * sizeof(int32_t) + s->rows_buf.bytes +
           (s->anchor || s->turned ? 2 * angle_rows(s) * half * sizeof(float) : 0);
}

static void set_free(fv_kv *kv, fv_kv_packed_set *s) {
    (void)fv_kv_charge_tables(&kv->account, 0, &s->charged);
    fv_buf_free(&s->rows_buf);
    fv_buf_free(&s->angle_buf);
    free(s->host);
    free(s);
}

fv_status fv_kv_packed_set_take(fv_kv *kv, const fv_kv_packed_set *like, fv_kv_packed_set **out) {
    fv_kv_packed_set *s = kv->sets;
    while (s && !same_set(s, like)) s = s->next;
    if (!s) {
        s = calloc(1, sizeof *s);
        if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for packed rows");
        s->n = like->n;
        s->n_anchor = like->n_anchor;
        s->tiles = like->tiles;
        s->turned = like->turned;
        fv_status st = copy_host(like, s);
        if (st == FV_OK) st = copy_there(kv->account.device, s);
        if (st == FV_OK)
            st = fv_kv_charge_tables(&kv->account, fv_kv_packed_set_bytes(kv, s), &s->charged);
        if (st != FV_OK) {
            set_free(kv, s);
            return st;
        }
        s->next = kv->sets;
        kv->sets = s;
    }
    s->refs++;
    *out = s;
    return FV_OK;
}

void fv_kv_packed_set_give(fv_kv *kv, fv_kv_packed_set *s) {
    fv_kv_packed_set **at = &kv->sets;
    if (!s || --s->refs > 0) return;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    set_free(kv, s);
}

static void block_angles(const fv_kv_packed_set *s, const fv_rope_map *map, const fv_rope *rope,
                         float *cosine, float *sine) {
    for (int32_t a = 0; a < s->n_anchor; a++) {
        fv_rope_pos pos = fv_rope_map_at(map, s->anchor[a]);
        ptrdiff_t at = (ptrdiff_t)a * rope->half;
        fv_rope_angles(rope, &pos, 1, cosine + at, sine + at);
    }
}

/* Computes the angles of each row, in tiles of rows (packed/part.h), for all forms except factors. */
static void tile_angles(const fv_kv_packed_set *s, const fv_rope_map *map, const fv_rope *rope,
                        float *cosine, float *sine) {
    float c[FV_ROPE_MAX_HALF], t[FV_ROPE_MAX_HALF];
    size_t half = (size_t)rope->half;
    for (int32_t a = 0; a < s->n_anchor; a++) {
        for (size_t j = (size_t)s->first[a]; j < (size_t)s->first[a + 1]; j++) {
            fv_rope_pos pos = fv_rope_map_at(map, s->turned ? s->pos[j] : s->anchor[a]);
            fv_rope_angles(rope, &pos, 1, c, t);
            for (size_t i = 0; i < half; i++) {
                size_t tile = j / FV_PACKED_TILE * half + i;
                cosine[tile * FV_PACKED_TILE + j % FV_PACKED_TILE] = c[i];
                sine[tile * FV_PACKED_TILE + j % FV_PACKED_TILE] = t[i];
            }
        }
    }
}

fv_status fv_kv_packed_set_angles(fv_kv *kv, fv_kv_packed_set *s, const fv_rope *rope) {
    if (!(s->anchor || s->turned) || s->angle_buf.data) return FV_OK;
    assert(rope->half <= kv->account.shape->d_head / 2);
    size_t n = angle_rows(s) * (size_t)rope->half, bytes = n * sizeof(float);
    float *angles = calloc(2, bytes);
    if (!angles) return FV_FAIL(FV_ENOMEM, "out of memory for the angles of %d rows", s->n);
    (s->tiles ? tile_angles : block_angles)(s, &kv->rope_map, rope, angles, angles + n);
    fv_device *dev = kv->account.device;
    fv_buf buf;
    fv_status st = fv_buf_alloc(dev, 2 * bytes, FV_BUF_DEVICE, &buf);
    if (st == FV_OK) {
        st = dev->ops->copy_async(dev, buf.data, angles, 2 * bytes);
        if (st == FV_OK)
            s->angle_buf = buf;
        else
            fv_buf_free(&buf);
    }
    free(angles);
    return st;
}
