/* Pages, extents and ragged lengths of one request's keys and values. Host bookkeeping only:
 * rows themselves are written by kernels and moved by the device, so that the same code serves
 * a GPU. One thread at a time. */
#include "model/net/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "model/net/kv_internal.h"

enum { SLAB_PAGES = 128 };

struct fv_kv_pool {
    fv_device *device;
    fv_kv_shape shape;
    size_t bytes_max, bytes_used;
    size_t peak;   /* of bytes_used */
    size_t memory; /* taken from the device: slabs, extents, spare ones */
    fv_buf *spare; /* extents that nobody holds, the longest unused first */
    int32_t n_spare, cap_spare;
    fv_buf *slab;
    int32_t n_slab;
    void **free_page; /* stack of pages that nobody holds: FV_KV_BLOCK keys, or values */
    int32_t n_free, cap_free;
};

/* What a kernel need not see of a run. */
typedef struct run_state {
    int32_t cap_block, n_block; /* of `block`; blocks that have pages (text) */
    int32_t *pos;               /* [cap_pos], positions of the rows */
    int32_t cap_pos;
    float *tally; /* [cap_pos, width], or NULL */
} run_state;

struct fv_kv {
    fv_kv_pool *pool;
    fv_kv_run *run;        /* [N, Hkv, FV_N_SEG] */
    run_state *state;      /* likewise */
    fv_buf *extent;        /* [N] */
    int32_t *ranked;       /* [N, Hkv] visual rows when they were put in order; 0: they are not */
    fv_kv_packed **packed; /* [N] NULL: the layer is raw */
    int32_t *leader;       /* [N] whose visual keys a layer uses */
    bool *lent_text;       /* [N] and its text keys too */
    size_t aside;          /* bytes charged to the pool and not yet used */
    fv_tally_kind tally;   /* what rows write down, */
    int32_t width;         /* in so many numbers each */
    uint64_t n_removed;    /* rows of heads */
    float n;               /* of n-softmax in steps */
    fv_expand_rule expand; /* if `expands` */
    bool expands;
};

static size_t row_bytes(const fv_kv_shape *s) {
    return (size_t)s->d_head * fv_dtype_bytes(s->dtype);
}

static size_t page_bytes(const fv_kv_shape *s) { return FV_KV_BLOCK * row_bytes(s); }

/* ---- pool ------------------------------------------------------------------------------ */

fv_status fv_kv_pool_open(fv_device *dev, const fv_kv_shape *shape, size_t bytes_max,
                          fv_kv_pool **out) {
    fv_kv_pool *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "out of memory for a KV pool");
    *p = (fv_kv_pool){.device = dev, .shape = *shape, .bytes_max = bytes_max};
    *out = p;
    return FV_OK;
}

void fv_kv_pool_close(fv_kv_pool *p) {
    if (!p) return;
    assert(p->bytes_used == 0);
    for (int32_t i = 0; i < p->n_slab; i++) fv_buf_free(&p->slab[i]);
    for (int32_t i = 0; i < p->n_spare; i++) fv_buf_free(&p->spare[i]);
    free(p->spare);
    free(p->slab);
    free(p->free_page);
    free(p);
}

size_t fv_kv_pool_used(const fv_kv_pool *p) { return p->bytes_used; }

size_t fv_kv_pool_memory(const fv_kv_pool *p) { return p->memory; }

const fv_kv_shape *fv_kv_pool_shape(const fv_kv_pool *p) { return &p->shape; }

static fv_status pool_charge(fv_kv_pool *p, size_t bytes) {
    if (p->bytes_max && bytes > p->bytes_max - p->bytes_used)
        return FV_FAIL(FV_EBUSY,
                       "the KV pool is full: %zu of %zu bytes are held and %zu more are needed; "
                       "raise --kv-bytes or shorten the prompt",
                       p->bytes_used, p->bytes_max, bytes);
    p->bytes_used += bytes;
    if (p->bytes_used > p->peak) p->peak = p->bytes_used;
    return FV_OK;
}

/* ---- extents that are used again --------------------------------------------------------- */

/* Memory that was touched before costs no page faults, which take longer than the copy into it. As
 * sizes follow from the pictures' they come again, exactly. What is spare is let go before there
 * would be more of it than was ever held at a time. */

static void spare_free(fv_kv_pool *p, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        p->memory -= p->spare[i].bytes;
        fv_buf_free(&p->spare[i]);
    }
    p->n_spare -= n;
    memmove(p->spare, p->spare + n, (size_t)p->n_spare * sizeof *p->spare);
}

