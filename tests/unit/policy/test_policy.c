/* policy/policy.c: the text form and its checks. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "policy/policy.h"
#include "tests/support/choice.h"
#include "tests/support/random_policy.h"

static fv_policy parse(const char *text) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(text, &p), FV_OK, "%s: %s", text, fv_last_error());
    return p;
}

static void refuses(const char *text, const char *because) {
    fv_policy p = {0};
    cr_assert_eq(fv_policy_parse(text, &p), FV_EINVAL, "%s", text);
    cr_assert(strstr(fv_last_error(), because), "'%s' said: %s", text, fv_last_error());
    cr_assert(fv_policy_is_exact(&p), "the out-parameter is untouched");
}

Test(policy, empty_text_is_exact) {
    fv_policy p = parse(""), q = parse("preset=exact");
    cr_assert(fv_policy_is_exact(&p) && fv_policy_is_exact(&q));
}

Test(policy, parameters_have_their_defaults) {
    fv_policy p = parse("prune=random,keep=0.25");
    const fv_choice *c = &p.stage[FV_STAGE_PRUNE];
    cr_assert_str_eq(c->method->name, "random");
    cr_assert_eq(choice_value(c, "keep"), 0.25);
    cr_assert_eq(choice_value(c, "seed"), 0);
    cr_assert_null(p.stage[FV_STAGE_SELECT].method);
}

Test(policy, a_default_layer_is_mapped_from_32_layers_and_a_given_one_is_not) {
    fv_policy p = parse("prune=vtw"), q = parse("prune=vtw,layer=7");
    cr_assert_eq(choice_layer(&p.stage[FV_STAGE_PRUNE], "layer", 32), 16);
    cr_assert_eq(choice_layer(&p.stage[FV_STAGE_PRUNE], "layer", 12), 6);
    cr_assert_eq(choice_layer(&p.stage[FV_STAGE_PRUNE], "layer", 40), 20);
    cr_assert_eq(choice_layer(&q.stage[FV_STAGE_PRUNE], "layer", 12), 7);
}

Test(policy, a_layer_of_32_is_mapped_and_stays_so_in_print) {
    char text[FV_POLICY_TEXT_MAX];
    fv_policy p = parse("prune=vtw,layer=8/32");
    cr_assert_eq(choice_layer(&p.stage[FV_STAGE_PRUNE], "layer", 32), 8);
    cr_assert_eq(choice_layer(&p.stage[FV_STAGE_PRUNE], "layer", 12), 3);
    fv_policy_print(&p, text);
    cr_assert_str_eq(text, "prune=vtw,layer=8/32,from=layer");
    fv_policy q = parse("preset=paper-vtw;prune=vtw,layer=5");
    fv_policy_print(&q, text);
    cr_assert_str_eq(text, "prune=vtw,layer=5,from=layer");
}

Test(policy, a_mapped_layer_is_not_below_the_least_that_may_be_written) {
    fv_policy p = parse("prune=fastv");
    cr_assert_eq(choice_layer(&p.stage[FV_STAGE_PRUNE], "layer", 32), 2);
    cr_assert_eq(choice_layer(&p.stage[FV_STAGE_PRUNE], "layer", 4), 1);
}

Test(policy, every_method_prints_to_a_text_that_parses_to_the_same) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    cr_assert_geq(n, 3);
    for (int32_t i = 0; i < n; i++) {
        char text[FV_POLICY_TEXT_MAX], again[FV_POLICY_TEXT_MAX];
        snprintf(text, sizeof text, "%s=%s", fv_stage_name(m[i].stage), m[i].name);
        fv_policy p = parse(text);
        fv_policy_print(&p, text);
        fv_policy q = parse(text);
        fv_policy_print(&q, again);
        cr_assert_str_eq(text, again);
        for (int32_t k = 0; k < m[i].n_param; k++)
            cr_assert_eq(p.stage[m[i].stage].value[k], q.stage[m[i].stage].value[k]);
    }
}

/* Stored results are named by texts that were printed before this parameter existed. */
Test(policy, a_quiet_parameter_is_printed_where_it_is_not_at_its_default) {
    char text[FV_POLICY_TEXT_MAX];
    fv_policy p = parse("pack=svd,compress_text=keys,recompress=0");
    fv_policy_print(&p, text);
    cr_assert_null(strstr(text, "recompress"), "%s", text);
    p = parse("pack=svd,compress_text=keys,recompress=128");
    fv_policy_print(&p, text);
    cr_assert_not_null(strstr(text, ",rank_text=64,recompress=128,first=raw"), "%s", text);
    p = parse(text);
    cr_assert_eq(choice_value(&p.stage[FV_STAGE_PACK], "recompress"), 128);
}

