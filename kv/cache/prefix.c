/* Copies rows between stores and kept segments. A segment's rows are one buffer, layer by layer, head by head, keys
 * before values, so a layer is read in one sweep. */
#include "kv/cache/prefix.h"

#include <assert.h>
#include <stdlib.h>

#include "kv/cache/segments.h"

struct fv_prefix_cache {
    fv_device *device;
    int32_t n_layer, n_kv;
    size_t row_bytes; /* of a key or a value of one head */
    size_t bytes_max;
    fv_segments segments;
    uint64_t kept, given_up;
    fv_kept_log *log; /* borrowed; NULL: none */
};

fv_status fv_prefix_cache_open(fv_device *dev, const fv_kv_shape *shape, size_t bytes_max,
                               fv_prefix_cache **out) {
    fv_prefix_cache *c = calloc(1, sizeof *c);
    if (!c) return FV_FAIL(FV_ENOMEM, "out of memory for the cache of prefixes");
    *c = (fv_prefix_cache){.device = dev,
                           .n_layer = shape->n_layer,
                           .n_kv = shape->n_kv,
                           .row_bytes = (size_t)shape->d_head * fv_dtype_bytes(shape->dtype),
                           .bytes_max = bytes_max};
    *out = c;
    return FV_OK;
}

void fv_prefix_cache_close(fv_prefix_cache *c) {
    if (!c) return;
    assert(c->segments.drafted == 0);
    fv_segments_fini(&c->segments);
    free(c);
}

/* ---- find ------------------------------------------------------------------------------- */

int32_t fv_prefix_links(const fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link,
                        int32_t rows_max) {
    int32_t n = 0;
    while (n < n_link && link[n].end <= rows_max && fv_segments_find(&c->segments, &link[n].key))
        n++;
    return n;
}

int32_t fv_prefix_rows(const fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link,
                       int32_t rows_max) {
    int32_t n = fv_prefix_links(c, link, n_link, rows_max);
    return n ? link[n - 1].end : 0;
}

void fv_prefix_cache_log(fv_prefix_cache *c, fv_kept_log *log) { c->log = log; }

void fv_prefix_tell(const fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link) {
    double seconds = 0;
    for (int32_t i = 0; i < n_link; i++) {
        const fv_prefix_segment *x = fv_segments_find(&c->segments, &link[i].key);
        if (!x) return;
        seconds += x->seconds;
        const fv_kept_change kept = {link[i].name, (uint32_t)link[i].end, (float)seconds};
        if (link[i].name) fv_kept_log_keep(c->log, link[i].key.bytes, &kept);
    }
}

/* Holds the segments of n links, which are kept. */
static fv_status hold(fv_prefix_cache *c, const fv_chain_link *link, int32_t n, fv_prefix *out) {
    *out = (fv_prefix){0};
    if (n == 0) return FV_OK;
    fv_prefix_segment **segment = malloc((size_t)n * sizeof(fv_prefix_segment *));
    if (!segment) return FV_FAIL(FV_ENOMEM, "out of memory for a kept prefix");
    *out = (fv_prefix){.n_link = n,
                       .rows = link[n - 1].end,
                       .n_text = link[n - 1].n_text,
                       .n_visual = link[n - 1].n_visual,
                       .segment = segment};
    for (int32_t i = n - 1; i >= 0; i--) {
        segment[i] = fv_segments_find(&c->segments, &link[i].key);
        segment[i]->n_user++;
        out->seconds += segment[i]->seconds;
    }
    return FV_OK;
}

fv_status fv_prefix_take(fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link,
                         int32_t rows_max, fv_prefix *out) {
    FV_TRY(hold(c, link, fv_prefix_links(c, link, n_link, rows_max), out));
    for (int32_t i = out->n_link - 1; i >= 0; i--) fv_segments_use(out->segment[i]);
    return FV_OK;
}

fv_status fv_prefix_pin(fv_prefix_cache *c, const fv_chain_link *link, int32_t n_link,
                        fv_prefix *out) {
    return hold(c, link, fv_prefix_links(c, link, n_link, INT32_MAX), out);
}