/* `bytes` were charged. */
static fv_status extent_take(fv_kv_pool *p, size_t bytes, fv_buf *out) {
    *out = (fv_buf){0};
    if (bytes == 0) return FV_OK;
    for (int32_t i = p->n_spare - 1; i >= 0; i--) {
        if (p->spare[i].bytes != bytes) continue;
        *out = p->spare[i];
        p->n_spare--;
        memmove(p->spare + i, p->spare + i + 1, (size_t)(p->n_spare - i) * sizeof *p->spare);
        return FV_OK;
    }
    while (p->n_spare > 0 && p->memory + bytes > p->peak) spare_free(p, 1);
    fv_status st = fv_buf_alloc(p->device, bytes, FV_BUF_DEVICE, out);
    if (st != FV_OK && p->n_spare > 0) {
        spare_free(p, p->n_spare);
        st = fv_buf_alloc(p->device, bytes, FV_BUF_DEVICE, out);
    }
    if (st == FV_OK) p->memory += bytes;
    return st;
}

static void extent_give(fv_kv_pool *p, fv_buf *buf) {
    if (buf->bytes == 0) return;
    p->bytes_used -= buf->bytes;
    if (p->n_spare == p->cap_spare) {
        int32_t cap = p->cap_spare ? 2 * p->cap_spare : 64;
        fv_buf *grown = realloc(p->spare, (size_t)cap * sizeof *grown);
        if (!grown) {
            p->memory -= buf->bytes;
            fv_buf_free(buf);
            return;
        }
        p->spare = grown;
        p->cap_spare = cap;
    }
    p->spare[p->n_spare++] = *buf;
    *buf = (fv_buf){0};
}

/* ---- pages ------------------------------------------------------------------------------- */

static fv_status pool_grow(fv_kv_pool *p) {
    int32_t pages = p->cap_free + SLAB_PAGES;
    fv_buf *slab = realloc(p->slab, (size_t)(p->n_slab + 1) * sizeof *slab);
    if (!slab) return FV_FAIL(FV_ENOMEM, "out of memory for KV pages");
    p->slab = slab;
    void **list = realloc(p->free_page, (size_t)pages * sizeof *list);
    if (!list) return FV_FAIL(FV_ENOMEM, "out of memory for KV pages");
    p->free_page = list;
    size_t bytes = page_bytes(&p->shape);
    FV_TRY(fv_buf_alloc(p->device, SLAB_PAGES * bytes, FV_BUF_DEVICE, &p->slab[p->n_slab]));
    p->memory += SLAB_PAGES * bytes;
    char *base = p->slab[p->n_slab++].data;
    for (int32_t i = 0; i < SLAB_PAGES; i++, base += bytes) p->free_page[p->n_free++] = base;
    p->cap_free = pages;
    return FV_OK;
}

static void page_give(fv_kv_pool *p, void *page) {
    p->free_page[p->n_free++] = page;
    p->bytes_used -= page_bytes(&p->shape);
}

/* ---- store ----------------------------------------------------------------------------- */

/* After a failed open some of the arrays may be missing. */
static bool has_arrays(const fv_kv *kv) {
    return kv->run && kv->state && kv->extent && kv->ranked && kv->packed && kv->leader &&
           kv->lent_text;
}

fv_status fv_kv_open(fv_kv_pool *pool, fv_kv **out) {
    size_t n = (size_t)pool->shape.n_layer * (size_t)pool->shape.n_kv * FV_N_SEG;
    fv_kv *kv = calloc(1, sizeof *kv);
    if (kv) {
        kv->pool = pool;
        kv->run = calloc(n, sizeof *kv->run);
        kv->state = calloc(n, sizeof *kv->state);
        kv->extent = calloc((size_t)pool->shape.n_layer, sizeof *kv->extent);
        kv->ranked = calloc(n / FV_N_SEG, sizeof *kv->ranked);
        kv->packed = calloc((size_t)pool->shape.n_layer, sizeof(fv_kv_packed *));
        kv->leader = calloc((size_t)pool->shape.n_layer, sizeof *kv->leader);
        kv->lent_text = calloc((size_t)pool->shape.n_layer, sizeof *kv->lent_text);
    }
    if (!kv || !has_arrays(kv)) {
        fv_kv_close(kv);
        return FV_FAIL(FV_ENOMEM, "out of memory for a KV store");
    }
    for (int32_t l = 0; l < pool->shape.n_layer; l++) kv->leader[l] = l;
    *out = kv;
    return FV_OK;
}

static int32_t blocks_for(int32_t rows) { return rows / FV_KV_BLOCK + (rows % FV_KV_BLOCK > 0); }

static size_t run_at(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    return ((size_t)layer * (size_t)kv->pool->shape.n_kv + (size_t)head) * FV_N_SEG + seg;
}

/* Pages of a layer's text segment that lie behind `rows` rows of a head. */
static void text_give(fv_kv *kv, int32_t layer, int32_t head, int32_t rows) {
    size_t run = run_at(kv, layer, head, FV_SEG_TEXT);
    while (kv->state[run].n_block > blocks_for(rows)) {
        fv_kv_block *b = &kv->run[run].block[--kv->state[run].n_block];
        page_give(kv->pool, b->v);
        if (!kv->lent_text[layer]) page_give(kv->pool, b->k);
    }
}

