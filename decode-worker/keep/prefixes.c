/* A hash table of links, and a list of prefixes in the order of their last use. A pool has room for thousands of
 * prefixes at most, and the list is walked only when one is added or given up. For the pool's thread. */
#include "decode-worker/keep/prefixes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

/* The new links of one hand-off, and their rows. */
typedef struct prefix {
    struct prefix *prev, *next; /* by last use, the least recent first */
    struct prefix *base;        /* the prefix that this one extends, which outlives it; or NULL */
    fv_kv_share *share;
    char *owner; /* after the entries */
    struct entry *entry;
    uint32_t n;
} prefix;

typedef struct entry {
    struct entry *next; /* in its bucket */
    prefix *of;
    fv_wire_link link;
} entry;

struct fv_prefixes {
    fv_prefixes_options opt;
    entry **bucket; /* [n_bucket] a power of two */
    size_t n_bucket, n_entry;
    prefix *first, *last; /* the least and the most recently used one */
    fv_prefixes_counters count;
};

/* ---- links ------------------------------------------------------------------------------- */

/* Keys are uniform: they are digests. */
static entry **bucket_of(const fv_prefixes *p, const fv_wire_link *link) {
    uint64_t hash;
    memcpy(&hash, link->key, sizeof hash);
    return &p->bucket[hash & (p->n_bucket - 1)];
}

static entry *entry_of(const fv_prefixes *p, const char *owner, const fv_wire_link *link) {
    entry *e = *bucket_of(p, link);
    while (e && (memcmp(e->link.key, link->key, sizeof link->key) != 0 ||
                 strcmp(e->of->owner, owner) != 0))
        e = e->next;
    return e && e->link.n_text == link->n_text && e->link.n_visual == link->n_visual ? e : NULL;
}

/* Doubles the table when it is full. Without memory for that, buckets get longer. */
static void grow(fv_prefixes *p) {
    size_t n = 2 * p->n_bucket;
    entry **old = p->bucket, **grown = calloc(n, sizeof *grown);
    if (!grown) return;
    p->bucket = grown;
    p->n_bucket = n;
    for (size_t i = 0; i < n / 2; i++)
        for (entry *e = old[i], *next; e; e = next) {
            entry **at = bucket_of(p, &e->link);
            next = e->next;
            e->next = *at;
            *at = e;
        }
    free(old);
}

static void add_links(fv_prefixes *p, prefix *x, const fv_wire_link *link) {
    for (uint32_t i = 0; i < x->n; i++) {
        entry **at = bucket_of(p, &link[i]);
        x->entry[i] = (entry){.next = *at, .of = x, .link = link[i]};
        *at = &x->entry[i];
    }
    p->n_entry += x->n;
    while (p->n_entry > p->n_bucket) {
        size_t before = p->n_bucket;
        grow(p);
        if (p->n_bucket == before) return;
    }
}

static void remove_links(fv_prefixes *p, const prefix *x) {
    for (uint32_t i = 0; i < x->n; i++) {
        entry **at = bucket_of(p, &x->entry[i].link);
        while (*at != &x->entry[i]) at = &(*at)->next;
        *at = x->entry[i].next;
    }
    p->n_entry -= x->n;
}

/* ---- the list ------------------------------------------------------------------------------ */

static void detach(fv_prefixes *p, prefix *x) {
    *(x->prev ? &x->prev->next : &p->first) = x->next;
    *(x->next ? &x->next->prev : &p->last) = x->prev;
}

static void append(fv_prefixes *p, prefix *x) {
    x->prev = p->last;
    x->next = NULL;
    *(p->last ? &p->last->next : &p->first) = x;
    p->last = x;
}

/* Notes a use of a prefix, and so of all that it extends. */
static void touch(fv_prefixes *p, prefix *x) {
    for (; x; x = x->base) {
        detach(p, x);
        append(p, x);
    }
}

static size_t drop(fv_prefixes *p, prefix *x) {
    size_t bytes = fv_kv_share_bytes(x->share);
    remove_links(p, x);
    detach(p, x);
    fv_kv_share_unref(x->share);
    free(x);
    p->count.n_now--;
    p->count.bytes_now -= bytes;
    return bytes;
}

/* The least recently used prefix that nothing else uses or extends, of this owner (NULL: of any); NULL: none. */
static prefix *least_used(const fv_prefixes *p, const char *owner) {
    prefix *x = p->first;
    while (x && (!fv_kv_share_is_last(x->share) || (owner && strcmp(x->owner, owner) != 0)))
        x = x->next;
    return x;
}

/* Gives up prefixes until `bytes` are free, or none is left. */
static size_t give_up(fv_prefixes *p, const char *owner, size_t bytes) {
    size_t freed = 0;
    for (prefix *x; freed < bytes && (x = least_used(p, owner)) != NULL;) {
        freed += drop(p, x);
        p->count.n_given_up++;
    }
    return freed;
}

