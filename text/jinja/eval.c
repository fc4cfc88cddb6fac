/* Runs a program by walking its nodes. Compiling them would not pay, as a template runs once per
 * request. One thread per run. */
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

static fv_status callable(fv_jj_run *r, fv_jj_callable c, fv_jj_value *out) {
    fv_jj_callable *kept;
    FV_TRY(fv_jj_alloc(r, sizeof *kept, (void **)&kept));
    *kept = c;
    *out = (fv_jj_value){FV_JJ_CALLABLE, {.callable = kept}};
    return FV_OK;
}

static fv_status look_up(fv_jj_run *r, const char *name, fv_jj_value *out) {
    const fv_jj_value *found = fv_jj_look_up(r, r->scope, name);
    if (found) {
        *out = *found;
        return FV_OK;
    }
    const fv_jj_row *row = fv_jj_find_row(fv_jj_functions, name, strlen(name));
    if (row) return callable(r, (fv_jj_callable){.row = row}, out);
    *out = fv_jj_undefined(name);
    return FV_OK;
}

static fv_status assign_one(fv_jj_run *r, const fv_jj_node *to, fv_jj_value v) {
    if (to->kind == FV_JJ_NAME) return fv_jj_define(r, to->name, v);
    fv_jj_value space, key = fv_jj_text(to->name);
    FV_TRY(fv_jj_eval(r, to->a, &space));
    if (space.kind != FV_JJ_NAMESPACE)
        return FV_JJ_FAIL(r, FV_EINVAL, "attributes of a '%s' cannot be set, only a namespace's",
                          fv_jj_type(&space));
    return fv_jj_dict_put(r, space.dict, &key, v);
}

static fv_status assign(fv_jj_run *r, const fv_jj_node *to, fv_jj_value v) {
    fv_jj_list items;
    int32_t n = 0;
    if (to->kind != FV_JJ_TUPLING) return assign_one(r, to, v);
    FV_TRY(fv_jj_items(r, &v, &items));
    for (const fv_jj_node *t = to->list; t; t = t->next) n++;
    if (n != items.n) return FV_JJ_FAIL(r, FV_EINVAL, "%d values for %d names", items.n, n);
    n = 0;
    for (const fv_jj_node *t = to->list; t; t = t->next) FV_TRY(assign_one(r, t->a, items.v[n++]));
    return FV_OK;
}

/* ---- attributes and items ---- */

static fv_status loop_attribute(const fv_jj_loop *l, const char *name, fv_jj_value *out) {
    int32_t n = l->items.n, at = l->at;
    const struct {
        const char *name;
        fv_jj_value value;
    } all[] = {{"index", fv_jj_int(at + 1)},
               {"index0", fv_jj_int(at)},
               {"revindex", fv_jj_int(n - at)},
               {"revindex0", fv_jj_int(n - at - 1)},
               {"first", fv_jj_bool(at == 0)},
               {"last", fv_jj_bool(at == n - 1)},
               {"length", fv_jj_int(n)},
               {"depth", fv_jj_int(1)},
               {"depth0", fv_jj_int(0)},
               {"previtem", at > 0 ? l->items.v[at - 1] : fv_jj_undefined("loop.previtem")},
               {"nextitem", at + 1 < n ? l->items.v[at + 1] : fv_jj_undefined("loop.nextitem")}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(name, all[i].name) == 0) *out = all[i].value;
    return FV_OK;
}

static const fv_jj_row *method_of(const fv_jj_value *v, const char *name) {
    const fv_jj_row *table = v->kind == FV_JJ_STR                              ? fv_jj_str_methods
                             : v->kind == FV_JJ_DICT                           ? fv_jj_dict_methods
                             : v->kind == FV_JJ_LOOP                           ? fv_jj_loop_methods
                             : v->kind == FV_JJ_LIST || v->kind == FV_JJ_TUPLE ? fv_jj_list_methods
                                                                               : NULL;
    return table ? fv_jj_find_row(table, name, strlen(name)) : NULL;
}