void fv_kv_close(fv_kv *kv) {
    if (!kv) return;
    const fv_kv_shape *s = &kv->pool->shape;
    size_t n = (size_t)s->n_layer * (size_t)s->n_kv * FV_N_SEG;
    for (int32_t l = 0; has_arrays(kv) && l < s->n_layer; l++) {
        for (int32_t g = 0; g < s->n_kv; g++) text_give(kv, l, g, 0);
        extent_give(kv->pool, &kv->extent[l]);
    }
    for (size_t i = 0; has_arrays(kv) && i < n; i++) {
        free(kv->run[i].block);
        free(kv->state[i].pos);
        free(kv->state[i].tally);
    }
    for (int32_t l = 0; kv->packed && l < s->n_layer; l++) fv_kv_packed_drop(kv, l);
    kv->pool->bytes_used -= kv->aside;
    free(kv->run);
    free(kv->state);
    free(kv->extent);
    free(kv->ranked);
    free(kv->packed);
    free(kv->leader);
    free(kv->lent_text);
    free(kv);
}

const fv_kv_shape *fv_kv_get_shape(const fv_kv *kv) { return &kv->pool->shape; }

void fv_kv_set_expand(fv_kv *kv, const fv_expand_rule *rule) {
    kv->expand = *rule;
    kv->expands = true;
}

const fv_expand_rule *fv_kv_expand(const fv_kv *kv) { return kv->expands ? &kv->expand : NULL; }

void fv_kv_set_n(fv_kv *kv, float n) { kv->n = n; }

float fv_kv_n(const fv_kv *kv) { return kv->n; }

fv_device *fv_kv_get_device(const fv_kv *kv) { return kv->pool->device; }

fv_kv_run *fv_kv_runs(fv_kv *kv, int32_t layer) { return &kv->run[run_at(kv, layer, 0, 0)]; }

int32_t fv_kv_len(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    return kv->run[run_at(kv, layer, head, seg)].len;
}

const int32_t *fv_kv_positions(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    return kv->state[run_at(kv, layer, head, seg)].pos;
}

static fv_status blocks_grow(fv_kv *kv, size_t run, int32_t n_block) {
    if (n_block <= kv->state[run].cap_block) return FV_OK;
    int32_t cap = kv->state[run].cap_block * 2 > n_block ? kv->state[run].cap_block * 2 : n_block;
    fv_kv_block *block = realloc(kv->run[run].block, (size_t)cap * sizeof *block);
    if (!block) return FV_FAIL(FV_ENOMEM, "out of memory for a KV page table");
    kv->run[run].block = block;
    kv->state[run].cap_block = cap;
    return FV_OK;
}

/* ---- whose keys ------------------------------------------------------------------------ */

void fv_kv_borrow(fv_kv *kv, int32_t layer, int32_t leader, bool text) {
    assert(leader >= 0 && (leader == layer || (leader < layer && kv->leader[leader] == leader)));
    assert(!kv->extent[layer].data && !kv->run[run_at(kv, layer, 0, FV_SEG_TEXT)].block);
    kv->leader[layer] = leader;
    kv->lent_text[layer] = text && leader != layer;
}

int32_t fv_kv_leader(const fv_kv *kv, int32_t layer) { return kv->leader[layer]; }

bool fv_kv_borrows(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    return seg == FV_SEG_TEXT ? kv->lent_text[layer] : kv->leader[layer] != layer;
}

/* Rows of a head's own memory per row that it holds: a key and a value, or a value. */
static size_t own_parts(const fv_kv *kv, int32_t layer, fv_kv_segment seg) {
    return fv_kv_borrows(kv, layer, seg) ? 1 : 2;
}

/* The keys of block b of a head, at the layer's leader. */
static void *lent_keys(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg, int32_t b) {
    size_t run = run_at(kv, kv->leader[layer], head, seg);
    assert(b < kv->state[run].cap_block);
    return kv->run[run].block[b].k;
}

/* ---- room ------------------------------------------------------------------------------ */

/* Charges the pool, what was set aside first. *paid: from that. */
static fv_status charge(fv_kv *kv, size_t bytes, size_t *paid) {
    *paid = bytes < kv->aside ? bytes : kv->aside;
    FV_TRY(pool_charge(kv->pool, bytes - *paid));
    kv->aside -= *paid;
    return FV_OK;
}

static void charge_back(fv_kv *kv, size_t bytes, size_t paid) {
    kv->pool->bytes_used -= bytes - paid;
    kv->aside += paid;
}

static fv_status page_take(fv_kv *kv, void **out) {
    fv_kv_pool *p = kv->pool;
    size_t paid;
    FV_TRY(charge(kv, page_bytes(&p->shape), &paid));
    fv_status st = p->n_free ? FV_OK : pool_grow(p);
    if (st != FV_OK) {
        charge_back(kv, page_bytes(&p->shape), paid);
        return st;
    }
    *out = p->free_page[--p->n_free];
    return FV_OK;
}