static fv_prefix_part part_of(fv_prefix_segment *x) {
    return (fv_prefix_part){&x->key, x->n, x->visual, &x->seconds, &x->rows, &x->tiers};
}

fv_prefix_part fv_prefix_part_of(const fv_prefix *p, int32_t i) { return part_of(p->segment[i]); }

void fv_prefix_give(fv_prefix_cache *c, fv_prefix *p) {
    (void)c;
    for (int32_t i = 0; i < p->n_link; i++) p->segment[i]->n_user--;
    free(p->segment);
    *p = (fv_prefix){0};
}

/* ---- copies ------------------------------------------------------------------------------ */

typedef struct place {
    fv_kv_segment seg;
    int32_t row; /* first row in the store */
    int32_t n;
} place;

/* Copies a segment's rows of one layer between its buffer and the store. */
static fv_status copy_layer(const fv_prefix_cache *c, const fv_kv *kv, int32_t layer, place p,
                            char *rows, bool to_store) {
    size_t part = (size_t)p.n * c->row_bytes;
    char *at = rows + (size_t)layer * (size_t)c->n_kv * 2 * part;
    for (int32_t i = 0; i < 2 * c->n_kv; i++)
        for (int32_t r = p.row, n; r < p.row + p.n; r += n, at += (size_t)n * c->row_bytes) {
            void *there;
            n = fv_kv_contiguous(kv, layer, i / 2, p.seg, i % 2 > 0, r, p.row + p.n, &there);
            FV_TRY(c->device->ops->copy_async(c->device, to_store ? there : at,
                                              to_store ? at : there, (size_t)n * c->row_bytes));
        }
    return FV_OK;
}

/* Appends a segment's rows, which begin at prompt row `first`, to a layer. */
static fv_status read_segment(const fv_prefix_cache *c, const fv_prefix_segment *x, int32_t first,
                              fv_kv *kv, int32_t layer) {
    int32_t pos[FV_KV_BLOCK];
    place p = {.seg = x->visual ? FV_SEG_VISUAL : FV_SEG_TEXT, .n = x->n};
    p.row = fv_kv_len(kv, layer, 0, p.seg);
    for (int32_t i = 0, n; i < x->n; i += n) {
        n = x->n - i < FV_KV_BLOCK ? x->n - i : FV_KV_BLOCK;
        for (int32_t j = 0; j < n; j++) pos[j] = first + i + j;
        FV_TRY(fv_kv_append(kv, layer, p.seg, pos, n));
    }
    return copy_layer(c, kv, layer, p, x->rows.data, true);
}

fv_status fv_prefix_read(const fv_prefix_cache *c, const fv_prefix *p, fv_kv *kv, int32_t l0,
                         int32_t l1) {
    for (int32_t l = l0; l < l1 && p->n_link; l++) {
        int32_t first = 0;
        assert(l < p->segment[0]->n_layer);
        assert(fv_kv_len(kv, l, 0, FV_SEG_TEXT) == 0 && fv_kv_len(kv, l, 0, FV_SEG_VISUAL) == 0);
        FV_TRY(fv_kv_reserve(kv, l, p->n_text));
        for (int32_t i = 0; i < p->n_link; first += p->segment[i++]->n)
            FV_TRY(read_segment(c, p->segment[i], first, kv, l));
    }
    return FV_OK;
}

/* The residual stream of a segment. */
static char *stream_of(const fv_prefix_cache *c, const fv_prefix_segment *x) {
    return (char *)x->rows.data +
           (size_t)x->n_layer * (size_t)c->n_kv * 2 * (size_t)x->n * c->row_bytes;
}

fv_status fv_prefix_read_stream(const fv_prefix_cache *c, const fv_prefix *p, void *x) {
    char *at = x;
    for (int32_t i = 0; i < p->n_link; i++) {
        const fv_prefix_segment *s = p->segment[i];
        size_t bytes = (size_t)s->n * s->stream_bytes;
        assert(s->stream_bytes);
        FV_TRY(c->device->ops->copy_async(c->device, at, stream_of(c, s), bytes));
        at += bytes;
    }
    return FV_OK;
}

/* ---- keep -------------------------------------------------------------------------------- */

