/* Presets and methods on checkpoints of other depths: each changes something, or the plan says why
 * it does not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan/plan.h"
#include "tests/support/choice.h"

/* LLaVA-1.5's shape with one image, and a small checkpoint's with fewer layers and tokens. */
static const fv_plan_shape shapes[] = {
    {.n_layer = 32, .n_kv = 32, .d_head = 128, .bytes_value = 2, .n_visual = 576, .n_text = 50},
    {.n_layer = 12, .n_kv = 8, .d_head = 32, .bytes_value = 4, .n_visual = 144, .n_text = 40}};
enum { N_SHAPE = sizeof shapes / sizeof shapes[0] };

static void make(const char *policy, const fv_plan_shape *shape, fv_plan *plan) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s: %s", policy, fv_last_error());
    cr_assert_eq(fv_plan_make(&p, shape, plan), FV_OK, "%s on %d layers: %s", policy,
                 shape->n_layer, fv_last_error());
}

/* Tells whether a plan has the effect of `exact`, whatever policy was asked for. */
static bool does_nothing(const fv_plan *plan, const fv_plan_shape *shape) {
    fv_plan exact, same = *plan;
    make("", shape, &exact);
    memset(&same.policy, 0, sizeof same.policy);
    memset(same.params, 0, sizeof same.params);
    memset(same.note, 0, sizeof same.note);
    return memcmp(&same, &exact, sizeof exact) == 0;
}

static int32_t notes(const fv_plan *plan) {
    int32_t n = 0;
    for (int s = 0; s < FV_N_STAGE; s++) n += plan->note[s][0] != '\0';
    return n;
}

/* Each preset changes something on both shapes, except `exact`. */
Test(presets, every_preset_changes_every_checkpoint) {
    int32_t n;
    const fv_preset_info *preset = fv_policy_presets(&n);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < N_SHAPE; k++) {
            char text[128];
            fv_plan plan;
            snprintf(text, sizeof text, "preset=%s", preset[i].name);
            make(text, &shapes[k], &plan);
            bool exact = strcmp(preset[i].name, "exact") == 0;
            cr_assert_eq(does_nothing(&plan, &shapes[k]), exact, "%s on %d layers: %s",
                         preset[i].name, shapes[k].n_layer,
                         notes(&plan) ? "it says why" : "and says nothing");
        }
}

Test(presets, there_is_one_for_each_use_and_each_paper) {
    static const char *const names[] = {"exact",          "quality",
                                        "latency",        "aggressive",
                                        "long",           "paper-vla",
                                        "paper-gla",      "paper-csp",
                                        "paper-snapkv",   "paper-h2o",
                                        "paper-lookm",    "paper-scissorhands",
                                        "paper-tova",     "paper-visipruner",
                                        "paper-st3",      "paper-attentionpack",
                                        "paper-kvquant",  "paper-hired",
                                        "paper-prumerge", "paper-prumerge-plus",
                                        "paper-pdrop",    "paper-sparsevlm",
                                        "paper-fitprune", "paper-minicache",
                                        "fovea",          "latent"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[128];
        fv_policy p;
        snprintf(text, sizeof text, "preset=%s", names[i]);
        cr_assert_eq(fv_policy_parse(text, &p), FV_OK, "%s", fv_last_error());
    }
}

/* Each method alone, with its defaults. A method that depends on another stage has no effect
 * here. */
Test(presets, every_method_changes_the_plan_or_says_why) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < N_SHAPE; k++)
            for (int32_t text_only = 0; text_only < 2; text_only++) {
                char text[128];
                fv_plan plan;
                fv_plan_shape shape = shapes[k];
                if (text_only) shape.n_visual = 0;
                snprintf(text, sizeof text, "%s=%s", fv_stage_name(m[i].stage), m[i].name);
                make(text, &shape, &plan);
                cr_assert_eq(notes(&plan), does_nothing(&plan, &shape),
                             "%s on %d layers, %d rows of images", text, shape.n_layer,
                             shape.n_visual);
            }
}

Test(presets, layers_of_presets_are_those_of_32) {
    int32_t n;
    const fv_preset_info *preset = fv_policy_presets(&n);
    for (int32_t i = 0; i < n; i++) {
        fv_policy p;
        cr_assert_eq(fv_policy_parse(preset[i].text, &p), FV_OK, "%s", fv_last_error());
        for (int s = 0; s < FV_N_STAGE; s++)
            for (int32_t k = 0; p.stage[s].method && k < p.stage[s].method->n_param; k++)
                if (fv_param_is_layer(p.stage[s].method->param[k].type))
                    cr_assert_not(p.stage[s].given[k], "%s writes a layer of one checkpoint",
                                  preset[i].name);
    }
}

