/* Checks a network once, so that the automaton needs to check nothing:
 *
 *   dead       states from which no end can be reached are marked and never entered: every text that the
 *              automaton accepts so far can be completed
 *   empty      the body of a repetition that may be empty counts 0 times at least, so that no run of empty
 *              bodies has to be counted
 *   left       no rule begins with itself, so that the automaton's stacks are finite
 *   recursive  calls of rules that may call themselves are marked; their depth is limited
 *
 * All are fixed points or Tarjan's components, without recursion; each look at a state is a step. */
#include <string.h>

#include "grammar/internal.h"

/* Sets flag[s] where `holds` says so, until nothing changes. */
static fv_status fix(fv_compile *c, bool *flag,
                     bool (*holds)(const fv_net *, const bool *, size_t)) {
    bool changed = true;
    while (changed) {
        changed = false;
        FV_TRY(fv_compile_step(c, (int64_t)c->net.n));
        for (size_t s = 0; s < c->net.n; s++)
            if (!flag[s] && holds(&c->net, flag, s)) flag[s] = changed = true;
    }
    return FV_OK;
}

static bool is_empty(const fv_net *net, const bool *flag, size_t i) {
    const fv_net_state *s = &net->state[i];
    switch ((fv_net_kind)s->kind) {
    case FV_NET_RANGE: return false;
    case FV_NET_SPLIT: return (s->a >= 0 && flag[s->a]) || (s->b >= 0 && flag[s->b]);
    case FV_NET_CALL: return flag[s->a] && flag[s->b];
    case FV_NET_REPEAT: return (s->min == 0 || flag[s->a]) && flag[s->b];
    case FV_NET_POP: return true;
    }
    return false;
}

static bool can_end(const fv_net *net, const bool *flag, size_t i) {
    const fv_net_state *s = &net->state[i];
    switch ((fv_net_kind)s->kind) {
    case FV_NET_RANGE: return s->lo <= s->hi && flag[s->a];
    case FV_NET_SPLIT: return (s->a >= 0 && flag[s->a]) || (s->b >= 0 && flag[s->b]);
    case FV_NET_CALL: return flag[s->a] && flag[s->b];
    case FV_NET_REPEAT: return (s->min == 0 || flag[s->a]) && flag[s->b];
    case FV_NET_POP: return true;
    }
    return false;
}

/* ---- components ---------------------------------------------------------------------------- */

typedef struct search {
    const fv_net *net;
    const bool *empty; /* not NULL: only steps without a byte */
    int32_t *index, *low, *component, *open, *path;
    uint8_t *edge;
    int32_t n_index, n_open, n_component;
} search;

/* The k-th state that may follow s, -1: none; false: there are no more. */
static bool successor(const search *f, int32_t s, int k, int32_t *to) {
    const fv_net_state *x = &f->net->state[s];
    *to = -1;
    if (k > 1 || x->kind == FV_NET_POP) return false;
    switch ((fv_net_kind)x->kind) {
    case FV_NET_RANGE: *to = k == 0 && !f->empty ? x->a : -1; break;
    case FV_NET_SPLIT: *to = k == 0 ? x->a : x->b; break;
    case FV_NET_CALL: *to = k == 0 ? x->a : !f->empty || f->empty[x->a] ? x->b : -1; break;
    case FV_NET_REPEAT:
        *to = k == 0 ? x->a : !f->empty || x->min == 0 || f->empty[x->a] ? x->b : -1;
        break;
    case FV_NET_POP: break;
    }
    return true;
}

static void enter(search *f, int32_t s, int32_t *n_path) {
    f->index[s] = f->low[s] = ++f->n_index;
    f->open[f->n_open++] = s;
    f->edge[s] = 0;
    f->path[(*n_path)++] = s;
}

static void leave(search *f, int32_t s) {
    if (f->low[s] != f->index[s]) return;
    int32_t t;
    do {
        t = f->open[--f->n_open];
        f->component[t] = f->n_component;
    } while (t != s);
    f->n_component++;
}

