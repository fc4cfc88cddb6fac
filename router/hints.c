/* A hash table of names with numbers for pointers. All memory is reserved at once and touched as names come, so nothing is ever
 * moved. A place is given to another worker only after a whole sweep has cleared it of all names. Loop thread. */
#include "router/hints.h"

#include <stdlib.h>
#include <string.h>

enum {
    PLACES = UINT16_MAX, /* places 1..PLACES - 1 */
    SWEEP = 1 << 14,     /* names that a tick looks at */
    SEARCH = 64,         /* names that a new one looks at for one that was not asked for */
};

typedef struct entry {
    uint64_t name; /* 0: free */
    uint32_t next; /* in its bucket, or of the free ones */
    uint32_t tokens;
    float seconds;
    uint8_t n;
    bool asked, guess;
    uint16_t place[FV_HINT_HOLDERS];
} entry;
_Static_assert(sizeof(entry) == 56, "and 4 bytes of a bucket: router/hints.h says so");

typedef struct place_of {
    void *worker; /* NULL: free, or being swept */
    uint32_t n;   /* names that it is a holder of */
} place_of;

struct fv_hints {
    entry *entry; /* [n_max + 1], from 1 on */
    uint32_t *bucket;
    size_t n_bucket;            /* a power of two */
    uint32_t n_max, n_used, n;  /* n_used: entries that were ever in use */
    uint32_t free, hand, swept; /* hand: of the clock; swept: entries of this sweep */
    place_of place[PLACES];
    uint16_t next_place; /* where to look for a free one */
};

fv_status fv_hints_open(size_t n_max, fv_hints **out) {
    if (n_max < 1 || n_max > FV_HINTS_MAX)
        return FV_FAIL(FV_EINVAL, "hints of %zu names; there may be 1..%d", n_max, FV_HINTS_MAX);
    fv_hints *h = calloc(1, sizeof *h);
    if (!h) return FV_FAIL(FV_ENOMEM, "no memory for hints");
    h->n_max = (uint32_t)n_max;
    h->n_bucket = 1;
    while (h->n_bucket < n_max) h->n_bucket *= 2;
    h->entry = calloc(n_max + 1, sizeof *h->entry);
    h->bucket = calloc(h->n_bucket, sizeof *h->bucket);
    if (!h->entry || !h->bucket) {
        fv_hints_close(h);
        return FV_FAIL(FV_ENOMEM, "no memory for hints of %zu names", n_max);
    }
    *out = h;
    return FV_OK;
}

void fv_hints_close(fv_hints *h) {
    if (!h) return;
    free(h->entry);
    free(h->bucket);
    free(h);
}

size_t fv_hints_count(const fv_hints *h) { return h->n; }

/* ---- entries ------------------------------------------------------------------------------- */

/* Names are uniform: they are digests. */
static uint32_t *bucket_of(const fv_hints *h, uint64_t name) {
    return &h->bucket[name & (h->n_bucket - 1)];
}

static entry *find(const fv_hints *h, uint64_t name) {
    uint32_t i = *bucket_of(h, name);
    while (i && h->entry[i].name != name) i = h->entry[i].next;
    return i ? &h->entry[i] : NULL;
}

static void drop_holder(fv_hints *h, entry *e, int32_t i) {
    h->place[e->place[i]].n--;
    e->place[i] = e->place[--e->n];
}

static void free_entry(fv_hints *h, entry *e) {
    const uint32_t i = (uint32_t)(e - h->entry);
    uint32_t *at = bucket_of(h, e->name);
    while (*at != i) at = &h->entry[*at].next;
    *at = e->next;
    while (e->n > 0) drop_holder(h, e, 0);
    *e = (entry){.next = h->free};
    h->free = i;
    h->n--;
}

/* Frees an entry that was not asked for since the clock's hand passed it. */
static void give_up_one(fv_hints *h) {
    for (int32_t left = SEARCH;; left--) {
        h->hand = h->hand % h->n_used + 1;
        entry *e = &h->entry[h->hand];
        if (!e->name) continue;
        if (!e->asked || left <= 0) {
            free_entry(h, e);
            return;
        }
        e->asked = false;
    }
}

