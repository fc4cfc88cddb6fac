/* Expressions: made bottom-up, in the arena of the compilation. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/internal.h"

static fv_status new_expr(fv_compile *c, fv_expr_kind kind, int32_t depth, fv_expr **out) {
    if (depth > FV_EXPR_DEPTH_MAX)
        return FV_FAIL(FV_EINVAL, "it is nested more than %d deep", FV_EXPR_DEPTH_MAX);
    FV_TRY(fv_compile_step(c, 1));
    FV_TRY(FV_COMPILE_NEW(c, 1, *out));
    **out = (fv_expr){.kind = kind, .depth = depth};
    return FV_OK;
}

fv_status fv_expr_text(fv_compile *c, const char *text, size_t n, fv_expr **out) {
    char *copy;
    FV_TRY(new_expr(c, FV_EXPR_TEXT, 1, out));
    FV_TRY(FV_COMPILE_NEW(c, n + 1, copy));
    if (n) memcpy(copy, text, n);
    (*out)->text = copy;
    (*out)->n = (int32_t)n;
    return FV_OK;
}

static int by_lo(const void *a, const void *b) {
    const fv_span *x = a, *y = b;
    return x->lo < y->lo ? -1 : x->lo > y->lo;
}

fv_status fv_expr_set(fv_compile *c, const fv_span *span, size_t n, fv_expr **out) {
    fv_span *s;
    size_t k = 0;
    FV_TRY(new_expr(c, FV_EXPR_SET, 1, out));
    FV_TRY(fv_compile_step(c, (int64_t)n));
    FV_TRY(FV_COMPILE_NEW(c, n + 1, s));
    if (n) memcpy(s, span, n * sizeof *s);
    qsort(s, n, sizeof *s, by_lo);
    for (size_t i = 0; i < n; i++) {
        if (k && s[i].lo <= s[k - 1].hi + 1) {
            if (s[i].hi > s[k - 1].hi) s[k - 1].hi = s[i].hi;
        } else {
            s[k++] = s[i];
        }
    }
    (*out)->span = s;
    (*out)->n = (int32_t)k;
    return FV_OK;
}

fv_status fv_expr_not(fv_compile *c, const fv_expr *set, fv_expr **out) {
    fv_span *s;
    size_t k = 0;
    int32_t from = 0;
    FV_TRY(FV_COMPILE_NEW(c, set->n + 1, s));
    for (int32_t i = 0; i < set->n; i++) {
        if (set->span[i].lo > from) s[k++] = (fv_span){from, set->span[i].lo - 1};
        from = set->span[i].hi + 1;
    }
    if (from <= FV_CP_MAX) s[k++] = (fv_span){from, FV_CP_MAX};
    return fv_expr_set(c, s, k, out);
}

fv_status fv_expr_list(fv_compile *c, fv_expr_kind kind, fv_expr *const *item, size_t n,
                       fv_expr **out) {
    int32_t depth = 0;
    fv_expr **copy;
    if (n == 1 && (kind == FV_EXPR_SEQ || kind == FV_EXPR_ALT)) {
        *out = item[0];
        return FV_OK;
    }
    for (size_t i = 0; i < n; i++)
        if (item[i] && item[i]->depth > depth) depth = item[i]->depth;
    FV_TRY(new_expr(c, kind, depth + 1, out));
    FV_TRY(fv_compile_step(c, (int64_t)n));
    FV_TRY(FV_COMPILE_NEW(c, n + 1, copy));
    if (n) memcpy(copy, item, n * sizeof *copy);
    (*out)->item = copy;
    (*out)->n = (int32_t)n;
    return FV_OK;
}

fv_status fv_expr_seq(fv_compile *c, fv_expr **out, ...) {
    fv_expr *list[16], *e;
    size_t n = 0;
    va_list args;
    va_start(args, out);
    while (n < 16 && (e = va_arg(args, fv_expr *))) list[n++] = e;
    va_end(args);
    return fv_expr_list(c, FV_EXPR_SEQ, list, n, out);
}

fv_status fv_expr_repeat(fv_compile *c, fv_expr *item, int64_t min, int64_t max, fv_expr **out) {
    if (max >= 0 && min > max)
        return FV_FAIL(FV_EINVAL, "a repetition of at least %lld and at most %lld", (long long)min,
                       (long long)max);
    if (min > INT32_MAX || max > INT32_MAX) {
        if (min > INT32_MAX)
            return FV_FAIL(FV_EINVAL, "a repetition of at least %lld", (long long)min);
        max = -1;
    }
    if (min == 1 && max == 1) {
        *out = item;
        return FV_OK;
    }
    FV_TRY(new_expr(c, FV_EXPR_REPEAT, item->depth + 1, out));
    FV_TRY(FV_COMPILE_NEW(c, 1, (*out)->item));
    (*out)->item[0] = item;
    (*out)->n = 1;
    (*out)->min = (int32_t)min;
    (*out)->max = (int32_t)max;
    return FV_OK;
}

fv_status fv_expr_json(fv_compile *c, fv_expr *item, fv_expr **out) {
    fv_expr *quote, *inner;
    FV_TRY(fv_expr_text(c, "\"", 1, &quote));
    FV_TRY(fv_expr_list(c, FV_EXPR_JSON, &item, 1, &inner));
    return fv_expr_seq(c, out, quote, inner, quote, NULL);
}

fv_status fv_expr_rule(fv_compile *c, int32_t rule, fv_expr **out) {
    FV_TRY(new_expr(c, FV_EXPR_RULE, 1, out));
    (*out)->rule = rule;
    return FV_OK;
}

fv_status fv_expr_of_dfa(fv_compile *c, const fv_dfa *dfa, fv_expr **out) {
    FV_TRY(new_expr(c, FV_EXPR_DFA, 1, out));
    (*out)->dfa = dfa;
    return FV_OK;
}

fv_status fv_rule_new(fv_compile *c, const char *name, size_t n, int32_t *out) {
    char *copy;
    FV_TRY(fv_compile_step(c, 1));
    FV_TRY(FV_COMPILE_NEW(c, n + 1, copy));
    memcpy(copy, name, n);
    FV_TRY(fv_grow(&c->rule, &c->cap_rule, c->n_rule + 1, sizeof *c->rule));
    c->rule[c->n_rule] = (fv_rule){.name = copy, .start = -1};
    *out = (int32_t)c->n_rule++;
    return FV_OK;
}

fv_status fv_exprs_add(fv_exprs *l, fv_expr *e) {
    FV_TRY(fv_grow(&l->item, &l->cap, l->n + 1, sizeof *l->item));
    l->item[l->n++] = e;
    return FV_OK;
}

static fv_status one_alternative(fv_compile *c, void *reader,
                                 fv_status (*sequence)(void *reader, fv_exprs *list),
                                 fv_expr **out) {
    fv_exprs list = {0};
    fv_status st = sequence(reader, &list);
    if (st == FV_OK)
        st = list.n ? fv_expr_list(c, FV_EXPR_SEQ, list.item, list.n, out)
                    : fv_expr_text(c, "", 0, out);
    free(list.item);
    return st;
}

fv_status fv_expr_alternatives(fv_compile *c, void *reader,
                               fv_status (*sequence)(void *reader, fv_exprs *list),
                               bool (*bar)(void *reader), fv_expr **out) {
    fv_exprs all = {0};
    fv_expr *e;
    fv_status st;
    do {
        st = one_alternative(c, reader, sequence, &e);
        if (st == FV_OK) st = fv_exprs_add(&all, e);
    } while (st == FV_OK && bar(reader));
    if (st == FV_OK) st = fv_expr_list(c, FV_EXPR_ALT, all.item, all.n, out);
    free(all.item);
    return st;
}
