/* Tokens -> nodes: jinja2's grammar, by recursive descent. Errors name unsupported constructs as
 * Jinja's manual does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

typedef struct parser {
    fv_jinja *p;
    fv_jj_token *t; /* the current token */
    int depth, loops, n_node;
    struct {
        const char *name;
        bool other; /* not only for content */
    } alias[32];    /* [n_alias] names that content or another member was assigned to */
    int n_alias;
} parser;

static const char *shown(const fv_jj_token *t, char text[64]) {
    static const char *const kinds[] = {[FV_JJ_T_END] = "the end of the template",
                                        [FV_JJ_T_DATA] = "text",
                                        [FV_JJ_T_PRINT_BEGIN] = "'{{'",
                                        [FV_JJ_T_PRINT_END] = "'}}'",
                                        [FV_JJ_T_BLOCK_BEGIN] = "'{%'",
                                        [FV_JJ_T_BLOCK_END] = "'%}'",
                                        [FV_JJ_T_CONST] = "a constant"};
    if (t->kind == FV_JJ_T_NAME)
        snprintf(text, 64, "'%.50s'", t->name);
    else if (t->kind == FV_JJ_T_OP)
        snprintf(text, 64, "'%c%c", t->op & 0xff, t->op >> 8 ? t->op >> 8 : '\'');
    else
        return kinds[t->kind];
    if (t->kind == FV_JJ_T_OP && t->op >> 8) strcat(text, "'");
    return text;
}

static fv_status fail(const parser *s, const char *expected) {
    char text[64];
    return FV_FAIL(FV_EDATA, "%s:%d: %s is expected, not %s", s->p->where, s->t->line, expected,
                   shown(s->t, text));
}

static fv_status lacks(const parser *s, int32_t line, const char *kind, const char *name) {
    return FV_FAIL(FV_EUNSUPPORTED, "%s:%d: %s '%s' is not supported", s->p->where, line, kind,
                   name);
}

static fv_status enter(parser *s) {
    if (++s->depth <= FV_JINJA_DEPTH) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s:%d: more than %d levels of nesting", s->p->where,
                   s->t->line, FV_JINJA_DEPTH);
}

static fv_status make(parser *s, fv_jj_node_kind kind, fv_jj_node **out) {
    if (s->n_node++ == FV_JINJA_NODES)
        return FV_FAIL(FV_EUNSUPPORTED, "%s:%d: more than %d statements and expressions",
                       s->p->where, s->t->line, FV_JINJA_NODES);
    FV_TRY(FV_ARENA_NEW(&s->p->arena, 1, *out));
    (*out)->kind = kind;
    (*out)->line = s->t->line;
    return FV_OK;
}

static bool at_op(const parser *s, int32_t op) {
    return s->t->kind == FV_JJ_T_OP && s->t->op == op;
}
static bool at_name(const parser *s, const char *name) {
    return s->t->kind == FV_JJ_T_NAME && strcmp(s->t->name, name) == 0;
}
static bool skip_op(parser *s, int32_t op) {
    bool is = at_op(s, op);
    s->t += is;
    return is;
}
static bool skip_name(parser *s, const char *name) {
    bool is = at_name(s, name);
    s->t += is;
    return is;
}

static fv_status need_op(parser *s, int32_t op) {
    char text[4] = {'\'', (char)op, '\'', '\0'};
    return skip_op(s, op) ? FV_OK : fail(s, text);
}

static fv_status need_name(parser *s, const char **out) {
    if (s->t->kind != FV_JJ_T_NAME) return fail(s, "a name");
    *out = (s->t++)->name;
    return FV_OK;
}

static fv_status expression(parser *s, fv_jj_node **out);
static fv_status without_choice(parser *s, fv_jj_node **out);
static fv_status unary(parser *s, bool filters, fv_jj_node **out);

typedef fv_status element(parser *s, fv_jj_node **out);

/* ---- the form of content -------------------- */