fv_status fv_jj_attribute(fv_jj_run *r, const fv_jj_value *v, const char *name, fv_jj_value *out) {
    FV_TRY(fv_jj_fail_undefined(r, v));
    fv_jj_value self = *v; /* out may be v */
    const fv_jj_row *row = method_of(&self, name);
    if (row) return callable(r, (fv_jj_callable){.row = row, .self = self}, out);
    *out = fv_jj_undefined(name);
    if (self.kind == FV_JJ_LOOP) return loop_attribute(self.loop, name, out);
    if (self.kind != FV_JJ_DICT && self.kind != FV_JJ_NAMESPACE) return FV_OK;
    const fv_jj_value *found = fv_jj_dict_get(r, self.dict, name);
    if (found) *out = *found;
    return FV_OK;
}

/* Characters of a string, items of a list. */
static int64_t length(fv_jj_run *r, const fv_jj_value *v) {
    return v->kind == FV_JJ_STR ? fv_jj_chars(r, v->str) : v->list->n;
}

/* Reads a part of a path: as a number if it is one, else as text. */
static fv_jj_value path_key(fv_jj_str part) {
    int64_t n = 0;
    bool digits = part.n > 0 && part.n < 10;
    for (size_t i = 0; i < part.n && digits; i++) {
        digits = part.s[i] >= '0' && part.s[i] <= '9';
        n = 10 * n + (part.s[i] - '0');
    }
    return digits ? fv_jj_int(n) : fv_jj_of(part);
}

static fv_status at_index(fv_jj_run *r, const fv_jj_value *v, int64_t i, fv_jj_value *out) {
    fv_jj_value self = *v;
    int64_t n = length(r, &self);
    *out = fv_jj_undefined("an item beyond the end");
    if (i < 0) i += n;
    if (i < 0 || i >= n) return FV_OK;
    if (self.kind != FV_JJ_STR) {
        *out = self.list->v[i];
        return FV_OK;
    }
    size_t from = fv_jj_byte_of(r, self.str, i);
    fv_jj_str rest = fv_jj_sub(self.str, from, self.str.n);
    *out = fv_jj_of(fv_jj_sub(rest, 0, fv_jj_byte_of(r, rest, 1)));
    return fv_jj_steps(r, 1);
}

fv_status fv_jj_item(fv_jj_run *r, const fv_jj_value *v, const fv_jj_value *key, fv_jj_value *out) {
    FV_TRY(fv_jj_fail_undefined(r, v));
    const fv_jj_value *found = v->kind == FV_JJ_DICT ? fv_jj_dict_find(r, v->dict, key) : NULL;
    bool indexed = v->kind == FV_JJ_STR || v->kind == FV_JJ_LIST || v->kind == FV_JJ_TUPLE;
    if (found) {
        *out = *found;
        return FV_OK;
    }
    if (indexed && (key->kind == FV_JJ_INT || key->kind == FV_JJ_BOOL))
        return at_index(r, v, fv_jj_whole(key), out);
    if (key->kind == FV_JJ_STR) {
        fv_jj_out name = {0};
        FV_TRY(fv_jj_put(r, &name, key->str.s, key->str.n, NULL));
        FV_TRY(fv_jj_put(r, &name, "", 1, NULL));
        return fv_jj_attribute(r, v, name.s, out);
    }
    *out = fv_jj_undefined("an item");
    return FV_OK;
}

fv_status fv_jj_path(fv_jj_run *r, const fv_jj_value *v, const fv_jj_value *path,
                     const fv_jj_value *otherwise, fv_jj_value *out) {
    if (path->kind != FV_JJ_STR) return fv_jj_item(r, v, path, out);
    fv_jj_str s = path->str, dot = fv_jj_text(".").str;
    *out = *v;
    for (size_t from = 0, to; from <= s.n; from = to + 1) {
        to = fv_jj_find(r, s, dot, from);
        if (to == SIZE_MAX) to = s.n;
        fv_jj_value key = path_key(fv_jj_sub(s, from, to));
        FV_TRY(fv_jj_steps(r, 1));
        FV_TRY(fv_jj_item(r, out, &key, out));
        if (otherwise && out->kind == FV_JJ_UNDEFINED) *out = *otherwise;
    }
    return FV_OK;
}

