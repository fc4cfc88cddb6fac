/* The reasoning that a model may write before its text:
 *
 *     [space] <think> any text without </think> </think> [space] the text
 *
 * or FV_GRAMMAR_THOUGHT, of which no token is a part, where the prompt has ended the reasoning.
 *
 * The reasoning is part of the grammar, so an answer's state follows from its tokens, however these cut the marks, and
 * an answer cannot end before the text has. Space next to the marks is what models write there. */
#include <string.h>

#include "grammar/internal.h"

fv_status fv_expr_mark(fv_compile *c, const char *text, fv_expr **out) {
    fv_expr *special, *form[2];
    FV_TRY(fv_expr_text(c, text, strlen(text), &form[0]));
    FV_TRY(fv_expr_text(c, FV_TOKEN_SPECIAL, strlen(FV_TOKEN_SPECIAL), &special));
    FV_TRY(fv_expr_seq(c, &form[1], special, form[0], NULL));
    return fv_expr_list(c, FV_EXPR_ALT, form, 2, out);
}

fv_status fv_expr_without(fv_compile *c, const char *const *text, size_t n, fv_expr **out) {
    const fv_dfa *all, *one;
    fv_expr *e, *any;
    FV_TRY(fv_expr_set(c, &(fv_span){0, FV_CP_MAX}, 1, &any));
    FV_TRY(fv_expr_repeat(c, any, 0, -1, &any));
    FV_TRY(fv_dfa_make(c, any, &all));
    for (size_t i = 0; i < n; i++) {
        FV_TRY(fv_expr_text(c, text[i], strlen(text[i]), &e));
        FV_TRY(fv_expr_seq(c, &e, any, e, any, NULL));
        FV_TRY(fv_dfa_make(c, e, &one));
        FV_TRY(fv_dfa_join(c, all, one, false, &all));
    }
    return fv_expr_of_dfa(c, all, out);
}

fv_status fv_reasoning_add(fv_compile *c, const fv_grammar_spec *s, int32_t *rule) {
    static const fv_span spaces[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
    fv_expr *space, *opens, *inside, *closes, *reasoning, *text, *before[2];
    if (!s->opens) return FV_OK;
    FV_TRY(fv_expr_set(c, spaces, sizeof spaces / sizeof *spaces, &space));
    FV_TRY(fv_expr_repeat(c, space, 0, FV_SPACE_RUN_MAX, &space));
    FV_TRY(fv_expr_mark(c, s->opens, &opens));
    FV_TRY(fv_expr_mark(c, s->closes, &closes));
    FV_TRY(fv_expr_without(c, &s->closes, 1, &inside));
    FV_TRY(fv_expr_seq(c, &before[0], space, opens, inside, closes, space, NULL));
    FV_TRY(fv_expr_text(c, FV_GRAMMAR_THOUGHT, strlen(FV_GRAMMAR_THOUGHT), &before[1]));
    FV_TRY(fv_expr_list(c, FV_EXPR_ALT, before, 2, &reasoning));
    FV_TRY(fv_expr_repeat(c, reasoning, 0, 1, &reasoning));
    FV_TRY(fv_expr_rule(c, *rule, &text));
    FV_TRY(fv_rule_new(c, "the answer", 10, rule));
    return fv_expr_seq(c, &c->rule[*rule].expr, reasoning, text, NULL);
}
