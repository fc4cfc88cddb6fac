/* Shared prompts: whose memory rows are, and block tables that point to them. Reference counts are of shares and not of
 * pages, because all rows of a prompt come and go together, and an extent has the rows of all its images. One
 * thread at a time. */
#include "kv/share.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "kv/internal.h"

struct fv_kv_share {
    fv_kv_account account; /* idle while nobody uses the share */
    fv_kv_share *base;     /* the share that this one extends, with a reference; or NULL */
    int32_t refs, users;   /* users: stores, also of shares that extend this one */
    int32_t rows[FV_N_SEG], n_block[FV_N_SEG];
    int32_t own_text; /* text blocks from this one on are its own, the others its base's */
    fv_kv_block *block[FV_N_SEG]; /* [N, Hkv, n_block] */
    int32_t *pos[FV_N_SEG];       /* [rows] */
    fv_buf *extent;               /* [N] its own visual rows */
    char *owner;
    size_t charged; /* for these tables */
    fv_arena arena;
};

/* ---- references --------------------------------------------------------------------------- */

fv_kv_share *fv_kv_share_ref(fv_kv_share *s) {
    s->refs++;
    return s;
}

static fv_kv_block *blocks_of(const fv_kv_share *s, int32_t layer, int32_t head, int seg) {
    size_t at = (size_t)layer * (size_t)s->account.shape->n_kv + (size_t)head;
    return s->block[seg] + at * (size_t)s->n_block[seg];
}

static void free_share(fv_kv_share *s) {
    const fv_kv_shape *shape = s->account.shape;
    for (int32_t l = 0; l < shape->n_layer; l++) {
        for (int32_t g = 0; g < shape->n_kv; g++)
            for (int32_t b = s->own_text; b < s->n_block[FV_SEG_TEXT]; b++) {
                fv_kv_give_page(&s->account, blocks_of(s, l, g, FV_SEG_TEXT)[b].v);
                fv_kv_give_page(&s->account, blocks_of(s, l, g, FV_SEG_TEXT)[b].k);
            }
        fv_kv_give(&s->account, &s->extent[l]);
    }
    (void)fv_kv_charge_tables(&s->account, 0, &s->charged);
    fv_kv_account_close(&s->account);
    fv_arena_fini(&s->arena);
    free(s);
}

void fv_kv_share_unref(fv_kv_share *s) {
    while (s && --s->refs == 0) {
        fv_kv_share *base = s->base;
        free_share(s);
        s = base;
    }
}

void fv_kv_share_use(fv_kv_share *s) {
    fv_kv_share_ref(s);
    for (fv_kv_share *x = s; x; x = x->base)
        if (x->users++ == 0) fv_kv_account_set_idle(&x->account, false);
}

void fv_kv_share_unuse(fv_kv_share *s) {
    for (fv_kv_share *x = s; x; x = x->base)
        if (--x->users == 0) fv_kv_account_set_idle(&x->account, true);
    fv_kv_share_unref(s);
}

int32_t fv_kv_share_rows(const fv_kv_share *s, fv_kv_segment seg) { return s->rows[seg]; }

const int32_t *fv_kv_share_positions(const fv_kv_share *s, fv_kv_segment seg) {
    return s->pos[seg];
}

size_t fv_kv_share_bytes(const fv_kv_share *s) { return s->account.held; }

bool fv_kv_share_is_last(const fv_kv_share *s) { return s->refs == 1; }

const fv_kv_share *fv_kv_get_share(const fv_kv *kv) { return kv->share; }

void fv_kv_part_from_share(fv_kv *kv) {
    if (kv->share) fv_kv_share_unuse(kv->share);
    kv->share = NULL;
    kv->shared_text = kv->shared_visual = 0;
}

/* ---- making one --------------------------------------------------------------------------- */

static bool same_rows(const fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg) {
    int32_t n = fv_kv_len(kv, 0, 0, seg);
    return fv_kv_len(kv, layer, head, seg) == n &&
           (n == 0 || memcmp(fv_kv_positions(kv, layer, head, seg), fv_kv_positions(kv, 0, 0, seg),
                             (size_t)n * sizeof(int32_t)) == 0);
}

static bool ascending(const fv_kv *kv, fv_kv_segment seg) {
    const int32_t *pos = fv_kv_positions(kv, 0, 0, seg);
    int32_t n = fv_kv_len(kv, 0, 0, seg), j = 1;
    while (j < n && pos[j - 1] < pos[j]) j++;
    return j >= n;
}

