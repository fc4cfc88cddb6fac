/* Deterministic automata over characters: made of expressions by sets of states, joined by pairs of states. They
 * are needed where a text must satisfy two things at once, or one and not another: patterns with lengths, names that
 * match no other pattern. Their size is limited, so what explodes is refused. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

/* ---- expressions as a network over characters ------------------------------------------------ */

typedef struct node {
    const fv_span *span; /* [n] a character, then a; NULL: a or b, -1: none */
    int32_t n, a, b;
} node;

typedef struct builder {
    fv_compile *c;
    node *node; /* [n]; node 0 is the end */
    size_t n, cap;
} builder;

static fv_status add_node(builder *b, node x, int32_t *out) {
    FV_TRY(fv_compile_step(b->c, 1));
    if (b->n > 1 << 17) return FV_FAIL(FV_EINVAL, "a pattern is too large: make it shorter");
    FV_TRY(fv_grow(&b->node, &b->cap, b->n + 1, sizeof *b->node));
    b->node[b->n] = x;
    *out = (int32_t)b->n++;
    return FV_OK;
}

static fv_status either(builder *b, int32_t x, int32_t y, int32_t *out) {
    return add_node(b, (node){.a = x, .b = y}, out);
}

static fv_status build(builder *b, const fv_expr *e, int32_t next, int32_t *out);

static fv_status build_text(builder *b, const fv_expr *e, int32_t next, int32_t *out) {
    fv_span *span;
    size_t n = 0, at = 0;
    FV_TRY(FV_COMPILE_NEW(b->c, e->n + 1, span));
    for (size_t len; at < (size_t)e->n; at += len, n++) {
        len = fv_cp_next(e->text + at, (size_t)e->n - at, &span[n].lo);
        if (len == 0) return FV_FAIL(FV_EINVAL, "a text is not valid UTF-8");
        span[n].hi = span[n].lo;
    }
    *out = next;
    while (n-- > 0) FV_TRY(add_node(b, (node){&span[n], 1, *out, -1}, out));
    return FV_OK;
}

static fv_status build_repeat(builder *b, const fv_expr *e, int32_t next, int32_t *out) {
    int32_t at = next, body;
    if (e->max < 0) {
        FV_TRY(either(b, -1, next, &at));
        FV_TRY(build(b, e->item[0], at, &body));
        b->node[at].a = body;
    }
    for (int32_t i = e->max; i-- > e->min;) {
        FV_TRY(build(b, e->item[0], at, &at));
        FV_TRY(either(b, at, next, &at));
    }
    for (int32_t i = 0; i < e->min; i++) FV_TRY(build(b, e->item[0], at, &at));
    *out = at;
    return FV_OK;
}

static const fv_span no_character = {1, 0};

static fv_status build(builder *b, const fv_expr *e, int32_t next, int32_t *out) {
    int32_t all = -1, one;
    FV_TRY(fv_compile_step(b->c, 1));
    switch (e->kind) {
    case FV_EXPR_TEXT: return build_text(b, e, next, out);
    case FV_EXPR_SET: return add_node(b, (node){e->span, e->n, next, -1}, out);
    case FV_EXPR_SEQ:
        for (int32_t i = e->n; i-- > 0;) FV_TRY(build(b, e->item[i], next, &next));
        *out = next;
        return FV_OK;
    case FV_EXPR_ALT:
        for (int32_t i = e->n; i-- > 0;) {
            FV_TRY(build(b, e->item[i], next, &one));
            FV_TRY(either(b, one, all, &all));
        }
        if (all < 0) FV_TRY(add_node(b, (node){&no_character, 0, next, -1}, &all));
        *out = all;
        return FV_OK;
    case FV_EXPR_REPEAT: return build_repeat(b, e, next, out);
    default: return FV_FAIL(FV_EINVAL, "a pattern has an anchor within, or is no pattern");
    }
}

/* ---- sets of nodes --------------------------------------------------------------------------- */