/* Evaluates a slice's beginning or end and clamps it as Python does. */
static fv_status bound(fv_jj_run *r, const fv_jj_node *e, int64_t n, bool back, int64_t other,
                       int64_t *out) {
    fv_jj_value v = {.kind = FV_JJ_NONE};
    if (e) FV_TRY(fv_jj_eval(r, e, &v));
    if (v.kind == FV_JJ_NONE) {
        *out = other;
        return FV_OK;
    }
    FV_TRY(fv_jj_need_int(r, &v, "the bound of a slice", out));
    if (*out < 0) *out += n;
    int64_t low = back ? -1 : 0, high = back ? n - 1 : n;
    *out = *out < low ? low : *out > high ? high : *out;
    return FV_OK;
}

static fv_status slice(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out) {
    fv_jj_value v, made;
    fv_jj_list items;
    int64_t from, to, step = 1;
    FV_TRY(fv_jj_eval(r, e->a, &v));
    FV_TRY(fv_jj_fail_undefined(r, &v));
    if (v.kind != FV_JJ_STR && v.kind != FV_JJ_LIST && v.kind != FV_JJ_TUPLE) {
        *out = fv_jj_undefined("a slice");
        return FV_OK;
    }
    if (e->orelse) {
        FV_TRY(fv_jj_eval(r, e->orelse, &made));
        if (made.kind != FV_JJ_NONE) FV_TRY(fv_jj_need_int(r, &made, "the step of a slice", &step));
    }
    if (step == 0) return FV_JJ_FAIL(r, FV_EINVAL, "the step of a slice is %d", 0);
    int64_t n = length(r, &v);
    if (step > n) step = n + 1;
    if (step < -n) step = -n - 1;
    bool back = step < 0;
    FV_TRY(bound(r, e->b, n, back, back ? n - 1 : 0, &from));
    FV_TRY(bound(r, e->c, n, back, back ? -1 : n, &to));
    if (v.kind == FV_JJ_STR && step == 1) {
        size_t first = fv_jj_byte_of(r, v.str, from);
        size_t end = to > from ? fv_jj_byte_of(r, v.str, to) : first;
        *out = fv_jj_of(fv_jj_sub(v.str, first, end));
        return fv_jj_steps(r, 1);
    }
    fv_jj_out text = {0};
    FV_TRY(fv_jj_items(r, &v, &items));
    FV_TRY(fv_jj_new_list(r, v.kind, &made));
    for (; back ? from > to : from < to; from += step) {
        const fv_jj_value *one = &items.v[from];
        if (v.kind == FV_JJ_STR)
            FV_TRY(fv_jj_put(r, &text, one->str.s, one->str.n, one->str.user));
        else
            FV_TRY(fv_jj_push(r, made.list, *one));
    }
    *out = v.kind == FV_JJ_STR ? fv_jj_taken(&text) : made;
    return FV_OK;
}

/* ---- expressions ---- */

static fv_status listing(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out) {
    fv_jj_value list, v;
    FV_TRY(fv_jj_new_list(r, e->kind == FV_JJ_LISTING ? FV_JJ_LIST : FV_JJ_TUPLE, &list));
    for (const fv_jj_node *n = e->list; n; n = n->next) {
        FV_TRY(fv_jj_eval(r, n->a, &v));
        FV_TRY(fv_jj_push(r, list.list, v));
    }
    *out = list;
    return FV_OK;
}

static fv_status dicting(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out) {
    fv_jj_value dict, key, v;
    FV_TRY(fv_jj_new_dict(r, FV_JJ_DICT, &dict));
    for (const fv_jj_node *n = e->list; n; n = n->next) {
        FV_TRY(fv_jj_eval(r, n->a, &key));
        FV_TRY(fv_jj_eval(r, n->b, &v));
        FV_TRY(fv_jj_dict_put(r, dict.dict, &key, v));
    }
    *out = dict;
    return FV_OK;
}

/* The arguments of a call while they are evaluated. */
typedef struct given {
    fv_jj_list values;
    const char **name; /* [cap] NULL: by position */
    int32_t cap;
} given;