bool fv_kv_is_uniform(const fv_kv *kv) {
    const fv_kv_shape *s = kv->account.shape;
    for (int32_t l = 0; l < s->n_layer; l++) {
        if (kv->masked[l] || kv->source_layer[l] != l || kv->reused_text[l]) return false;
        for (int seg = 0; seg < FV_N_SEG; seg++)
            if (*fv_kv_packed_slot(kv, l, (fv_kv_segment)seg)) return false;
        for (int32_t g = 0; g < s->n_kv; g++)
            if (fv_kv_ranked(kv, l, g) > 0 || !same_rows(kv, l, g, FV_SEG_VISUAL) ||
                !same_rows(kv, l, g, FV_SEG_TEXT))
                return false;
    }
    return ascending(kv, FV_SEG_VISUAL) && ascending(kv, FV_SEG_TEXT);
}

static size_t heads_of(const fv_kv_shape *s) { return (size_t)s->n_layer * (size_t)s->n_kv; }

/* Bytes of pages of text blocks [from, to) of all heads. */
static size_t text_bytes(const fv_kv_shape *s, int32_t from, int32_t to) {
    return to > from ? 2 * heads_of(s) * (size_t)(to - from) * fv_kv_page_bytes(s) : 0;
}

static size_t extents_bytes(const fv_kv *kv) {
    size_t bytes = 0;
    for (int32_t l = 0; l < kv->account.shape->n_layer; l++) bytes += kv->extent[l].bytes;
    return bytes;
}

size_t fv_kv_share_cost(const fv_kv *kv, int32_t n_text) {
    return extents_bytes(kv) +
           text_bytes(kv->account.shape, kv->shared_text, fv_kv_blocks_for(n_text));
}

/* Allocates the tables and copies them from the store. */
static fv_status copy_tables(fv_kv_share *s, const fv_kv *kv) {
    const fv_kv_shape *shape = kv->account.shape;
    for (int seg = 0; seg < FV_N_SEG; seg++) {
        size_t n = heads_of(shape) * (size_t)s->n_block[seg], rows = (size_t)s->rows[seg];
        FV_TRY(FV_ARENA_NEW(&s->arena, n, s->block[seg]));
        FV_TRY(FV_ARENA_NEW(&s->arena, rows, s->pos[seg]));
        if (rows == 0) continue;
        memcpy(s->pos[seg], fv_kv_positions(kv, 0, 0, (fv_kv_segment)seg), rows * sizeof(int32_t));
        for (int32_t l = 0; l < shape->n_layer; l++)
            for (int32_t g = 0; g < shape->n_kv; g++)
                memcpy(blocks_of(s, l, g, seg),
                       kv->run[fv_kv_run_at(kv, l, g, (fv_kv_segment)seg)].block,
                       (size_t)s->n_block[seg] * sizeof(fv_kv_block));
    }
    FV_TRY(fv_arena_strndup(&s->arena, kv->account.owner, strlen(kv->account.owner), &s->owner));
    return FV_ARENA_NEW(&s->arena, shape->n_layer, s->extent);
}

static size_t tables_bytes(const fv_kv_share *s) {
    size_t bytes = sizeof *s + (size_t)s->account.shape->n_layer * sizeof *s->extent;
    for (int seg = 0; seg < FV_N_SEG; seg++)
        bytes += heads_of(s->account.shape) * (size_t)s->n_block[seg] * sizeof(fv_kv_block) +
                 (size_t)s->rows[seg] * sizeof(int32_t);
    return bytes;
}

/* Moves memory from the store to the share, which cannot fail. */
static void take_over(fv_kv_share *s, fv_kv *kv, size_t bytes) {
    fv_kv_account_move(&kv->account, &s->account, bytes);
    for (int32_t l = 0; l < kv->account.shape->n_layer; l++) {
        s->extent[l] = kv->extent[l];
        kv->extent[l] = (fv_buf){0};
    }
    s->base = kv->share ? fv_kv_share_ref(kv->share) : NULL;
    fv_kv_share_use(s);
    fv_kv_part_from_share(kv);
    kv->share = s;
    kv->shared_text = s->n_block[FV_SEG_TEXT];
    kv->shared_visual = fv_kv_len(kv, 0, 0, FV_SEG_VISUAL);
}

fv_status fv_kv_share_make(fv_kv *kv, int32_t n_text, int32_t n_visual, fv_kv_share **out) {
    assert(n_text <= fv_kv_len(kv, 0, 0, FV_SEG_TEXT));
    assert(n_visual <= fv_kv_len(kv, 0, 0, FV_SEG_VISUAL));
    assert(fv_kv_blocks_for(n_text) >= kv->shared_text);
    fv_kv_share *s = calloc(1, sizeof *s);
    if (!s) return FV_FAIL(FV_ENOMEM, "out of memory for a shared prompt");
    s->refs = 1;
    s->own_text = kv->shared_text;
    s->rows[FV_SEG_TEXT] = n_text;
    s->rows[FV_SEG_VISUAL] = n_visual;
    for (int seg = 0; seg < FV_N_SEG; seg++) s->n_block[seg] = fv_kv_blocks_for(s->rows[seg]);
    fv_kv_account_open(&s->account, kv->account.pool);
    size_t bytes = fv_kv_share_cost(kv, n_text);
    fv_status st = copy_tables(s, kv);
    if (st == FV_OK) st = fv_kv_charge_tables(&s->account, tables_bytes(s), &s->charged);
    if (st != FV_OK) {
        fv_kv_account_close(&s->account);
        fv_arena_fini(&s->arena);
        free(s);
        return st;
    }
    s->account.owner = s->owner;
    take_over(s, kv, bytes);
    *out = s;
    fv_kv_check(kv, -1);
    return FV_OK;
}