static void on_full(void *user, size_t bytes) { (void)give_up(user, NULL, bytes); }

/* ---- the table ----------------------------------------------------------------------------- */

fv_status fv_prefixes_open(const fv_prefixes_options *opt, fv_prefixes **out) {
    fv_prefixes *p = calloc(1, sizeof *p);
    if (p) p->bucket = calloc(64, sizeof(entry *));
    if (!p || !p->bucket) {
        free(p);
        return FV_FAIL(FV_ENOMEM, "out of memory for prefixes");
    }
    p->opt = *opt;
    p->n_bucket = 64;
    fv_kv_pool_on_full(opt->pool, on_full, p);
    *out = p;
    return FV_OK;
}

void fv_prefixes_close(fv_prefixes *p) {
    if (!p) return;
    fv_prefixes_drop(p, true);
    assert(!p->first);
    fv_kv_pool_on_full(p->opt.pool, NULL, NULL);
    free(p->bucket);
    free(p);
}

void fv_prefixes_drop(fv_prefixes *p, bool stop) {
    for (prefix *x; (x = least_used(p, NULL)) != NULL;) drop(p, x);
    if (stop) p->opt.bytes_max = 0;
}

fv_prefixes_counters fv_prefixes_count(const fv_prefixes *p) { return p->count; }

/* ---- find and keep -------------------------------------------------------------------------- */

/* The number of links that end before the prompt's last token, whose logits every request needs. */
static uint32_t usable(const fv_wire_link *link, uint32_t n, uint32_t n_tokens) {
    while (n > 0 && link[n - 1].n_text + link[n - 1].n_visual >= n_tokens) n--;
    return n;
}

static entry *longest(const fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                      uint32_t *n_found) {
    entry *e = NULL;
    while (n > 0 && !(e = entry_of(p, owner, &link[n - 1]))) n--;
    *n_found = n;
    return e;
}

uint32_t fv_prefixes_find(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                          uint32_t n_tokens, fv_kv_share **share) {
    uint32_t found;
    n = usable(link, n, n_tokens);
    entry *e = longest(p, owner, link, n, &found);
    if (n > 0 && !e) p->count.n_missed++;
    if (!e) return 0;
    p->count.n_found++;
    touch(p, e->of);
    *share = e->of->share;
    return found;
}

/* Makes room for a tenant's new prefix within both limits. */
static bool make_room(fv_prefixes *p, const char *owner, size_t bytes) {
    size_t owned = 0;
    for (const prefix *x = p->first; x; x = x->next)
        if (strcmp(x->owner, owner) == 0) owned += fv_kv_share_bytes(x->share);
    size_t most = *owner && p->opt.owner_max ? p->opt.owner_max : p->opt.bytes_max;
    if (bytes > most || bytes > p->opt.bytes_max) return false;
    if (owned > most - bytes && give_up(p, owner, owned - (most - bytes)) < owned - (most - bytes))
        return false;
    size_t left = p->opt.bytes_max - bytes, all = (size_t)p->count.bytes_now;
    return all <= left || give_up(p, NULL, all - left) >= all - left;
}

static prefix *prefix_new(const char *owner, uint32_t n) {
    prefix *x = calloc(1, sizeof *x + n * sizeof *x->entry + strlen(owner) + 1);
    if (!x) return NULL;
    x->entry = (entry *)(void *)(x + 1);
    x->owner = strcpy((char *)(x->entry + n), owner);
    x->n = n;
    return x;
}

void fv_prefixes_keep(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                      uint32_t n_found, uint32_t n_tokens, fv_kv *kv) {
    uint32_t found;
    n = usable(link, n, n_tokens);
    entry *base = longest(p, owner, link, n, &found);
    if (p->opt.bytes_max == 0 || n <= n_found || found != n_found || !fv_kv_is_uniform(kv)) return;
    const fv_wire_link *last = &link[n - 1];
    if (!make_room(p, owner, fv_kv_share_cost(kv, (int32_t)last->n_text))) return;
    prefix *x = prefix_new(owner, n - n_found);
    fv_status st =
        x ? fv_kv_share_make(kv, (int32_t)last->n_text, (int32_t)last->n_visual, &x->share)
          : FV_FAIL(FV_ENOMEM, "out of memory for a prefix");
    if (st != FV_OK) {
        FV_LOG(DEBUG, DECODE, "event=prefix-not-kept reason=\"%s\"", fv_last_error());
        free(x);
        return;
    }
    x->base = base ? base->of : NULL;
    append(p, x);
    add_links(p, x, link + n_found);
    touch(p, x);
    p->count.n_now++;
    p->count.bytes_now += fv_kv_share_bytes(x->share);
}
