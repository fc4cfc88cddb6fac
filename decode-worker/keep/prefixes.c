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

/* The new links of one hand-off or answer, and their rows. */
typedef struct prefix {
    struct prefix *prev[N_LIST], *next[N_LIST];
    struct prefix *base; /* the prefix that this one extends, which outlives it; or NULL */
    fv_kv_share *share;
    holder *of;
    struct entry *entry; /* [n] after the prefix itself */
    uint32_t n;
    struct entry *after; /* the link that its tail follows; NULL: its tail cannot be found */
    int32_t *tail;       /* [n_tail] ids, after the entries */
    uint32_t n_tail;
} prefix;

typedef struct entry {
    struct entry *next; /* in its bucket */
    prefix *of;
    prefix *tail; /* whose tail follows this link: the latest; NULL: none does */
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

/* From now on nobody finds what a prefix has after its last link. */
static void hide_tail(prefix *x) {
    if (x->after) x->after->tail = NULL;
    x->after = NULL;
}

static void remove_links(fv_prefixes *p, prefix *x) {
    hide_tail(x);
    for (uint32_t i = 0; i < x->n; i++) {
        entry **at = bucket_of(p, &x->entry[i].link);
        if (x->entry[i].tail) hide_tail(x->entry[i].tail);
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

uint32_t fv_prefixes_find_tail(fv_prefixes *p, const char *owner, const fv_wire_link *after,
                               const int32_t *ids, uint32_t n, fv_kv_share **share) {
    const holder *h = holder_of(p, owner);
    const entry *e = h ? entry_of(p, h, after) : NULL;
    prefix *x = e ? e->tail : NULL;
    uint32_t same = 0;
    while (x && same < x->n_tail && same < n && x->tail[same] == ids[same]) same++;
    if (same == 0) return 0;
    touch(p, x);
    *share = x->share;
    return same;
}

static size_t limit_of(const fv_prefixes *p, const char *owner) {
    size_t most = *owner && p->opt.owner_max ? p->opt.owner_max : p->opt.bytes_max;
    return most < p->opt.bytes_max ? most : p->opt.bytes_max;
}

bool fv_prefixes_may_keep(const fv_prefixes *p, const char *owner, size_t bytes) {
    return bytes <= limit_of(p, owner);
}

/* Makes room for an owner's new prefix within both limits. */
static bool make_room(fv_prefixes *p, const char *name, size_t bytes) {
    const holder *h = holder_of(p, name);
    size_t most = limit_of(p, name);
    if (bytes > most) return false;
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

/* Contents of a new prefix. */
typedef struct contents {
    const fv_wire_link *link; /* [n] that are new */
    uint32_t n;
    int32_t n_text, n_visual; /* rows */
    const int32_t *tail;      /* [n_tail] */
    uint32_t n_tail;
} contents;

static fv_status share_new(const beginning *b, const contents *c, fv_kv_share **out) {
    if (!b->copied) return fv_kv_share_make(b->kv, c->n_text, c->n_visual, out);
    return fv_kv_share_copy(b->kv, b->base, &b->found, c->n_text, c->n_visual, out);
}

/* Makes a prefix of a store's first rows. The holder comes last: making a share may give up prefixes, and with them
 * their holders. */
static fv_status prefix_new(fv_prefixes *p, const char *name, const contents *c, const beginning *b,
                            prefix **out) {
    prefix *x = calloc(1, sizeof *x + c->n * sizeof *x->entry + c->n_tail * sizeof *x->tail);
    fv_status st =
        x ? share_new(b, c, &x->share) : FV_FAIL(FV_ENOMEM, "out of memory for a prefix");
    if (st == FV_OK && !(x->of = take_holder(p, name)))
        st = FV_FAIL(FV_ENOMEM, "out of memory for the holder of a prefix");
    if (st != FV_OK) {
        if (x) fv_kv_share_unref(x->share);
        free(x);
        return st;
    }
    x->entry = (entry *)(void *)(x + 1);
    x->n = c->n;
    x->tail = (int32_t *)(void *)(x->entry + c->n);
    x->n_tail = c->n_tail;
    if (c->n_tail) memcpy(x->tail, c->tail, c->n_tail * sizeof *x->tail);
    *out = x;
    return FV_OK;
}

/* The prefix whose rows a store uses, among those that end with this link, or that these extend; NULL: none, or the store
 * uses no rows. */
static prefix *used_by(const entry *e, const fv_kv *kv) {
    const fv_kv_share *share = fv_kv_get_share(kv);
    prefix *x = e ? e->tail : NULL;
    while (x && x->share != share) x = x->base;
    if (!x && e) x = e->of;
    while (x && x->share != share) x = x->base;
    return x;
}

/* Tells the log of links that are here: KV that is not sent again, which takes hardly time. */
static void log_links(const fv_prefixes *p, const fv_wire_link *link, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        const fv_kept_change kept = {.digest = link[i].name,
                                     .tokens = link[i].n_text + link[i].n_visual};
        if (link[i].name) fv_kept_log_keep(p->opt.log, link[i].key, &kept);
    }
}

/* Adds a prefix that extends `base`, which stays meanwhile, as it is in use. NULL: it is not kept. */
static prefix *add(fv_prefixes *p, const char *owner, prefix *base, const contents *c,
                   const beginning *b) {
    prefix *x;
    if (!make_room(p, owner, fv_kv_share_cost(b->kv, c->n_text))) return NULL;
    if (prefix_new(p, owner, c, b, &x) != FV_OK) {
        FV_LOG(DEBUG, DECODE, "event=prefix-not-kept reason=\"%s\"", fv_last_error());
        return NULL;
    }
    x->base = base;
    append(p, x);
    add_links(p, x, c->link);
    log_links(p, c->link, c->n);
    touch(p, x);
    size_t bytes = fv_kv_share_bytes(x->share);
    x->of->bytes += bytes;
    p->count.n_now++;
    p->count.bytes_now += bytes;
    return x;
}

/* Whether a store's rows can be kept as those after this link. */
static bool may_keep(const fv_prefixes *p, const entry *e, const fv_kv *kv) {
    bool fits = e ? used_by(e, kv) != NULL : fv_kv_get_share(kv) == NULL;
    return p->opt.bytes_max > 0 && fits && fv_kv_is_uniform(kv);
}

static bool will_move_rows(const fv_kv *kv) {
    return fv_kv_get_sequence(kv)->accum != FV_ACCUM_NONE;
}

/* Keeps copies of rows that will move, after those of a link that was found, or NULL. */
static void keep_copies(fv_prefixes *p, const char *owner, const entry *e, const contents *c,
                        fv_kv *kv) {
    beginning b = {.kv = kv, .copied = true};
    if (p->opt.bytes_max == 0 || !fv_kv_is_uniform(kv)) return;
    if (!e) {
        (void)add(p, owner, NULL, c, &b);
        return;
    }
    b.base = e->of->share;
    b.found =
        (fv_kv_prefix){.n_text = (int32_t)e->link.n_text, .n_visual = (int32_t)e->link.n_visual};
    fv_kv_share_use(b.base); /* the store uses another one, or none */
    (void)add(p, owner, e->of, c, &b);
    fv_kv_share_unuse(b.base);
}

void fv_prefixes_keep(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                      uint32_t n_found, uint32_t n_tokens, fv_kv *kv) {
    uint32_t found;
    n = usable(link, n, n_tokens);
    const entry *e = longest(p, holder_of(p, owner), link, n, &found);
    log_links(p, link, found);
    if (n <= n_found || found != n_found) return;
    const fv_wire_link *last = &link[n - 1];
    const contents c = {.link = link + found,
                        .n = n - found,
                        .n_text = (int32_t)last->n_text,
                        .n_visual = (int32_t)last->n_visual};
    if (will_move_rows(kv))
        keep_copies(p, owner, e, &c, kv);
    else if (may_keep(p, e, kv))
        (void)add(p, owner, used_by(e, kv), &c, &(beginning){.kv = kv});
}

/* Lets the tail of a prefix be found after a link, instead of the one that was. */
static void show_tail(fv_prefixes *p, prefix *x, entry *after) {
    prefix *old = after->tail;
    if (old) hide_tail(old);
    if (old && old->n == 0 && fv_kv_share_is_last(old->share)) drop(p, old);
    x->after = after;
    after->tail = x;
}

/* Whether the tail that is found after a link begins with this one. */
static bool has_tail(const entry *after, const int32_t *tail, uint32_t n) {
    const prefix *x = after->tail;
    return n == 0 || (x && x->n_tail >= n && memcmp(x->tail, tail, n * sizeof *tail) == 0);
}

void fv_prefixes_extend(fv_prefixes *p, const char *owner, const fv_wire_link *link, uint32_t n,
                        const int32_t *tail, uint32_t n_tail, fv_kv *kv) {
    uint32_t found;
    const fv_wire_link *last = &link[n - 1];
    entry *e = longest(p, holder_of(p, owner), link, n, &found);
    if ((found == n && has_tail(e, tail, n_tail)) || will_move_rows(kv) || !may_keep(p, e, kv))
        return;
    const contents c = {.link = link + found,
                        .n = n - found,
                        .n_text = (int32_t)(last->n_text + n_tail),
                        .n_visual = (int32_t)last->n_visual,
                        .tail = tail,
                        .n_tail = n_tail};
    prefix *x = add(p, owner, used_by(e, kv), &c, &(beginning){.kv = kv});
    if (!x || n_tail == 0) return;
    /* Making room may have given up the prefix of the link, if the store does not use that itself. */
    e = x->n ? &x->entry[x->n - 1] : entry_of(p, x->of, last);
    if (e) show_tail(p, x, e);
}