fv_status fv_kv_memory_take(fv_kv *kv, size_t bytes, fv_buf *out) {
    size_t paid;
    FV_TRY(charge(kv, bytes, &paid));
    fv_status st = extent_take(kv->pool, bytes, out);
    if (st != FV_OK) charge_back(kv, bytes, paid);
    return st;
}

void fv_kv_memory_give(fv_kv *kv, fv_buf *buf) { extent_give(kv->pool, buf); }

fv_kv_packed **fv_kv_packed_slot(const fv_kv *kv, int32_t layer) { return &kv->packed[layer]; }

void fv_kv_drop_visual(fv_kv *kv, int32_t layer) {
    extent_give(kv->pool, &kv->extent[layer]);
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++)
        kv->run[run_at(kv, layer, g, FV_SEG_VISUAL)].len = 0;
}

static size_t extent_bytes(const fv_kv *kv, int32_t layer, const int32_t *rows) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t bytes = 0;
    for (int32_t g = 0; g < s->n_kv; g++)
        bytes += own_parts(kv, layer, FV_SEG_VISUAL) * (size_t)rows[g] * row_bytes(s);
    return bytes;
}

/* Takes memory for a layer's extent whose head g holds rows[g] rows: K unless they are borrowed,
 * then V, head after head. */
static fv_status extent_lay(fv_kv *kv, int32_t layer, const int32_t *rows, fv_buf *out) {
    return fv_kv_memory_take(kv, extent_bytes(kv, layer, rows), out);
}

/* Points a head's blocks into its rows of an extent, which start at *base, and moves on behind
 * them. */
static fv_status extent_map(fv_kv *kv, int32_t layer, int32_t head, char **base, int32_t rows) {
    size_t run = run_at(kv, layer, head, FV_SEG_VISUAL), bytes = row_bytes(&kv->pool->shape);
    size_t part = (size_t)rows * bytes, own = own_parts(kv, layer, FV_SEG_VISUAL);
    char *k = *base, *v = *base + (own - 1) * part;
    FV_TRY(blocks_grow(kv, run, blocks_for(rows)));
    for (int32_t b = 0; b < blocks_for(rows); b++) {
        size_t at = (size_t)b * FV_KV_BLOCK * bytes;
        kv->run[run].block[b] =
            (fv_kv_block){own == 2 ? k + at : lent_keys(kv, layer, head, FV_SEG_VISUAL, b), v + at};
    }
    *base += own * part;
    return FV_OK;
}

fv_status fv_kv_extent_ragged(fv_kv *kv, int32_t layer, const int32_t *rows) {
    const fv_kv_shape *s = &kv->pool->shape;
    assert(!kv->extent[layer].data);
    fv_buf buf;
    FV_TRY(extent_lay(kv, layer, rows, &buf));
    kv->extent[layer] = buf;
    char *base = buf.data;
    for (int32_t g = 0; g < s->n_kv; g++)
        if (rows[g] > 0) FV_TRY(extent_map(kv, layer, g, &base, rows[g]));
    return FV_OK;
}

fv_status fv_kv_extent(fv_kv *kv, int32_t layer, int32_t rows) {
    int32_t each[1024];
    assert(kv->pool->shape.n_kv <= 1024);
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++) each[g] = rows;
    return fv_kv_extent_ragged(kv, layer, each);
}

/* One more block for a head's text rows; its place in `block` is there. */
static fv_status text_take(fv_kv *kv, int32_t layer, int32_t head) {
    size_t run = run_at(kv, layer, head, FV_SEG_TEXT);
    int32_t at = kv->state[run].n_block;
    fv_kv_block b = {NULL, NULL};
    if (kv->lent_text[layer]) {
        b.k = lent_keys(kv, layer, head, FV_SEG_TEXT, at);
        FV_TRY(page_take(kv, &b.v));
    } else {
        FV_TRY(page_take(kv, &b.k));
        fv_status st = page_take(kv, &b.v);
        if (st != FV_OK) {
            page_give(kv->pool, b.k);
            return st;
        }
    }
    kv->run[run].block[at] = b;
    kv->state[run].n_block = at + 1;
    return FV_OK;
}

fv_status fv_kv_reserve(fv_kv *kv, int32_t layer, int32_t rows) {
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++) {
        size_t run = run_at(kv, layer, g, FV_SEG_TEXT);
        int32_t need = blocks_for(kv->run[run].len + rows);
        FV_TRY(blocks_grow(kv, run, need));
        while (kv->state[run].n_block < need) FV_TRY(text_take(kv, layer, g));
    }
    return FV_OK;
}

/* Tallies stand beside positions: their places are made, and rows move, together. */
static fv_status tallies_grow(const fv_kv *kv, run_state *st, int32_t cap) {
    size_t width = (size_t)kv->width;
    if (width == 0) return FV_OK;
    float *grown = realloc(st->tally, (size_t)cap * width * sizeof *grown);
    if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for tallies of KV rows");
    st->tally = grown;
    return FV_OK;
}

