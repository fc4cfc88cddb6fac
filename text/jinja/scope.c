/* Variables. Most scopes have a few, in a list; a scope with more has a table too, hashed by the
 * pointers of the names, which are interned (fv_jj_names). */
#include <string.h>

#include "text/jinja/internal.h"

enum { FEW = 8 };

typedef struct variable {
    const char *name;
    fv_jj_value value;
    struct variable *next;
} variable;

struct fv_jj_scope {
    fv_jj_scope *up;
    variable *first;
    variable **slot; /* [cap] NULL: free; no table while variables are few */
    uint32_t n, cap; /* a power of two */
};

fv_status fv_jj_enter(fv_jj_run *r, fv_jj_scope *up) {
    fv_jj_scope *s;
    FV_TRY(fv_jj_alloc(r, sizeof *s, (void **)&s));
    s->up = up;
    r->scope = s;
    return FV_OK;
}

/* Finds the name's slot, or the free slot where it belongs. */
static variable **slot_of(const fv_jj_scope *s, const char *name) {
    uint64_t h = (uint64_t)(uintptr_t)name * 0x9e3779b97f4a7c15u;
    uint32_t mask = s->cap - 1, at = (uint32_t)(h >> 32) & mask;
    while (s->slot[at] && s->slot[at]->name != name) at = (at + 1) & mask;
    return &s->slot[at];
}

static variable *find(const fv_jj_scope *s, const char *name) {
    if (s->cap) return *slot_of(s, name);
    variable *v = s->first;
    while (v && v->name != name) v = v->next;
    return v;
}

/* Makes room for one more variable: the table is never more than half full. */
static fv_status make_slots(fv_jj_run *r, fv_jj_scope *s) {
    if (s->n < FEW || 2 * s->n < s->cap) return FV_OK;
    uint32_t cap = s->cap ? 2 * s->cap : 4 * FEW;
    variable **slot;
    FV_TRY(fv_jj_alloc(r, cap * sizeof *slot, (void **)&slot));
    s->slot = slot;
    s->cap = cap;
    for (variable *v = s->first; v; v = v->next) *slot_of(s, v->name) = v;
    return fv_jj_steps(r, s->n);
}

fv_status fv_jj_define(fv_jj_run *r, const char *name, fv_jj_value value) {
    fv_jj_scope *s = r->scope;
    variable *v = find(s, name);
    FV_TRY(fv_jj_steps(r, 1));
    if (!v) {
        FV_TRY(make_slots(r, s));
        FV_TRY(fv_jj_alloc(r, sizeof *v, (void **)&v));
        v->name = name;
        v->next = s->first;
        s->first = v;
        s->n++;
        if (s->cap) *slot_of(s, name) = v;
    }
    v->value = value;
    return FV_OK;
}

const fv_jj_value *fv_jj_look_up(fv_jj_run *r, const fv_jj_scope *in, const char *name) {
    for (const fv_jj_scope *s = in; s; s = s->up) {
        const variable *v = find(s, name);
        fv_jj_spend(r, 1);
        if (v) return &v->value;
    }
    return NULL;
}