/* The longest text that any policy of one method per stage can print. */
Test(policy, every_policy_has_room_in_its_text) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    size_t most[FV_N_STAGE] = {0}, all = 1;
    for (int32_t i = 0; i < n; i++) {
        size_t len = strlen(";=") + strlen(fv_stage_name(m[i].stage)) + strlen(m[i].name);
        for (int32_t k = 0; k < m[i].n_param; k++) {
            const fv_param_info *p = &m[i].param[k];
            size_t value =
                p->type == FV_PARAM_TEXT ? FV_PARAM_TEXT_MAX : strlen("-1.2345678901234567e-300");
            for (int32_t w = 0; p->word[w]; w++)
                value = strlen(p->word[w]) > value ? strlen(p->word[w]) : value;
            len += strlen(",=") + strlen(p->name) + value;
        }
        if (len > most[m[i].stage]) most[m[i].stage] = len;
    }
    for (int s = 0; s < FV_N_STAGE; s++) all += most[s];
    cr_assert_leq(all, (size_t)FV_POLICY_TEXT_MAX);
}

Test(policy, any_policy_prints_to_a_text_that_parses_to_the_same_bits) {
    cr_assert_gt(check_policy_texts(14, 10000), 10000);
}

/* Stored results are named by texts whose numbers have few digits. */
Test(policy, a_number_is_printed_with_the_fewest_digits_that_read_back_as_it) {
    static const char *const same[] = {"0.1225",       "0.29",   "1e-05",
                                       "0.3333333333", "1",      "0.3333333333333333",
                                       "0.1",          "1e-300", "0.7000000000000001"};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        char text[FV_POLICY_TEXT_MAX], wanted[128];
        snprintf(wanted, sizeof wanted, "prune=random,layer=4,keep=%s,seed=0", same[i]);
        fv_policy p = parse(wanted);
        fv_policy_print(&p, text);
        cr_assert_str_eq(text, wanted);
    }
    fv_policy p = parse("prune=random,keep=0.10000000000000000555,seed=4294967295"), q;
    char text[FV_POLICY_TEXT_MAX];
    fv_policy_print(&p, text);
    cr_assert_str_eq(text, "prune=random,layer=10/32,keep=0.1,seed=4294967295");
    p = parse("prune=random,keep=-0");
    q = parse("prune=random,keep=0");
    cr_assert(same_policy(&p, &q), "a zero has no sign");
}

Test(policy, every_preset_parses) {
    int32_t n;
    const fv_preset_info *presets = fv_policy_presets(&n);
    for (int32_t i = 0; i < n; i++) {
        char text[128];
        snprintf(text, sizeof text, "preset=%s", presets[i].name);
        parse(text);
    }
}

Test(policy, what_is_written_wins_over_the_preset) {
    fv_policy p = parse("preset=paper-vtw;prune=vtw,layer=3;select=streaming");
    cr_assert_eq(choice_layer(&p.stage[FV_STAGE_PRUNE], "layer", 32), 3);
    cr_assert_not_null(p.stage[FV_STAGE_SELECT].method);
    fv_policy q = parse("preset=paper-vtw;prune=random");
    cr_assert_str_eq(q.stage[FV_STAGE_PRUNE].method->name, "random");
    fv_policy r = parse("preset=paper-vtw;prune=none");
    cr_assert(fv_policy_is_exact(&r));
}

