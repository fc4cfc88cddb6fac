/* Names, constants, brackets, and what may follow them: attributes, subscripts, calls, filters, tests. */
#include <stdlib.h>

#include "text/jinja/parse_internal.h"

fv_status fv_jp_elements(fv_jj_parser *s, int32_t close, fv_jj_element *one, fv_jj_node **list) {
    for (fv_jj_node **end = list; !skip_op(s, close); end = &(*end)->next) {
        if (end != list) {
            FV_TRY(fv_jp_need_op(s, ','));
            if (skip_op(s, close)) break;
        }
        FV_TRY(one(s, end));
    }
    return FV_OK;
}

/* Parses one expression as a list's element: a node can be in one list only. */
static fv_status list_element(fv_jj_parser *s, fv_jj_node **out) {
    FV_TRY(fv_jp_make(s, FV_JJ_ARG, out));
    return fv_jp_expression(s, &(*out)->a);
}

static fv_status pair(fv_jj_parser *s, fv_jj_node **out) {
    FV_TRY(fv_jp_make(s, FV_JJ_ARG, out));
    FV_TRY(fv_jp_expression(s, &(*out)->a));
    FV_TRY(fv_jp_need_op(s, ':'));
    return fv_jp_expression(s, &(*out)->b);
}

static fv_status argument(fv_jj_parser *s, fv_jj_node **out) {
    FV_TRY(fv_jp_make(s, FV_JJ_ARG, out));
    if (at_op(s, '*') || at_op(s, FV_JJ_OP('*', '*')))
        (*out)->op = (s->t++)->op;
    else if (s->t->kind == FV_JJ_T_NAME && s->t[1].kind == FV_JJ_T_OP && s->t[1].op == '=') {
        (*out)->name = s->t->name;
        s->t += 2;
    }
    return fv_jp_expression(s, &(*out)->a);
}

static bool ends_tuple(const fv_jj_parser *s) {
    return s->t->kind == FV_JJ_T_PRINT_END || s->t->kind == FV_JJ_T_BLOCK_END || at_op(s, ')') ||
           at_name(s, "in") || s->t->kind == FV_JJ_T_END;
}

fv_status fv_jp_tuple(fv_jj_parser *s, fv_jj_element *one, bool parentheses, fv_jj_node **out) {
    fv_jj_node *t, **end;
    FV_TRY(fv_jp_make(s, FV_JJ_TUPLING, &t));
    bool comma = false;
    for (end = &t->list; !ends_tuple(s); end = &(*end)->next) {
        FV_TRY(fv_jp_make(s, FV_JJ_ARG, end));
        FV_TRY(one(s, &(*end)->a));
        if (!skip_op(s, ',')) break;
        comma = true;
    }
    if (!comma && !t->list && !parentheses) return fv_jp_expected(s, "an expression");
    *out = comma || !t->list ? t : t->list->a;
    return FV_OK;
}

static bool at_string(const fv_jj_parser *s) {
    return s->t->kind == FV_JJ_T_CONST && s->t->value.kind == FV_JJ_STR;
}

/* Joins adjacent strings into one. */
static fv_status strings(fv_jj_parser *s, fv_jj_str *out) {
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

static fv_status constant(fv_jj_parser *s, fv_jj_node **out) {
    FV_TRY(fv_jp_make(s, FV_JJ_CONST, out));
    (*out)->value = s->t->value;
    if (at_string(s)) return strings(s, &(*out)->value.str);
    s->t++;
    return FV_OK;
}

static fv_status name(fv_jj_parser *s, fv_jj_node **out) {
    static const struct {
        const char *name;
        fv_jj_value value;
    } words[] = {{"true", {FV_JJ_BOOL, {.b = true}}},   {"True", {FV_JJ_BOOL, {.b = true}}},
                 {"false", {FV_JJ_BOOL, {.b = false}}}, {"False", {FV_JJ_BOOL, {.b = false}}},
                 {"none", {.kind = FV_JJ_NONE}},        {"None", {.kind = FV_JJ_NONE}}};
    FV_TRY(fv_jp_make(s, FV_JJ_NAME, out));
    (*out)->name = (s->t++)->name;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp((*out)->name, words[i].name) != 0) continue;
        (*out)->kind = FV_JJ_CONST;
        (*out)->value = words[i].value;
    }
    return FV_OK;
}

fv_status fv_jp_primary(fv_jj_parser *s, fv_jj_node **out) {
    if (s->t->kind == FV_JJ_T_NAME) return name(s, out);
    if (s->t->kind == FV_JJ_T_CONST) return constant(s, out);
    if (skip_op(s, '(')) {
        FV_TRY(fv_jp_tuple(s, fv_jp_expression, true, out));
        return fv_jp_need_op(s, ')');
    }
    bool list = at_op(s, '[');
    if (!list && !at_op(s, '{')) return fv_jp_expected(s, "an expression");
    FV_TRY(fv_jp_make(s, list ? FV_JJ_LISTING : FV_JJ_DICTING, out));
    s->t++;
    return fv_jp_elements(s, list ? ']' : '}', list ? list_element : pair, &(*out)->list);
}