static fv_status add(fv_jj_run *r, given *g, const char *name, fv_jj_value v) {
    if (g->values.n == g->cap) {
        const char **more;
        int32_t cap = 2 * g->cap + 8;
        FV_TRY(fv_jj_alloc(r, (size_t)cap * sizeof *more, (void **)&more));
        if (g->cap) memcpy(more, g->name, (size_t)g->cap * sizeof *more);
        g->name = more;
        g->cap = cap;
    }
    g->name[g->values.n] = name;
    return fv_jj_push(r, &g->values, v);
}

/* Adds the pairs of a dict as arguments with names. */
static fv_status add_pairs(fv_jj_run *r, given *g, const fv_jj_value *v) {
    fv_jj_str key;
    if (v->kind != FV_JJ_DICT)
        return FV_JJ_FAIL(r, FV_EINVAL, "** needs a dict, not '%s'", fv_jj_type(v));
    for (int32_t i = 0; i < v->dict->keys.n; i++) {
        fv_jj_out text = {0};
        FV_TRY(fv_jj_need_str(r, &v->dict->keys.v[i], "the name of an argument", &key));
        FV_TRY(fv_jj_put(r, &text, key.s, key.n, NULL));
        FV_TRY(fv_jj_put(r, &text, "", 1, NULL));
        const char *known = fv_jj_names_find(&r->program->names, text.s);
        FV_TRY(add(r, g, known ? known : text.s, v->dict->values.v[i]));
    }
    return FV_OK;
}

static fv_status add_all(fv_jj_run *r, const fv_jj_node *list, given *g) {
    fv_jj_value v;
    fv_jj_list items;
    for (const fv_jj_node *a = list; a; a = a->next) {
        FV_TRY(fv_jj_eval(r, a->a, &v));
        if (a->op == FV_JJ_OP('*', '*')) {
            FV_TRY(add_pairs(r, g, &v));
        } else if (a->op == '*') {
            FV_TRY(fv_jj_items(r, &v, &items));
            for (int32_t i = 0; i < items.n; i++) FV_TRY(add(r, g, NULL, items.v[i]));
        } else {
            FV_TRY(add(r, g, a->name, v));
        }
    }
    return FV_OK;
}

/* Evaluates the arguments of e, then calls its row with `self` or, without a row, the callee.
 * `caller`: the body of a call block, one more argument; NULL: there is none. */
static fv_status call_with(fv_jj_run *r, const fv_jj_node *e, const fv_jj_value *self,
                           const fv_jj_value *caller, fv_jj_value *out) {
    given g = {0};
    FV_TRY(add_all(r, e->list, &g));
    if (caller) FV_TRY(add(r, &g, caller->callable->macro->name, *caller));
    fv_jj_args args = {.v = g.values.v, .name = g.name, .n = g.values.n};
    r->line = e->line;
    return e->row ? fv_jj_call_row(r, e->row, self, &args, out) : fv_jj_call(r, self, &args, out);
}

static fv_status call(fv_jj_run *r, const fv_jj_node *e, const fv_jj_value *self,
                      fv_jj_value *out) {
    return call_with(r, e, self, NULL, out);
}

static fv_status compare(fv_jj_run *r, int32_t op, const fv_jj_value *a, const fv_jj_value *b,
                         bool *out) {
    int sign;
    switch (op) {
    case FV_JJ_OP('=', '='): *out = fv_jj_equal(r, a, b); return FV_OK;
    case FV_JJ_OP('!', '='): *out = !fv_jj_equal(r, a, b); return FV_OK;
    case FV_JJ_IN:
    case FV_JJ_NOT_IN:
        FV_TRY(fv_jj_contains(r, b, a, out));
        *out ^= op == FV_JJ_NOT_IN;
        return FV_OK;
    default: break;
    }
    FV_TRY(fv_jj_order(r, a, b, &sign));
    *out = (op >> 8 && sign == 0) || ((op & 0xff) == '<' ? sign < 0 : sign > 0);
    return FV_OK;
}

