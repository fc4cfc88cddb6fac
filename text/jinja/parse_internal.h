#ifndef FOVEA_TEXT_JINJA_PARSE_INTERNAL_H
#define FOVEA_TEXT_JINJA_PARSE_INTERNAL_H

/* THE PARSER'S FILES: parse.c has statements and the program, parse_operator.c operators, parse_primary.c what
 * they apply to, parse_state.c the rest. Functions begin at the parser's current token and leave it after what
 * they have parsed. */
#include <string.h>

#include "text/jinja/internal.h"

/* The state of parsing one template. */
typedef struct fv_jj_parser {
    fv_jinja *p;
    fv_jj_token *t; /* the current token */
    int depth, loops, n_node;
    struct {
        const char *name;
        bool other; /* not only for content */
    } alias[32];    /* [n_alias] names that content or another member was assigned to */
    int n_alias;
} fv_jj_parser;

/* ---- parse_state.c ---- */

/* FV_EDATA: `expected` is expected at the current token. */
fv_status fv_jp_expected(const fv_jj_parser *s, const char *expected);

/* FV_EUNSUPPORTED for a block, filter or test. */
fv_status fv_jp_lacks(const fv_jj_parser *s, int32_t line, const char *kind, const char *name);

/* Counts a level of nesting, which the caller takes from s->depth at its end. */
fv_status fv_jp_enter(fv_jj_parser *s);

/* Makes a node that begins at the current token. */
fv_status fv_jp_make(fv_jj_parser *s, fv_jj_node_kind kind, fv_jj_node **out);

static inline bool at_op(const fv_jj_parser *s, int32_t op) {
    return s->t->kind == FV_JJ_T_OP && s->t->op == op;
}
static inline bool at_name(const fv_jj_parser *s, const char *name) {
    return s->t->kind == FV_JJ_T_NAME && strcmp(s->t->name, name) == 0;
}
static inline bool skip_op(fv_jj_parser *s, int32_t op) {
    bool is = at_op(s, op);
    s->t += is;
    return is;
}
static inline bool skip_name(fv_jj_parser *s, const char *name) {
    bool is = at_name(s, name);
    s->t += is;
    return is;
}

fv_status fv_jp_need_op(fv_jj_parser *s, int32_t op);
fv_status fv_jp_need_name(fv_jj_parser *s, const char **out);

/* Tells whether e is x.content, x['content'] or a name for it, perhaps filtered or sliced. */
bool fv_jp_is_content(const fv_jj_parser *s, const fv_jj_node *e);

/* Notes a name that content, or another member such as tool_calls, is assigned to. */
void fv_jp_note_alias(fv_jj_parser *s, const fv_jj_node *target, const fv_jj_node *e);

/* ---- parse_primary.c ---- */

typedef fv_status fv_jj_element(fv_jj_parser *s, fv_jj_node **out);

/* Parses elements separated by commas up to the closing bracket, and skips it. */
fv_status fv_jp_elements(fv_jj_parser *s, int32_t close, fv_jj_element *one, fv_jj_node **list);

/* Parses one expression, or several separated by commas as a tuple; in parentheses there may be none. */
fv_status fv_jp_tuple(fv_jj_parser *s, fv_jj_element *one, bool parentheses, fv_jj_node **out);

/* Parses a name, a constant, or what is in brackets. */
fv_status fv_jp_primary(fv_jj_parser *s, fv_jj_node **out);

/* Parses .name after *e. */
fv_status fv_jp_attribute(fv_jj_parser *s, fv_jj_node **e);

/* Parses attributes, subscripts and calls after *e; filters and tests; one filter, after its "|". */
fv_status fv_jp_postfix(fv_jj_parser *s, fv_jj_node **e);
fv_status fv_jp_filters_and_tests(fv_jj_parser *s, fv_jj_node **e);
fv_status fv_jp_filter(fv_jj_parser *s, fv_jj_node **e);

/* ---- parse_operator.c ---- */

/* Parses an expression, with or without "a if b else c" at its top. */
fv_status fv_jp_expression(fv_jj_parser *s, fv_jj_node **out);
fv_status fv_jp_without_choice(fv_jj_parser *s, fv_jj_node **out);

#endif
