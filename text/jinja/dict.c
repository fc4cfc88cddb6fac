/* Lists and dicts. A dict of more than a few keys has a hash table. The hash has no secret seed:
 * colliding keys cost their author a step for each comparison. */
#include <string.h>

#include "text/jinja/internal.h"

enum { FEW = 8 };

fv_status fv_jj_push(fv_jj_run *r, fv_jj_list *list, fv_jj_value v) {
    if (list->n == list->cap) {
        fv_jj_value *more;
        int32_t cap = 2 * list->cap + 8;
        FV_TRY(fv_jj_alloc(r, (size_t)cap * sizeof *more, (void **)&more));
        if (list->n) memcpy(more, list->v, (size_t)list->n * sizeof *more);
        list->v = more;
        list->cap = cap;
    }
    list->v[list->n++] = v;
    return fv_jj_steps(r, 1);
}

fv_status fv_jj_new_list(fv_jj_run *r, fv_jj_kind kind, fv_jj_value *out) {
    fv_jj_value v = {.kind = kind};
    FV_TRY(fv_jj_alloc(r, sizeof *v.list, (void **)&v.list));
    *out = v;
    return FV_OK;
}

fv_status fv_jj_new_dict(fv_jj_run *r, fv_jj_kind kind, fv_jj_value *out) {
    fv_jj_value v = {.kind = kind};
    FV_TRY(fv_jj_alloc(r, sizeof *v.dict, (void **)&v.dict));
    *out = v;
    return FV_OK;
}

/* ---- hashing ---- */

static uint64_t mixed(uint64_t h, uint64_t with) {
    h = (h ^ with) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static uint64_t hash_text(fv_jj_str s) {
    uint64_t h = s.n, word;
    size_t at = 0;
    for (; s.n - at >= sizeof word; at += sizeof word) {
        memcpy(&word, s.s + at, sizeof word);
        h = mixed(h, word);
    }
    word = 0;
    if (at < s.n) memcpy(&word, s.s + at, s.n - at);
    return mixed(h, word);
}

/* Equal values have equal hashes: 1, 1.0 and true are equal, and so are 0.0 and -0.0. */
static uint64_t hash(fv_jj_run *r, const fv_jj_value *v) {
    uint64_t bits;
    if (v->kind == FV_JJ_STR) {
        fv_jj_spend(r, fv_jj_copying(v->str.n));
        return hash_text(v->str);
    }
    if (!fv_jj_is_number(v)) return (uint64_t)v->kind;
    double f = fv_jj_double(v) + 0.0;
    memcpy(&bits, &f, sizeof bits);
    return mixed(FV_JJ_FLOAT, bits);
}

/* Finds the key's slot, or the free slot where it belongs. Ends early when the steps run out. */
static int32_t *slot_of(fv_jj_run *r, const fv_jj_dict *d, const fv_jj_value *key) {
    uint32_t mask = (uint32_t)d->cap - 1, at = (uint32_t)hash(r, key) & mask;
    while (d->slot[at] && !fv_jj_equal(r, &d->keys.v[d->slot[at] - 1], key)) at = (at + 1) & mask;
    return &d->slot[at];
}

/* Makes room for one more key: doubles a table that is half full. */
static fv_status make_slots(fv_jj_run *r, fv_jj_dict *d) {
    if (d->keys.n < FEW || 2 * d->keys.n < d->cap) return FV_OK;
    int32_t cap = d->cap ? 2 * d->cap : 4 * FEW, *slot;
    FV_TRY(fv_jj_alloc(r, (size_t)cap * sizeof *slot, (void **)&slot));
    d->slot = slot;
    d->cap = cap;
    for (int32_t i = 0; i < d->keys.n; i++) {
        uint32_t mask = (uint32_t)cap - 1, at = (uint32_t)hash(r, &d->keys.v[i]) & mask;
        for (; slot[at]; at = (at + 1) & mask) fv_jj_spend(r, 1);
        slot[at] = i + 1;
    }
    return fv_jj_steps(r, (size_t)d->keys.n);
}

/* ---- dicts ---- */

static int32_t place_of(fv_jj_run *r, const fv_jj_dict *d, const fv_jj_value *key) {
    fv_jj_spend(r, 1);
    if (d->slot) return *slot_of(r, d, key) - 1;
    for (int32_t i = 0; i < d->keys.n; i++)
        if (fv_jj_equal(r, &d->keys.v[i], key)) return i;
    return -1;
}

const fv_jj_value *fv_jj_dict_find(fv_jj_run *r, const fv_jj_dict *d, const fv_jj_value *key) {
    int32_t at = place_of(r, d, key);
    return at < 0 ? NULL : &d->values.v[at];
}

const fv_jj_value *fv_jj_dict_get(fv_jj_run *r, const fv_jj_dict *d, const char *key) {
    fv_jj_value k = fv_jj_text(key);
    return fv_jj_dict_find(r, d, &k);
}

fv_status fv_jj_dict_put(fv_jj_run *r, fv_jj_dict *d, const fv_jj_value *key, fv_jj_value v) {
    int32_t at = place_of(r, d, key);
    if (at >= 0) {
        d->values.v[at] = v;
        return FV_OK;
    }
    FV_TRY(make_slots(r, d));
    if (d->slot) *slot_of(r, d, key) = d->keys.n + 1;
    FV_TRY(fv_jj_push(r, &d->keys, *key));
    return fv_jj_push(r, &d->values, v);
}
