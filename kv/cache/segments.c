/* A table by key with chained buckets, and two lists for each tenant. The walk over the tenants when memory is full is
 * short: there are as many as have segments, and one holds most. */
#include "kv/cache/segments.h"

#include <stdlib.h>
#include <string.h>

/* ---- by key ----------------------------------------------------------------------------- */

static size_t bucket_of(const fv_segments *s, const fv_chain_key *key) {
    uint64_t head; /* a digest's bytes are as good as random */
    memcpy(&head, key->bytes, sizeof head);
    return (size_t)(head & (s->n_bucket - 1));
}

fv_prefix_segment *fv_segments_find(const fv_segments *s, const fv_chain_key *key) {
    if (!s->n_bucket) return NULL;
    fv_prefix_segment *at = s->bucket[bucket_of(s, key)];
    while (at && !fv_chain_key_equal(&at->key, key)) at = at->next_in_bucket;
    return at;
}

static void put(fv_segments *s, fv_prefix_segment *x) {
    fv_prefix_segment **bucket = &s->bucket[bucket_of(s, &x->key)];
    x->next_in_bucket = *bucket;
    *bucket = x;
}

/* Makes a table of twice as many buckets when each has a segment. */
static fv_status grow(fv_segments *s) {
    if (s->n < (int64_t)s->n_bucket) return FV_OK;
    fv_segments was = *s;
    s->n_bucket = was.n_bucket ? 2 * was.n_bucket : 64;
    s->bucket = calloc(s->n_bucket, sizeof *s->bucket);
    if (!s->bucket) {
        *s = was;
        return FV_FAIL(FV_ENOMEM, "out of memory for kept prefixes");
    }
    for (size_t i = 0; i < was.n_bucket; i++)
        for (fv_prefix_segment *x = was.bucket[i], *next; x; x = next) {
            next = x->next_in_bucket;
            put(s, x);
        }
    free(was.bucket);
    return FV_OK;
}

/* ---- by tenant -------------------------------------------------------------------------- */

fv_prefix_tenant *fv_segments_tenant(const fv_segments *s, const char *name) {
    fv_prefix_tenant *t = s->tenants;
    while (t && strcmp(t->name, name) != 0) t = t->next;
    return t;
}

static fv_status take_tenant(fv_segments *s, const char *name, fv_prefix_tenant **out) {
    *out = fv_segments_tenant(s, name);
    if (*out) return FV_OK;
    fv_prefix_tenant *t = calloc(1, sizeof *t);
    if (t) t->name = strdup(name);
    if (!t || !t->name) {
        free(t);
        return FV_FAIL(FV_ENOMEM, "out of memory for kept prefixes");
    }
    t->next = s->tenants;
    s->tenants = t;
    s->n_tenant++;
    *out = t;
    return FV_OK;
}

static void free_tenant(fv_segments *s, fv_prefix_tenant *t) {
    fv_prefix_tenant **at = &s->tenants;
    while (*at != t) at = &(*at)->next;
    *at = t->next;
    s->n_tenant--;
    free(t->name);
    free(t);
}

static fv_prefix_list *list_of(const fv_prefix_segment *x) {
    return x->again ? &x->tenant->again : &x->tenant->once;
}

static void link_newest(fv_prefix_segment *x) {
    fv_prefix_list *l = list_of(x);
    x->newer = NULL;
    x->older = l->newest;
    *(l->newest ? &l->newest->newer : &l->oldest) = x;
    l->newest = x;
    l->bytes += x->bytes;
}

static void unlink_used(fv_prefix_segment *x) {
    fv_prefix_list *l = list_of(x);
    *(x->newer ? &x->newer->older : &l->newest) = x->older;
    *(x->older ? &x->older->newer : &l->oldest) = x->newer;
    l->bytes -= x->bytes;
}

static void move(fv_prefix_segment *x, bool again) {
    unlink_used(x);
    x->again = again;
    link_newest(x);
}

void fv_segments_renew(fv_prefix_segment *x) { move(x, x->again); }

void fv_segments_use(fv_prefix_segment *x) { move(x, true); }

/* ---- both ------------------------------------------------------------------------------- */

static void leave_tenant(fv_segments *s, fv_prefix_tenant *t) {
    if (t->bytes == 0 && t->drafted == 0) free_tenant(s, t);
}

static void count_draft(fv_segments *s, fv_prefix_segment *x, bool more) {
    size_t by = more ? x->bytes : 0 - x->bytes;
    x->tenant->drafted += by;
    s->drafted += by;
}

fv_status fv_segments_draft(fv_segments *s, const char *tenant, fv_prefix_segment *x) {
    FV_TRY(take_tenant(s, tenant, &x->tenant));
    count_draft(s, x, true);
    return FV_OK;
}

void fv_segments_undraft(fv_segments *s, fv_prefix_segment *x) {
    count_draft(s, x, false);
    leave_tenant(s, x->tenant);
}

fv_status fv_segments_add(fv_segments *s, fv_prefix_segment *x) {
    FV_TRY(grow(s));
    count_draft(s, x, false);
    put(s, x);
    link_newest(x);
    x->tenant->bytes += x->bytes;
    s->bytes += x->bytes;
    s->n++;
    return FV_OK;
}

void fv_segments_drop(fv_segments *s, fv_prefix_segment *x) {
    fv_prefix_tenant *t = x->tenant;
    fv_prefix_segment **at = &s->bucket[bucket_of(s, &x->key)];
    while (*at != x) at = &(*at)->next_in_bucket;
    *at = x->next_in_bucket;
    unlink_used(x);
    t->bytes -= x->bytes;
    s->bytes -= x->bytes;
    s->n--;
    leave_tenant(s, t);
    fv_buf_free(&x->rows);
    free(x);
}

static fv_prefix_segment *unused_of(const fv_prefix_list *l) {
    fv_prefix_segment *x = l->oldest;
    while (x && x->n_user > 0) x = x->newer;
    return x;
}

/* Returns the segment that a tenant gives up next, or NULL. Its second list shrinks only now, when memory is full. */
static fv_prefix_segment *next_of(fv_prefix_tenant *t) {
    while (t->again.bytes > t->bytes / 5 * 4) move(t->again.oldest, false);
    fv_prefix_segment *x = unused_of(&t->once);
    return x ? x : unused_of(&t->again);
}

fv_prefix_segment *fv_segments_victim(fv_segments *s, const char *tenant, size_t bytes) {
    fv_prefix_tenant *own = fv_segments_tenant(s, tenant), *most = own;
    size_t mine = bytes + (own ? own->bytes + own->drafted : 0), largest = mine;
    for (fv_prefix_tenant *t = s->tenants; t; t = t->next)
        if (t != own && t->bytes + t->drafted > largest) {
            most = t;
            largest = t->bytes + t->drafted;
        }
    fv_prefix_segment *x = most ? next_of(most) : NULL;
    for (fv_prefix_tenant *t = s->tenants; t && !x; t = t->next)
        if (t == own || t->bytes + t->drafted > mine) x = next_of(t);
    return x;
}

void fv_segments_fini(fv_segments *s) {
    for (fv_prefix_tenant *t; (t = s->tenants);)
        fv_segments_drop(s, t->once.oldest ? t->once.oldest : t->again.oldest);
    free(s->bucket);
    *s = (fv_segments){0};
}
