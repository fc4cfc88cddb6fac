/* Tokens -> nodes: jinja2's grammar, by recursive descent. Errors name unsupported constructs as
 * Jinja's manual does. */
#include <stdlib.h>

#include "text/jinja/parse_internal.h"

/* Parses statements up to one of the `ends`, names followed by a blank each; *end: the one found,
 * which is skipped. */
static fv_status body(fv_jj_parser *s, const char *ends, fv_jj_node **out, const char **end);

static fv_status body_to(fv_jj_parser *s, const char *end, fv_jj_node **out) {
    const char *found;
    return body(s, end, out, &found);
}

static fv_status end_block(fv_jj_parser *s) {
    if (s->t->kind != FV_JJ_T_BLOCK_END) return fv_jp_expected(s, "'%}'");
    s->t++;
    return FV_OK;
}

/* Parses a name, or names separated by commas; for set also an attribute of a namespace. */
static fv_status target(fv_jj_parser *s, bool attributes, fv_jj_node **out) {
    FV_TRY(fv_jp_tuple(s, fv_jp_primary, false, out));
    if (attributes && (*out)->kind == FV_JJ_NAME && at_op(s, '.')) FV_TRY(fv_jp_attribute(s, out));
    const fv_jj_node *t = *out, *one = t->list;
    bool ok = t->kind == FV_JJ_NAME || t->kind == FV_JJ_ATTR || t->kind == FV_JJ_TUPLING;
    for (; t->kind == FV_JJ_TUPLING && one; one = one->next) ok &= one->a->kind == FV_JJ_NAME;
    return ok ? FV_OK : fv_jp_expected(s, "a name to assign to");
}

static fv_status for_block(fv_jj_parser *s, fv_jj_node *n) {
    const char *end;
    FV_TRY(target(s, false, &n->a));
    if (!skip_name(s, "in")) return fv_jp_expected(s, "'in'");
    FV_TRY(fv_jp_tuple(s, fv_jp_without_choice, false, &n->b));
    s->p->walks_content |= fv_jp_is_content(s, n->b);
    if (skip_name(s, "if")) FV_TRY(fv_jp_expression(s, &n->c));
    if (at_name(s, "recursive")) return fv_jp_lacks(s, s->t->line, "the loop", "recursive");
    FV_TRY(end_block(s));
    s->loops++;
    FV_TRY(body(s, "endfor else ", &n->body, &end));
    s->loops--;
    if (strcmp(end, "endfor") == 0) return FV_OK;
    FV_TRY(end_block(s));
    return body_to(s, "endfor ", &n->orelse);
}

static fv_status if_block(fv_jj_parser *s, fv_jj_node *n) {
    const char *end = "elif";
    for (fv_jj_node *at = n;; at = at->orelse) {
        FV_TRY(fv_jp_tuple(s, fv_jp_without_choice, false, &at->a));
        FV_TRY(end_block(s));
        FV_TRY(body(s, "endif elif else ", &at->body, &end));
        if (strcmp(end, "elif") != 0) {
            n = at;
            break;
        }
        FV_TRY(fv_jp_make(s, FV_JJ_IF, &at->orelse));
    }
    if (strcmp(end, "endif") == 0) return FV_OK;
    FV_TRY(end_block(s));
    return body_to(s, "endif ", &n->orelse);
}

/* Parses the filters and the body of a capturing block. */
static fv_status capture(fv_jj_parser *s, const char *end, fv_jj_node *n) {
    FV_TRY(fv_jp_make(s, FV_JJ_CAPTURED, &n->b));
    while (skip_op(s, '|')) FV_TRY(fv_jp_filter(s, &n->b));
    FV_TRY(end_block(s));
    return body_to(s, end, &n->body);
}

static fv_status set_block(fv_jj_parser *s, fv_jj_node *n) {
    FV_TRY(target(s, true, &n->a));
    if (skip_op(s, '=')) {
        FV_TRY(fv_jp_tuple(s, fv_jp_expression, false, &n->b));
        fv_jp_note_alias(s, n->a, n->b);
        return FV_OK;
    }
    n->kind = FV_JJ_CAPTURE;
    return capture(s, "endset ", n);
}

static fv_status filter_block(fv_jj_parser *s, fv_jj_node *n) {
    FV_TRY(fv_jp_make(s, FV_JJ_CAPTURED, &n->b));
    do {
        FV_TRY(fv_jp_filter(s, &n->b));
    } while (skip_op(s, '|'));
    FV_TRY(end_block(s));
    return body_to(s, "endfilter ", &n->body);
}

static fv_status generation_block(fv_jj_parser *s, fv_jj_node *n) {
    FV_TRY(fv_jp_make(s, FV_JJ_CAPTURED, &n->b));
    FV_TRY(end_block(s));
    return body_to(s, "endgeneration ", &n->body);
}