static void tally_move(const fv_kv *kv, run_state *st, int32_t to, int32_t from) {
    size_t width = (size_t)kv->width;
    if (width > 0 && to != from)
        memcpy(st->tally + (size_t)to * width, st->tally + (size_t)from * width,
               width * sizeof *st->tally);
}

static fv_status positions_grow(const fv_kv *kv, run_state *st, int32_t n) {
    if (n <= st->cap_pos) return FV_OK;
    int32_t cap = st->cap_pos * 2 > n ? st->cap_pos * 2 : n;
    FV_TRY(tallies_grow(kv, st, cap));
    int32_t *grown = realloc(st->pos, (size_t)cap * sizeof *grown);
    if (!grown) return FV_FAIL(FV_ENOMEM, "out of memory for KV positions");
    st->pos = grown;
    st->cap_pos = cap;
    return FV_OK;
}

fv_status fv_kv_append_head(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                            const int32_t *pos, int32_t n) {
    if (n == 0) return FV_OK;
    size_t run = run_at(kv, layer, head, seg);
    run_state *st = &kv->state[run];
    int32_t len = kv->run[run].len;
    FV_TRY(positions_grow(kv, st, len + n));
    memcpy(st->pos + len, pos, (size_t)n * sizeof *pos);
    for (int32_t i = len * kv->width; i < (len + n) * kv->width; i++) st->tally[i] = 0;
    kv->run[run].len = len + n;
    return FV_OK;
}

fv_status fv_kv_append(fv_kv *kv, int32_t layer, fv_kv_segment seg, const int32_t *pos, int32_t n) {
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++)
        FV_TRY(fv_kv_append_head(kv, layer, g, seg, pos, n));
    return FV_OK;
}

static char *row_of(const fv_kv_block *block, int32_t row, bool value, size_t bytes) {
    const fv_kv_block *b = &block[row / FV_KV_BLOCK];
    return (char *)(value ? b->v : b->k) + (size_t)(row % FV_KV_BLOCK) * bytes;
}

/* How many of the rows idx[j], idx[j + 1], ... follow one another, from j on, in one block of each
 * side. */
static int32_t rows_together(const int32_t *idx, int32_t j, int32_t n) {
    int32_t most = FV_KV_BLOCK - j % FV_KV_BLOCK, from = FV_KV_BLOCK - idx[j] % FV_KV_BLOCK, r = 1;
    if (from < most) most = from;
    while (r < most && j + r < n && idx[j + r] == idx[j] + r) r++;
    return r;
}

/* Row j of dst becomes row idx[j] of src: its value, and its key unless that is borrowed. In place
 * is fine where idx is ascending. */
static fv_status rows_move(fv_kv *kv, const fv_kv_block *dst, const fv_kv_block *src,
                           const int32_t *idx, int32_t n, bool borrowed) {
    fv_device *dev = kv->pool->device;
    size_t bytes = row_bytes(&kv->pool->shape);
    for (int32_t j = 0, r; j < n; j += r) {
        /* Stretches that overlap must not be copied as one. */
        r = dst == src ? 1 : rows_together(idx, j, n);
        if (dst == src && idx[j] == j) continue;
        for (int value = borrowed; value < 2; value++)
            FV_TRY(dev->ops->copy_async(dev, row_of(dst, j, value, bytes),
                                        row_of(src, idx[j], value, bytes), (size_t)r * bytes));
    }
    return FV_OK;
}

static void positions_keep(fv_kv *kv, size_t run, const int32_t *idx, int32_t n) {
    for (int32_t j = 0; j < n; j++) {
        kv->state[run].pos[j] = kv->state[run].pos[idx[j]];
        tally_move(kv, &kv->state[run], j, idx[j]);
    }
    kv->run[run].len = n;
}

/* Rows whose index repeats come twice. They are first moved together, each once, and then apart
 * again from the end, so that no row is written over before it was read. */
static fv_status rows_spread(fv_kv *kv, size_t run, const int32_t *idx, int32_t n, bool borrowed) {
    fv_device *dev = kv->pool->device;
    const fv_kv_block *block = kv->run[run].block;
    size_t bytes = row_bytes(&kv->pool->shape);
    int32_t from = -1;
    for (int32_t j = 0; j < n; j++) from += j == 0 || idx[j] != idx[j - 1];
    for (int32_t j = n - 1; j > from; j--) {
        for (int value = borrowed; value < 2; value++)
            FV_TRY(dev->ops->copy_async(dev, row_of(block, j, value, bytes),
                                        row_of(block, from, value, bytes), bytes));
        kv->state[run].pos[j] = kv->state[run].pos[from];
        tally_move(kv, &kv->state[run], j, from);
        from -= j > 0 && idx[j] != idx[j - 1];
    }
    kv->run[run].len = n;
    return FV_OK;
}

