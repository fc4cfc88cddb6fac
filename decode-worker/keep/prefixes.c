/* A hash table of links, and lists of prefixes in the order of their last use: one of all, and one of each holder's. A
 * prefix is before those that it extends in both. So giving up is one walk from the least recently used prefix on, which
 * passes only prefixes that are in use, however many are kept. For the pool's thread. */
#include "decode-worker/keep/prefixes.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"

enum { ALL, OWN, N_LIST }; /* the lists that a prefix is in */

typedef struct list {
    struct prefix *first, *last; /* the least and the most recently used one */
} list;

/* An owner that has prefixes. */
typedef struct holder {
    struct holder *next;
    list own;
    size_t bytes;
    char name[];
} holder;

/* The new links of one hand-off, and their rows. */
typedef struct prefix {
    struct prefix *prev[N_LIST], *next[N_LIST];
    struct prefix *base; /* the prefix that this one extends, which outlives it; or NULL */
    fv_kv_share *share;
    holder *of;
    struct entry *entry; /* [n] after the prefix itself */
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
    list all;
    holder *holders; /* those that have prefixes */
    fv_prefixes_counters count;
};

/* ---- links ------------------------------------------------------------------------------- */

/* Keys are uniform: they are digests. */
static entry **bucket_of(const fv_prefixes *p, const fv_wire_link *link) {
    uint64_t hash;
    memcpy(&hash, link->key, sizeof hash);
    return &p->bucket[hash & (p->n_bucket - 1)];
}

static entry *entry_of(const fv_prefixes *p, const holder *h, const fv_wire_link *link) {
    entry *e = *bucket_of(p, link);
    while (e && (memcmp(e->link.key, link->key, sizeof link->key) != 0 || e->of->of != h))
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
        if (x->entry[i].link.name) fv_kept_log_drop(p->opt.log, x->entry[i].link.key);
    }
    p->n_entry -= x->n;
}

/* ---- holders ------------------------------------------------------------------------------ */

static holder *holder_of(const fv_prefixes *p, const char *name) {
    holder *h = p->holders;
    while (h && strcmp(h->name, name) != 0) h = h->next;
    return h;
}

static holder *holder_new(fv_prefixes *p, const char *name) {
    size_t n = strlen(name) + 1;
    holder *h = calloc(1, sizeof *h + n);
    if (!h) return NULL;
    memcpy(h->name, name, n);
    h->next = p->holders;
    p->holders = h;
    return h;
}

static void holder_free(fv_prefixes *p, holder *h) {
    holder **at = &p->holders;
    while (*at != h) at = &(*at)->next;
    *at = h->next;
    free(h);
}

/* ---- lists ------------------------------------------------------------------------------- */

static void detach_from(list *l, int which, prefix *x) {
    *(x->prev[which] ? &x->prev[which]->next[which] : &l->first) = x->next[which];
    *(x->next[which] ? &x->next[which]->prev[which] : &l->last) = x->prev[which];
}

static void append_to(list *l, int which, prefix *x) {
    x->prev[which] = l->last;
    x->next[which] = NULL;
    *(l->last ? &l->last->next[which] : &l->first) = x;
    l->last = x;
}

static void detach(fv_prefixes *p, prefix *x) {
    detach_from(&p->all, ALL, x);
    detach_from(&x->of->own, OWN, x);
}

static void append(fv_prefixes *p, prefix *x) {
    append_to(&p->all, ALL, x);
    append_to(&x->of->own, OWN, x);
}

/* Notes a use of a prefix, and so of all that it extends. */
static void touch(fv_prefixes *p, prefix *x) {
    for (; x; x = x->base) {
        detach(p, x);
        append(p, x);
    }
}

/* Frees a prefix, and its holder with the last one. */
static size_t drop(fv_prefixes *p, prefix *x) {
    size_t bytes = fv_kv_share_bytes(x->share);
    remove_links(p, x);
    detach(p, x);
    p->count.n_now--;
    p->count.bytes_now -= bytes;
    x->of->bytes -= bytes;
    if (!x->of->own.first) holder_free(p, x->of);
    fv_kv_share_unref(x->share);
    free(x);
    return bytes;
}

/* Drops prefixes that nothing else uses or extends, of one holder (NULL: of any), until `bytes` are free or none is
 * left. Returns the bytes; the holder may be gone. */
static size_t drop_unused(fv_prefixes *p, const holder *h, size_t bytes) {
    int which = h ? OWN : ALL;
    size_t freed = 0;
    for (prefix *x = h ? h->own.first : p->all.first, *next; x && freed < bytes; x = next) {
        next = x->next[which];
        if (fv_kv_share_is_last(x->share)) freed += drop(p, x);
    }
    return freed;
}

/* The same, for room. */
static size_t give_up(fv_prefixes *p, const holder *h, size_t bytes) {
    uint64_t before = p->count.n_now;
    size_t freed = drop_unused(p, h, bytes);
    p->count.n_given_up += before - p->count.n_now;
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
    assert(!p->all.first);
    fv_kv_pool_on_full(p->opt.pool, NULL, NULL);
    free(p->bucket);
    free(p);
}

void fv_prefixes_drop(fv_prefixes *p, bool stop) {
    (void)drop_unused(p, NULL, SIZE_MAX);
    if (stop) p->opt.bytes_max = 0;
}

fv_prefixes_counters fv_prefixes_count(const fv_prefixes *p) { return p->count; }

/* ---- find and keep -------------------------------------------------------------------------- */

/* The number of links that end before the prompt's last token, whose logits every request needs. */
static uint32_t usable(const fv_wire_link *link, uint32_t n, uint32_t n_tokens) {
    while (n > 0 && link[n - 1].n_text + link[n - 1].n_visual >= n_tokens) n--;
    return n;
}

