/* Expressions -> states. A state is made after those that follow it, so an expression is emitted from its end to
 * its beginning: emit(e, next) gives the state where e begins. State 0 is the end of every rule. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

enum { UNROLLED_MAX = 3 };

fv_status fv_emit_state(fv_compile *c, fv_net_state s, int32_t *out) {
    const size_t cap = c->net.cap;
    FV_TRY(fv_compile_step(c, 1));
    FV_TRY(fv_grow(&c->net.state, &c->net.cap, c->net.n + 1, sizeof *c->net.state));
    c->bytes += (c->net.cap - cap) * sizeof *c->net.state;
    if (c->bytes > c->bytes_max) {
        c->bytes = c->bytes_max;
        return fv_compile_alloc(c, 1, 1, &(void *){NULL});
    }
    c->net.state[c->net.n] = s;
    *out = (int32_t)c->net.n++;
    return FV_OK;
}

static fv_status split(fv_compile *c, int32_t a, int32_t b, int32_t *out) {
    return fv_emit_state(c, (fv_net_state){.kind = FV_NET_SPLIT, .a = a, .b = b}, out);
}

static fv_status nothing(fv_compile *c, int32_t next, int32_t *out) {
    return fv_emit_state(c, (fv_net_state){.kind = FV_NET_RANGE, .lo = 1, .hi = 0, .a = next}, out);
}

static fv_status emit(fv_compile *c, const fv_expr *e, bool json, int32_t next, int32_t *out);

/* ---- alternatives -------------------------------------------------------------------------- */

typedef struct word {
    const char *s;
    size_t n;
} word;

static int by_bytes(const void *a, const void *b) {
    const word *x = a, *y = b;
    const size_t n = x->n < y->n ? x->n : y->n;
    int order = n ? memcmp(x->s, y->s, n) : 0;
    return order ? order : x->n < y->n ? -1 : x->n > y->n;
}

/* Sorted texts, each once, of which the first `at` bytes are written already, as a tree, so that common beginnings are one path. */
static fv_status emit_words(fv_compile *c, const word *w, size_t n, size_t at, bool json,
                            int32_t next, int32_t *out) {
    size_t common = at;
    int32_t all = -1, one;
    while (common < w[0].n && common < w[n - 1].n && w[0].s[common] == w[n - 1].s[common]) common++;
    for (size_t i = n; i-- > 0;) {
        size_t from = i;
        if (w[i].n == common) {
            one = next;
        } else {
            while (from > 0 && w[from - 1].n > common && w[from - 1].s[common] == w[i].s[common])
                from--;
            if (i == from)
                FV_TRY(fv_emit_text(c, w[i].s + common, w[i].n - common, json, next, &one));
            else
                FV_TRY(emit_words(c, w + from, i - from + 1, common, json, next, &one));
        }
        if (all < 0)
            all = one;
        else
            FV_TRY(split(c, one, all, &all));
        i = from;
    }
    return fv_emit_text(c, w[0].s + at, common - at, json, all, out);
}

static fv_status emit_alternatives(fv_compile *c, const fv_expr *e, bool json, int32_t next,
                                   int32_t *out) {
    word *words;
    size_t n = 0;
    int32_t all = -1, one;
    FV_TRY(FV_COMPILE_NEW(c, e->n + 1, words));
    for (int32_t i = e->n; i-- > 0;) {
        if (e->item[i]->kind == FV_EXPR_TEXT) {
            words[n++] = (word){e->item[i]->text, (size_t)e->item[i]->n};
            continue;
        }
        FV_TRY(emit(c, e->item[i], json, next, &one));
        if (all < 0)
            all = one;
        else
            FV_TRY(split(c, one, all, &all));
    }
    if (n) {
        qsort(words, n, sizeof *words, by_bytes);
        FV_TRY(fv_compile_step(c, (int64_t)n * 16));
        size_t kept = 1;
        for (size_t i = 1; i < n; i++)
            if (by_bytes(&words[i], &words[kept - 1]) != 0) words[kept++] = words[i];
        FV_TRY(emit_words(c, words, kept, 0, json, next, &one));
        if (all < 0)
            all = one;
        else
            FV_TRY(split(c, one, all, &all));
    }
    if (all < 0) return nothing(c, next, out);
    *out = all;
    return FV_OK;
}

/* ---- the other kinds ----------------------------------------------------------------------- */

/* item{min, max}: a loop where no counting is needed, a few copies where there are few, else a counted rule. */
static fv_status emit_counted(fv_compile *c, const fv_expr *item, int32_t min, int32_t max,
                              bool json, int32_t next, int32_t *out) {
    int32_t body;
    if (max < 0 && min <= 1) {
        int32_t loop;
        FV_TRY(split(c, -1, next, &loop));
        FV_TRY(emit(c, item, json, loop, &body));
        c->net.state[loop].a = body;
        *out = min ? body : loop;
        return FV_OK;
    }
    if (max >= 0 && max <= UNROLLED_MAX) {
        int32_t at = next;
        for (int32_t i = max; i-- > 0;) {
            FV_TRY(emit(c, item, json, at, &at));
            if (i >= min) FV_TRY(split(c, at, next, &at));
        }
        *out = at;
        return FV_OK;
    }
    FV_TRY(emit(c, item, json, 0, &body));
    return fv_emit_state(
        c, (fv_net_state){.kind = FV_NET_REPEAT, .a = body, .b = next, .min = min, .max = max},
        out);
}