Test(policy, wrong_texts_are_refused_with_what_there_is) {
    refuses("squeeze=vtw", "available: condense, prune");
    refuses("prune=fast", "it has vtw, random");
    refuses("condense=x", "it has hired, prumerge");
    refuses("prune=vtw,depth=3", "no parameter 'depth'; it has layer");
    refuses("prune=vtw,layer", "PARAMETER=VALUE");
    refuses("prune=vtw,layer=", "is not a number");
    refuses("prune=vtw,layer=2.5", "whole number");
    refuses("prune=vtw,layer=0", "1..255");
    refuses("prune=fastv,layer=0", "1..255");
    refuses("prune=fastv,keep=-0.1", "0..1");
    refuses("prune=grid,seed=1", "no parameter 'seed'; it has layer, keep");
    refuses("prune=random,keep=1.5", "0..1");
    refuses("prune=random,keep=nan", "is not a number");
    refuses("prune=vtw;prune=random", "given twice");
    refuses("prune=none;prune=vtw", "given twice");
    refuses("prune=none,layer=3", "no parameters");
    refuses("prune=vtw,layer=8/31", "is not a number");
    refuses("prune=random,seed=1/32", "is not a number");
    refuses("prune=random,keep=1/0", "is not a number");
    refuses("prune=random,keep=3/2", "must be 0..1");
    refuses("prune=vtw;preset=exact", "must come first");
    refuses("preset=best", "available: exact");
    refuses("prune", "STAGE=METHOD");
    refuses(",", "STAGE=METHOD");
}

static void same(const char *a, const char *b) {
    char x[FV_POLICY_TEXT_MAX], y[FV_POLICY_TEXT_MAX];
    fv_policy p = parse(a), q = parse(b);
    fv_policy_print(&p, x);
    fv_policy_print(&q, y);
    cr_assert_str_eq(x, y, "'%s' and '%s'", a, b);
}

Test(policy, a_presets_name_alone_is_the_preset) {
    int32_t n;
    const fv_preset_info *presets = fv_policy_presets(&n);
    for (int32_t i = 0; i < n; i++) {
        char text[128];
        snprintf(text, sizeof text, "preset=%s", presets[i].name);
        same(presets[i].name, text);
    }
    same("paper-vtw;prune=none", "exact");
    same(";quality", "quality");
    same("paper-vtw;prune=vtw,layer=3", "preset=paper-vtw;prune=vtw,layer=3");
    refuses("prune=vtw;quality", "'quality' must come first");
}

Test(policy, white_space_around_separators_is_allowed) {
    same(" prune = vtw , layer = 8/32 ;\tselect = streaming ; ",
         "prune=vtw,layer=8/32;select=streaming");
    same(" preset = paper-vtw ", "paper-vtw");
    same("  ", "exact");
    refuses("prune=v tw", "no method 'v tw'");
    refuses("prune=vtw,layer=8 /32", "is not a number");
}

Test(policy, a_near_miss_gets_a_suggestion) {
    refuses("qualty", "did you mean 'quality'?");
    refuses("preset=paper-h20", "did you mean 'paper-h2o'?");
    refuses("prun=vtw", "did you mean 'prune'?");
    refuses("prune=vwt", "did you mean 'vtw'?");
    refuses("prune=vtw,layr=3", "did you mean 'layer'?");
    refuses("lazy=vla,map=paper_lik", "did you mean 'paper_like'?");
    refuses("h2o", "write select=h2o");
    fv_policy p;
    cr_assert_eq(fv_policy_parse("prune=something", &p), FV_EINVAL);
    cr_assert_null(strstr(fv_last_error(), "did you mean"), "%s", fv_last_error());
}

Test(policy, of_32_layers_none_is_beyond_the_last) {
    parse("prune=vtw,layer=32/32");
    refuses("prune=vtw,layer=40/32", "40/32; a layer of 32 is at most 32/32");
    refuses("prune=vtw,layer=33/32", "at most 32/32");
    refuses("prune=vtw,layer=/32", "is not a number");
    parse("prune=vtw,layer=40");
}

Test(policy, what_equals_a_preset_has_its_name) {
    char text[FV_POLICY_TEXT_MAX];
    fv_policy p = parse("quality"), own = parse("prune=vtw,layer=5");
    fv_policy_print(&p, text);
    cr_assert_str_eq(fv_policy_name_of(text), "quality");
    cr_assert_str_eq(fv_policy_name_of(""), "exact");
    fv_policy_print(&own, text);
    cr_assert_eq(fv_policy_name_of(text), text);
}