static int find_alias(const parser *s, const char *name) {
    int i = s->n_alias - 1;
    while (i >= 0 && strcmp(s->alias[i].name, name) != 0) i--;
    return i;
}

static bool names_content(const parser *s, const char *name) {
    int i = find_alias(s, name);
    return (i >= 0 && !s->alias[i].other) || strcmp(name, "content") == 0;
}

/* Tells whether e is x.content, x['content'] or a name for it, perhaps filtered or sliced. */
static bool is_content(const parser *s, const fv_jj_node *e) {
    while (e->kind == FV_JJ_FILTER || e->kind == FV_JJ_SLICE) e = e->a;
    if (e->kind == FV_JJ_ATTR) return strcmp(e->name, "content") == 0;
    if (e->kind == FV_JJ_NAME) return names_content(s, e->name);
    return e->kind == FV_JJ_ITEM && e->b->kind == FV_JJ_CONST && e->b->value.kind == FV_JJ_STR &&
           fv_jj_str_is(e->b->value.str, "content");
}

/* Notes a name that content, or another member such as tool_calls, is assigned to. */
static void note_alias(parser *s, const fv_jj_node *target, const fv_jj_node *e) {
    const bool content = is_content(s, e), member = e->kind == FV_JJ_ATTR || e->kind == FV_JJ_ITEM;
    if (target->kind != FV_JJ_NAME || !(content || member)) return;
    int i = find_alias(s, target->name);
    if (i < 0 && s->n_alias < (int)(sizeof s->alias / sizeof *s->alias)) {
        i = s->n_alias++;
        s->alias[i].name = target->name;
    }
    if (i >= 0) s->alias[i].other |= !content;
}

/* ---- primary expressions ---- */

/* Parses elements separated by commas up to the closing bracket, and skips it. */
static fv_status elements(parser *s, int32_t close, element *one, fv_jj_node **list) {
    for (fv_jj_node **end = list; !skip_op(s, close); end = &(*end)->next) {
        if (end != list) {
            FV_TRY(need_op(s, ','));
            if (skip_op(s, close)) break;
        }
        FV_TRY(one(s, end));
    }
    return FV_OK;
}

/* Parses one expression as a list's element: a node can be in one list only. */
static fv_status list_element(parser *s, fv_jj_node **out) {
    FV_TRY(make(s, FV_JJ_ARG, out));
    return expression(s, &(*out)->a);
}

static fv_status pair(parser *s, fv_jj_node **out) {
    FV_TRY(make(s, FV_JJ_ARG, out));
    FV_TRY(expression(s, &(*out)->a));
    FV_TRY(need_op(s, ':'));
    return expression(s, &(*out)->b);
}

static fv_status argument(parser *s, fv_jj_node **out) {
    FV_TRY(make(s, FV_JJ_ARG, out));
    if (at_op(s, '*') || at_op(s, FV_JJ_OP('*', '*')))
        (*out)->op = (s->t++)->op;
    else if (s->t->kind == FV_JJ_T_NAME && s->t[1].kind == FV_JJ_T_OP && s->t[1].op == '=') {
        (*out)->name = s->t->name;
        s->t += 2;
    }
    return expression(s, &(*out)->a);
}

static bool ends_tuple(const parser *s) {
    return s->t->kind == FV_JJ_T_PRINT_END || s->t->kind == FV_JJ_T_BLOCK_END || at_op(s, ')') ||
           at_name(s, "in") || s->t->kind == FV_JJ_T_END;
}

/* Parses one expression, or several separated by commas as a tuple. */
static fv_status tuple(parser *s, element *one, bool parentheses, fv_jj_node **out) {
    fv_jj_node *t, **end;
    FV_TRY(make(s, FV_JJ_TUPLING, &t));
    bool comma = false;
    for (end = &t->list; !ends_tuple(s); end = &(*end)->next) {
        FV_TRY(make(s, FV_JJ_ARG, end));
        FV_TRY(one(s, &(*end)->a));
        if (!skip_op(s, ',')) break;
        comma = true;
    }
    if (!comma && !t->list && !parentheses) return fail(s, "an expression");
    *out = comma || !t->list ? t : t->list->a;
    return FV_OK;
}