static fv_status keep_text_head(fv_kv *kv, int32_t layer, int32_t head, const int32_t *idx,
                                int32_t n) {
    size_t run = run_at(kv, layer, head, FV_SEG_TEXT);
    int32_t n_once = 0, *once = malloc((size_t)(n ? n : 1) * sizeof *once);
    if (!once) return FV_FAIL(FV_ENOMEM, "out of memory to keep %d KV rows", n);
    for (int32_t j = 0; j < n; j++)
        if (j == 0 || idx[j] != idx[j - 1]) once[n_once++] = idx[j];
    fv_kv_block *block = kv->run[run].block;
    fv_status st = rows_move(kv, block, block, once, n_once, kv->lent_text[layer]);
    if (st == FV_OK) positions_keep(kv, run, once, n_once);
    free(once);
    if (st != FV_OK || n_once == n) return st;
    FV_TRY(blocks_grow(kv, run, blocks_for(n)));
    while (kv->state[run].n_block < blocks_for(n)) FV_TRY(text_take(kv, layer, head));
    FV_TRY(positions_grow(kv, &kv->state[run], n));
    return rows_spread(kv, run, idx, n, kv->lent_text[layer]);
}

static fv_status keep_text(fv_kv *kv, int32_t layer, const int32_t *const *idx, const int32_t *n) {
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++) {
        FV_TRY(keep_text_head(kv, layer, g, idx[g], n[g]));
        text_give(kv, layer, g, n[g]);
    }
    return FV_OK;
}

static fv_status tallies_order(const fv_kv *kv, run_state *st, const int32_t *idx, int32_t n) {
    size_t width = (size_t)kv->width;
    if (width == 0) return FV_OK;
    float *tally = malloc((size_t)(n ? n : 1) * width * sizeof *tally);
    if (!tally) return FV_FAIL(FV_ENOMEM, "out of memory for tallies of KV rows");
    for (int32_t j = 0; j < n; j++)
        memcpy(tally + (size_t)j * width, st->tally + (size_t)idx[j] * width,
               width * sizeof *tally);
    free(st->tally);
    st->tally = tally;
    return FV_OK;
}

/* The same in any order, with memory of its own. */
static fv_status positions_order(fv_kv *kv, size_t run, const int32_t *idx, int32_t n) {
    run_state *st = &kv->state[run];
    int32_t *pos = malloc((size_t)(n ? n : 1) * sizeof *pos);
    if (!pos) return FV_FAIL(FV_ENOMEM, "out of memory for KV positions");
    fv_status status = tallies_order(kv, st, idx, n);
    if (status != FV_OK) {
        free(pos);
        return status;
    }
    for (int32_t j = 0; j < n; j++) pos[j] = st->pos[idx[j]];
    free(st->pos);
    st->pos = pos;
    st->cap_pos = n;
    kv->run[run].len = n;
    return FV_OK;
}

/* The room of a layer's extent pays for another, also in a full pool, unless that is larger. */
static fv_status extent_lay_again(fv_kv *kv, int32_t layer, const int32_t *rows, fv_buf *out) {
    size_t had = kv->extent[layer].bytes, aside = kv->aside;
    if (extent_bytes(kv, layer, rows) > had) return extent_lay(kv, layer, rows, out);
    kv->aside += had;
    fv_status st = extent_lay(kv, layer, rows, out);
    kv->aside = aside;
    if (st == FV_OK) kv->pool->bytes_used += out->bytes; /* the old one's are still counted */
    return st;
}

static fv_status keep_visual(fv_kv *kv, int32_t layer, const int32_t *const *idx,
                             const int32_t *n) {
    const fv_kv_shape *s = &kv->pool->shape;
    fv_buf buf;
    FV_TRY(extent_lay_again(kv, layer, n, &buf));
    char *base = buf.data;
    for (int32_t g = 0; g < s->n_kv; g++) {
        size_t run = run_at(kv, layer, g, FV_SEG_VISUAL);
        fv_kv_block *old = kv->run[run].block;
        kv->run[run].block = NULL;
        kv->state[run].cap_block = 0;
        fv_status st = extent_map(kv, layer, g, &base, n[g]);
        if (st == FV_OK)
            st = rows_move(kv, kv->run[run].block, old, idx[g], n[g], kv->leader[layer] != layer);
        if (st == FV_OK) st = positions_order(kv, run, idx[g], n[g]);
        free(old);
        if (st != FV_OK) { /* the request is lost; leave it so that close still works */
            kv->run[run].len = 0;
            extent_give(kv->pool, &buf);
            return st;
        }
    }
    extent_give(kv->pool, &kv->extent[layer]);
    kv->extent[layer] = buf;
    return FV_OK;
}

