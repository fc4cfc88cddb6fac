/* Grammars: Lark's form (`start: ...`) and GBNF's (`root ::= ...`), told apart by "::=". Both have literals, groups,
 * alternatives and repetitions; classes [a-z] are GBNF's, where Lark has [optional], /expressions/, ranges "a".."z",
 * %import common.NAME, %ignore, and, as in llguidance, %json {schema}.
 *
 * A rule that begins with itself (`sum: sum "+" term | term`) becomes a repetition; through other rules this is
 * refused later. Texts that %ignore names may follow each terminal within a rule, up to FV_SPACE_RUN_MAX times. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

typedef struct reader {
    fv_compile *c;
    const char *s;
    size_t n, at;
    size_t first; /* number of the grammar's first rule */
    int depth;
    bool lark, ignores, in_rule; /* in_rule: a lower-case rule of Lark's */
    int32_t ignored;
} reader;

static fv_status wrong(const reader *r, const char *what) {
    size_t line = 1;
    for (size_t i = 0; i < r->at && i < r->n; i++) line += r->s[i] == '\n';
    return FV_FAIL(FV_EINVAL, "line %zu: %s", line, what);
}

static bool next_is(const reader *r, const char *what) {
    const size_t n = strlen(what);
    return r->n - r->at >= n && memcmp(r->s + r->at, what, n) == 0;
}

static bool take(reader *r, const char *what) {
    if (!next_is(r, what)) return false;
    r->at += strlen(what);
    return true;
}

static void skip(reader *r) {
    while (r->at < r->n) {
        if (isspace((unsigned char)r->s[r->at])) {
            r->at++;
        } else if (r->s[r->at] == '#' || (r->lark && next_is(r, "//"))) {
            while (r->at < r->n && r->s[r->at] != '\n') r->at++;
        } else {
            return;
        }
    }
}

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '-'; }

/* The name at the reader; 0 bytes: none. */
static size_t name_at(const reader *r, size_t at) {
    size_t n = 0;
    while (at + n < r->n && is_name(r->s[at + n])) n++;
    return n;
}

/* Whether a definition begins here: a name and "::=" or ":". */
static bool defines(const reader *r) {
    reader t = *r;
    t.at += strspn(t.at < t.n && t.lark ? t.s + t.at : "", "?!");
    const size_t n = name_at(&t, t.at);
    t.at += n;
    if (t.lark && take(&t, ".")) t.at += name_at(&t, t.at); /* a priority */
    skip(&t);
    return n && (t.lark ? next_is(&t, ":") : next_is(&t, "::="));
}

static fv_status rule_named(reader *r, const char *name, size_t n, int32_t *out) {
    FV_TRY(fv_compile_step(r->c, 1 + (int64_t)(r->c->n_rule - r->first) / 4));
    for (size_t i = r->first; i < r->c->n_rule; i++)
        if (strlen(r->c->rule[i].name) == n && memcmp(r->c->rule[i].name, name, n) == 0) {
            *out = (int32_t)i;
            return FV_OK;
        }
    return fv_rule_new(r->c, name, n, out);
}

/* ---- literals ------------------------------------------------------------------------------- */

/* Reads a character of a literal, which may be an escape, as an expression. */
static fv_status character(reader *r, int32_t *cp) {
    fv_expr *e;
    if (r->s[r->at] != '\\') {
        r->at += fv_cp_next(r->s + r->at, r->n - r->at, cp);
        return FV_OK;
    }
    FV_TRY(fv_regex_escape(r->c, r->s, r->n, &r->at, &e));
    if (e->n != 1 || e->span[0].lo != e->span[0].hi)
        return wrong(r, "an escape that is no character");
    *cp = e->span[0].lo;
    return FV_OK;
}

static fv_status quoted(reader *r, fv_expr **out) {
    const char quote = r->s[r->at++];
    char *text;
    size_t n = 0;
    int32_t cp;
    const char *end = memchr(r->s + r->at, quote, r->n - r->at);
    if (!end) return wrong(r, "a text is not closed");
    size_t room = 4;
    for (size_t i = r->at; i < r->n && r->s[i] != quote; i += r->s[i] == '\\' ? 2 : 1) room += 4;
    FV_TRY(FV_COMPILE_NEW(r->c, room, text));
    while (r->at < r->n && r->s[r->at] != quote) {
        FV_TRY(character(r, &cp));
        if (n + 4 > room) return wrong(r, "a text is not closed");
        n += fv_cp_put(cp, text + n);
    }
    if (r->at >= r->n) return wrong(r, "a text is not closed");
    r->at++;
    if (!r->lark || r->at >= r->n || r->s[r->at] != 'i' || name_at(r, r->at) != 1)
        return fv_expr_text(r->c, text, n, out);
    r->at++;
    fv_exprs list = {0};
    fv_status st = FV_OK;
    for (size_t at = 0; at < n && st == FV_OK;) {
        fv_expr *e;
        at += fv_cp_next(text + at, n - at, &cp);
        const int32_t other = cp < 128 && isalpha(cp) ? cp ^ 0x20 : cp;
        st = fv_expr_set(r->c, (fv_span[]){{cp, cp}, {other, other}}, 2, &e);
        if (st == FV_OK) st = fv_exprs_add(&list, e);
    }
    if (st == FV_OK) st = fv_expr_list(r->c, FV_EXPR_SEQ, list.item, list.n, out);
    free(list.item);
    return st;
}