/* ---- postfix expressions ----------------------------------------------------------------- */

static fv_status arguments(fv_jj_parser *s, fv_jj_node *of) {
    FV_TRY(fv_jp_need_op(s, '('));
    return fv_jp_elements(s, ')', argument, &of->list);
}

static fv_status subscript(fv_jj_parser *s, fv_jj_node **e) {
    fv_jj_node *n, *part[3] = {NULL, NULL, NULL};
    int k = 0;
    FV_TRY(fv_jp_make(s, FV_JJ_ITEM, &n));
    n->a = *e;
    s->t++;
    for (; k < 3; k++) {
        if (!at_op(s, ':') && !at_op(s, ']')) FV_TRY(fv_jp_expression(s, &part[k]));
        if (k == 2 || !skip_op(s, ':')) break;
    }
    FV_TRY(fv_jp_need_op(s, ']'));
    if (k == 0 && !part[0]) return fv_jp_expected(s, "an index");
    if (k) n->kind = FV_JJ_SLICE;
    s->p->walks_content |= !k && part[0]->kind == FV_JJ_CONST && part[0]->value.kind == FV_JJ_INT &&
                           fv_jp_is_content(s, *e);
    n->b = part[0];
    n->c = part[1];
    n->orelse = part[2];
    *e = n;
    return FV_OK;
}

fv_status fv_jp_attribute(fv_jj_parser *s, fv_jj_node **e) {
    fv_jj_node *n;
    FV_TRY(fv_jp_make(s, FV_JJ_ATTR, &n));
    n->a = *e;
    s->t++;
    if (s->t->kind == FV_JJ_T_CONST && s->t->value.kind == FV_JJ_INT) {
        n->kind = FV_JJ_ITEM;
        FV_TRY(constant(s, &n->b));
    } else {
        FV_TRY(fv_jp_need_name(s, &n->name));
    }
    *e = n;
    return FV_OK;
}

static fv_status call(fv_jj_parser *s, fv_jj_node **e) {
    fv_jj_node *n;
    FV_TRY(fv_jp_make(s, FV_JJ_CALL, &n));
    n->a = *e;
    *e = n;
    return arguments(s, n);
}

fv_status fv_jp_postfix(fv_jj_parser *s, fv_jj_node **e) {
    for (;;) {
        if (at_op(s, '.'))
            FV_TRY(fv_jp_attribute(s, e));
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
static fv_status row_of(fv_jj_parser *s, fv_jj_node_kind kind, fv_jj_node *operand,
                        fv_jj_node **out) {
    FV_TRY(fv_jp_make(s, kind, out));
    FV_TRY(fv_jp_need_name(s, &(*out)->name));
    (*out)->a = operand;
    const char *name = (*out)->name;
    (*out)->row = kind == FV_JJ_FILTER ? fv_jj_find_filter(name, strlen(name))
                                       : fv_jj_find_row(fv_jj_tests, name, strlen(name));
    if ((*out)->row) return FV_OK;
    return fv_jp_lacks(s, (*out)->line, kind == FV_JJ_FILTER ? "the filter" : "the test", name);
}

fv_status fv_jp_filter(fv_jj_parser *s, fv_jj_node **e) {
    FV_TRY(row_of(s, FV_JJ_FILTER, *e, e));
    return at_op(s, '(') ? arguments(s, *e) : FV_OK;
}

static fv_status test(fv_jj_parser *s, fv_jj_node **e) {
    fv_jj_node *n, *opposite;
    bool negated = skip_name(s, "not");
    FV_TRY(row_of(s, FV_JJ_TEST, *e, &n));
    s->p->asks_content |= strcmp(n->name, "string") == 0 && fv_jp_is_content(s, *e);
    s->p->nulls_content |= strcmp(n->name, "none") == 0 && fv_jp_is_content(s, *e);
    bool word = s->t->kind == FV_JJ_T_NAME && !at_name(s, "else") && !at_name(s, "or") &&
                !at_name(s, "and") && !at_name(s, "if") && !at_name(s, "is");
    if (at_op(s, '(')) {
        FV_TRY(arguments(s, n));
    } else if (word || s->t->kind == FV_JJ_T_CONST || at_op(s, '[') || at_op(s, '{')) {
        FV_TRY(fv_jp_make(s, FV_JJ_ARG, &n->list));
        FV_TRY(fv_jp_primary(s, &n->list->a));
        FV_TRY(fv_jp_postfix(s, &n->list->a));
    }
    *e = n;
    if (!negated) return FV_OK;
    FV_TRY(fv_jp_make(s, FV_JJ_NOT, &opposite));
    opposite->a = n;
    *e = opposite;
    return FV_OK;
}

fv_status fv_jp_filters_and_tests(fv_jj_parser *s, fv_jj_node **e) {
    for (;;) {
        if (skip_op(s, '|'))
            FV_TRY(fv_jp_filter(s, e));
        else if (skip_name(s, "is"))
            FV_TRY(test(s, e));
        else if (at_op(s, '('))
            FV_TRY(call(s, e));
        else
            return FV_OK;
    }
}
