/* Operators, from those that bind most to "a if b else c". */
#include "text/jinja/parse_internal.h"

static fv_status unary(fv_jj_parser *s, bool filters, fv_jj_node **out) {
    bool neg = at_op(s, '-');
    FV_TRY(fv_jp_enter(s));
    if (neg || at_op(s, '+')) {
        FV_TRY(fv_jp_make(s, neg ? FV_JJ_NEG : FV_JJ_POS, out));
        s->t++;
        FV_TRY(unary(s, false, &(*out)->a));
    } else {
        FV_TRY(fv_jp_primary(s, out));
    }
    FV_TRY(fv_jp_postfix(s, out));
    if (filters) FV_TRY(fv_jp_filters_and_tests(s, out));
    s->depth--;
    return FV_OK;
}

static fv_status operand(fv_jj_parser *s, fv_jj_node **out) { return unary(s, true, out); }

/* Parses left-associative operators of one precedence level. */
static fv_status binary(fv_jj_parser *s, const int32_t *ops, fv_jj_element *below,
                        fv_jj_node **out) {
    FV_TRY(below(s, out));
    for (int i = 0; ops[i];) {
        if (!at_op(s, ops[i])) {
            i++;
            continue;
        }
        fv_jj_node *n;
        FV_TRY(fv_jp_make(s, FV_JJ_BINARY, &n));
        n->op = ops[i];
        n->a = *out;
        s->t++;
        FV_TRY(below(s, &n->b));
        *out = n;
        i = 0;
    }
    return FV_OK;
}

static fv_status power(fv_jj_parser *s, fv_jj_node **out) {
    static const int32_t ops[] = {FV_JJ_OP('*', '*'), 0};
    return binary(s, ops, operand, out);
}

static fv_status product(fv_jj_parser *s, fv_jj_node **out) {
    static const int32_t ops[] = {'*', '/', FV_JJ_OP('/', '/'), '%', 0};
    return binary(s, ops, power, out);
}

static fv_status joined(fv_jj_parser *s, fv_jj_node **out) {
    fv_jj_node *first, *n;
    FV_TRY(product(s, &first));
    *out = first;
    if (!at_op(s, '~')) return FV_OK;
    FV_TRY(fv_jp_make(s, FV_JJ_JOIN, &n));
    FV_TRY(fv_jp_make(s, FV_JJ_ARG, &n->list));
    n->list->a = first;
    for (fv_jj_node **end = &n->list->next; skip_op(s, '~'); end = &(*end)->next) {
        FV_TRY(fv_jp_make(s, FV_JJ_ARG, end));
        FV_TRY(product(s, &(*end)->a));
    }
    *out = n;
    return FV_OK;
}

static fv_status sum(fv_jj_parser *s, fv_jj_node **out) {
    static const int32_t ops[] = {'+', '-', 0};
    return binary(s, ops, joined, out);
}

/* Skips and returns the comparison operator at the current token; 0: none. */
static int32_t skip_comparison(fv_jj_parser *s) {
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

static fv_status comparison(fv_jj_parser *s, fv_jj_node **out) {
    fv_jj_node *n = NULL, **end = NULL;
    FV_TRY(sum(s, out));
    for (int32_t op; (op = skip_comparison(s)) != 0; end = &(*end)->next) {
        if (!n) {
            FV_TRY(fv_jp_make(s, FV_JJ_COMPARE, &n));
            n->a = *out;
            *out = n;
            end = &n->list;
        }
        FV_TRY(fv_jp_make(s, FV_JJ_ARG, end));
        (*end)->op = op;
        FV_TRY(sum(s, &(*end)->a));
        s->p->nulls_content |= is_none(n->a) ? fv_jp_is_content(s, (*end)->a)
                                             : is_none((*end)->a) && fv_jp_is_content(s, n->a);
    }
    return FV_OK;
}

static fv_status negation(fv_jj_parser *s, fv_jj_node **out) {
    if (!at_name(s, "not")) return comparison(s, out);
    FV_TRY(fv_jp_enter(s));
    FV_TRY(fv_jp_make(s, FV_JJ_NOT, out));
    s->t++;
    FV_TRY(negation(s, &(*out)->a));
    s->depth--;
    return FV_OK;
}

static fv_status logical(fv_jj_parser *s, const char *word, fv_jj_node_kind kind,
                         fv_jj_element *below, fv_jj_node **out) {
    FV_TRY(below(s, out));
    while (at_name(s, word)) {
        fv_jj_node *n;
        FV_TRY(fv_jp_make(s, kind, &n));
        n->a = *out;
        s->t++;
        FV_TRY(below(s, &n->b));
        *out = n;
    }
    return FV_OK;
}

static fv_status conjunction(fv_jj_parser *s, fv_jj_node **out) {
    return logical(s, "and", FV_JJ_AND, negation, out);
}

fv_status fv_jp_without_choice(fv_jj_parser *s, fv_jj_node **out) {
    return logical(s, "or", FV_JJ_OR, conjunction, out);
}

fv_status fv_jp_expression(fv_jj_parser *s, fv_jj_node **out) {
    FV_TRY(fv_jp_enter(s));
    FV_TRY(fv_jp_without_choice(s, out));
    while (at_name(s, "if")) {
        fv_jj_node *n;
        FV_TRY(fv_jp_make(s, FV_JJ_CHOICE, &n));
        n->b = *out;
        s->t++;
        FV_TRY(fv_jp_without_choice(s, &n->a));
        if (skip_name(s, "else")) FV_TRY(fv_jp_expression(s, &n->c));
        *out = n;
    }
    s->depth--;
    return FV_OK;
}