/* "a".."z" */
static fv_status range_or_text(reader *r, fv_expr **out) {
    fv_expr *to;
    int32_t lo, hi;
    FV_TRY(quoted(r, out));
    if (!r->lark || !take(r, "..")) return FV_OK;
    if (r->at >= r->n || r->s[r->at] != '"') return wrong(r, "a range ends with a text");
    FV_TRY(quoted(r, &to));
    if ((*out)->kind != FV_EXPR_TEXT || to->kind != FV_EXPR_TEXT || !(*out)->n || !to->n ||
        fv_cp_next((*out)->text, (size_t)(*out)->n, &lo) != (size_t)(*out)->n ||
        fv_cp_next(to->text, (size_t)to->n, &hi) != (size_t)to->n || lo > hi)
        return wrong(r, "a range is of two characters in order");
    return fv_expr_set(r->c, &(fv_span){lo, hi}, 1, out);
}

static fv_status expression(reader *r, fv_expr **out) {
    const size_t from = ++r->at;
    bool in_class = false;
    while (r->at < r->n && (r->s[r->at] != '/' || in_class) && r->s[r->at] != '\n') {
        in_class = r->s[r->at] == '[' || (in_class && r->s[r->at] != ']');
        r->at += r->s[r->at] == '\\' && r->at + 1 < r->n ? 2 : 1;
    }
    if (r->at >= r->n || r->s[r->at] != '/') return wrong(r, "an expression is not closed");
    char *text;
    const size_t n = r->at++ - from;
    FV_TRY(FV_COMPILE_NEW(r->c, n + 1, text));
    memcpy(text, r->s + from, n);
    if (name_at(r, r->at)) return wrong(r, "flags of an expression are not supported");
    return fv_regex_read(r->c, text, n, false, out);
}

