#include "tests/support/policies.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The text may be one of those in the list. */
__attribute__((format(printf, 2, 3))) static void put(char *text, const char *format, ...) {
    char whole[POLICIES_TEXT];
    va_list args;
    va_start(args, format);
    cr_assert_lt(vsnprintf(whole, sizeof whole, format, args), POLICIES_TEXT);
    va_end(args);
    memcpy(text, whole, sizeof whole);
}

/* False: the policy's methods conflict, or the shape does not accept it. */
static bool planned(const char *text, const fv_plan_shape *shape, fv_plan *plan) {
    fv_policy p;
    return fv_policy_parse(text, &p) == FV_OK && fv_plan_make(&p, shape, plan) == FV_OK;
}

bool plan_acts(const fv_plan *plan) {
    fv_plan exact, same = *plan;
    cr_assert(planned("", &plan->shape, &exact));
    memcpy(&same.policy, &exact.policy, sizeof same.policy);
    memcpy(same.params, exact.params, sizeof same.params);
    memcpy(same.note, exact.note, sizeof same.note);
    return memcmp(&same, &exact, sizeof same) != 0;
}

/* Whether the policy, and the method of `stage` in it, changes anything. */
static bool acts(const char *text, fv_stage stage, const fv_plan_shape *shape) {
    fv_plan plan;
    return planned(text, shape, &plan) && plan_acts(&plan) && !plan.note[stage][0];
}

static char *next(policies *list) {
    cr_assert_lt(list->n, POLICIES_MAX);
    return list->text[list->n++];
}

void policies_add_presets(policies *list, bool tower) {
    int32_t n;
    const fv_preset_info *preset = fv_policy_presets(&n);
    for (int32_t i = 0; i < n; i++) {
        fv_policy p;
        cr_assert_eq(fv_policy_parse(preset[i].text, &p), FV_OK, "%s", preset[i].name);
        if (tower || !p.stage[FV_STAGE_CONDENSE].method)
            put(next(list), "preset=%s", preset[i].name);
    }
}

/* ---- one method ---------------------------------------------------------------------- */

static void print_default(const fv_method_info *m, char *text) {
    put(text, "%s=%s", fv_stage_name(m->stage), m->name);
}

/* Whether the method acts with a parameter at an end of its range, or with another choice. */
static bool acts_otherwise(const fv_method_info *m, const fv_plan_shape *shape, char *text) {
    for (int32_t i = 0; i < m->n_param; i++) {
        const fv_param_info *p = &m->param[i];
        bool words = p->type == FV_PARAM_CHOICE;
        int32_t n = words ? (int32_t)p->max + 1 : p->type == FV_PARAM_TEXT ? 0 : 2;
        for (int32_t k = 0; k < n; k++) {
            print_default(m, text);
            if (words)
                put(text, "%s,%s=%s", text, p->name, p->word[k]);
            else
                put(text, "%s,%s=%.10g", text, p->name, k ? p->max : p->min);
            if (acts(text, m->stage, shape)) return true;
        }
    }
    return false;
}

static bool acts_alone(const fv_method_info *m, const fv_plan_shape *shape, char *text) {
    print_default(m, text);
    return acts(text, m->stage, shape) || acts_otherwise(m, shape, text);
}

static bool acts_after(const fv_method_info *m, const fv_plan_shape *shape, char *text) {
    int32_t n;
    const fv_method_info *all = fv_policy_methods(&n);
    for (int32_t i = 0; i < n; i++) {
        char other[POLICIES_TEXT];
        if (all[i].stage == m->stage || !acts_alone(&all[i], shape, text)) continue;
        put(other, "%s", text);
        put(text, "%s;%s=%s", other, fv_stage_name(m->stage), m->name);
        if (acts(text, m->stage, shape)) return true;
    }
    return false;
}

static void print_acting(const fv_method_info *m, const fv_plan_shape *shape, char *text) {
    if (acts_alone(m, shape, text) || acts_after(m, shape, text)) return;
    print_default(m, text);
    cr_assert_fail("%s does nothing, with whatever parameter or method", text);
}

/* ---- the table ----------------------------------------------------------------------- */

typedef void add_fn(policies *list, const fv_method_info *m, const fv_plan_shape *shape,
                    bool tower);

static void each_method(policies *list, const fv_plan_shape *shape, bool tower, add_fn *add) {
    int32_t n;
    const fv_method_info *m = fv_policy_methods(&n);
    for (int32_t i = 0; i < n; i++)
        if (tower || m[i].stage != FV_STAGE_CONDENSE) add(list, &m[i], shape, tower);
}

static void add_method(policies *list, const fv_method_info *m, const fv_plan_shape *shape,
                       bool tower) {
    (void)tower;
    print_acting(m, shape, next(list));
}

void policies_add_methods(policies *list, const fv_plan_shape *shape, bool tower) {
    each_method(list, shape, tower, add_method);
}

static void add_words(policies *list, const fv_method_info *m, const fv_plan_shape *shape,
                      bool tower) {
    char base[POLICIES_TEXT], text[POLICIES_TEXT];
    fv_plan plan;
    (void)tower;
    print_acting(m, shape, base);
    for (int32_t i = 0; i < m->n_param; i++)
        for (int32_t w = 0; m->param[i].type == FV_PARAM_CHOICE && w <= (int32_t)m->param[i].max;
             w++) {
            if (w == (int32_t)m->param[i].fallback) continue;
            put(text, "%s,%s=%s", base, m->param[i].name, m->param[i].word[w]);
            if (planned(text, shape, &plan)) put(next(list), "%s", text);
        }
}

void policies_add_words(policies *list, const fv_plan_shape *shape, bool tower) {
    each_method(list, shape, tower, add_words);
}

/* Appends a method of the stage to the policy, starting the search with the k-th. */
static void meet(char text[POLICIES_TEXT], fv_stage stage, int32_t k, const fv_plan_shape *shape) {
    int32_t n, first = 0, count = 0;
    const fv_method_info *m = fv_policy_methods(&n);
    while (m[first].stage != stage) first++;
    while (first + count < n && m[first + count].stage == stage) count++;
    for (int32_t i = 0; i < count; i++) {
        char one[POLICIES_TEXT], both[POLICIES_TEXT];
        fv_plan plan;
        if (!acts_alone(&m[first + (k + i) % count], shape, one))
            print_default(&m[first + (k + i) % count], one);
        put(both, "%s;%s", text, one);
        if (!planned(both, shape, &plan)) continue;
        put(text, "%s", both);
        return;
    }
}

static void add_together(policies *list, const fv_method_info *m, const fv_plan_shape *shape,
                         bool tower) {
    char *text = next(list);
    print_acting(m, shape, text);
    for (int s = 0; s < FV_N_STAGE; s++) {
        fv_policy p;
        cr_assert_eq(fv_policy_parse(text, &p), FV_OK, "%s", text);
        if (!p.stage[s].method && (tower || s != FV_STAGE_CONDENSE))
            meet(text, (fv_stage)s, (int32_t)m->id, shape);
    }
}

void policies_add_together(policies *list, const fv_plan_shape *shape, bool tower) {
    each_method(list, shape, tower, add_together);
}