/* An automaton's states become states of the network. */
static fv_status emit_dfa(fv_compile *c, const fv_dfa *d, bool json, int32_t next, int32_t *out) {
    int32_t *first, one;
    fv_span *span;
    if (d->n < 2) return nothing(c, next, out);
    FV_TRY(FV_COMPILE_NEW(c, d->n, first));
    FV_TRY(FV_COMPILE_NEW(c, d->n_class, span));
    for (int32_t i = 1; i < d->n; i++) FV_TRY(split(c, -1, -1, &first[i]));
    for (int32_t i = 1; i < d->n; i++) {
        const int32_t *to = d->next + (size_t)i * (size_t)d->n_class;
        int32_t all = -1;
        FV_TRY(fv_compile_step(c, d->n_class));
        for (int32_t k = 0; k < d->n_class; k++) {
            int32_t n = 0;
            bool done = to[k] == 0;
            for (int32_t j = 0; j < k && !done; j++) done = to[j] == to[k];
            if (done) continue;
            FV_TRY(fv_compile_step(c, d->n_class));
            for (int32_t j = k; j < d->n_class; j++) {
                const int32_t hi = j + 1 < d->n_class ? d->lo[j + 1] - 1 : FV_CP_MAX;
                if (to[j] != to[k]) continue;
                if (n && span[n - 1].hi + 1 == d->lo[j])
                    span[n - 1].hi = hi;
                else
                    span[n++] = (fv_span){d->lo[j], hi};
            }
            FV_TRY(fv_emit_spans(c, span, (size_t)n, json, first[to[k]], &one));
            if (all < 0)
                all = one;
            else
                FV_TRY(split(c, one, all, &all));
        }
        if (all < 0) FV_TRY(nothing(c, next, &all));
        c->net.state[first[i]].a = all;
        if (d->accepts[i]) c->net.state[first[i]].b = next;
    }
    *out = first[1];
    return FV_OK;
}

static fv_status emit_members(fv_compile *c, const fv_expr *e, bool json, int32_t next,
                              int32_t *out) {
    const fv_expr *rest = e->item[e->n - 1];
    int32_t after = next, empty = next, one; /* after a member, and before the first one */
    if (e->min) FV_TRY(nothing(c, next, &empty));
    if (rest && e->max != 0) {
        const fv_expr *pair[] = {e->between, rest};
        const fv_expr more = {.kind = FV_EXPR_SEQ, .n = 2, .item = (fv_expr **)(uintptr_t)pair};
        int32_t others = next;
        FV_TRY(emit_counted(c, &more, 0, e->max, json, next, &after));
        if (e->max != 1)
            FV_TRY(emit_counted(c, &more, 0, e->max < 0 ? -1 : e->max - 1, json, next, &others));
        FV_TRY(emit(c, rest, json, others, &one));
        FV_TRY(split(c, one, empty, &empty));
    }
    for (int32_t i = e->n - 1; i-- > 0;) {
        int32_t member, later;
        FV_TRY(emit(c, e->item[i], json, after, &member));
        FV_TRY(emit(c, e->between, json, member, &later));
        if (!e->need[i]) {
            FV_TRY(split(c, later, after, &later));
            FV_TRY(split(c, member, empty, &member));
        }
        after = later;
        empty = member;
    }
    *out = empty;
    return FV_OK;
}

static fv_status emit(fv_compile *c, const fv_expr *e, bool json, int32_t next, int32_t *out) {
    FV_TRY(fv_compile_step(c, 1));
    switch (e->kind) {
    case FV_EXPR_TEXT: return fv_emit_text(c, e->text, (size_t)e->n, json, next, out);
    case FV_EXPR_SET: return fv_emit_spans(c, e->span, (size_t)e->n, json, next, out);
    case FV_EXPR_SEQ:
        for (int32_t i = e->n; i-- > 0;) FV_TRY(emit(c, e->item[i], json, next, &next));
        *out = next;
        return FV_OK;
    case FV_EXPR_ALT: return emit_alternatives(c, e, json, next, out);
    case FV_EXPR_REPEAT: return emit_counted(c, e->item[0], e->min, e->max, json, next, out);
    case FV_EXPR_RULE: /* a: the rule's number, until all have been emitted */
        return fv_emit_state(c, (fv_net_state){.kind = FV_NET_CALL, .a = e->rule, .b = next}, out);
    case FV_EXPR_JSON: return emit(c, e->item[0], true, next, out);
    case FV_EXPR_CHAR: return fv_emit_char(c, next, out);
    case FV_EXPR_DFA: return emit_dfa(c, e->dfa, json, next, out);
    case FV_EXPR_MEMBERS: return emit_members(c, e, json, next, out);
    case FV_EXPR_BEGIN:
    case FV_EXPR_END: break;
    }
    return FV_FAIL(FV_EINVAL, "^ and $ may stand at the beginning and the end of a pattern only");
}

fv_status fv_emit_rules(fv_compile *c, int32_t start) {
    int32_t end;
    FV_TRY(fv_emit_state(c, (fv_net_state){.kind = FV_NET_POP}, &end));
    for (size_t i = 0; i < c->n_rule; i++) {
        if (!c->rule[i].expr)
            return FV_FAIL(FV_EINVAL, "the rule %.64s is used and not defined", c->rule[i].name);
        FV_TRY(emit(c, c->rule[i].expr, false, end, &c->rule[i].start));
    }
    for (size_t i = 0; i < c->net.n; i++)
        if (c->net.state[i].kind == FV_NET_CALL)
            c->net.state[i].a = c->rule[c->net.state[i].a].start;
    c->net.start = c->rule[start].start;
    return FV_OK;
}
