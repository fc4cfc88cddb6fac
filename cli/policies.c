/* `fovea policies`: prints the stages, methods, parameters, presets and incompatible combinations
 * of policy/methods.def, as text or as one JSON object. */
#include <jansson.h>
#include <stdio.h>

#include "cli/client/command.h"
#include "cli/client/output.h"
#include "common/options.h"
#include "policy/conflicts.h"
#include "policy/depends.h"

/* ---- text ------------------------------------------------------------------------------- */

static void print_param(const fv_choice *defaults, int32_t i) {
    const fv_param_info *p = &defaults->method->param[i];
    char value[FV_PARAM_TEXT_MAX];
    fv_choice_print(defaults, i, value);
    printf("      %s=%s  ", p->name, value);
    if (p->type == FV_PARAM_CHOICE)
        for (int32_t w = 0; p->word[w]; w++) printf("%s%s", w ? "|" : "", p->word[w]);
    else if (p->type == FV_PARAM_TEXT)
        printf("text");
    else
        printf("%.10g..%.10g%s%s", p->min, p->max, *p->unit ? " " : "", p->unit);
    printf("; %s\n", p->meaning);
}

static void print_method(const fv_method_info *m) {
    fv_choice defaults;
    char inputs[FV_INPUTS_TEXT];
    fv_choice_init(&defaults, m);
    fv_inputs_print(fv_method_inputs(m), inputs);
    printf("  %s=%s\n      %s (%s)\n      depends on: %s\n", fv_stage_name(m->stage), m->name,
           m->summary, m->source, inputs);
    for (int32_t i = 0; i < m->n_param; i++) print_param(&defaults, i);
}

static void print_stage(fv_stage s) {
    int32_t n, shown = 0;
    const fv_method_info *m = fv_policy_methods(&n);
    printf("%s: %s\n", fv_stage_name(s), fv_stage_where(s));
    for (int32_t i = 0; i < n; i++) {
        if (m[i].stage != s) continue;
        print_method(&m[i]);
        shown++;
    }
    if (!shown) puts("  no method yet");
    putchar('\n');
}

static void print_presets(void) {
    int32_t n;
    const fv_preset_info *p = fv_policy_presets(&n);
    puts("presets (preset=NAME first, then what differs; STAGE=none removes a stage):");
    for (int32_t i = 0; i < n; i++)
        printf("  %s: %s\n      %s\n", p[i].name, p[i].meaning, *p[i].text ? p[i].text : "(empty)");
}

static void print_conflicts(void) {
    int32_t n;
    const fv_conflict *c = fv_conflicts(&n);
    if (n) puts("\nincompatible combinations:");
    for (int32_t i = 0; i < n; i++) printf("  %s and %s: %s\n", c[i].a, c[i].b, c[i].why);
}

static void print_all(void) {
    puts("A policy: STAGE=METHOD,PARAMETER=VALUE,...;STAGE=... A layer 3/32 is layer 3 of 32, "
         "mapped to\nthe checkpoint's depth; 3/32+ likewise, but at least layer 3, within the "
         "first quarter of the\ndepth; 3 is the checkpoint's own layer 3.\n");
    for (int s = 0; s < FV_N_STAGE; s++) print_stage((fv_stage)s);
    print_presets();
    print_conflicts();
}

/* ---- JSON ------------------------------------------------------------------------------- */

static json_t *param_json(const fv_choice *defaults, int32_t i) {
    const fv_param_info *p = &defaults->method->param[i];
    char value[FV_PARAM_TEXT_MAX];
    fv_choice_print(defaults, i, value);
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "name", p->name, "type", fv_param_type_name(p->type),
                  "default", value, "unit", p->unit, "meaning", p->meaning);
    if (p->type == FV_PARAM_CHOICE) {
        json_t *words = json_array();
        for (int32_t w = 0; p->word[w]; w++) json_array_append_new(words, json_string(p->word[w]));
        json_object_set_new(json, "words", words);
    } else if (p->type != FV_PARAM_TEXT) {
        json_object_set_new(json, "min", json_real(p->min));
        json_object_set_new(json, "max", json_real(p->max));
    }
    return json;
}

static json_t *method_json(const fv_method_info *m) {
    fv_choice defaults;
    json_t *params = json_array();
    fv_choice_init(&defaults, m);
    for (int32_t i = 0; i < m->n_param; i++)
        json_array_append_new(params, param_json(&defaults, i));
    json_t *inputs = json_array();
    for (int32_t i = 0; i < FV_N_INPUT; i++)
        if (fv_method_inputs(m) & 1U << i)
            json_array_append_new(inputs, json_string(fv_input_name(i)));
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "name", m->name, "source", m->source, "summary",
                     m->summary, "depends_on", inputs, "params", params);
}

static json_t *stages_json(void) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    json_t *stages = json_array();
    for (int s = 0; s < FV_N_STAGE; s++) {
        json_t *methods = json_array();
        for (int32_t i = 0; i < n; i++)
            if (m[i].stage == (fv_stage)s) json_array_append_new(methods, method_json(&m[i]));
        json_array_append_new(stages,
                              json_pack("{s:s, s:s, s:o}", "name", fv_stage_name((fv_stage)s),
                                        "where", fv_stage_where((fv_stage)s), "methods", methods));
    }
    return stages;
}

static json_t *presets_json(void) {
    int32_t n;
    const fv_preset_info *p = fv_policy_presets(&n);
    json_t *presets = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(presets, json_pack("{s:s, s:s, s:s}", "name", p[i].name, "policy",
                                                 p[i].text, "meaning", p[i].meaning));
    return presets;
}

static json_t *conflicts_json(void) {
    int32_t n;
    const fv_conflict *c = fv_conflicts(&n);
    json_t *conflicts = json_array();
    for (int32_t i = 0; i < n; i++)
        json_array_append_new(
            conflicts, json_pack("{s:[s, s], s:s}", "pair", c[i].a, c[i].b, "why", c[i].why));
    return conflicts;
}

static fv_status print_json(void) {
    json_t *json = json_pack("{s:o, s:o, s:o}", "stages", stages_json(), "presets", presets_json(),
                             "conflicts", conflicts_json());
    if (!json) return FV_FAIL(FV_ENOMEM, "out of memory for the list of methods");
    fv_output_json(json);
    json_decref(json);
    return FV_OK;
}

/* ---- the command ------------------------------------------------------------------------ */

static int run(const fv_options *o) {
    const char *const *items;
    fv_status st = FV_OK;
    if (fv_options_positional(o, &items) > 0)
        st = FV_FAIL(FV_EINVAL, "'%s' is not an option; see fovea policies --help", items[0]);
    else if (fv_options_flag(o, "json"))
        st = print_json();
    else
        print_all();
    return fv_cli_end(&fv_cli_policies, st);
}

const fv_command fv_cli_policies = {.program = FV_PROGRAM_POLICIES, .run = run};