static fv_status comparison(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out) {
    fv_jj_value a, b;
    bool holds = true;
    FV_TRY(fv_jj_eval(r, e->a, &a));
    for (const fv_jj_node *n = e->list; n && holds; n = n->next, a = b) {
        FV_TRY(fv_jj_eval(r, n->a, &b));
        r->line = e->line;
        FV_TRY(compare(r, n->op, &a, &b, &holds));
    }
    *out = fv_jj_bool(holds);
    return FV_OK;
}

static fv_status join(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out) {
    fv_jj_out text = {0};
    fv_jj_value v;
    for (const fv_jj_node *n = e->list; n; n = n->next) {
        FV_TRY(fv_jj_eval(r, n->a, &v));
        FV_TRY(fv_jj_put_str(r, &text, &v));
    }
    *out = fv_jj_taken(&text);
    return FV_OK;
}

static fv_status with_operand(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out) {
    fv_jj_value a, b = fv_jj_int(0), minus = fv_jj_int(-1);
    FV_TRY(fv_jj_eval(r, e->a, &a));
    r->line = e->line;
    switch (e->kind) {
    case FV_JJ_ATTR: return fv_jj_attribute(r, &a, e->name, out);
    case FV_JJ_CALL:
    case FV_JJ_FILTER:
    case FV_JJ_TEST: return call(r, e, &a, out);
    case FV_JJ_NOT: *out = fv_jj_bool(!fv_jj_truth(&a)); return FV_OK;
    case FV_JJ_NEG: return fv_jj_arithmetic(r, '*', &minus, &a, out);
    case FV_JJ_POS: return fv_jj_arithmetic(r, '+', &b, &a, out);
    case FV_JJ_AND:
    case FV_JJ_OR:
        *out = a;
        return fv_jj_truth(&a) == (e->kind == FV_JJ_AND) ? fv_jj_eval(r, e->b, out) : FV_OK;
    case FV_JJ_CHOICE:
        *out = fv_jj_undefined("an inline if without else");
        if (fv_jj_truth(&a)) return fv_jj_eval(r, e->b, out);
        return e->c ? fv_jj_eval(r, e->c, out) : FV_OK;
    default: break;
    }
    FV_TRY(fv_jj_eval(r, e->b, &b));
    r->line = e->line;
    return e->kind == FV_JJ_ITEM ? fv_jj_item(r, &a, &b, out)
                                 : fv_jj_arithmetic(r, e->op, &a, &b, out);
}

static fv_status eval(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out) {
    switch (e->kind) {
    case FV_JJ_CONST: *out = e->value; return FV_OK;
    case FV_JJ_CAPTURED: *out = r->captured; return FV_OK;
    case FV_JJ_NAME: return look_up(r, e->name, out);
    case FV_JJ_LISTING:
    case FV_JJ_TUPLING: return listing(r, e, out);
    case FV_JJ_DICTING: return dicting(r, e, out);
    case FV_JJ_SLICE: return slice(r, e, out);
    case FV_JJ_JOIN: return join(r, e, out);
    case FV_JJ_COMPARE: return comparison(r, e, out);
    default: return with_operand(r, e, out);
    }
}

static fv_status deeper(fv_jj_run *r, int32_t line) {
    r->line = line;
    FV_TRY(fv_jj_steps(r, 1));
    if (++r->depth <= FV_JINJA_DEPTH) return FV_OK;
    return FV_JJ_FAIL(r, FV_EINVAL, "more than %d levels of nesting", FV_JINJA_DEPTH);
}

fv_status fv_jj_eval(fv_jj_run *r, const fv_jj_node *e, fv_jj_value *out) {
    FV_TRY(deeper(r, e->line));
    FV_TRY(eval(r, e, out));
    r->depth--;
    return FV_OK;
}

/* ---- statements ---- */

