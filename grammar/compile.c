/* Compiles a spec: reads it into rules, emits these as a network, checks that, and makes the automaton. What the
 * compilation needed is freed at its end. Any thread. */
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

enum {
    COMPILE_STEPS = 20 * 1000 * 1000,
    MASK_STEPS = 400 * 1000,
    ANSWER_STEPS = 20 * 1000 * 1000,
    BYTES = 32 << 20,
};

fv_status fv_compile_step(fv_compile *c, int64_t n) {
    c->steps -= n;
    return c->steps >= 0 ? FV_OK
                         : FV_FAIL(FV_EINVAL,
                                   "compiling it takes too many steps: make it smaller, with fewer "
                                   "alternatives or shorter patterns");
}

fv_status fv_compile_alloc(fv_compile *c, size_t n, size_t size, void **out) {
    if (size && n > (c->bytes_max - c->bytes) / size)
        return FV_FAIL(FV_EINVAL,
                       "compiled it would have more than %zu bytes: make it smaller, with "
                       "fewer alternatives or shorter patterns",
                       c->bytes_max);
    c->bytes += n * size;
    return fv_arena_array(&c->arena, n, size, out);
}

static fv_status one_rule(fv_compile *c, fv_expr *e, int32_t *rule) {
    FV_TRY(fv_rule_new(c, "the answer", 10, rule));
    c->rule[*rule].expr = e;
    return FV_OK;
}

static fv_status read_choice(fv_compile *c, const fv_grammar_spec *s, int32_t *rule) {
    fv_exprs list = {0};
    fv_expr *e;
    fv_status st =
        s->n_choice == 0 ? FV_FAIL(FV_EINVAL, "it has no choices: give at least one text")
        : s->n_choice > FV_GRAMMAR_CHOICES_MAX
            ? FV_FAIL(FV_EINVAL, "%zu choices: at most %d", s->n_choice, FV_GRAMMAR_CHOICES_MAX)
            : FV_OK;
    for (size_t i = 0; st == FV_OK && i < s->n_choice; i++) {
        size_t n = strlen(s->choice[i]);
        if (n == 0 || !fv_text_valid(s->choice[i], n))
            st = FV_FAIL(FV_EINVAL, "choice %zu is %s", i, n ? "not valid UTF-8" : "empty");
        if (st == FV_OK) st = fv_expr_text(c, s->choice[i], n, &e);
        if (st == FV_OK) st = fv_exprs_add(&list, e);
    }
    if (st == FV_OK) st = fv_expr_list(c, FV_EXPR_ALT, list.item, list.n, &e);
    if (st == FV_OK) st = one_rule(c, e, rule);
    free(list.item);
    return st;
}

static fv_status read_spec(fv_compile *c, const fv_grammar_spec *s, int32_t *rule) {
    fv_expr *e;
    if (s->n_text > FV_GRAMMAR_BYTES_MAX)
        return FV_FAIL(FV_EINVAL, "it has %zu bytes: at most %d", s->n_text, FV_GRAMMAR_BYTES_MAX);
    if (s->n_text && !fv_text_valid(s->text, s->n_text))
        return FV_FAIL(FV_EINVAL, "it is not valid UTF-8");
    switch (s->kind) {
    case FV_GRAMMAR_JSON_OBJECT: FV_TRY(fv_json_any_object(c, &e)); return one_rule(c, e, rule);
    case FV_GRAMMAR_JSON_SCHEMA: return fv_schema_read(c, s->text, s->n_text, rule);
    case FV_GRAMMAR_REGEX:
        FV_TRY(fv_regex_read(c, s->text, s->n_text, false, &e));
        return one_rule(c, e, rule);
    case FV_GRAMMAR_CHOICE: return read_choice(c, s, rule);
    case FV_GRAMMAR_EBNF: return fv_ebnf_read(c, s->text, s->n_text, rule);
    case FV_GRAMMAR_STRUCTURAL_TAG: return fv_tag_read(c, s->text, s->n_text, rule);
    }
    return FV_FAIL(FV_EINVAL, "unknown kind of grammar %d", (int)s->kind);
}

static const char *name_of(fv_grammar_kind kind) {
    static const char *const names[] = {"grammar", "json_object", "JSON schema",   "regex",
                                        "choice",  "grammar",     "structural_tag"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "grammar";
}

static fv_status make(fv_compile *c, const fv_grammar_spec *spec, const fv_grammar_limits *limits,
                      fv_automaton **out) {
    int32_t rule;
    FV_TRY(read_spec(c, spec, &rule));
    FV_TRY(fv_reasoning_add(c, spec, &rule));
    FV_TRY(fv_emit_rules(c, rule));
    FV_TRY(fv_net_check(c));
    return fv_automaton_make(&c->net, limits, out);
}

fv_status fv_grammar_compile(const fv_grammar_spec *spec, const fv_grammar_limits *limits,
                             fv_grammar **out) {
    fv_grammar_limits l = limits ? *limits : (fv_grammar_limits){0};
    if (!l.compile_steps) l.compile_steps = COMPILE_STEPS;
    if (!l.mask_steps) l.mask_steps = MASK_STEPS;
    if (!l.answer_steps) l.answer_steps = ANSWER_STEPS;
    if (!l.bytes) l.bytes = BYTES;
    fv_compile c = {.steps = l.compile_steps, .bytes_max = l.bytes, .space = -1, .value = -1};
    fv_grammar *g = calloc(1, sizeof *g);
    fv_status st =
        g ? make(&c, spec, &l, &g->automaton) : FV_FAIL(FV_ENOMEM, "out of memory for a grammar");
    fv_arena_fini(&c.arena);
    free(c.rule);
    free(c.net.state);
    if (st == FV_EINVAL && c.steps < 0 && l.tries) st = FV_EBUSY;
    if (st != FV_OK) {
        free(g);
        return fv_fail_prefix(st, "%s", name_of(spec->kind));
    }
    atomic_init(&g->refs, 1);
    g->answer_steps = l.answer_steps;
    pthread_mutex_init(&g->lock, NULL);
    *out = g;
    return FV_OK;
}

fv_grammar *fv_grammar_ref(fv_grammar *g) {
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void fv_grammar_unref(fv_grammar *g) {
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1) return;
    fv_automaton_free(g->automaton);
    fv_mask_cache_free(g->masks);
    pthread_mutex_destroy(&g->lock);
    free(g);
}
