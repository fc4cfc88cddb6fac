/* The parser's state: tokens, nodes, errors, and names of a message's content. */
#include <stdio.h>

#include "text/jinja/parse_internal.h"

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

fv_status fv_jp_expected(const fv_jj_parser *s, const char *expected) {
    char text[64];
    return FV_FAIL(FV_EDATA, "%s:%d: %s is expected, not %s", s->p->where, s->t->line, expected,
                   shown(s->t, text));
}

fv_status fv_jp_lacks(const fv_jj_parser *s, int32_t line, const char *kind, const char *name) {
    return FV_FAIL(FV_EUNSUPPORTED, "%s:%d: %s '%s' is not supported", s->p->where, line, kind,
                   name);
}

fv_status fv_jp_enter(fv_jj_parser *s) {
    if (++s->depth <= FV_JINJA_DEPTH) return FV_OK;
    return FV_FAIL(FV_EUNSUPPORTED, "%s:%d: more than %d levels of nesting", s->p->where,
                   s->t->line, FV_JINJA_DEPTH);
}

fv_status fv_jp_make(fv_jj_parser *s, fv_jj_node_kind kind, fv_jj_node **out) {
    if (s->n_node++ == FV_JINJA_NODES)
        return FV_FAIL(FV_EUNSUPPORTED, "%s:%d: more than %d statements and expressions",
                       s->p->where, s->t->line, FV_JINJA_NODES);
    FV_TRY(FV_ARENA_NEW(&s->p->arena, 1, *out));
    (*out)->kind = kind;
    (*out)->line = s->t->line;
    return FV_OK;
}

fv_status fv_jp_need_op(fv_jj_parser *s, int32_t op) {
    char text[4] = {'\'', (char)op, '\'', '\0'};
    return skip_op(s, op) ? FV_OK : fv_jp_expected(s, text);
}

fv_status fv_jp_need_name(fv_jj_parser *s, const char **out) {
    if (s->t->kind != FV_JJ_T_NAME) return fv_jp_expected(s, "a name");
    *out = (s->t++)->name;
    return FV_OK;
}

static int find_alias(const fv_jj_parser *s, const char *name) {
    int i = s->n_alias - 1;
    while (i >= 0 && strcmp(s->alias[i].name, name) != 0) i--;
    return i;
}

static bool names_content(const fv_jj_parser *s, const char *name) {
    int i = find_alias(s, name);
    return (i >= 0 && !s->alias[i].other) || strcmp(name, "content") == 0;
}

bool fv_jp_is_content(const fv_jj_parser *s, const fv_jj_node *e) {
    while (e->kind == FV_JJ_FILTER || e->kind == FV_JJ_SLICE) e = e->a;
    if (e->kind == FV_JJ_ATTR) return strcmp(e->name, "content") == 0;
    if (e->kind == FV_JJ_NAME) return names_content(s, e->name);
    return e->kind == FV_JJ_ITEM && e->b->kind == FV_JJ_CONST && e->b->value.kind == FV_JJ_STR &&
           fv_jj_str_is(e->b->value.str, "content");
}

void fv_jp_note_alias(fv_jj_parser *s, const fv_jj_node *target, const fv_jj_node *e) {
    const bool content = fv_jp_is_content(s, e),
               member = e->kind == FV_JJ_ATTR || e->kind == FV_JJ_ITEM;
    if (target->kind != FV_JJ_NAME || !(content || member)) return;
    int i = find_alias(s, target->name);
    if (i < 0 && s->n_alias < (int)(sizeof s->alias / sizeof *s->alias)) {
        i = s->n_alias++;
        s->alias[i].name = target->name;
    }
    if (i >= 0) s->alias[i].other |= !content;
}