static void visit(search *f, int32_t root) {
    int32_t n_path = 0, to;
    enter(f, root, &n_path);
    while (n_path) {
        const int32_t s = f->path[n_path - 1];
        if (!successor(f, s, f->edge[s], &to)) {
            leave(f, s);
            n_path--;
            if (n_path && f->low[s] < f->low[f->path[n_path - 1]])
                f->low[f->path[n_path - 1]] = f->low[s];
            continue;
        }
        f->edge[s]++;
        if (to < 0) continue;
        if (!f->index[to])
            enter(f, to, &n_path);
        else if (f->component[to] < 0 && f->index[to] < f->low[s])
            f->low[s] = f->index[to];
    }
}

/* The strongly connected components of the states, by steps without a byte if `empty` is given. */
static fv_status components(fv_compile *c, const bool *empty, int32_t **component) {
    const size_t n = c->net.n;
    search f = {.net = &c->net, .empty = empty};
    FV_TRY(fv_compile_step(c, (int64_t)n * 4));
    FV_TRY(FV_COMPILE_NEW(c, n, f.index));
    FV_TRY(FV_COMPILE_NEW(c, n, f.low));
    FV_TRY(FV_COMPILE_NEW(c, n, f.component));
    FV_TRY(FV_COMPILE_NEW(c, n, f.open));
    FV_TRY(FV_COMPILE_NEW(c, n, f.path));
    FV_TRY(FV_COMPILE_NEW(c, n, f.edge));
    memset(f.component, 0xFF, n * sizeof *f.component);
    for (size_t s = 0; s < n; s++)
        if (!f.index[s]) visit(&f, (int32_t)s);
    *component = f.component;
    return FV_OK;
}

static fv_status check_left(fv_compile *c, const bool *empty) {
    int32_t *component;
    FV_TRY(components(c, empty, &component));
    for (size_t i = 0; i < c->net.n; i++) {
        const fv_net_state *s = &c->net.state[i];
        if (s->kind != FV_NET_CALL || component[i] != component[s->a]) continue;
        const char *name = "?";
        for (size_t r = 0; r < c->n_rule; r++)
            if (c->rule[r].start == s->a) name = c->rule[r].name;
        return FV_FAIL(FV_EINVAL,
                       "the rule %.64s begins with itself, perhaps through other rules: write it "
                       "as a repetition",
                       name);
    }
    return FV_OK;
}

static fv_status mark_recursion(fv_compile *c) {
    int32_t *component;
    FV_TRY(components(c, NULL, &component));
    for (size_t i = 0; i < c->net.n; i++) {
        fv_net_state *s = &c->net.state[i];
        s->recursive =
            (s->kind == FV_NET_CALL || s->kind == FV_NET_REPEAT) && component[i] == component[s->a];
    }
    return FV_OK;
}

fv_status fv_net_check(fv_compile *c) {
    bool *empty, *lives;
    FV_TRY(FV_COMPILE_NEW(c, c->net.n, empty));
    FV_TRY(FV_COMPILE_NEW(c, c->net.n, lives));
    FV_TRY(fix(c, empty, is_empty));
    for (size_t i = 0; i < c->net.n; i++) {
        fv_net_state *s = &c->net.state[i];
        if (s->kind == FV_NET_REPEAT && empty[s->a]) s->min = 0;
    }
    FV_TRY(check_left(c, empty));
    FV_TRY(fix(c, lives, can_end));
    for (size_t i = 0; i < c->net.n; i++) {
        fv_net_state *s = &c->net.state[i];
        s->dead = !lives[i];
        if (s->kind == FV_NET_REPEAT && !lives[s->a]) s->max = 0;
    }
    if (c->net.state[c->net.start].dead)
        return FV_FAIL(FV_EINVAL, "no text satisfies it: its parts contradict each other");
    return mark_recursion(c);
}