static entry *longest(const fv_prefixes *p, const holder *h, const fv_wire_link *link, uint32_t n,
                      uint32_t *n_found) {
    entry *e = NULL;
    if (!h) n = 0;
    while (n > 0 && !(e = entry_of(p, h, &link[n - 1]))) n--;
    *n_found = n;
    return e;
}

uint32_t fv_prefixes_find(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                          uint32_t n_tokens, fv_kv_share **share) {
    uint32_t found;
    n = usable(link, n, n_tokens);
    entry *e = longest(p, holder_of(p, owner), link, n, &found);
    if (!e) return 0;
    touch(p, e->of);
    *share = e->of->share;
    return found;
}

/* Makes room for an owner's new prefix within both limits. */
static bool make_room(fv_prefixes *p, const char *name, size_t bytes) {
    const holder *h = holder_of(p, name);
    size_t most = *name && p->opt.owner_max ? p->opt.owner_max : p->opt.bytes_max;
    if (bytes > most || bytes > p->opt.bytes_max) return false;
    size_t excess = h && h->bytes > most - bytes ? h->bytes - (most - bytes) : 0;
    if (excess && give_up(p, h, excess) < excess) return false;
    size_t left = p->opt.bytes_max - bytes, all = (size_t)p->count.bytes_now;
    return all <= left || give_up(p, NULL, all - left) >= all - left;
}

/* Returns an owner's holder, which is made if there is none; NULL: out of memory. */
static holder *take_holder(fv_prefixes *p, const char *name) {
    holder *h = holder_of(p, name);
    return h ? h : holder_new(p, name);
}

/* A store's beginning that is to be kept, after what was found of it. */
typedef struct beginning {
    fv_kv *kv;
    bool copied;       /* its rows will move */
    fv_kv_share *base; /* with copied: of what was found, */
    fv_kv_prefix found;
} beginning;

static fv_status share_new(const beginning *b, const fv_wire_link *last, fv_kv_share **out) {
    const int32_t n_text = (int32_t)last->n_text, n_visual = (int32_t)last->n_visual;
    if (!b->copied) return fv_kv_share_make(b->kv, n_text, n_visual, out);
    return fv_kv_share_copy(b->kv, b->base, &b->found, n_text, n_visual, out);
}

/* Makes a prefix of a store's first rows. The holder comes last: making a share may give up prefixes, and with them
 * their holders. */
static fv_status prefix_new(fv_prefixes *p, const char *name, const fv_wire_link *link, uint32_t n,
                            const beginning *b, prefix **out) {
    prefix *x = calloc(1, sizeof *x + n * sizeof *x->entry);
    fv_status st = x ? share_new(b, &link[n - 1], &x->share)
                     : FV_FAIL(FV_ENOMEM, "out of memory for a prefix");
    if (st == FV_OK && !(x->of = take_holder(p, name)))
        st = FV_FAIL(FV_ENOMEM, "out of memory for the holder of a prefix");
    if (st != FV_OK) {
        if (x) fv_kv_share_unref(x->share);
        free(x);
        return st;
    }
    x->entry = (entry *)(void *)(x + 1);
    x->n = n;
    *out = x;
    return FV_OK;
}

/* The share that a store must use to extend this prefix; NULL: it must use none. */
static const fv_kv_share *share_of(const entry *base) { return base ? base->of->share : NULL; }

/* Tells the log of links that are here: KV that is not sent again, which takes hardly time. */
static void log_links(const fv_prefixes *p, const fv_wire_link *link, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const fv_kept_change kept = {.digest = link[i].name,
                                     .tokens = link[i].n_text + link[i].n_visual};
        if (link[i].name) fv_kept_log_keep(p->opt.log, link[i].key, &kept);
    }
}

/* Keeps links [n] of a beginning, as what extends a prefix that is in use, or NULL. */
static void keep(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                 prefix *extended, const beginning *b) {
    prefix *x;
    if (!make_room(p, owner, fv_kv_share_cost(b->kv, (int32_t)link[n - 1].n_text))) return;
    if (prefix_new(p, owner, link, n, b, &x) != FV_OK) {
        FV_LOG(DEBUG, DECODE, "event=prefix-not-kept reason=\"%s\"", fv_last_error());
        return;
    }
    x->base = extended;
    append(p, x);
    add_links(p, x, link);
    log_links(p, link, n);
    touch(p, x);
    size_t bytes = fv_kv_share_bytes(x->share);
    x->of->bytes += bytes;
    p->count.n_now++;
    p->count.bytes_now += bytes;
}

void fv_prefixes_keep(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                      uint32_t n_found, uint32_t n_tokens, fv_kv *kv) {
    uint32_t found;
    beginning b = {.kv = kv, .copied = fv_kv_get_sequence(kv)->accum != FV_ACCUM_NONE};
    n = usable(link, n, n_tokens);
    const entry *base = longest(p, holder_of(p, owner), link, n, &found);
    log_links(p, link, found);
    if (p->opt.bytes_max == 0 || n <= n_found || found != n_found ||
        (!b.copied && share_of(base) != fv_kv_get_share(kv)) || !fv_kv_is_uniform(kv))
        return;
    if (b.copied && base) {
        const fv_wire_link *last = &link[n_found - 1];
        b.base = base->of->share;
        b.found =
            (fv_kv_prefix){.n_text = (int32_t)last->n_text, .n_visual = (int32_t)last->n_visual};
        fv_kv_share_use(b.base); /* the store uses another one, or none */
    }
    keep(p, owner, link + n_found, n - n_found, base ? base->of : NULL, &b);
    if (b.base) fv_kv_share_unuse(b.base);
}