static bool at_string(const parser *s) {
    return s->t->kind == FV_JJ_T_CONST && s->t->value.kind == FV_JJ_STR;
}

/* Joins adjacent strings into one. */
static fv_status strings(parser *s, fv_jj_str *out) {
    const fv_jj_token *first = s->t;
    char *joined;
    size_t n = 0;
    while (at_string(s)) n += (s->t++)->value.str.n;
    *out = first->value.str;
    if (s->t - first == 1) return FV_OK;
    FV_TRY(fv_arena_alloc(&s->p->arena, n + 1, (void **)&joined));
    *out = (fv_jj_str){.s = joined, .n = n};
    for (; first < s->t; first++) joined = mempcpy(joined, first->value.str.s, first->value.str.n);
    return FV_OK;
}

static fv_status constant(parser *s, fv_jj_node **out) {
    FV_TRY(make(s, FV_JJ_CONST, out));
    (*out)->value = s->t->value;
    if (at_string(s)) return strings(s, &(*out)->value.str);
    s->t++;
    return FV_OK;
}

static fv_status name(parser *s, fv_jj_node **out) {
    static const struct {
        const char *name;
        fv_jj_value value;
    } words[] = {{"true", {FV_JJ_BOOL, {.b = true}}},   {"True", {FV_JJ_BOOL, {.b = true}}},
                 {"false", {FV_JJ_BOOL, {.b = false}}}, {"False", {FV_JJ_BOOL, {.b = false}}},
                 {"none", {.kind = FV_JJ_NONE}},        {"None", {.kind = FV_JJ_NONE}}};
    FV_TRY(make(s, FV_JJ_NAME, out));
    (*out)->name = (s->t++)->name;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp((*out)->name, words[i].name) != 0) continue;
        (*out)->kind = FV_JJ_CONST;
        (*out)->value = words[i].value;
    }
    return FV_OK;
}

static fv_status primary(parser *s, fv_jj_node **out) {
    if (s->t->kind == FV_JJ_T_NAME) return name(s, out);
    if (s->t->kind == FV_JJ_T_CONST) return constant(s, out);
    if (skip_op(s, '(')) {
        FV_TRY(tuple(s, expression, true, out));
        return need_op(s, ')');
    }
    bool list = at_op(s, '[');
    if (!list && !at_op(s, '{')) return fail(s, "an expression");
    FV_TRY(make(s, list ? FV_JJ_LISTING : FV_JJ_DICTING, out));
    s->t++;
    return elements(s, list ? ']' : '}', list ? list_element : pair, &(*out)->list);
}

/* ---- postfix expressions ----------------------------------------------------------------- */

static fv_status arguments(parser *s, fv_jj_node *of) {
    FV_TRY(need_op(s, '('));
    return elements(s, ')', argument, &of->list);
}

static fv_status subscript(parser *s, fv_jj_node **e) {
    fv_jj_node *n, *part[3] = {NULL, NULL, NULL};
    int k = 0;
    FV_TRY(make(s, FV_JJ_ITEM, &n));
    n->a = *e;
    s->t++;
    for (; k < 3; k++) {
        if (!at_op(s, ':') && !at_op(s, ']')) FV_TRY(expression(s, &part[k]));
        if (k == 2 || !skip_op(s, ':')) break;
    }
    FV_TRY(need_op(s, ']'));
    if (k == 0 && !part[0]) return fail(s, "an index");
    if (k) n->kind = FV_JJ_SLICE;
    s->p->walks_content |=
        !k && part[0]->kind == FV_JJ_CONST && part[0]->value.kind == FV_JJ_INT && is_content(s, *e);
    n->b = part[0];
    n->c = part[1];
    n->orelse = part[2];
    *e = n;
    return FV_OK;
}