typedef struct maker {
    fv_compile *c;
    fv_dfa *d;
    size_t cap_next, cap_accepts, cap_first;
    /* The key of state i: key[first[i] .. first[i + 1]). */
    int32_t *key;
    size_t *first, n_key, cap_key;
    int32_t *slot; /* [mask + 1] */
    size_t mask;
} maker;

static uint64_t hash(const int32_t *key, size_t n) {
    uint64_t h = 0xCBF29CE484222325;
    for (size_t i = 0; i < n; i++) h = (h ^ (uint32_t)key[i]) * 0x100000001B3;
    return h ^ h >> 29;
}

static fv_status maker_open(maker *m, fv_compile *c, int32_t n_class) {
    *m = (maker){.c = c, .mask = 2 * FV_DFA_STATES_MAX * 2 - 1};
    FV_TRY(FV_COMPILE_NEW(c, 1, m->d));
    FV_TRY(FV_COMPILE_NEW(c, n_class, m->d->lo));
    m->d->n_class = n_class;
    m->slot = calloc(m->mask + 1, sizeof *m->slot);
    return m->slot ? FV_OK : FV_FAIL(FV_ENOMEM, "out of memory for a pattern");
}

/* Gives the state of a key, which is made if it is new. An empty key is state 0. */
static fv_status state_of(maker *m, const int32_t *key, size_t n, bool accepts, int32_t *out) {
    fv_dfa *d = m->d;
    size_t at = hash(key, n) & m->mask;
    if (n == 0 && d->n > 0) {
        *out = 0;
        return FV_OK;
    }
    for (int32_t s; (s = m->slot[at]); at = (at + 1) & m->mask)
        if (m->first[s + 1] - m->first[s] == n &&
            memcmp(m->key + m->first[s], key, n * sizeof *key) == 0) {
            *out = s;
            return FV_OK;
        }
    if (d->n == FV_DFA_STATES_MAX)
        return FV_FAIL(FV_EINVAL,
                       "a pattern, alone or with others and lengths, has more than %d states: "
                       "make it simpler",
                       FV_DFA_STATES_MAX);
    FV_TRY(fv_compile_step(m->c, d->n_class + (int64_t)n));
    FV_TRY(fv_grow(&m->key, &m->cap_key, m->n_key + n, sizeof *m->key));
    FV_TRY(fv_grow(&m->first, &m->cap_first, (size_t)d->n + 2, sizeof *m->first));
    FV_TRY(
        fv_grow(&d->next, &m->cap_next, (size_t)(d->n + 1) * (size_t)d->n_class, sizeof *d->next));
    FV_TRY(fv_grow(&d->accepts, &m->cap_accepts, (size_t)d->n + 1, sizeof *d->accepts));
    if (n) memcpy(m->key + m->n_key, key, n * sizeof *key);
    memset(d->next + (size_t)d->n * (size_t)d->n_class, 0, (size_t)d->n_class * sizeof *d->next);
    m->first[d->n] = m->n_key;
    m->n_key += n;
    m->first[d->n + 1] = m->n_key;
    d->accepts[d->n] = accepts;
    if (d->n) m->slot[at] = d->n;
    *out = d->n++;
    return FV_OK;
}

/* Leads to state 0 what leads to no end. */
static fv_status prune(fv_compile *c, fv_dfa *d) {
    bool changed = true, *lives;
    FV_TRY(FV_COMPILE_NEW(c, d->n, lives));
    memcpy(lives, d->accepts, (size_t)d->n * sizeof *lives);
    while (changed) {
        changed = false;
        FV_TRY(fv_compile_step(c, (int64_t)d->n * d->n_class / 4));
        for (int32_t s = d->n; s-- > 0;)
            for (int32_t k = 0; k < d->n_class && !lives[s]; k++)
                if (lives[d->next[(size_t)s * (size_t)d->n_class + (size_t)k]])
                    lives[s] = changed = true;
    }
    for (size_t i = 0; i < (size_t)d->n * (size_t)d->n_class; i++)
        if (!lives[d->next[i]]) d->next[i] = 0;
    return FV_OK;
}