/* ---- invariants --------------------------------------------------------------------------- */

static void check_head(const fv_kv_share *s, const fv_kv *kv, int32_t layer, int32_t head,
                       fv_kv_segment seg) {
    int32_t rows = fv_kv_shared_rows(kv, seg);
    size_t run = fv_kv_run_at(kv, layer, head, seg);
    assert(kv->run[run].len >= rows);
    if (rows == 0) return;
    assert(memcmp(kv->run[run].block, blocks_of(s, layer, head, seg),
                  (size_t)fv_kv_blocks_for(rows) * sizeof(fv_kv_block)) == 0);
    assert(memcmp(fv_kv_positions(kv, layer, head, seg), s->pos[seg],
                  (size_t)rows * sizeof(int32_t)) == 0);
    (void)s;
    (void)run;
}

void fv_kv_share_check(const fv_kv_share *s, const fv_kv *kv) {
    const fv_kv_shape *shape = kv->account.shape;
    size_t bytes = s->charged + text_bytes(shape, s->own_text, s->n_block[FV_SEG_TEXT]);
    for (int32_t l = 0; l < shape->n_layer; l++) {
        bytes += s->extent[l].bytes;
        for (int32_t g = 0; g < shape->n_kv; g++)
            for (int seg = 0; seg < FV_N_SEG; seg++) check_head(s, kv, l, g, (fv_kv_segment)seg);
    }
    assert(bytes == s->account.held && !s->account.idle && s->users > 0 && s->refs > 0);
    for (const fv_kv_share *x = s; x->base; x = x->base)
        assert(x->base->users >= x->users && x->base->refs > 0);
    (void)bytes;
}

/* ---- using one ---------------------------------------------------------------------------- */

/* Visual rows that are used where they are. */
static int32_t visual_shared(const fv_kv_prefix *p) {
    return p->n_visual == p->visual_rows ? p->n_visual : p->n_visual / FV_KV_BLOCK * FV_KV_BLOCK;
}

static size_t visual_bytes(const fv_kv_shape *s, int32_t rows) {
    return 2 * heads_of(s) * (size_t)rows * fv_kv_row_bytes(s);
}

size_t fv_kv_prefix_bytes(const fv_kv_shape *s, const fv_kv_prefix *p) {
    return text_bytes(s, 0, p->n_text / FV_KV_BLOCK) + visual_bytes(s, visual_shared(p));
}

int32_t fv_kv_shared_rows(const fv_kv *kv, fv_kv_segment seg) {
    if (!kv->share) return 0;
    int32_t rows = seg == FV_SEG_TEXT ? kv->shared_text * FV_KV_BLOCK : kv->shared_visual;
    return rows < kv->share->rows[seg] ? rows : kv->share->rows[seg];
}

size_t fv_kv_shared_bytes(const fv_kv *kv) {
    size_t bytes = 0;
    for (const fv_kv_share *s = kv->share; s; s = s->base) bytes += s->account.held;
    return bytes;
}

size_t fv_kv_bytes_with_part(const fv_kv *kv) {
    size_t bytes = kv->account.held;
    for (const fv_kv_share *s = kv->share; s; s = s->base)
        bytes += s->account.held / (size_t)s->users;
    return bytes;
}

/* Copies the rows [first block, n) of a head; both sides have them at the start of a block. */
static fv_status copy_rows(fv_kv *kv, const fv_kv_block *to, const fv_kv_block *from, int32_t first,
                           int32_t n) {
    fv_device *dev = kv->account.device;
    size_t row = fv_kv_row_bytes(kv->account.shape);
    for (int32_t b = first; b < fv_kv_blocks_for(n); b++) {
        int32_t left = n - b * FV_KV_BLOCK;
        size_t bytes = (size_t)(left < FV_KV_BLOCK ? left : FV_KV_BLOCK) * row;
        FV_TRY(dev->ops->copy_async(dev, to[b].k, from[b].k, bytes));
        FV_TRY(dev->ops->copy_async(dev, to[b].v, from[b].v, bytes));
    }
    return FV_OK;
}

