/* Presets and methods on checkpoints of other depths: what is asked for changes something, or the
 * plan says why it does not. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "policy/plan.h"

/* LLaVA-1.5's shape with one picture, and a small checkpoint's with fewer layers and rows. */
static const fv_plan_shape shapes[] = {{.n_layer = 32,
                                        .n_kv = 32,
                                        .d_head = 128,
                                        .bytes_value = 2,
                                        .n_visual = 576,
                                        .n_text = 50,
                                        .n_image = 1},
                                       {.n_layer = 12,
                                        .n_kv = 8,
                                        .d_head = 32,
                                        .bytes_value = 4,
                                        .n_visual = 144,
                                        .n_text = 40,
                                        .n_image = 1}};
enum { N_SHAPE = sizeof shapes / sizeof shapes[0] };

static void make(const char *policy, const fv_plan_shape *shape, fv_plan *plan) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s: %s", policy, fv_last_error());
    cr_assert_eq(fv_plan_make(&p, shape, plan), FV_OK, "%s on %d layers: %s", policy,
                 shape->n_layer, fv_last_error());
}

/* Whether a plan does what that of `exact` does, whatever was asked for. */
static bool does_nothing(const fv_plan *plan, const fv_plan_shape *shape) {
    fv_plan exact, same = *plan;
    make("", shape, &exact);
    memset(&same.policy, 0, sizeof same.policy);
    memset(same.note, 0, sizeof same.note);
    return memcmp(&same, &exact, sizeof exact) == 0;
}

static int32_t notes(const fv_plan *plan) {
    int32_t n = 0;
    for (int s = 0; s < FV_N_STAGE; s++) n += plan->note[s][0] != '\0';
    return n;
}

/* What is there to change: everything but `exact` does on both shapes. */
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
    static const char *const names[] = {
        "exact",         "quality",          "latency",        "aggressive",
        "long",          "paper-vla",        "paper-gla",      "paper-csp",
        "paper-snapkv",  "paper-h2o",        "paper-lookm",    "paper-scissorhands",
        "paper-tova",    "paper-visipruner", "paper-st3",      "paper-attentionpack",
        "paper-kvquant", "paper-hired",      "paper-prumerge", "paper-prumerge-plus",
        "paper-pdrop",   "paper-sparsevlm",  "paper-fitprune", "paper-minicache"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[128];
        fv_policy p;
        snprintf(text, sizeof text, "preset=%s", names[i]);
        cr_assert_eq(fv_policy_parse(text, &p), FV_OK, "%s", fv_last_error());
    }
}

/* A method alone, with its defaults. One that stands on another stage has nothing to do here. */
Test(presets, every_method_changes_the_plan_or_says_why) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < N_SHAPE; k++)
            for (int32_t text_only = 0; text_only < 2; text_only++) {
                char text[128];
                fv_plan plan;
                fv_plan_shape shape = shapes[k];
                if (text_only) shape.n_visual = shape.n_image = 0;
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
                if (p.stage[s].method->param[k].type == FV_PARAM_LAYER)
                    cr_assert_not(p.stage[s].given[k], "%s writes a layer of one checkpoint",
                                  preset[i].name);
    }
}