static fv_status attribute(parser *s, fv_jj_node **e) {
    fv_jj_node *n;
    FV_TRY(make(s, FV_JJ_ATTR, &n));
    n->a = *e;
    s->t++;
    if (s->t->kind == FV_JJ_T_CONST && s->t->value.kind == FV_JJ_INT) {
        n->kind = FV_JJ_ITEM;
        FV_TRY(constant(s, &n->b));
    } else {
        FV_TRY(need_name(s, &n->name));
    }
    *e = n;
    return FV_OK;
}

static fv_status call(parser *s, fv_jj_node **e) {
    fv_jj_node *n;
    FV_TRY(make(s, FV_JJ_CALL, &n));
    n->a = *e;
    *e = n;
    return arguments(s, n);
}

static fv_status postfix(parser *s, fv_jj_node **e) {
    for (;;) {
        if (at_op(s, '.'))
            FV_TRY(attribute(s, e));
        else if (at_op(s, '['))
            FV_TRY(subscript(s, e));
        else if (at_op(s, '('))
            FV_TRY(call(s, e));
        else
            return FV_OK;
    }
}

/* Parses a filter after "|" or a test after "is": its name, which must be known, and its
 * arguments. */
static fv_status row_of(parser *s, fv_jj_node_kind kind, fv_jj_node *operand, fv_jj_node **out) {
    FV_TRY(make(s, kind, out));
    FV_TRY(need_name(s, &(*out)->name));
    (*out)->a = operand;
    const char *name = (*out)->name;
    (*out)->row = kind == FV_JJ_FILTER ? fv_jj_find_filter(name, strlen(name))
                                       : fv_jj_find_row(fv_jj_tests, name, strlen(name));
    if ((*out)->row) return FV_OK;
    return lacks(s, (*out)->line, kind == FV_JJ_FILTER ? "the filter" : "the test", name);
}

static fv_status filter(parser *s, fv_jj_node **e) {
    FV_TRY(row_of(s, FV_JJ_FILTER, *e, e));
    return at_op(s, '(') ? arguments(s, *e) : FV_OK;
}

static fv_status test(parser *s, fv_jj_node **e) {
    fv_jj_node *n, *not ;
    bool negated = skip_name(s, "not");
    FV_TRY(row_of(s, FV_JJ_TEST, *e, &n));
    s->p->asks_content |= strcmp(n->name, "string") == 0 && is_content(s, *e);
    s->p->nulls_content |= strcmp(n->name, "none") == 0 && is_content(s, *e);
    bool word = s->t->kind == FV_JJ_T_NAME && !at_name(s, "else") && !at_name(s, "or") &&
                !at_name(s, "and") && !at_name(s, "if") && !at_name(s, "is");
    if (at_op(s, '(')) {
        FV_TRY(arguments(s, n));
    } else if (word || s->t->kind == FV_JJ_T_CONST || at_op(s, '[') || at_op(s, '{')) {
        FV_TRY(make(s, FV_JJ_ARG, &n->list));
        FV_TRY(primary(s, &n->list->a));
        FV_TRY(postfix(s, &n->list->a));
    }
    *e = n;
    if (!negated) return FV_OK;
    FV_TRY(make(s, FV_JJ_NOT, &not ));
    not ->a = n;
    *e = not ;
    return FV_OK;
}

static fv_status filters_and_tests(parser *s, fv_jj_node **e) {
    for (;;) {
        if (skip_op(s, '|'))
            FV_TRY(filter(s, e));
        else if (skip_name(s, "is"))
            FV_TRY(test(s, e));
        else if (at_op(s, '('))
            FV_TRY(call(s, e));
        else
            return FV_OK;
    }
}

/* ---- operators ---- */

static fv_status unary(parser *s, bool filters, fv_jj_node **out) {
    bool neg = at_op(s, '-');
    FV_TRY(enter(s));
    if (neg || at_op(s, '+')) {
        FV_TRY(make(s, neg ? FV_JJ_NEG : FV_JJ_POS, out));
        s->t++;
        FV_TRY(unary(s, false, &(*out)->a));
    } else {
        FV_TRY(primary(s, out));
    }
    FV_TRY(postfix(s, out));
    if (filters) FV_TRY(filters_and_tests(s, out));
    s->depth--;
    return FV_OK;
}