static fv_status point_at(fv_kv *kv, size_t run, const fv_kv_block *from, int32_t n) {
    FV_TRY(fv_kv_blocks_grow(kv, run, n));
    if (n > 0) memcpy(kv->run[run].block, from, (size_t)n * sizeof *from);
    return FV_OK;
}

static fv_status adopt_text(fv_kv *kv, const fv_kv_share *s, int32_t layer, int32_t head,
                            int32_t n) {
    size_t run = fv_kv_run_at(kv, layer, head, FV_SEG_TEXT);
    const fv_kv_block *from = blocks_of(s, layer, head, FV_SEG_TEXT);
    FV_TRY(point_at(kv, run, from, kv->shared_text));
    kv->state[run].n_block = kv->shared_text;
    FV_TRY(fv_kv_text_pages(kv, layer, head, n, INT32_MAX));
    FV_TRY(copy_rows(kv, kv->run[run].block, from, kv->shared_text, n));
    return fv_kv_append_head(kv, layer, head, FV_SEG_TEXT, s->pos[FV_SEG_TEXT], n);
}

static fv_status adopt_visual(fv_kv *kv, const fv_kv_share *s, int32_t layer,
                              const fv_kv_prefix *p) {
    const fv_kv_shape *shape = kv->account.shape;
    int32_t own = p->visual_rows - kv->shared_visual;
    size_t bytes = 2 * (size_t)shape->n_kv * (size_t)own * fv_kv_row_bytes(shape);
    FV_TRY(fv_kv_take(&kv->account, bytes, &kv->extent[layer]));
    char *base = kv->extent[layer].data;
    for (int32_t g = 0; g < shape->n_kv; g++) {
        size_t run = fv_kv_run_at(kv, layer, g, FV_SEG_VISUAL);
        const fv_kv_block *from = blocks_of(s, layer, g, FV_SEG_VISUAL);
        int32_t first = fv_kv_blocks_for(kv->shared_visual);
        FV_TRY(point_at(kv, run, from, first));
        if (own > 0) FV_TRY(fv_kv_extent_map(kv, layer, g, &base, own));
        FV_TRY(copy_rows(kv, kv->run[run].block, from, first, p->n_visual));
        FV_TRY(fv_kv_append_head(kv, layer, g, FV_SEG_VISUAL, s->pos[FV_SEG_VISUAL], p->n_visual));
    }
    return FV_OK;
}

/* Whether the first n blocks of all heads are the same in both shares; of one head means of all. */
static bool same_blocks(const fv_kv_share *a, const fv_kv_share *b, int seg, int32_t n) {
    return n <= a->n_block[seg] && n <= b->n_block[seg] &&
           (n == 0 || memcmp(a->block[seg], b->block[seg], (size_t)n * sizeof(fv_kv_block)) == 0);
}

/* The share whose blocks the store will use. A share may have copied the end of what it extends, and go on from there. */
static fv_kv_share *share_for(fv_kv_share *s, const fv_kv_prefix *p) {
    int32_t text = p->n_text / FV_KV_BLOCK, visual = visual_shared(p);
    while (p->brief && s->base && s->base->rows[FV_SEG_TEXT] >= text * FV_KV_BLOCK &&
           s->base->rows[FV_SEG_VISUAL] >= visual && same_blocks(s, s->base, FV_SEG_TEXT, text) &&
           same_blocks(s, s->base, FV_SEG_VISUAL, fv_kv_blocks_for(visual)))
        s = s->base;
    return s;
}

fv_status fv_kv_adopt(fv_kv *kv, fv_kv_share *s, const fv_kv_prefix *p) {
    const fv_kv_shape *shape = kv->account.shape;
    assert(!kv->share && s->account.pool == kv->account.pool);
    assert(p->n_text <= s->rows[FV_SEG_TEXT] && p->n_visual <= s->rows[FV_SEG_VISUAL]);
    assert(p->visual_rows >= p->n_visual && fv_kv_len(kv, 0, 0, FV_SEG_TEXT) == 0);
    const bool copies = kv->sequence->accum != FV_ACCUM_NONE;
    kv->share = share_for(s, p);
    fv_kv_share_use(kv->share);
    kv->shared_text = copies ? 0 : p->n_text / FV_KV_BLOCK;
    kv->shared_visual = copies ? 0 : visual_shared(p);
    for (int32_t l = 0; l < shape->n_layer; l++) {
        for (int32_t g = 0; g < shape->n_kv; g++) FV_TRY(adopt_text(kv, s, l, g, p->n_text));
        FV_TRY(adopt_visual(kv, s, l, p));
    }
    if (copies) fv_kv_part_from_share(kv);
    fv_kv_check(kv, -1);
    return FV_OK;
}
