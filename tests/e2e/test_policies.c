/* `fovea policies` prints everything in the table; `fovea plan` counts what each preset costs. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "policy/conflicts.h"
#include "policy/depends.h"
#include "tests/support/command.h"

#define FOVEA FOVEA_BIN "/fovea"

static command_result r;

TestSuite(policies, .timeout = 240);

static json_t *by_name(const json_t *list, const char *name) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0) return item;
    }
    cr_assert_fail("no '%s'", name);
    return NULL;
}

static void holds_method(const json_t *root, const fv_method_info *m) {
    json_t *stage = by_name(json_object_get(root, "stages"), fv_stage_name(m->stage));
    json_t *method = by_name(json_object_get(stage, "methods"), m->name);
    json_t *params = json_object_get(method, "params");
    cr_assert_str_eq(json_string_value(json_object_get(method, "source")), m->source);
    cr_assert_eq(json_array_size(params), (size_t)m->n_param);
    const uint32_t inputs = fv_method_inputs(m);
    const json_t *on = json_object_get(method, "depends_on");
    cr_assert_eq(json_array_size(on), (size_t)__builtin_popcount(inputs), "%s", m->name);
    for (size_t i = 0, k = 0; i < FV_N_INPUT; i++)
        if (inputs & 1U << i)
            cr_assert_str_eq(json_string_value(json_array_get(on, k++)), fv_input_name((int32_t)i));
    for (int32_t i = 0; i < m->n_param; i++) {
        char text[FV_POLICY_TEXT_MAX];
        fv_policy p;
        json_t *param = by_name(params, m->param[i].name);
        snprintf(text, sizeof text, "%s=%s,%s=%s", fv_stage_name(m->stage), m->name,
                 m->param[i].name, json_string_value(json_object_get(param, "default")));
        cr_assert_eq(fv_policy_parse(text, &p), FV_OK, "%s: %s", text, fv_last_error());
    }
}

Test(policies, json_holds_the_table_and_its_defaults_may_be_written) {
    int32_t n;
    json_error_t err;
    command_run(&r, FOVEA " policies --json");
    cr_assert_eq(r.status, 0, "%s", r.err);
    json_t *root = json_loads(r.out, 0, &err);
    cr_assert_not_null(root, "%s", err.text);
    const fv_method_info *m = fv_policy_methods(&n);
    for (int32_t i = 0; i < n; i++) holds_method(root, &m[i]);
    const fv_preset_info *p = fv_policy_presets(&n);
    json_t *presets = json_object_get(root, "presets");
    for (int32_t i = 0; i < n; i++)
        cr_assert_str_eq(json_string_value(json_object_get(by_name(presets, p[i].name), "policy")),
                         p[i].text);
    fv_conflicts(&n);
    cr_assert_eq(json_array_size(json_object_get(root, "conflicts")), (size_t)n);
    json_decref(root);
}

Test(policies, the_text_names_every_stage_method_parameter_and_preset) {
    int32_t n;
    command_run(&r, FOVEA " policies");
    cr_assert_eq(r.status, 0, "%s", r.err);
    const fv_method_info *m = fv_policy_methods(&n);
    for (int32_t i = 0; i < n; i++) {
        char text[128];
        snprintf(text, sizeof text, "  %s=%s\n", fv_stage_name(m[i].stage), m[i].name);
        cr_assert(strstr(r.out, text), "no%s", text);
        for (int32_t k = 0; k < m[i].n_param; k++)
            cr_assert(strstr(r.out, m[i].param[k].meaning), "%s.%s", m[i].name, m[i].param[k].name);
    }
    const fv_preset_info *p = fv_policy_presets(&n);
    for (int32_t i = 0; i < n; i++) cr_assert(strstr(r.out, p[i].meaning), "%s", p[i].name);
    for (int s = 0; s < FV_N_STAGE; s++) cr_assert(strstr(r.out, fv_stage_where((fv_stage)s)));
}

Test(policies, a_stray_word_is_wrong_usage) {
    command_run(&r, FOVEA " policies prune");
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "'prune' is not an option"), "%s", r.err);
}

Test(policies, plans_of_all_presets_are_counted_without_a_checkpoint) {
    int32_t n;
    json_error_t err;
    const fv_preset_info *p = fv_policy_presets(&n);
    command_run(&r, FOVEA " plan --json");
    cr_assert_eq(r.status, 0, "%s", r.err);
    json_t *rows = json_loads(r.out, 0, &err);
    cr_assert_eq(json_array_size(rows), (size_t)n, "%s", err.text);
    double exact = json_real_value(json_object_get(json_array_get(rows, 0), "flops"));
    for (int32_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, (size_t)i);
        cr_assert_str_eq(json_string_value(json_object_get(row, "policy")), p[i].name);
        double flops = json_real_value(json_object_get(row, "flops"));
        cr_assert(flops > 0 && flops <= exact, "%s: %g", p[i].name, flops);
        json_int_t kept = json_integer_value(json_object_get(row, "layers_kept"));
        if (strcmp(p[i].name, "exact") == 0) cr_assert_eq(kept, 32);
        if (strcmp(p[i].name, "fovea") == 0) cr_assert_eq(kept, 28);
    }
    json_decref(rows);
    command_run(&r, FOVEA " plan --policy exact --policy prune=fastv,layer=40");
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "100.0"), "%s", r.out);
    cr_assert(strstr(r.err, "layer=40: this checkpoint has layers 0..31"), "%s", r.err);
    command_run(&r, FOVEA " plan --flops twice");
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "executed, square and visual"), "%s", r.err);
}