static void give_up(fv_prefix_cache *c, fv_prefix_segment *x) {
    fv_kept_log_drop(c->log, x->key.bytes);
    fv_segments_drop(&c->segments, x);
    c->given_up++;
}

/* Gives up segments until there is room for `bytes` more of a tenant; false: they do not fit. */
static bool make_room(fv_prefix_cache *c, const char *tenant, size_t bytes) {
    size_t taken = c->segments.drafted + bytes;
    if (taken > c->bytes_max) return false;
    while (c->segments.bytes > c->bytes_max - taken) {
        fv_prefix_segment *x = fv_segments_victim(&c->segments, tenant, bytes);
        if (!x) return false;
        give_up(c, x);
    }
    return true;
}

/* The place of link i's rows in a store. */
static place place_of(const fv_chain_link *link, int32_t i) {
    fv_chain_link before = i ? link[i - 1] : (fv_chain_link){.end = 0};
    bool visual = link[i].n_visual > before.n_visual;
    return (place){.seg = visual ? FV_SEG_VISUAL : FV_SEG_TEXT,
                   .row = visual ? before.n_visual : before.n_text,
                   .n = link[i].end - before.end};
}

/* Makes a tenant's segment without rows yet, or NULL. */
static fv_prefix_segment *make_segment(fv_prefix_cache *c, const char *tenant,
                                       const fv_chain_link *link, int32_t i, fv_prefix_form form) {
    place p = place_of(link, i);
    int32_t n_layer = form.n_layer ? form.n_layer : c->n_layer;
    size_t row = (size_t)n_layer * (size_t)c->n_kv * 2 * c->row_bytes + form.stream_bytes;
    size_t bytes = (size_t)p.n * row;
    size_t all = bytes + sizeof(fv_prefix_segment) + 2 * sizeof(void *);
    if (!make_room(c, tenant, all)) return NULL;
    fv_prefix_segment *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->key = link[i].key;
    x->n = p.n;
    x->visual = p.seg == FV_SEG_VISUAL;
    x->n_layer = n_layer;
    x->stream_bytes = form.stream_bytes;
    x->bytes = all;
    fv_status st = fv_buf_alloc(c->device, bytes, FV_BUF_DEVICE, &x->rows);
    if (st == FV_OK) st = fv_segments_draft(&c->segments, tenant, x);
    if (st == FV_OK) return x;
    fv_buf_free(&x->rows);
    free(x);
    return NULL;
}

static void free_segment(fv_prefix_cache *c, fv_prefix_segment *x) {
    fv_segments_undraft(&c->segments, x);
    fv_buf_free(&x->rows);
    free(x);
}

void fv_prefix_draft_open_form(fv_prefix_cache *c, const char *tenant, const fv_chain_link *link,
                               int32_t n_link, fv_prefix_form form, fv_prefix_draft *out) {
    fv_prefix_segment *x, **segment = calloc((size_t)n_link + 1, sizeof(fv_prefix_segment *));
    int32_t n = 0;
    *out = (fv_prefix_draft){0};
    if (!segment) return;
    for (; n < n_link && (x = fv_segments_find(&c->segments, &link[n].key)); n++) {
        x->n_user++; /* the segments after it must not push it out */
        segment[n] = x;
    }
    *out = (fv_prefix_draft){.n_old = n, .link = link, .segment = segment};
    while (n < n_link && (x = make_segment(c, tenant, link, n, form))) segment[n++] = x;
    out->n_link = n;
}

void fv_prefix_draft_open(fv_prefix_cache *c, const char *tenant, const fv_chain_link *link,
                          int32_t n_link, fv_prefix_draft *out) {
    fv_prefix_draft_open_form(c, tenant, link, n_link, (fv_prefix_form){0}, out);
}

void fv_prefix_draft_copy(fv_prefix_cache *c, fv_prefix_draft *d, const fv_kv *kv, int32_t l0,
                          int32_t l1) {
    fv_status st = FV_OK;
    for (int32_t i = d->n_old; i < d->n_link; i++)
        for (int32_t l = l0; l < l1 && l < d->segment[i]->n_layer && st == FV_OK; l++)
            st = copy_layer(c, kv, l, place_of(d->link, i), d->segment[i]->rows.data, false);
    if (st != FV_OK) fv_prefix_draft_drop(c, d);
}

