/* Any JSON: white space in runs of at most FV_SPACE_RUN_MAX, values, objects. */
#include "grammar/internal.h"

#define NUMBER "-?(0|[1-9][0-9]{0,17})(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?"

static fv_status text(fv_compile *c, const char *s, fv_expr **out) {
    size_t n = 0;
    while (s[n]) n++;
    return fv_expr_text(c, s, n, out);
}

fv_status fv_json_space(fv_compile *c, fv_expr **out) {
    static const fv_span spaces[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
    fv_expr *e;
    if (c->space < 0) {
        FV_TRY(fv_rule_new(c, "white space", 11, &c->space));
        FV_TRY(fv_expr_set(c, spaces, 3, &e));
        FV_TRY(fv_expr_repeat(c, e, 0, FV_SPACE_RUN_MAX, &e));
        c->rule[c->space].expr = e;
    }
    return fv_expr_rule(c, c->space, out);
}

/* open item ("," item)* close, or nothing between open and close. */
static fv_status listed(fv_compile *c, const char *open, fv_expr *item, const char *close,
                        fv_expr **out) {
    fv_expr *space, *first, *comma, *last, *more, *all;
    FV_TRY(fv_json_space(c, &space));
    FV_TRY(text(c, open, &first));
    FV_TRY(text(c, ",", &comma));
    FV_TRY(text(c, close, &last));
    FV_TRY(fv_expr_seq(c, &more, comma, space, item, space, NULL));
    FV_TRY(fv_expr_repeat(c, more, 0, -1, &more));
    FV_TRY(fv_expr_seq(c, &all, item, space, more, NULL));
    FV_TRY(fv_expr_repeat(c, all, 0, 1, &all));
    return fv_expr_seq(c, out, first, space, all, last, NULL);
}

static fv_status any_string(fv_compile *c, fv_expr **out) {
    fv_expr *quote, *e;
    FV_TRY(text(c, "\"", &quote));
    FV_TRY(fv_expr_list(c, FV_EXPR_CHAR, NULL, 0, &e));
    FV_TRY(fv_expr_repeat(c, e, 0, -1, &e));
    return fv_expr_seq(c, out, quote, e, quote, NULL);
}

fv_status fv_json_any_object(fv_compile *c, fv_expr **out) {
    fv_expr *space, *key, *colon, *value, *member;
    FV_TRY(fv_json_space(c, &space));
    FV_TRY(any_string(c, &key));
    FV_TRY(text(c, ":", &colon));
    FV_TRY(fv_json_value(c, &value));
    FV_TRY(fv_expr_seq(c, &member, key, space, colon, space, value, NULL));
    return listed(c, "{", member, "}", out);
}

static fv_status all_values(fv_compile *c, fv_expr **out) {
    static const char *const words[] = {"true", "false", "null"};
    fv_expr *e[6], *value;
    for (int i = 0; i < 3; i++) FV_TRY(text(c, words[i], &e[i]));
    FV_TRY(fv_json_value(c, &value));
    FV_TRY(listed(c, "[", value, "]", &e[3]));
    FV_TRY(any_string(c, &e[4]));
    FV_TRY(fv_json_any_object(c, &e[5]));
    fv_expr *list[7] = {e[0], e[1], e[2], e[3], e[4], e[5]};
    FV_TRY(fv_regex_parse(c, NUMBER, sizeof NUMBER - 1, &list[6]));
    return fv_expr_list(c, FV_EXPR_ALT, list, 7, out);
}

fv_status fv_json_value(fv_compile *c, fv_expr **out) {
    if (c->value < 0) {
        fv_expr *e;
        FV_TRY(fv_rule_new(c, "a JSON value", 12, &c->value));
        FV_TRY(all_values(c, &e));
        c->rule[c->value].expr = e;
    }
    return fv_expr_rule(c, c->value, out);
}