static entry *add_entry(fv_hints *h, uint64_t name) {
    if (h->n == h->n_max) give_up_one(h);
    uint32_t i = h->free;
    if (i)
        h->free = h->entry[i].next;
    else
        i = ++h->n_used;
    entry *e = &h->entry[i];
    uint32_t *at = bucket_of(h, name);
    *e = (entry){.name = name, .next = *at};
    *at = i;
    h->n++;
    return e;
}

/* Drops holders that have left; false: none is left, and the entry is gone. */
static bool clean(fv_hints *h, entry *e) {
    for (int32_t i = e->n - 1; i >= 0; i--)
        if (!h->place[e->place[i]].worker) drop_holder(h, e, i);
    if (e->n > 0) return true;
    free_entry(h, e);
    return false;
}

/* ---- workers ------------------------------------------------------------------------------- */

uint16_t fv_hints_enter(fv_hints *h, void *worker) {
    for (int32_t i = 1; i < PLACES; i++) {
        h->next_place = (uint16_t)(h->next_place % (PLACES - 1) + 1);
        place_of *p = &h->place[h->next_place];
        if (p->worker || p->n) continue; /* names of a worker that has left are still there */
        p->worker = worker;
        return h->next_place;
    }
    return 0;
}

void fv_hints_leave(fv_hints *h, uint16_t place) {
    if (!place) return;
    h->place[place].worker = NULL;
    if (h->place[place].n) h->swept = 0; /* sweep once more */
}

void fv_hints_tick(fv_hints *h) {
    for (int32_t i = 0; i < SWEEP && h->swept < h->n_used; i++) {
        entry *e = &h->entry[++h->swept];
        if (e->name) (void)clean(h, e);
    }
}

/* ---- hints ----------------------------------------------------------------------------------- */

static int32_t holder(const entry *e, uint16_t place) {
    int32_t i = 0;
    while (i < e->n && e->place[i] != place) i++;
    return i;
}

/* Takes one of several workers' places for another, a different one each time. */
static int32_t to_replace(const fv_hints *h, const entry *e) {
    return (int32_t)((h->place[e->place[0]].n + e->place[FV_HINT_HOLDERS - 1]) % FV_HINT_HOLDERS);
}

void fv_hints_add(fv_hints *h, uint64_t name, uint16_t place, const fv_hint *hint) {
    if (!place || !name || hint->tokens == 0) return;
    entry *e = find(h, name);
    const bool known = e && holder(e, place) < e->n;
    if (!known && h->place[place].n >= FV_HINTS_WORKER_MAX) return;
    const bool fresh = !e;
    if (fresh) e = add_entry(h, name);
    if (fresh || !hint->guess) {
        e->tokens = hint->tokens;
        e->guess = hint->guess;
        if (hint->seconds > 0) e->seconds = hint->seconds;
    }
    e->asked = true;
    if (known) return;
    if (e->n == FV_HINT_HOLDERS) drop_holder(h, e, to_replace(h, e));
    e->place[e->n++] = place;
    h->place[place].n++;
}

void fv_hints_remove(fv_hints *h, uint64_t name, uint16_t place) {
    entry *e = place ? find(h, name) : NULL;
    if (!e) return;
    const int32_t i = holder(e, place);
    if (i == e->n) return;
    drop_holder(h, e, i);
    if (e->n == 0) free_entry(h, e);
}

int32_t fv_hints_find(fv_hints *h, uint64_t name, fv_hint *hint, void **worker) {
    entry *e = name ? find(h, name) : NULL;
    if (!e || !clean(h, e)) return 0;
    e->asked = true;
    *hint = (fv_hint){.tokens = e->tokens, .seconds = e->seconds, .guess = e->guess};
    for (int32_t i = 0; i < e->n; i++) worker[i] = h->place[e->place[i]].worker;
    return e->n;
}