void fv_prefix_draft_copy_stream(fv_prefix_cache *c, fv_prefix_draft *d, const void *x) {
    fv_status st = FV_OK;
    for (int32_t i = d->n_old; i < d->n_link && st == FV_OK; i++) {
        const fv_prefix_segment *s = d->segment[i];
        size_t first = (size_t)(d->link[i].end - s->n), n = (size_t)s->n;
        st = c->device->ops->copy_async(c->device, stream_of(c, s),
                                        (const char *)x + first * s->stream_bytes,
                                        n * s->stream_bytes);
    }
    if (st != FV_OK) fv_prefix_draft_drop(c, d);
}

static void close_draft(fv_prefix_draft *d) {
    for (int32_t i = 0; i < d->n_old; i++) d->segment[i]->n_user--;
    free(d->segment);
    *d = (fv_prefix_draft){0};
}

void fv_prefix_draft_drop(fv_prefix_cache *c, fv_prefix_draft *d) {
    for (int32_t i = d->n_old; i < d->n_link; i++) free_segment(c, d->segment[i]);
    close_draft(d);
}

/* Adds a segment, unless another draft has meanwhile; returns the one that is kept, or NULL. */
static fv_prefix_segment *add_segment(fv_prefix_cache *c, fv_prefix_segment *x,
                                      const fv_prefix_cost *cost) {
    fv_prefix_segment *there = fv_segments_find(&c->segments, &x->key);
    if (cost) x->seconds = x->n * (x->visual ? cost->visual : cost->text);
    if (!there && fv_segments_add(&c->segments, x) == FV_OK) {
        c->kept++;
        return x;
    }
    free_segment(c, x);
    return there;
}

/* cost NULL: the segments' seconds are right. */
static void keep_draft(fv_prefix_cache *c, fv_prefix_draft *d, const fv_prefix_cost *cost) {
    int32_t n = d->n_old;
    while (n < d->n_link && (d->segment[n] = add_segment(c, d->segment[n], cost))) n++;
    for (int32_t i = n + 1; i < d->n_link; i++) free_segment(c, d->segment[i]);
    while (n > 0) fv_segments_renew(d->segment[--n]);
    close_draft(d);
}

void fv_prefix_draft_keep(fv_prefix_cache *c, fv_prefix_draft *d, const fv_prefix_cost *cost) {
    keep_draft(c, d, cost);
}

void fv_prefix_draft_adopt(fv_prefix_cache *c, fv_prefix_draft *d) { keep_draft(c, d, NULL); }

fv_prefix_part fv_prefix_draft_part(const fv_prefix_draft *d, int32_t i) {
    return part_of(d->segment[i]);
}

void fv_prefix_draft_cut(fv_prefix_cache *c, fv_prefix_draft *d, int32_t n) {
    while (d->n_link > n && d->n_link > d->n_old) free_segment(c, d->segment[--d->n_link]);
}

void fv_prefix_keep(fv_prefix_cache *c, const char *tenant, const fv_chain_link *link,
                    int32_t n_link, const fv_prefix_cost *cost, const fv_kv *kv) {
    fv_prefix_draft d;
    fv_prefix_draft_open(c, tenant, link, n_link, &d);
    fv_prefix_draft_copy(c, &d, kv, 0, c->n_layer);
    fv_prefix_draft_keep(c, &d, cost);
}

/* ---- counters ----------------------------------------------------------------------------- */

fv_prefix_counters fv_prefix_cache_count(const fv_prefix_cache *c) {
    return (fv_prefix_counters){.bytes = c->segments.bytes + c->segments.drafted,
                                .n_segment = c->segments.n,
                                .n_tenant = c->segments.n_tenant,
                                .kept = c->kept,
                                .given_up = c->given_up};
}

size_t fv_prefix_cache_owned(const fv_prefix_cache *c, const char *tenant) {
    const fv_prefix_tenant *t = fv_segments_tenant(&c->segments, tenant);
    return t ? t->bytes : 0;
}