static fv_status parameter(fv_jj_parser *s, fv_jj_node **out) {
    FV_TRY(fv_jp_make(s, FV_JJ_ARG, out));
    FV_TRY(fv_jp_need_name(s, &(*out)->name));
    return skip_op(s, '=') ? fv_jp_expression(s, &(*out)->a) : FV_OK;
}

static fv_status macro_block(fv_jj_parser *s, fv_jj_node *n) {
    FV_TRY(fv_jp_need_name(s, &n->name));
    FV_TRY(fv_jp_need_op(s, '('));
    FV_TRY(fv_jp_elements(s, ')', parameter, &n->list));
    FV_TRY(end_block(s));
    int loops = s->loops;
    s->loops = 0;
    FV_TRY(body_to(s, "endmacro ", &n->body));
    s->loops = loops;
    return FV_OK;
}

static fv_status call_block(fv_jj_parser *s, fv_jj_node *n) {
    const char *known = fv_jj_names_find(&s->p->names, "caller");
    n->name = known ? known : "caller";
    if (skip_op(s, '(')) FV_TRY(fv_jp_elements(s, ')', parameter, &n->list));
    FV_TRY(fv_jp_expression(s, &n->a));
    if (n->a->kind != FV_JJ_CALL) return fv_jp_expected(s, "a call before this");
    FV_TRY(end_block(s));
    int loops = s->loops;
    s->loops = 0;
    FV_TRY(body_to(s, "endcall ", &n->body));
    s->loops = loops;
    return FV_OK;
}

static fv_status with_block(fv_jj_parser *s, fv_jj_node *n) {
    for (fv_jj_node **end = &n->list; s->t->kind != FV_JJ_T_BLOCK_END; end = &(*end)->next) {
        if (n->list) FV_TRY(fv_jp_need_op(s, ','));
        FV_TRY(fv_jp_make(s, FV_JJ_SET, end));
        FV_TRY(fv_jp_primary(s, &(*end)->a));
        if ((*end)->a->kind != FV_JJ_NAME) return fv_jp_expected(s, "a name to assign to");
        FV_TRY(fv_jp_need_op(s, '='));
        FV_TRY(fv_jp_expression(s, &(*end)->b));
    }
    FV_TRY(end_block(s));
    return body_to(s, "endwith ", &n->body);
}

static fv_status jump(fv_jj_parser *s, fv_jj_node *n) {
    (void)n;
    return s->loops ? FV_OK : fv_jp_expected(s, "a loop around this");
}

static fv_status print_block(fv_jj_parser *s, fv_jj_node *n) {
    return fv_jp_tuple(s, fv_jp_expression, false, &n->a);
}

static fv_status statement(fv_jj_parser *s, fv_jj_node **out) {
    static const struct {
        const char *name;
        fv_jj_node_kind kind;
        fv_status (*parse)(fv_jj_parser *s, fv_jj_node *n);
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
    FV_TRY(fv_jp_need_name(s, &name));
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        FV_TRY(fv_jp_enter(s));
        FV_TRY(fv_jp_make(s, known[i].kind, out));
        (*out)->line = line;
        FV_TRY(known[i].parse(s, *out));
        s->depth--;
        return end_block(s);
    }
    return fv_jp_lacks(s, line, "the block", name);
}

/* Tells whether `name` is among `ends`. */
static bool ends_body(const char *ends, const char *name) {
    size_t n = strlen(name);
    for (const char *at = ends; (at = strstr(at, name)) != NULL; at += n)
        if ((at == ends || at[-1] == ' ') && at[n] == ' ') return true;
    return false;
}

static fv_status body(fv_jj_parser *s, const char *ends, fv_jj_node **out, const char **end) {
    for (; s->t->kind != FV_JJ_T_END; out = &(*out)->next) {
        fv_jj_token *t = s->t++;
        if (t->kind == FV_JJ_T_DATA) {
            FV_TRY(fv_jp_make(s, FV_JJ_DATA, out));
            (*out)->value = t->value;
        } else if (t->kind == FV_JJ_T_PRINT_BEGIN) {
            FV_TRY(fv_jp_make(s, FV_JJ_PRINT, out));
            FV_TRY(fv_jp_tuple(s, fv_jp_expression, false, &(*out)->a));
            if (s->t->kind != FV_JJ_T_PRINT_END) return fv_jp_expected(s, "'}}'");
            s->t++;
        } else if (ends && s->t->kind == FV_JJ_T_NAME && ends_body(ends, s->t->name)) {
            *end = (s->t++)->name;
            return FV_OK;
        } else {
            FV_TRY(statement(s, out));
        }
    }
    return ends ? fv_jp_expected(s, ends) : FV_OK;
}

/* ---- a program ---- */

static fv_status parse(fv_jinja *p, const char *program, size_t n) {
    fv_jj_parser s = {.p = p};
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