/* ---- the papers' numbers ------------------------------------------------------------------ */

/* Checks the layers before which tokens are pruned. */
static void leave_ahead_of(const char *policy, const fv_plan_shape *shape, const char *want) {
    fv_plan plan;
    char got[256] = "";
    make(policy, shape, &plan);
    for (int32_t e = 0; e < plan.prune.n_edit; e++)
        snprintf(got + strlen(got), 8, "%d ", plan.prune.edit[e].layer);
    cr_assert_str_eq(got, want, "%s on %d layers: %s", policy, shape->n_layer, got);
}

Test(presets, tokens_leave_no_earlier_than_published_where_the_depth_allows) {
    const fv_plan_shape *llava = &shapes[0], *small = &shapes[1];
    leave_ahead_of("preset=paper-fastv", llava, "2 ");
    leave_ahead_of("preset=paper-fastv", small, "2 ");
    leave_ahead_of("prune=fastv,layer=2/32", small, "1 ");
    leave_ahead_of("preset=paper-st3", llava, "3 10 17 24 31 ");
    leave_ahead_of("preset=paper-st3", small, "3 6 9 ");
    leave_ahead_of("preset=latency", small, "3 6 9 ");
    leave_ahead_of("preset=paper-sparsevlm", llava, "3 7 16 ");
    leave_ahead_of("preset=paper-sparsevlm", small, "3 4 7 ");
    leave_ahead_of("preset=paper-pdrop", small, "3 6 9 ");
    leave_ahead_of("preset=paper-vtw", small, "6 ");
}

Test(presets, a_plan_says_how_layers_of_32_were_mapped) {
    fv_plan plan;
    make("preset=paper-st3", &shapes[1], &plan);
    const fv_choice *c = &plan.policy.stage[FV_STAGE_PRUNE];
    cr_assert_eq(plan.n_mapped, 2, "evict=vta ranks where prune=pvtp does");
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(plan.mapped[i].stage, FV_STAGE_PRUNE);
        cr_assert_str_eq(c->method->param[plan.mapped[i].param].name, i ? "stride" : "layer");
        cr_assert_eq(plan.mapped[i].layer, 3);
        cr_assert_eq(fv_choice_layer_mapping(c, plan.mapped[i].param, 12),
                     i ? FV_LAYER_PROPORTION : FV_LAYER_PUBLISHED);
    }
    make("prune=pvtp,layer=2,stride=4", &shapes[1], &plan);
    cr_assert_eq(plan.n_mapped, 0, "they are the checkpoint's own");
    make("evict=vta", &shapes[1], &plan);
    cr_assert(plan.n_mapped == 1 && plan.mapped[0].stage == FV_STAGE_EVICT);
    make("preset=paper-fastv;prune=fastv,keep=1", &shapes[1], &plan);
    cr_assert_eq(plan.n_mapped, 0, "a stage that does nothing has no layers");
}

Test(presets, attentionpack_factors_keys_before_rotation) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse("preset=paper-attentionpack", &p), FV_OK);
    cr_assert_eq(choice_value(&p.stage[FV_STAGE_PACK], "block"), 1);
}

Test(presets, scissorhands_holds_half_of_the_prompt) {
    fv_plan plan;
    make("preset=paper-scissorhands", &shapes[1], &plan);
    cr_assert(plan.evict.accum.most == 92 && plan.evict.accum.left == 92,
              "of 184 rows, at any time");
}

Test(presets, latent_without_directions_leaves_visual_tokens_and_says_so) {
    fv_plan_shape with = shapes[0];
    fv_plan plan;
    make("preset=latent", &shapes[0], &plan);
    cr_assert(!plan.pack.latent && !plan.pack.any && plan.pack.text.bits == 4);
    cr_assert(strstr(plan.note[FV_STAGE_PACK], "directions"), "%s", plan.note[FV_STAGE_PACK]);
    with.latent_layers = 32;
    with.latent_rank = 128;
    make("preset=latent", &with, &plan);
    cr_assert(plan.pack.latent && plan.pack.any && plan.pack.text.bits == 4);
    cr_assert_str_eq(plan.note[FV_STAGE_PACK], "");
    cr_assert_eq(plan.pack.layer[31].row_bits, 8 * 128, "1/64 has room for all bits");
}
