/* policy/plan/prefix.c and policy/depends.c: what of a prompt's beginning is the same, whatever follows it. */
#include <criterion/criterion.h>
#include <string.h>

#include "policy/depends.h"
#include "policy/plan/prefix.h"
#include "tests/support/planned.h"

static const fv_plan_shape shape = {
    .n_layer = 32, .n_kv = 8, .d_head = 128, .bytes_value = 2, .n_visual = 576, .n_text = 40};

static int32_t layers_of(const char *policy, char text[FV_PLAN_PREFIX_TEXT]) {
    static fv_plan plan;
    cr_assert_eq(try_plan(policy, shape, &plan), FV_OK, "%s: %s", policy, fv_last_error());
    fv_plan_prefix_stages(&plan, text);
    return fv_plan_prefix_layers(&plan);
}

Test(prefix_layers, stages_after_the_layers_keep_the_prefix_of_exact) {
    static const char *const names[] = {"",
                                        "pack=svd",
                                        "pack=quant",
                                        "pack=minicache",
                                        "select=h2o",
                                        "select=streaming",
                                        "evict=vta",
                                        "evict=tova",
                                        "preset=quality",
                                        "pack=svd;expand=attention;evict=importance"};
    char text[FV_PLAN_PREFIX_TEXT];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        cr_assert_eq(layers_of(names[i], text), 32, "%s", names[i]);
        cr_assert_str_eq(text, "", "%s", names[i]);
    }
}

Test(prefix_layers, it_ends_where_tokens_are_dropped_masked_or_all_looked_at) {
    static const struct {
        const char *policy;
        int32_t n;
    } of[] = {{"prune=vtw,layer=20", 20},
              {"prune=fastv,layer=2", 2},
              {"prune=fastv,mode=mask,layer=9", 9},
              {"prune=pdrop,second=8", 8},
              {"preset=fovea", 28},
              {"prune=random,layer=0", 0},
              {"prune=visipruner", 8},
              {"prune=visipruner,first=half", 0},
              {"preset=aggressive", 8},
              {"prune=sparsevlm", 0},
              {"prune=vtw,layer=20;lazy=gla,map=given,blocks=18-24", 20},
              {"prune=fastv,keep=1", 32}};
    char text[FV_PLAN_PREFIX_TEXT];
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        cr_assert_eq(layers_of(of[i].policy, text), of[i].n, "%s: %d", of[i].policy,
                     layers_of(of[i].policy, text));
}

Test(prefix_layers, what_shapes_the_rows_tells_prefixes_apart) {
    char a[FV_PLAN_PREFIX_TEXT], b[FV_PLAN_PREFIX_TEXT];
    layers_of("prune=vtw,layer=20", a);
    layers_of("prune=grid,layer=20,keep=0.1;select=h2o", b);
    cr_assert_str_eq(a, b, "how tokens are chosen there does not matter");
    layers_of("prune=vtw,layer=21", b);
    cr_assert_str_neq(a, b);
    layers_of("lazy=gla", a);
    layers_of("lazy=vla", b);
    cr_assert_str_neq(a, b);
    layers_of("lazy=gla,map=paper_like", b);
    cr_assert_str_neq(a, b);
    cr_assert_str_neq(a, "");
    layers_of("prune=visipruner", a);
    layers_of("prune=fastv,layer=8", b);
    cr_assert_str_neq(a, b, "masks shape the rows");
}

Test(prefix_layers, every_method_of_the_table_declares_its_inputs) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    char text[FV_INPUTS_TEXT];
    for (int32_t i = 0; i < n; i++) {
        fv_choice c;
        fv_choice_init(&c, &m[i]);
        cr_assert_eq(fv_choice_inputs(&c) & ~fv_method_inputs(&m[i]), 0, "%s", m[i].name);
        bool decodes = m[i].stage == FV_STAGE_EVICT || m[i].stage == FV_STAGE_EXPAND;
        cr_assert(decodes || !(fv_method_inputs(&m[i]) & FV_INPUT_ANSWER),
                  "%s acts before the answer", m[i].name);
    }
    fv_inputs_print(FV_INPUT_ALL, text);
    cr_assert_str_eq(text, "own image, other images, length, question, answer");
    fv_inputs_print(FV_INPUT_NONE, text);
    cr_assert_str_eq(text, "nothing");
    cr_assert_eq(fv_choice_inputs(&(fv_choice){0}), FV_INPUT_NONE);
}