/* Gives the finished automaton, in the arena, and frees the rest. */
static fv_status maker_close(maker *m, fv_status st, const fv_dfa **out) {
    fv_dfa *d = m->d;
    int32_t *next = NULL;
    bool *accepts = NULL;
    if (st == FV_OK) st = FV_COMPILE_NEW(m->c, (size_t)d->n * (size_t)d->n_class, next);
    if (st == FV_OK) st = FV_COMPILE_NEW(m->c, d->n, accepts);
    if (st == FV_OK) {
        memcpy(next, d->next, (size_t)d->n * (size_t)d->n_class * sizeof *next);
        memcpy(accepts, d->accepts, (size_t)d->n * sizeof *accepts);
    }
    if (d) {
        free(d->next);
        free(d->accepts);
        d->next = next;
        d->accepts = accepts;
    }
    free(m->key);
    free(m->first);
    free(m->slot);
    if (st == FV_OK) st = prune(m->c, d);
    if (st == FV_OK) *out = d;
    return st;
}

static int by_number(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

/* The nodes that wait for a character, and the end, that can be reached from those in list[*n] without one. */
static fv_status close_nodes(builder *b, int32_t *list, size_t *n, uint32_t *mark, uint32_t now,
                             int32_t *work, bool *accepts) {
    size_t n_work = 0, kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (mark[list[i]] != now) {
            mark[list[i]] = now;
            work[n_work++] = list[i];
        }
    *accepts = false;
    while (n_work) {
        const int32_t s = work[--n_work];
        const node *x = &b->node[s];
        FV_TRY(fv_compile_step(b->c, 1));
        if (s == 0) *accepts = true;
        if (s == 0 || x->span) {
            list[kept++] = s;
            continue;
        }
        for (int k = 0; k < 2; k++) {
            const int32_t to = k ? x->b : x->a;
            if (to < 0 || mark[to] == now) continue;
            mark[to] = now;
            work[n_work++] = to;
        }
    }
    qsort(list, kept, sizeof *list, by_number);
    *n = kept;
    return FV_OK;
}

static bool in_spans(const fv_span *span, int32_t n, int32_t cp) {
    int32_t lo = 0, hi = n;
    while (lo < hi) {
        const int32_t mid = (lo + hi) / 2;
        if (span[mid].hi < cp)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n && span[lo].lo <= cp;
}

/* The first characters of the classes: where a span begins or has ended. */
static fv_status borders(builder *b, int32_t **lo, size_t *n) {
    size_t cap = 0, kept = 0;
    FV_TRY(fv_grow(lo, &cap, 1, sizeof **lo));
    (*lo)[0] = 0;
    *n = 1;
    for (size_t i = 1; i < b->n; i++)
        for (int32_t k = 0; k < b->node[i].n; k++) {
            FV_TRY(fv_compile_step(b->c, 2));
            FV_TRY(fv_grow(lo, &cap, *n + 2, sizeof **lo));
            (*lo)[(*n)++] = b->node[i].span[k].lo;
            if (b->node[i].span[k].hi < FV_CP_MAX) (*lo)[(*n)++] = b->node[i].span[k].hi + 1;
        }
    qsort(*lo, *n, sizeof **lo, by_number);
    for (size_t i = 0; i < *n; i++)
        if (!kept || (*lo)[kept - 1] != (*lo)[i]) (*lo)[kept++] = (*lo)[i];
    *n = kept;
    return FV_OK;
}

static fv_status determinize(builder *b, maker *m, int32_t start) {
    int32_t *list, *work, to;
    uint32_t *mark, now = 0;
    size_t n = 1;
    bool accepts;
    FV_TRY(FV_COMPILE_NEW(b->c, b->n + 1, list));
    FV_TRY(FV_COMPILE_NEW(b->c, b->n + 1, work));
    FV_TRY(FV_COMPILE_NEW(b->c, b->n + 1, mark));
    FV_TRY(state_of(m, NULL, 0, false, &to));
    list[0] = start;
    FV_TRY(close_nodes(b, list, &n, mark, ++now, work, &accepts));
    FV_TRY(state_of(m, list, n, accepts, &to));
    for (int32_t s = 1; s < m->d->n; s++)
        for (int32_t k = 0; k < m->d->n_class; k++) {
            n = 0;
            FV_TRY(fv_compile_step(b->c, (int64_t)(m->first[s + 1] - m->first[s])));
            for (size_t i = m->first[s]; i < m->first[s + 1]; i++) {
                const node *x = &b->node[m->key[i]];
                if (x->span && in_spans(x->span, x->n, m->d->lo[k])) list[n++] = x->a;
            }
            FV_TRY(close_nodes(b, list, &n, mark, ++now, work, &accepts));
            FV_TRY(state_of(m, list, n, accepts, &to));
            m->d->next[(size_t)s * (size_t)m->d->n_class + (size_t)k] = to;
        }
    return FV_OK;
}

fv_status fv_dfa_make(fv_compile *c, const fv_expr *e, const fv_dfa **out) {
    builder b = {.c = c};
    maker m = {.c = c};
    int32_t *lo = NULL, start, end;
    size_t n_class = 0;
    fv_status st = add_node(&b, (node){.a = -1, .b = -1}, &end);
    if (st == FV_OK) st = build(&b, e, end, &start);
    if (st == FV_OK) st = borders(&b, &lo, &n_class);
    if (st == FV_OK) st = maker_open(&m, c, (int32_t)n_class);
    if (st == FV_OK) memcpy(m.d->lo, lo, n_class * sizeof *lo);
    if (st == FV_OK) st = determinize(&b, &m, start);
    free(lo);
    free(b.node);
    return maker_close(&m, st, out);
}

/* ---- two at once ----------------------------------------------------------------------------- */

static int32_t class_at(const fv_dfa *d, int32_t cp) {
    int32_t lo = 0, hi = d->n_class;
    while (hi - lo > 1) {
        const int32_t mid = (lo + hi) / 2;
        if (d->lo[mid] <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static fv_status pairs(maker *m, const fv_dfa *a, const fv_dfa *b, bool both) {
    int32_t to;
    FV_TRY(state_of(m, NULL, 0, false, &to));
    FV_TRY(state_of(m, (int32_t[]){1, 1}, 2, a->accepts[1] && b->accepts[1] == both, &to));
    for (int32_t s = 1; s < m->d->n; s++)
        for (int32_t k = 0; k < m->d->n_class; k++) {
            const int32_t *pair = m->key + m->first[s], cp = m->d->lo[k];
            const int32_t x =
                a->next[(size_t)pair[0] * (size_t)a->n_class + (size_t)class_at(a, cp)];
            const int32_t y =
                b->next[(size_t)pair[1] * (size_t)b->n_class + (size_t)class_at(b, cp)];
            const bool dead = x == 0 || (y == 0 && both);
            FV_TRY(fv_compile_step(m->c, 2));
            FV_TRY(state_of(m, (int32_t[]){x, y}, dead ? 0 : 2,
                            a->accepts[x] && b->accepts[y] == both, &to));
            m->d->next[(size_t)s * (size_t)m->d->n_class + (size_t)k] = to;
        }
    return FV_OK;
}

fv_status fv_dfa_join(fv_compile *c, const fv_dfa *a, const fv_dfa *b, bool both,
                      const fv_dfa **out) {
    maker m = {.c = c};
    int32_t i = 0, k = 0, n = 0;
    fv_status st = maker_open(&m, c, a->n_class + b->n_class);
    while (st == FV_OK && (i < a->n_class || k < b->n_class)) {
        const int32_t x = i < a->n_class ? a->lo[i] : FV_CP_MAX + 1,
                      y = k < b->n_class ? b->lo[k] : FV_CP_MAX + 1;
        i += x <= y;
        k += y <= x;
        m.d->lo[n++] = x < y ? x : y;
    }
    if (st == FV_OK) m.d->n_class = n;
    if (st == FV_OK) st = pairs(&m, a, b, both);
    return maker_close(&m, st, out);
}

fv_status fv_dfa_lengths(fv_compile *c, int64_t min, int64_t max, const fv_dfa **out) {
    maker m = {.c = c};
    const int64_t last = max < 0 ? min : max;
    int32_t to;
    fv_status st = last + 2 > FV_DFA_STATES_MAX
                       ? FV_FAIL(FV_EINVAL, "a length of %lld with a pattern: at most %d",
                                 (long long)last, FV_DFA_STATES_MAX - 2)
                       : maker_open(&m, c, 1);
    if (st == FV_OK) st = state_of(&m, NULL, 0, false, &to);
    for (int32_t i = 0; i <= last && st == FV_OK; i++) {
        st = state_of(&m, &i, 1, i >= min, &to);
        if (st == FV_OK) m.d->next[i + 1] = i < last ? i + 2 : max < 0 ? i + 1 : 0;
    }
    return maker_close(&m, st, out);
}

fv_status fv_dfa_multiples(fv_compile *c, int32_t of, const fv_dfa **out) {
    maker m = {.c = c};
    int32_t to;
    fv_status st = maker_open(&m, c, 12); /* before the digits, each digit, after them */
    if (st == FV_OK) {
        m.d->lo[0] = 0;
        for (int32_t k = 0; k < 11; k++) m.d->lo[k + 1] = '0' + k;
        st = state_of(&m, NULL, 0, false, &to);
    }
    for (int32_t r = 0; r < of && st == FV_OK; r++) {
        st = state_of(&m, &r, 1, r == 0, &to);
        for (int32_t k = 0; k < 10 && st == FV_OK; k++)
            m.d->next[(size_t)to * 12 + (size_t)k + 1] = (r * 10 + k) % of + 1;
    }
    return maker_close(&m, st, out);
}

fv_status fv_dfa_word_lengths(fv_compile *c, const fv_dfa *a, int64_t *shortest, int64_t *longest) {
    bool *now, *then, any = a->n > 1;
    *shortest = *longest = -1;
    FV_TRY(FV_COMPILE_NEW(c, a->n, now));
    FV_TRY(FV_COMPILE_NEW(c, a->n, then));
    if (any) now[1] = true;
    for (int64_t length = 0; any; length++) {
        any = false;
        if (length > a->n) {
            *longest = INT64_MAX;
            break;
        }
        memset(then, 0, (size_t)a->n * sizeof *then);
        for (int32_t s = 1; s < a->n; s++) {
            if (!now[s]) continue;
            if (a->accepts[s] && *shortest < 0) *shortest = length;
            if (a->accepts[s]) *longest = length;
            FV_TRY(fv_compile_step(c, a->n_class / 4 + 1));
            for (int32_t k = 0; k < a->n_class; k++) {
                const int32_t to = a->next[(size_t)s * (size_t)a->n_class + (size_t)k];
                if (to) then[to] = any = true;
            }
        }
        bool *swap = now;
        now = then;
        then = swap;
    }
    return FV_OK;
}

bool fv_dfa_empty(const fv_dfa *a) {
    if (a->n < 2) return true;
    if (a->accepts[1]) return false;
    for (int32_t k = 0; k < a->n_class; k++)
        if (a->next[a->n_class + k]) return false;
    return true;
}

bool fv_dfa_accepts(const fv_dfa *a, const char *text, size_t n) {
    int32_t s = a->n > 1, cp;
    for (size_t at = 0, len; at < n && s; at += len) {
        len = fv_cp_next(text + at, n - at, &cp);
        if (len == 0) return false;
        s = a->next[(size_t)s * (size_t)a->n_class + (size_t)class_at(a, cp)];
    }
    return s && a->accepts[s];
}