/* Gives the items of a loop that pass its condition. */
static fv_status chosen_items(fv_jj_run *r, const fv_jj_node *s, fv_jj_list *out) {
    fv_jj_value v;
    fv_jj_list all;
    fv_jj_scope *outer = r->scope;
    FV_TRY(fv_jj_eval(r, s->b, &v));
    FV_TRY(fv_jj_items(r, &v, &all));
    *out = all;
    if (!s->c) return FV_OK;
    *out = (fv_jj_list){0};
    for (int32_t i = 0; i < all.n; i++) {
        FV_TRY(fv_jj_enter(r, outer));
        FV_TRY(assign(r, s->a, all.v[i]));
        FV_TRY(fv_jj_eval(r, s->c, &v));
        if (fv_jj_truth(&v)) FV_TRY(fv_jj_push(r, out, all.v[i]));
    }
    r->scope = outer;
    return FV_OK;
}

static fv_status loop(fv_jj_run *r, const fv_jj_node *s) {
    fv_jj_loop *l;
    fv_jj_scope *outer = r->scope;
    FV_TRY(fv_jj_alloc(r, sizeof *l, (void **)&l));
    FV_TRY(chosen_items(r, s, &l->items));
    if (l->items.n == 0) return fv_jj_exec(r, s->orelse);
    for (l->at = 0; l->at < l->items.n && r->flow != FV_JJ_BROKEN; l->at++) {
        r->flow = FV_JJ_GO;
        FV_TRY(fv_jj_enter(r, outer));
        FV_TRY(assign(r, s->a, l->items.v[l->at]));
        if (r->loop) FV_TRY(fv_jj_define(r, r->loop, (fv_jj_value){FV_JJ_LOOP, {.loop = l}}));
        FV_TRY(fv_jj_exec(r, s->body));
    }
    r->flow = FV_JJ_GO;
    r->scope = outer;
    return FV_OK;
}

static fv_status branch(fv_jj_run *r, const fv_jj_node *s) {
    fv_jj_value v;
    for (;; s = s->orelse) {
        FV_TRY(fv_jj_eval(r, s->a, &v));
        if (fv_jj_truth(&v)) return fv_jj_exec(r, s->body);
        bool is_elif = s->orelse && s->orelse->kind == FV_JJ_IF && !s->orelse->next;
        if (!is_elif) return fv_jj_exec(r, s->orelse);
    }
}

fv_status fv_jj_exec_text(fv_jj_run *r, const fv_jj_node *body, fv_jj_value *out) {
    fv_jj_out text = {0}, *around = r->out;
    fv_jj_scope *outer = r->scope;
    r->out = &text;
    fv_status st = fv_jj_enter(r, outer);
    if (st == FV_OK) st = fv_jj_exec(r, body);
    r->scope = outer;
    r->out = around;
    FV_TRY(st);
    *out = fv_jj_taken(&text);
    return FV_OK;
}

static fv_status capture(fv_jj_run *r, const fv_jj_node *s) {
    fv_jj_value text, before = r->captured;
    FV_TRY(fv_jj_exec_text(r, s->body, &text));
    r->captured = text;
    FV_TRY(fv_jj_eval(r, s->b, &text));
    r->captured = before;
    return s->a ? assign(r, s->a, text) : fv_jj_put_str(r, r->out, &text);
}

static fv_status with(fv_jj_run *r, const fv_jj_node *s) {
    fv_jj_scope *outer = r->scope, *inner;
    fv_jj_value v;
    FV_TRY(fv_jj_enter(r, outer));
    inner = r->scope;
    for (const fv_jj_node *set = s->list; set; set = set->next) {
        r->scope = outer;
        FV_TRY(fv_jj_eval(r, set->b, &v));
        r->scope = inner;
        FV_TRY(assign(r, set->a, v));
    }
    FV_TRY(fv_jj_exec(r, s->body));
    r->scope = outer;
    return FV_OK;
}

/* Prints what a macro writes that may call the block's body as `caller`. */
static fv_status call_block(fv_jj_run *r, const fv_jj_node *s) {
    fv_jj_value body, callee, v;
    FV_TRY(callable(r, (fv_jj_callable){.macro = s, .scope = r->scope}, &body));
    FV_TRY(fv_jj_eval(r, s->a->a, &callee));
    FV_TRY(call_with(r, s->a, &callee, &body, &v));
    return fv_jj_put_str(r, r->out, &v);
}