static fv_status operand(parser *s, fv_jj_node **out) { return unary(s, true, out); }

/* Parses left-associative operators of one precedence level. */
static fv_status binary(parser *s, const int32_t *ops, element *below, fv_jj_node **out) {
    FV_TRY(below(s, out));
    for (int i = 0; ops[i];) {
        if (!at_op(s, ops[i])) {
            i++;
            continue;
        }
        fv_jj_node *n;
        FV_TRY(make(s, FV_JJ_BINARY, &n));
        n->op = ops[i];
        n->a = *out;
        s->t++;
        FV_TRY(below(s, &n->b));
        *out = n;
        i = 0;
    }
    return FV_OK;
}

static fv_status power(parser *s, fv_jj_node **out) {
    static const int32_t ops[] = {FV_JJ_OP('*', '*'), 0};
    return binary(s, ops, operand, out);
}

static fv_status product(parser *s, fv_jj_node **out) {
    static const int32_t ops[] = {'*', '/', FV_JJ_OP('/', '/'), '%', 0};
    return binary(s, ops, power, out);
}

static fv_status joined(parser *s, fv_jj_node **out) {
    fv_jj_node *first, *n;
    FV_TRY(product(s, &first));
    *out = first;
    if (!at_op(s, '~')) return FV_OK;
    FV_TRY(make(s, FV_JJ_JOIN, &n));
    FV_TRY(make(s, FV_JJ_ARG, &n->list));
    n->list->a = first;
    for (fv_jj_node **end = &n->list->next; skip_op(s, '~'); end = &(*end)->next) {
        FV_TRY(make(s, FV_JJ_ARG, end));
        FV_TRY(product(s, &(*end)->a));
    }
    *out = n;
    return FV_OK;
}

static fv_status sum(parser *s, fv_jj_node **out) {
    static const int32_t ops[] = {'+', '-', 0};
    return binary(s, ops, joined, out);
}

