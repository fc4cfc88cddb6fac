/* The table of methods, made from methods.def. Immutable data, any thread. */
#include "policy/policy.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

/* methods.def lists a method's parameters behind it; the same walk counts and fills them. */
typedef struct method_table {
    fv_method_info row[64];
    int32_t n;
} method_table;

static void add_method(method_table *t, fv_stage stage, const char *name, const char *source,
                       const char *summary) {
    assert(t->n < (int32_t)(sizeof t->row / sizeof t->row[0]));
    t->row[t->n++] =
        (fv_method_info){.stage = stage, .name = name, .source = source, .summary = summary};
}

static void add_param(method_table *t, const char *method, fv_param_info param) {
    fv_method_info *m = &t->row[t->n - 1];
    assert(strcmp(m->name, method) == 0 && m->n_param < FV_MAX_PARAMS);
    while (param.type == FV_PARAM_CHOICE && param.word[(int32_t)param.max + 1]) param.max++;
    m->param[m->n_param++] = param;
}

static method_table build_table(void) {
    method_table t = {.n = 0};
#define FV_METHOD(stage, name, source, summary)                                                    \
    add_method(&t, FV_STAGE_##stage, #name, source, summary);
#define FV_PARAM_AS(method, param, kind, usual, from, to, of, about, hushed)                       \
    add_param(&t, #method,                                                                         \
              (fv_param_info){.name = #param,                                                      \
                              .type = FV_PARAM_##kind,                                             \
                              .fallback = usual,                                                   \
                              .min = from,                                                         \
                              .max = to,                                                           \
                              .quiet = hushed,                                                     \
                              .unit = of,                                                          \
                              .meaning = about});
#define FV_PARAM(stage, method, param, kind, usual, from, to, of, about)                           \
    FV_PARAM_AS(method, param, kind, usual, from, to, of, about, false)
#define FV_PARAM_QUIET(stage, method, param, kind, usual, from, to, of, about)                     \
    FV_PARAM_AS(method, param, kind, usual, from, to, of, about, true)
#define FV_CHOICE(stage, method, param, about, ...)                                                \
    add_param(&t, #method,                                                                         \
              (fv_param_info){.name = #param,                                                      \
                              .type = FV_PARAM_CHOICE,                                             \
                              .unit = "",                                                          \
                              .meaning = about,                                                    \
                              .word = {__VA_ARGS__}});
#define FV_TEXT(stage, method, param, fallback_text, about)                                        \
    add_param(&t, #method,                                                                         \
              (fv_param_info){.name = #param,                                                      \
                              .type = FV_PARAM_TEXT,                                               \
                              .unit = "",                                                          \
                              .meaning = about,                                                    \
                              .text = fallback_text});
#include "policy/methods.def"
    return t;
}

static method_table table;

static void init_table(void) { table = build_table(); }

const fv_method_info *fv_policy_methods(int32_t *n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_table);
    *n = table.n;
    return table.row;
}

const fv_preset_info *fv_policy_presets(int32_t *n) {
#define FV_PRESET(name, text, meaning) {#name, text, meaning},
    static const fv_preset_info presets[] = {
#include "policy/methods.def"
    };
    *n = (int32_t)(sizeof presets / sizeof presets[0]);
    return presets;
}

const char *fv_stage_name(fv_stage s) {
#define FV_STAGE(id, name, where) #name,
    static const char *const names[] = {
#include "policy/methods.def"
    };
    return names[s];
}

const char *fv_stage_where(fv_stage s) {
#define FV_STAGE(id, name, where) where,
    static const char *const wheres[] = {
#include "policy/methods.def"
    };
    return wheres[s];
}

const char *fv_param_type_name(fv_param_type t) {
    static const char *const names[] = {[FV_PARAM_INT] = "int",
                                        [FV_PARAM_FLOAT] = "float",
                                        [FV_PARAM_LAYER] = "layer",
                                        [FV_PARAM_CHOICE] = "choice",
                                        [FV_PARAM_TEXT] = "text"};
    return names[t];
}