static fv_status statement(fv_jj_run *r, const fv_jj_node *s) {
    fv_jj_value v;
    switch (s->kind) {
    case FV_JJ_DATA: return fv_jj_put_str(r, r->out, &s->value);
    case FV_JJ_PRINT: FV_TRY(fv_jj_eval(r, s->a, &v)); return fv_jj_put_str(r, r->out, &v);
    case FV_JJ_FOR: return loop(r, s);
    case FV_JJ_IF: return branch(r, s);
    case FV_JJ_SET: FV_TRY(fv_jj_eval(r, s->b, &v)); return assign(r, s->a, v);
    case FV_JJ_CAPTURE: return capture(r, s);
    case FV_JJ_MACRO:
        FV_TRY(callable(r, (fv_jj_callable){.macro = s, .scope = r->scope}, &v));
        return fv_jj_define(r, s->name, v);
    case FV_JJ_WITH: return with(r, s);
    case FV_JJ_CALLER: return call_block(r, s);
    default: r->flow = s->kind == FV_JJ_BREAK ? FV_JJ_BROKEN : FV_JJ_CONTINUED; return FV_OK;
    }
}

fv_status fv_jj_exec(fv_jj_run *r, const fv_jj_node *body) {
    for (const fv_jj_node *s = body; s && r->flow == FV_JJ_GO; s = s->next) {
        FV_TRY(deeper(r, s->line));
        FV_TRY(statement(r, s));
        r->depth--;
    }
    return FV_OK;
}

/* ---- a run ---- */

/* Defines those of `vars` that the program uses; `user`: their strings are the user's. */
static fv_status define_all(fv_jj_run *r, const json_t *vars, bool user) {
    const char *key;
    json_t *member;
    fv_jj_value v;
    json_object_foreach((json_t *)(uintptr_t)vars, key, member) {
        const char *name = fv_jj_names_find(&r->program->names, key);
        if (!name) continue;
        FV_TRY(fv_jj_of_json(r, member, user, &v));
        FV_TRY(fv_jj_define(r, name, v));
    }
    return FV_OK;
}

static fv_status give(const fv_jj_out *made, fv_jinja_text *out) {
    fv_jinja_text t = {.n = made->n, .text = malloc(made->n + 1), .user = calloc(made->n + 1, 1)};
    if (!t.text || !t.user) {
        fv_jinja_text_free(&t);
        return FV_FAIL(FV_ENOMEM, "no memory for a prompt");
    }
    if (t.n) memcpy(t.text, made->s, t.n);
    if (made->user) memcpy(t.user, made->user, t.n);
    t.text[t.n] = '\0';
    *out = t;
    return FV_OK;
}

static fv_status run(fv_jj_run *r, const json_t *vars, const json_t *user) {
    FV_TRY(fv_jj_enter(r, NULL));
    FV_TRY(define_all(r, vars, false));
    if (user) FV_TRY(define_all(r, user, true));
    FV_TRY(fv_jj_enter(r, r->scope));
    FV_TRY(fv_jj_exec(r, r->program->body));
    return fv_jj_steps(r, 0); /* the last comparison may have taken too many */
}

static fv_jj_run run_of(const fv_jinja *p, fv_jj_out *out) {
    return (fv_jj_run){
        .program = p, .loop = fv_jj_names_find(&p->names, "loop"), .out = out, .line = 1};
}

fv_status fv_jinja_run(const fv_jinja *p, const json_t *vars, const json_t *user, int64_t now,
                       double until_s, fv_jinja_text *out) {
    fv_jj_out text = {0};
    fv_jj_run r = run_of(p, &text);
    r.now = now;
    r.until_s = until_s;
    fv_status st = run(&r, vars, user);
    if (st == FV_OK) st = give(&text, out);
    fv_arena_fini(&r.arena);
    return st;
}

int64_t fv_jinja_count_steps(const fv_jinja *p, const json_t *vars) {
    fv_jj_out text = {0};
    fv_jj_run r = run_of(p, &text);
    (void)run(&r, vars, NULL);
    fv_arena_fini(&r.arena);
    return r.steps;
}

void fv_jinja_text_free(fv_jinja_text *t) {
    free(t->text);
    free(t->user);
    *t = (fv_jinja_text){0};
}