/* The layers of a block: the one whose keys these are, and those that borrow them. */
static bool shares_keys(const fv_kv *kv, int32_t layer, int32_t leader, fv_kv_segment seg) {
    return layer == leader || (kv->leader[layer] == leader && fv_kv_borrows(kv, layer, seg));
}

/* The leader first: the others point to its new keys. */
fv_status fv_kv_keep(fv_kv *kv, int32_t layer, fv_kv_segment seg, const int32_t *const *idx,
                     const int32_t *n) {
    assert(!fv_kv_borrows(kv, layer, seg));
    for (int32_t l = layer; l < kv->pool->shape.n_layer; l++)
        if (shares_keys(kv, l, layer, seg))
            FV_TRY((seg == FV_SEG_TEXT ? keep_text : keep_visual)(kv, l, idx, n));
    return FV_OK;
}

/* ---- rank order ------------------------------------------------------------------------- */

static int32_t *ranked_of(const fv_kv *kv, int32_t layer) {
    return kv->ranked + (size_t)layer * (size_t)kv->pool->shape.n_kv;
}

int32_t fv_kv_ranked(const fv_kv *kv, int32_t layer, int32_t head) {
    return ranked_of(kv, layer)[head];
}

void fv_kv_set_ranked(fv_kv *kv, int32_t layer, const int32_t *rows) {
    memcpy(ranked_of(kv, layer), rows, (size_t)kv->pool->shape.n_kv * sizeof *rows);
}

fv_status fv_kv_rank(fv_kv *kv, int32_t layer, const int32_t *const *order) {
    int32_t *n = ranked_of(kv, layer);
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++)
        n[g] = fv_kv_len(kv, layer, g, FV_SEG_VISUAL);
    for (int32_t l = layer + 1; l < kv->pool->shape.n_layer; l++)
        if (shares_keys(kv, l, layer, FV_SEG_VISUAL)) fv_kv_set_ranked(kv, l, n);
    return fv_kv_keep(kv, layer, FV_SEG_VISUAL, order, n);
}

/* Lays a layer's extent anew at the size of the rows that are left, and its borrowers'. */
static fv_status extent_fit(fv_kv *kv, int32_t layer, int32_t most) {
    int32_t n_kv = kv->pool->shape.n_kv, n[1024], *same = malloc((size_t)most * sizeof *same);
    const int32_t *idx[1024];
    assert(n_kv <= 1024);
    if (!same) return FV_FAIL(FV_ENOMEM, "out of memory for KV rows");
    for (int32_t j = 0; j < most; j++) same[j] = j;
    for (int32_t g = 0; g < n_kv; g++) {
        idx[g] = same;
        n[g] = fv_kv_len(kv, layer, g, FV_SEG_VISUAL);
    }
    fv_status st = fv_kv_keep(kv, layer, FV_SEG_VISUAL, idx, n);
    free(same);
    return st;
}

/* Shortens one layer; *most: rows of its longest head. Returns the rows that are left. */
static size_t shorten(fv_kv *kv, int32_t layer, const int32_t *n, int32_t *most) {
    size_t rows = 0;
    *most = 0;
    for (int32_t g = 0; g < kv->pool->shape.n_kv; g++) {
        size_t run = run_at(kv, layer, g, FV_SEG_VISUAL);
        if (n[g] < kv->run[run].len) kv->run[run].len = n[g];
        rows += (size_t)kv->run[run].len;
        if (kv->run[run].len > *most) *most = kv->run[run].len;
    }
    if (rows == 0) extent_give(kv->pool, &kv->extent[layer]);
    return rows;
}

fv_status fv_kv_truncate(fv_kv *kv, int32_t layer, const int32_t *n) {
    int32_t most;
    assert(!fv_kv_borrows(kv, layer, FV_SEG_VISUAL));
    size_t rows = shorten(kv, layer, n, &most), row = 2 * row_bytes(&kv->pool->shape);
    for (int32_t l = layer + 1; l < kv->pool->shape.n_layer; l++)
        if (shares_keys(kv, l, layer, FV_SEG_VISUAL)) shorten(kv, l, n, &most);
    bool loose = 4 * rows * row <= 3 * kv->extent[layer].bytes;
    return rows > 0 && loose ? extent_fit(kv, layer, most) : FV_OK;
}

/* ---- tallies ----------------------------------------------------------------------------- */

void fv_kv_set_tally(fv_kv *kv, fv_tally_kind kind, int32_t width) {
    kv->tally = kind;
    kv->width = kind ? width : 0;
}

fv_tally_kind fv_kv_tally_kind(const fv_kv *kv) { return kv->tally; }

int32_t fv_kv_tally_width(const fv_kv *kv) { return kv->width; }

float *fv_kv_tally(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    return kv->state[run_at(kv, layer, head, seg)].tally;
}

uint64_t fv_kv_rows_removed(const fv_kv *kv) { return kv->n_removed; }

