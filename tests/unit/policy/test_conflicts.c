/* policy/conflicts.c: methods that may not be combined, by patterns. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "policy/conflicts.h"
#include "tests/support/choice.h"

static fv_policy parse(const char *text) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(text, &p), FV_OK, "%s: %s", text, fv_last_error());
    return p;
}

Test(conflicts, a_pattern_is_a_method_and_words_that_it_has) {
    fv_policy p = parse("prune=random,seed=7;select=streaming");
    cr_assert(fv_policy_matches(&p, "prune=random"));
    cr_assert(fv_policy_matches(&p, "prune=random,seed=7"));
    cr_assert(fv_policy_matches(&p, "prune=random,seed=7,keep=0.5"), "the default counts");
    cr_assert(fv_policy_matches(&p, "select=*"));
    cr_assert_not(fv_policy_matches(&p, "prune=grid"));
    cr_assert_not(fv_policy_matches(&p, "prune=random,seed=8"));
    cr_assert_not(fv_policy_matches(&p, "prune=random,sed=7"));
    cr_assert_not(fv_policy_matches(&p, "pack=*"), "an absent stage is no method");
    cr_assert_not(fv_policy_matches(&p, "sort=random"));
    cr_assert_not(fv_policy_matches(&p, "prune=random,seed!=7"));
    cr_assert(fv_policy_matches(&p, "prune=random,seed!=8"));
    cr_assert(fv_policy_matches(&p, "select=*,heads!=shared"), "it has no such choice");
}

Test(conflicts, a_selection_may_be_packed_when_all_heads_keep_the_same) {
    fv_policy p;
    parse("select=csp,heads=shared;pack=svd");
    cr_assert_eq(fv_policy_parse("select=csp;pack=svd", &p), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "use heads=shared"), "%s", fv_last_error());
    cr_assert_eq(fv_policy_parse("select=streaming;pack=svd", &p), FV_EINVAL);
    cr_assert_eq(fv_policy_parse("select=csp,heads=shared,dup=official;pack=svd", &p), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "dup=union"), "%s", fv_last_error());
}

Test(conflicts, two_in_conflict_are_refused_with_both_names_and_why) {
    static const fv_conflict table[] = {{"prune=grid", "select=*", "rows are gone"},
                                        {"select=streaming,sink=3", "prune=vtw", "of a sink"}};
    fv_policy apart = parse("prune=vtw;select=streaming"), alone = parse("prune=grid");
    fv_policy first = parse("prune=grid;select=streaming");
    fv_policy second = parse("prune=vtw;select=streaming,sink=3");
    cr_assert_eq(fv_conflicts_check(&apart, table, 2), FV_OK);
    cr_assert_eq(fv_conflicts_check(&alone, table, 2), FV_OK);
    cr_assert_eq(fv_conflicts_check(&first, table, 2), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "prune=grid cannot be combined with select=*: rows are"),
              "%s", fv_last_error());
    cr_assert_eq(fv_conflicts_check(&second, table, 1), FV_OK);
    cr_assert_eq(fv_conflicts_check(&second, table, 2), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "of a sink"), "%s", fv_last_error());
}

/* A pattern that names nothing would never refuse anything. A forbidden value ("!=") must be the
 * default, or differ from the current one. */
static void names_what_there_is(const char *pattern) {
    char text[256], other[256];
    fv_policy p;
    cr_assert_lt(strlen(pattern), sizeof text);
    snprintf(text, sizeof text, "%s", pattern);
    char *any = strstr(text, "=*");
    if (any) {
        cr_assert(any[2] == '\0' || strstr(any, "!="), "'%s': words of which method?", pattern);
        strcpy(any, "=none");
    }
    if (!any && strstr(text, "!=")) *strchr(text, ',') = '\0'; /* as its defaults are */
    cr_assert_eq(fv_policy_parse(text, &p), FV_OK, "'%s': %s", pattern, fv_last_error());
    snprintf(other, sizeof other, "%s", pattern);
    char *unlike = strstr(other, "!=");
    if (unlike) memmove(unlike, unlike + 1, strlen(unlike));
    if (!any)
        cr_assert(fv_policy_matches(&p, pattern) || (unlike && fv_policy_matches(&p, other)),
                  "'%s' must be written as it prints", pattern);
}

Test(conflicts, the_table_names_what_exists_and_each_token_refuses) {
    int32_t n;
    const fv_conflict *table = fv_conflicts(&n);
    for (int32_t i = 0; i < n; i++) {
        names_what_there_is(table[i].a);
        names_what_there_is(table[i].b);
        cr_assert(strlen(table[i].why) > 0);
        if (strchr(table[i].a, '*') || strchr(table[i].b, '*')) continue;
        if (strncmp(table[i].a, table[i].b, strcspn(table[i].a, "=")) == 0) continue; /* below */
        char text[512];
        fv_policy p;
        snprintf(text, sizeof text, "%s;%s", table[i].a, table[i].b);
        cr_assert_eq(fv_policy_parse(text, &p), FV_EINVAL, "%s", text);
    }
}

Test(conflicts, parameters_of_one_method_may_conflict_too) {
    fv_policy p = parse("pack=svd,compress_text=keys,recompress=64");
    cr_assert_eq(choice_value(&p.stage[FV_STAGE_PACK], "recompress"), 64);
    parse("pack=svd,compress_text=keys");
    parse("pack=svd");
    cr_assert_eq(fv_policy_parse("pack=svd,recompress=64", &p), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "add compress_text=keys or all, or remove recompress"), "%s",
              fv_last_error());
    static const char *const idle[] = {"pack=quant,bits_text=4", "pack=quant,recompress=16",
                                       "pack=latent,bits_text=4", "pack=latent,recompress=0",
                                       "pack=svd,compress_text=keys,bits_text=4"};
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) {
        cr_assert_eq(fv_policy_parse(idle[i], &p), FV_EINVAL, "%s", idle[i]);
        cr_assert(strstr(fv_last_error(), "add compress_text=all"), "%s", fv_last_error());
    }
    static const char *const evicts[] = {"h2o", "scissorhands", "tova"};
    for (size_t i = 0; i < sizeof evicts / sizeof *evicts; i++) {
        char text[96];
        snprintf(text, sizeof text, "pack=quant,compress_text=all;evict=%s", evicts[i]);
        cr_assert_eq(fv_policy_parse(text, &p), FV_EINVAL, "%s", text);
    }
    cr_assert_eq(fv_policy_parse("pack=svd,compress_text=keys,recompress=-1", &p), FV_EINVAL);
    cr_assert_eq(fv_policy_parse("pack=svd,compress_text=keys,recompress=1.5", &p), FV_EINVAL);
}
