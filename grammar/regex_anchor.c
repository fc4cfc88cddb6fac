/* Removes ^ and $: an expression that is searched for in a text becomes one that the whole text matches, by adding
 * any characters on the sides where no anchor stands. An alternative that begins or ends with anchors in some of its
 * parts only, as (^|,)a, is written out first. Within a pattern anchors stay, and are refused when it is emitted. */
#include <stdlib.h>

#include "grammar/internal.h"

enum { PARTS_MAX = 64 };

static bool has_anchor(const fv_expr *e) {
    if (e->kind == FV_EXPR_BEGIN || e->kind == FV_EXPR_END) return true;
    if (e->kind != FV_EXPR_SEQ && e->kind != FV_EXPR_ALT && e->kind != FV_EXPR_REPEAT) return false;
    for (int32_t i = 0; i < e->n; i++)
        if (has_anchor(e->item[i])) return true;
    return false;
}

static fv_status anything(fv_compile *c, fv_expr **out) {
    fv_expr *e;
    FV_TRY(fv_expr_set(c, &(fv_span){0, FV_CP_MAX}, 1, &e));
    return fv_expr_repeat(c, e, 0, -1, out);
}

static fv_status wrap(fv_compile *c, fv_expr *e, bool search, int depth, fv_expr **out);

/* Each of alternatives, instead of them, at place `at` of a sequence. */
static fv_status write_out(fv_compile *c, const fv_expr *seq, int32_t at, bool search, int depth,
                           fv_expr **out) {
    const fv_expr *alt = seq->item[at];
    fv_expr *part[PARTS_MAX];
    if (alt->n > PARTS_MAX || depth > 8)
        return FV_FAIL(FV_EINVAL,
                       "too many ways to place ^ and $: write the pattern with them at its "
                       "beginning and end");
    for (int32_t i = 0; i < alt->n; i++) {
        fv_exprs list = {0};
        fv_status st = FV_OK;
        for (int32_t k = 0; k < seq->n && st == FV_OK; k++) {
            fv_expr *e = k == at ? alt->item[i] : seq->item[k];
            if (e->kind != FV_EXPR_SEQ) st = fv_exprs_add(&list, e);
            for (int32_t j = 0; e->kind == FV_EXPR_SEQ && j < e->n && st == FV_OK; j++)
                st = fv_exprs_add(&list, e->item[j]);
        }
        fv_expr *joined;
        if (st == FV_OK) st = fv_expr_list(c, FV_EXPR_SEQ, list.item, list.n, &joined);
        free(list.item);
        if (st == FV_OK) st = wrap(c, joined, search, depth + 1, &part[i]);
        FV_TRY(st);
    }
    return fv_expr_list(c, FV_EXPR_ALT, part, (size_t)alt->n, out);
}

static fv_status wrap_sequence(fv_compile *c, const fv_expr *e, bool search, int depth,
                               fv_expr **out) {
    int32_t from = 0, to = e->n;
    while (from < to && e->item[from]->kind == FV_EXPR_BEGIN) from++;
    while (to > from && e->item[to - 1]->kind == FV_EXPR_END) to--;
    if (from < to && e->item[from]->kind == FV_EXPR_ALT && has_anchor(e->item[from]))
        return write_out(c, e, from, search, depth, out);
    if (from < to && e->item[to - 1]->kind == FV_EXPR_ALT && has_anchor(e->item[to - 1]))
        return write_out(c, e, to - 1, search, depth, out);
    for (int32_t i = from; i < to; i++)
        if (has_anchor(e->item[i]))
            return FV_FAIL(FV_EINVAL, "^ and $ may stand at the beginning and the end only");
    fv_expr *before, *within, *after;
    FV_TRY(fv_expr_list(c, FV_EXPR_SEQ, e->item + from, (size_t)(to - from), &within));
    FV_TRY(anything(c, &before));
    after = before;
    if (from || !search) FV_TRY(fv_expr_text(c, "", 0, &before));
    if (to < e->n || !search) FV_TRY(fv_expr_text(c, "", 0, &after));
    return fv_expr_seq(c, out, before, within, after, NULL);
}

static fv_status wrap(fv_compile *c, fv_expr *e, bool search, int depth, fv_expr **out) {
    if (!search && !has_anchor(e)) {
        *out = e;
        return FV_OK;
    }
    if (e->kind == FV_EXPR_ALT && has_anchor(e)) {
        fv_exprs list = {0};
        fv_status st = depth > 8 ? FV_FAIL(FV_EINVAL, "^ and $ are nested too deep") : FV_OK;
        for (int32_t i = 0; i < e->n && st == FV_OK; i++) {
            fv_expr *one;
            st = wrap(c, e->item[i], search, depth + 1, &one);
            if (st == FV_OK) st = fv_exprs_add(&list, one);
        }
        if (st == FV_OK) st = fv_expr_list(c, FV_EXPR_ALT, list.item, list.n, out);
        free(list.item);
        return st;
    }
    if (e->kind == FV_EXPR_SEQ) return wrap_sequence(c, e, search, depth, out);
    fv_expr single = {.kind = FV_EXPR_SEQ, .depth = e->depth, .n = 1, .item = &e};
    return wrap_sequence(c, &single, search, depth, out);
}

fv_status fv_regex_anchor(fv_compile *c, fv_expr *e, bool search, fv_expr **out) {
    return wrap(c, e, search, 0, out);
}