static fv_status row_move(fv_kv *kv, size_t run, int32_t to, int32_t from) {
    fv_device *dev = kv->pool->device;
    const fv_kv_block *block = kv->run[run].block;
    size_t bytes = row_bytes(&kv->pool->shape);
    for (int value = 0; value < 2; value++)
        FV_TRY(dev->ops->copy_async(dev, row_of(block, to, value, bytes),
                                    row_of(block, from, value, bytes), bytes));
    kv->state[run].pos[to] = kv->state[run].pos[from];
    tally_move(kv, &kv->state[run], to, from);
    return FV_OK;
}

fv_status fv_kv_remove(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                       const int32_t *idx, int32_t n) {
    size_t run = run_at(kv, layer, head, seg);
    int32_t left = kv->run[run].len - n, gone = 0;
    assert(!fv_kv_borrows(kv, layer, seg) && !kv->packed[layer]);
    while (gone < n && idx[gone] < left) gone++;
    for (int32_t from = left, hole = 0; from < left + n; from++) {
        if (gone < n && idx[gone] == from)
            gone++;
        else
            FV_TRY(row_move(kv, run, idx[hole++], from));
    }
    kv->run[run].len = left;
    kv->n_removed += (uint64_t)n;
    return FV_OK;
}

fv_status fv_kv_fit(fv_kv *kv, int32_t layer, int32_t text) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t rows = 0;
    int32_t most = 0;
    for (int32_t g = 0; g < s->n_kv; g++) {
        int32_t n = fv_kv_len(kv, layer, g, FV_SEG_TEXT);
        text_give(kv, layer, g, n > text ? n : text);
        n = fv_kv_len(kv, layer, g, FV_SEG_VISUAL);
        rows += (size_t)n;
        most = n > most ? n : most;
    }
    if (rows == 0) extent_give(kv->pool, &kv->extent[layer]);
    bool loose = 4 * rows * 2 * row_bytes(s) <= 3 * kv->extent[layer].bytes;
    return rows > 0 && loose ? extent_fit(kv, layer, most) : FV_OK;
}

/* ---- from and to other memory ---------------------------------------------------------- */

int32_t fv_kv_stretch(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg, bool value,
                      int32_t row, int32_t end, void **at) {
    const fv_kv_block *block = kv->run[run_at(kv, layer, head, seg)].block;
    size_t bytes = row_bytes(&kv->pool->shape);
    if (row >= end) return 0;
    *at = row_of(block, row, value, bytes);
    int32_t to = (row / FV_KV_BLOCK + 1) * FV_KV_BLOCK; /* blocks that follow one another join */
    while (to < end && row_of(block, to, value, bytes) == (char *)*at + (size_t)(to - row) * bytes)
        to += FV_KV_BLOCK;
    return (to < end ? to : end) - row;
}

fv_status fv_kv_set_aside(fv_kv *kv, size_t bytes) {
    FV_TRY(pool_charge(kv->pool, bytes));
    kv->aside += bytes;
    return FV_OK;
}

size_t fv_kv_settle(fv_kv *kv, int32_t rows) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t before = kv->pool->bytes_used;
    kv->pool->bytes_used -= kv->aside;
    kv->aside = 0;
    for (int32_t l = 0; l < s->n_layer; l++)
        for (int32_t g = 0; g < s->n_kv; g++)
            text_give(kv, l, g, fv_kv_len(kv, l, g, FV_SEG_TEXT) + rows);
    return before - kv->pool->bytes_used;
}

size_t fv_kv_text_bytes(const fv_kv_shape *s, int32_t rows, int32_t n_borrow) {
    size_t blocks = (size_t)s->n_kv * (size_t)blocks_for(rows);
    return (2 * (size_t)s->n_layer - (size_t)n_borrow) * blocks * page_bytes(s);
}

size_t fv_kv_bytes(const fv_kv *kv, fv_kv_segment seg) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t bytes = 0;
    for (int32_t l = 0; l < s->n_layer; l++) {
        if (seg == FV_SEG_VISUAL) bytes += kv->extent[l].bytes + fv_kv_packed_bytes(kv, l);
        for (int32_t g = 0; seg == FV_SEG_TEXT && g < s->n_kv; g++)
            bytes += own_parts(kv, l, seg) * (size_t)fv_kv_len(kv, l, g, seg) * row_bytes(s);
    }
    return bytes;
}

size_t fv_kv_bytes_held(const fv_kv *kv) {
    const fv_kv_shape *s = &kv->pool->shape;
    size_t bytes = kv->aside;
    for (int32_t l = 0; l < s->n_layer; l++) {
        size_t pages = 0;
        for (int32_t g = 0; g < s->n_kv; g++)
            pages += (size_t)kv->state[run_at(kv, l, g, FV_SEG_TEXT)].n_block;
        bytes += kv->extent[l].bytes + fv_kv_packed_bytes(kv, l) +
                 own_parts(kv, l, FV_SEG_TEXT) * pages * page_bytes(s);
    }
    return bytes;
}