/* Skips and returns the comparison operator at the current token; 0: none. */
static int32_t skip_comparison(parser *s) {
    static const int32_t ops[] = {
        FV_JJ_OP('=', '='), FV_JJ_OP('!', '='), FV_JJ_OP('<', '='), FV_JJ_OP('>', '='), '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (skip_op(s, ops[i])) return ops[i];
    if (skip_name(s, "in")) return FV_JJ_IN;
    if (!at_name(s, "not") || s->t[1].kind != FV_JJ_T_NAME || strcmp(s->t[1].name, "in") != 0)
        return 0;
    s->t += 2;
    return FV_JJ_NOT_IN;
}

static bool is_none(const fv_jj_node *e) {
    return e->kind == FV_JJ_CONST && e->value.kind == FV_JJ_NONE;
}

static fv_status comparison(parser *s, fv_jj_node **out) {
    fv_jj_node *n = NULL, **end = NULL;
    FV_TRY(sum(s, out));
    for (int32_t op; (op = skip_comparison(s)) != 0; end = &(*end)->next) {
        if (!n) {
            FV_TRY(make(s, FV_JJ_COMPARE, &n));
            n->a = *out;
            *out = n;
            end = &n->list;
        }
        FV_TRY(make(s, FV_JJ_ARG, end));
        (*end)->op = op;
        FV_TRY(sum(s, &(*end)->a));
        s->p->nulls_content |=
            is_none(n->a) ? is_content(s, (*end)->a) : is_none((*end)->a) && is_content(s, n->a);
    }
    return FV_OK;
}

static fv_status negation(parser *s, fv_jj_node **out) {
    if (!at_name(s, "not")) return comparison(s, out);
    FV_TRY(enter(s));
    FV_TRY(make(s, FV_JJ_NOT, out));
    s->t++;
    FV_TRY(negation(s, &(*out)->a));
    s->depth--;
    return FV_OK;
}

static fv_status logical(parser *s, const char *word, fv_jj_node_kind kind, element *below,
                         fv_jj_node **out) {
    FV_TRY(below(s, out));
    while (at_name(s, word)) {
        fv_jj_node *n;
        FV_TRY(make(s, kind, &n));
        n->a = *out;
        s->t++;
        FV_TRY(below(s, &n->b));
        *out = n;
    }
    return FV_OK;
}

static fv_status conjunction(parser *s, fv_jj_node **out) {
    return logical(s, "and", FV_JJ_AND, negation, out);
}

static fv_status without_choice(parser *s, fv_jj_node **out) {
    return logical(s, "or", FV_JJ_OR, conjunction, out);
}

static fv_status expression(parser *s, fv_jj_node **out) {
    FV_TRY(enter(s));
    FV_TRY(without_choice(s, out));
    while (at_name(s, "if")) {
        fv_jj_node *n;
        FV_TRY(make(s, FV_JJ_CHOICE, &n));
        n->b = *out;
        s->t++;
        FV_TRY(without_choice(s, &n->a));
        if (skip_name(s, "else")) FV_TRY(expression(s, &n->c));
        *out = n;
    }
    s->depth--;
    return FV_OK;
}

/* ---- statements ---- */

/* Parses statements up to one of the `ends`, names followed by a blank each; *end: the one found,
 * which is skipped. */
static fv_status body(parser *s, const char *ends, fv_jj_node **out, const char **end);

static fv_status body_to(parser *s, const char *end, fv_jj_node **out) {
    const char *found;
    return body(s, end, out, &found);
}

static fv_status end_block(parser *s) {
    if (s->t->kind != FV_JJ_T_BLOCK_END) return fail(s, "'%}'");
    s->t++;
    return FV_OK;
}

/* Parses a name, or names separated by commas; for set also an attribute of a namespace. */
static fv_status target(parser *s, bool attributes, fv_jj_node **out) {
    FV_TRY(tuple(s, primary, false, out));
    if (attributes && (*out)->kind == FV_JJ_NAME && at_op(s, '.')) FV_TRY(attribute(s, out));
    const fv_jj_node *t = *out, *one = t->list;
    bool ok = t->kind == FV_JJ_NAME || t->kind == FV_JJ_ATTR || t->kind == FV_JJ_TUPLING;
    for (; t->kind == FV_JJ_TUPLING && one; one = one->next) ok &= one->a->kind == FV_JJ_NAME;
    return ok ? FV_OK : fail(s, "expected a name to assign to");
}

static fv_status for_block(parser *s, fv_jj_node *n) {
    const char *end;
    FV_TRY(target(s, false, &n->a));
    if (!skip_name(s, "in")) return fail(s, "'in'");
    FV_TRY(tuple(s, without_choice, false, &n->b));
    s->p->walks_content |= is_content(s, n->b);
    if (skip_name(s, "if")) FV_TRY(expression(s, &n->c));
    if (at_name(s, "recursive")) return lacks(s, s->t->line, "the loop", "recursive");
    FV_TRY(end_block(s));
    s->loops++;
    FV_TRY(body(s, "endfor else ", &n->body, &end));
    s->loops--;
    if (strcmp(end, "endfor") == 0) return FV_OK;
    FV_TRY(end_block(s));
    return body_to(s, "endfor ", &n->orelse);
}

static fv_status if_block(parser *s, fv_jj_node *n) {
    const char *end = "elif";
    for (fv_jj_node *at = n;; at = at->orelse) {
        FV_TRY(tuple(s, without_choice, false, &at->a));
        FV_TRY(end_block(s));
        FV_TRY(body(s, "endif elif else ", &at->body, &end));
        if (strcmp(end, "elif") != 0) {
            n = at;
            break;
        }
        FV_TRY(make(s, FV_JJ_IF, &at->orelse));
    }
    if (strcmp(end, "endif") == 0) return FV_OK;
    FV_TRY(end_block(s));
    return body_to(s, "endif ", &n->orelse);
}

/* Parses the filters and the body of a capturing block. */
static fv_status capture(parser *s, const char *end, fv_jj_node *n) {
    FV_TRY(make(s, FV_JJ_CAPTURED, &n->b));
    while (skip_op(s, '|')) FV_TRY(filter(s, &n->b));
    FV_TRY(end_block(s));
    return body_to(s, end, &n->body);
}

static fv_status set_block(parser *s, fv_jj_node *n) {
    FV_TRY(target(s, true, &n->a));
    if (skip_op(s, '=')) {
        FV_TRY(tuple(s, expression, false, &n->b));
        note_alias(s, n->a, n->b);
        return FV_OK;
    }
    n->kind = FV_JJ_CAPTURE;
    return capture(s, "endset ", n);
}

static fv_status filter_block(parser *s, fv_jj_node *n) {
    FV_TRY(make(s, FV_JJ_CAPTURED, &n->b));
    do {
        FV_TRY(filter(s, &n->b));
    } while (skip_op(s, '|'));
    FV_TRY(end_block(s));
    return body_to(s, "endfilter ", &n->body);
}

static fv_status generation_block(parser *s, fv_jj_node *n) {
    FV_TRY(make(s, FV_JJ_CAPTURED, &n->b));
    FV_TRY(end_block(s));
    return body_to(s, "endgeneration ", &n->body);
}

static fv_status parameter(parser *s, fv_jj_node **out) {
    FV_TRY(make(s, FV_JJ_ARG, out));
    FV_TRY(need_name(s, &(*out)->name));
    return skip_op(s, '=') ? expression(s, &(*out)->a) : FV_OK;
}

static fv_status macro_block(parser *s, fv_jj_node *n) {
    FV_TRY(need_name(s, &n->name));
    FV_TRY(need_op(s, '('));
    FV_TRY(elements(s, ')', parameter, &n->list));
    FV_TRY(end_block(s));
    int loops = s->loops;
    s->loops = 0;
    FV_TRY(body_to(s, "endmacro ", &n->body));
    s->loops = loops;
    return FV_OK;
}

static fv_status call_block(parser *s, fv_jj_node *n) {
    const char *known = fv_jj_names_find(&s->p->names, "caller");
    n->name = known ? known : "caller";
    if (skip_op(s, '(')) FV_TRY(elements(s, ')', parameter, &n->list));
    FV_TRY(expression(s, &n->a));
    if (n->a->kind != FV_JJ_CALL) return fail(s, "a call before this");
    FV_TRY(end_block(s));
    int loops = s->loops;
    s->loops = 0;
    FV_TRY(body_to(s, "endcall ", &n->body));
    s->loops = loops;
    return FV_OK;
}

static fv_status with_block(parser *s, fv_jj_node *n) {
    for (fv_jj_node **end = &n->list; s->t->kind != FV_JJ_T_BLOCK_END; end = &(*end)->next) {
        if (n->list) FV_TRY(need_op(s, ','));
        FV_TRY(make(s, FV_JJ_SET, end));
        FV_TRY(primary(s, &(*end)->a));
        if ((*end)->a->kind != FV_JJ_NAME) return fail(s, "expected a name to assign to");
        FV_TRY(need_op(s, '='));
        FV_TRY(expression(s, &(*end)->b));
    }
    FV_TRY(end_block(s));
    return body_to(s, "endwith ", &n->body);
}

static fv_status jump(parser *s, fv_jj_node *n) {
    (void)n;
    return s->loops ? FV_OK : fail(s, "a loop around this");
}

static fv_status print_block(parser *s, fv_jj_node *n) {
    return tuple(s, expression, false, &n->a);
}

static fv_status statement(parser *s, fv_jj_node **out) {
    static const struct {
        const char *name;
        fv_jj_node_kind kind;
        fv_status (*parse)(parser *s, fv_jj_node *n);
    } known[] = {{"for", FV_JJ_FOR, for_block},
                 {"if", FV_JJ_IF, if_block},
                 {"set", FV_JJ_SET, set_block},
                 {"macro", FV_JJ_MACRO, macro_block},
                 {"call", FV_JJ_CALLER, call_block},
                 {"with", FV_JJ_WITH, with_block},
                 {"filter", FV_JJ_CAPTURE, filter_block},
                 {"generation", FV_JJ_CAPTURE, generation_block},
                 {"break", FV_JJ_BREAK, jump},
                 {"continue", FV_JJ_CONTINUE, jump},
                 {"print", FV_JJ_PRINT, print_block}};
    const char *name = "";
    int32_t line = s->t->line;
    FV_TRY(need_name(s, &name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        FV_TRY(enter(s));
        FV_TRY(make(s, known[i].kind, out));
        (*out)->line = line;
        FV_TRY(known[i].parse(s, *out));
        s->depth--;
        return end_block(s);
    }
    return lacks(s, line, "the block", name);
}

/* Tells whether `name` is among `ends`. */
static bool ends_body(const char *ends, const char *name) {
    size_t n = strlen(name);
    for (const char *at = ends; (at = strstr(at, name)) != NULL; at += n)
        if ((at == ends || at[-1] == ' ') && at[n] == ' ') return true;
    return false;
}

static fv_status body(parser *s, const char *ends, fv_jj_node **out, const char **end) {
    for (; s->t->kind != FV_JJ_T_END; out = &(*out)->next) {
        fv_jj_token *t = s->t++;
        if (t->kind == FV_JJ_T_DATA) {
            FV_TRY(make(s, FV_JJ_DATA, out));
            (*out)->value = t->value;
        } else if (t->kind == FV_JJ_T_PRINT_BEGIN) {
            FV_TRY(make(s, FV_JJ_PRINT, out));
            FV_TRY(tuple(s, expression, false, &(*out)->a));
            if (s->t->kind != FV_JJ_T_PRINT_END) return fail(s, "'}}'");
            s->t++;
        } else if (ends && s->t->kind == FV_JJ_T_NAME && ends_body(ends, s->t->name)) {
            *end = (s->t++)->name;
            return FV_OK;
        } else {
            FV_TRY(statement(s, out));
        }
    }
    return ends ? fail(s, ends) : FV_OK;
}

/* ---- a program ---- */

static fv_status parse(fv_jinja *p, const char *program, size_t n) {
    parser s = {.p = p};
    const char *end;
    if (n > FV_JINJA_PROGRAM_BYTES)
        return FV_FAIL(FV_EUNSUPPORTED, "%s: a template of %zu bytes; at most %d are read",
                       p->where, n, FV_JINJA_PROGRAM_BYTES);
    fv_jj_token *tokens;
    FV_TRY(fv_jj_lex(p, program, n, &tokens));
    s.t = tokens;
    fv_status st = body(&s, NULL, &p->body, &end);
    free(tokens);
    return st;
}

fv_status fv_jinja_parse(const char *program, size_t n, const char *where, fv_jinja **out) {
    fv_jinja *p = calloc(1, sizeof *p);
    if (!p) return FV_FAIL(FV_ENOMEM, "no memory for a chat template");
    char *copy;
    fv_status st = fv_arena_strndup(&p->arena, where, strlen(where), &copy);
    if (st == FV_OK) {
        p->where = copy;
        st = parse(p, program, n);
    }
    if (st != FV_OK) {
        fv_jinja_free(p);
        return st;
    }
    *out = p;
    return FV_OK;
}

void fv_jinja_free(fv_jinja *p) {
    if (!p) return;
    fv_arena_fini(&p->arena);
    free(p);
}

fv_jinja_content fv_jinja_content_form(const fv_jinja *p) {
    if (!p->walks_content) return FV_JINJA_CONTENT_TEXT;
    return p->asks_content ? FV_JINJA_CONTENT_EITHER : FV_JINJA_CONTENT_PARTS;
}

bool fv_jinja_expects_none(const fv_jinja *p) { return p->nulls_content; }