static fv_status schema(reader *r, fv_expr **out) {
    json_error_t err;
    int32_t rule;
    skip(r);
    json_t *root =
        json_loadb(r->s + r->at, r->n - r->at,
                   JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &err);
    if (!root) return FV_FAIL(FV_EINVAL, "%%json: not valid JSON: %s", err.text);
    r->at += (size_t)err.position;
    fv_status st = fv_schema_rule(r->c, root, &rule);
    json_decref(root);
    FV_TRY(st);
    return fv_expr_rule(r->c, rule, out);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static fv_status alternatives(reader *r, fv_expr **out);

static fv_status group(reader *r, const char *close, fv_expr **out) {
    r->at++;
    if (++r->depth > FV_EXPR_DEPTH_MAX / 2) return wrong(r, "groups are nested too deep");
    FV_TRY(alternatives(r, out));
    r->depth--;
    skip(r);
    return take(r, close) ? FV_OK : wrong(r, "a group is not closed");
}

/* Lets texts that %ignore names follow a terminal. */
static fv_status after_terminal(reader *r, fv_expr **e) {
    fv_expr *ignored;
    if (!r->ignores || !r->in_rule) return FV_OK;
    FV_TRY(fv_expr_rule(r->c, r->ignored, &ignored));
    return fv_expr_seq(r->c, e, *e, ignored, NULL);
}

static fv_status atom(reader *r, fv_expr **out) {
    const char c = r->s[r->at];
    int32_t rule;
    if (c == '(') return group(r, ")", out);
    if (c == '[' && r->lark) {
        FV_TRY(group(r, "]", out));
        return fv_expr_repeat(r->c, *out, 0, 1, out);
    }
    if (c == '[') return fv_regex_class(r->c, r->s, r->n, &r->at, out);
    if (c == '.' && !r->lark) {
        r->at++;
        return fv_expr_set(r->c, &(fv_span){0, FV_CP_MAX}, 1, out);
    }
    if (c == '"' || (c == '\'' && !r->lark))
        FV_TRY(range_or_text(r, out));
    else if (c == '/' && r->lark)
        FV_TRY(expression(r, out));
    else if (r->lark && take(r, "%json"))
        FV_TRY(schema(r, out));
    else if (name_at(r, r->at)) {
        const char *name = r->s + r->at;
        const size_t n = name_at(r, r->at);
        r->at += n;
        FV_TRY(rule_named(r, name, n, &rule));
        FV_TRY(fv_expr_rule(r->c, rule, out));
        if (!isupper((unsigned char)name[name[0] == '_'])) return FV_OK;
    } else {
        return wrong(r, "unexpected character");
    }
    return after_terminal(r, out);
}

static bool number(reader *r, int64_t *out) {
    const size_t from = r->at;
    *out = 0;
    for (; r->at < r->n && isdigit((unsigned char)r->s[r->at]); r->at++)
        if (*out < INT32_MAX) *out = *out * 10 + (r->s[r->at] - '0');
    return r->at > from;
}

static fv_status repetition(reader *r, fv_expr **e) {
    for (;;) {
        int64_t min, max;
        if (take(r, "*")) {
            min = 0, max = -1;
        } else if (take(r, "+")) {
            min = 1, max = -1;
        } else if (take(r, "?")) {
            min = 0, max = 1;
        } else if (take(r, "{")) {
            skip(r);
            if (!number(r, &min)) min = 0;
            max = min;
            skip(r);
            if (take(r, ",")) {
                skip(r);
                if (!number(r, &max)) max = -1;
                skip(r);
            }
            if (!take(r, "}")) return wrong(r, "a repetition is not closed");
        } else if (r->lark && (skip(r), take(r, "~"))) {
            skip(r);
            if (!number(r, &min)) return wrong(r, "a number is missing after ~");
            max = min;
            if (take(r, "..") && !number(r, &max)) return wrong(r, "a number is missing after ..");
        } else {
            return FV_OK;
        }
        FV_TRY(fv_expr_repeat(r->c, *e, min, max, e));
    }
}

static fv_status sequence(void *user, fv_exprs *list) {
    reader *r = user;
    for (;;) {
        fv_expr *e;
        skip(r);
        if (r->lark && take(r, "->")) { /* a name of the alternative */
            skip(r);
            r->at += name_at(r, r->at);
            skip(r);
        }
        const char c = r->at < r->n ? r->s[r->at] : '|';
        if (c == '|' || c == ')' || (c == ']' && r->lark) || defines(r) ||
            (c == '%' && !next_is(r, "%json")))
            break;
        FV_TRY(atom(r, &e));
        FV_TRY(repetition(r, &e));
        FV_TRY(fv_exprs_add(list, e));
    }
    return FV_OK;
}

static bool bar(void *r) { return take(r, "|"); }

static fv_status alternatives(reader *r, fv_expr **out) {
    return fv_expr_alternatives(r->c, r, sequence, bar, out);
}

/* ---- rules ------------------------------------------------------------------------------------ */

static bool begins_with(const fv_expr *e, int32_t rule) {
    return e->kind == FV_EXPR_SEQ && e->n > 0 && e->item[0]->kind == FV_EXPR_RULE &&
           e->item[0]->rule == rule;
}

/* a: a x | a y | z  becomes  a: z (x | y)* */
static fv_status without_left_recursion(fv_compile *c, int32_t rule, fv_expr *e, fv_expr **out) {
    fv_exprs first = {0}, more = {0};
    fv_status st = FV_OK;
    bool found = false;
    *out = e;
    for (int32_t i = 0; e->kind == FV_EXPR_ALT && i < e->n; i++)
        found |= begins_with(e->item[i], rule);
    if (!found) return FV_OK;
    for (int32_t i = 0; i < e->n && st == FV_OK; i++) {
        fv_expr *x = e->item[i];
        if (begins_with(x, rule)) {
            st = fv_expr_list(c, FV_EXPR_SEQ, x->item + 1, (size_t)x->n - 1, &x);
            if (st == FV_OK) st = fv_exprs_add(&more, x);
        } else if (x->kind != FV_EXPR_RULE || x->rule != rule) {
            st = fv_exprs_add(&first, x);
        }
    }
    fv_expr *head, *tail;
    if (st == FV_OK) st = fv_expr_list(c, FV_EXPR_ALT, first.item, first.n, &head);
    if (st == FV_OK) st = fv_expr_list(c, FV_EXPR_ALT, more.item, more.n, &tail);
    if (st == FV_OK) st = fv_expr_repeat(c, tail, 0, -1, &tail);
    if (st == FV_OK) st = fv_expr_seq(c, out, head, tail, NULL);
    free(first.item);
    free(more.item);
    return st;
}

static fv_status definition(reader *r) {
    int32_t rule;
    fv_expr *e;
    r->at += strspn(r->lark ? r->s + r->at : "", "?!");
    const char *name = r->s + r->at;
    const size_t n = name_at(r, r->at);
    r->at += n;
    if (r->lark && take(r, ".")) r->at += name_at(r, r->at);
    skip(r);
    if (!n || !take(r, r->lark ? ":" : "::="))
        return wrong(r, "a definition is expected: a name and a colon");
    FV_TRY(rule_named(r, name, n, &rule));
    if (r->c->rule[rule].expr) return wrong(r, "a rule is defined twice");
    r->in_rule = r->lark && !isupper((unsigned char)name[name[0] == '_']);
    FV_TRY(alternatives(r, &e));
    FV_TRY(without_left_recursion(r->c, rule, e, &e));
    r->c->rule[rule].expr = e;
    return FV_OK;
}

static const struct {
    const char *name, *regex;
} common[] = {{"DIGIT", "[0-9]"},
              {"HEXDIGIT", "[0-9a-fA-F]"},
              {"INT", "[0-9]+"},
              {"SIGNED_INT", "[+-]?[0-9]+"},
              {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
              {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
              {"NUMBER", "([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
              {"SIGNED_NUMBER", "[+-]?([0-9]+\\.?[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
              {"LCASE_LETTER", "[a-z]"},
              {"UCASE_LETTER", "[A-Z]"},
              {"LETTER", "[A-Za-z]"},
              {"WORD", "[A-Za-z]+"},
              {"CNAME", "[A-Za-z_][A-Za-z0-9_]*"},
              {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\.)*\""},
              {"WS_INLINE", "[ \\t]{1,8}"},
              {"WS", "[ \\t\\f\\r\\n]{1,8}"},
              {"NEWLINE", "(\\r?\\n){1,8}"}};

/* %import common.NAME, or common (NAME, NAME). */
static fv_status import(reader *r) {
    skip(r);
    if (!take(r, "common")) return wrong(r, "%import is supported only from common");
    skip(r);
    const bool list = !take(r, ".");
    if (list && !take(r, "(")) return wrong(r, "%import common must name terminals");
    do {
        skip(r);
        const char *name = r->s + r->at;
        const size_t n = name_at(r, r->at);
        size_t i = 0;
        int32_t rule;
        r->at += n;
        while (i < sizeof common / sizeof *common &&
               !(strlen(common[i].name) == n && memcmp(common[i].name, name, n) == 0))
            i++;
        if (i == sizeof common / sizeof *common) return wrong(r, "%import of an unknown terminal");
        FV_TRY(rule_named(r, name, n, &rule));
        FV_TRY(fv_regex_read(r->c, common[i].regex, strlen(common[i].regex), false,
                             &r->c->rule[rule].expr));
        skip(r);
    } while (list && take(r, ","));
    return !list || take(r, ")") ? FV_OK : wrong(r, "%import is not closed");
}

static fv_status ignore(reader *r) {
    fv_expr *e, *before = r->c->rule[r->ignored].expr;
    r->in_rule = false;
    FV_TRY(alternatives(r, &e));
    if (before) FV_TRY(fv_expr_list(r->c, FV_EXPR_ALT, (fv_expr *[]){before->item[0], e}, 2, &e));
    return fv_expr_repeat(r->c, e, 0, FV_SPACE_RUN_MAX, &r->c->rule[r->ignored].expr);
}

static fv_status statements(reader *r) {
    for (skip(r); r->at < r->n; skip(r)) {
        if (!r->lark || r->s[r->at] != '%')
            FV_TRY(definition(r));
        else if (take(r, "%import"))
            FV_TRY(import(r));
        else if (take(r, "%ignore"))
            FV_TRY(ignore(r));
        else
            return wrong(r, "only %import, %ignore and %json are supported");
    }
    return FV_OK;
}

static bool has(const char *text, size_t n, const char *what) {
    return memmem(text, n, what, strlen(what)) != NULL;
}

fv_status fv_ebnf_read(fv_compile *c, const char *text, size_t n, int32_t *rule) {
    reader r = {.c = c, .s = text, .n = n, .lark = !has(text, n, "::="), .first = c->n_rule};
    char *copy; /* ends with a NUL */
    FV_TRY(FV_COMPILE_NEW(c, n + 1, copy));
    if (n) memcpy(copy, text, n);
    r.s = copy;
    r.ignores = r.lark && has(text, n, "%ignore");
    if (r.ignores) FV_TRY(fv_rule_new(c, "%ignore", 7, &r.ignored));
    FV_TRY(statements(&r));
    FV_TRY(rule_named(&r, r.lark ? "start" : "root", r.lark ? 5 : 4, rule));
    return c->rule[*rule].expr ? FV_OK
                               : FV_FAIL(FV_EINVAL, "it has no rule %s, where it begins",
                                         r.lark ? "start" : "root");
}
