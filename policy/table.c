/* The table of methods, made from methods.def. Immutable data, any thread. */
#include "policy/policy.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

static fv_method_info table[FV_N_METHOD];

static void add_param(fv_method_info *m, const char *method, fv_param_info param) {
    assert(strcmp(m->name, method) == 0 && m->n_param < FV_MAX_PARAMS);
    while (param.type == FV_PARAM_CHOICE && param.word[(int32_t)param.max + 1]) param.max++;
    m->param[m->n_param++] = param;
}

/* methods.def lists a method's parameters after it. */
static void init_table(void) {
    fv_method_info *m = NULL;
#define FV_METHOD(of_stage, of_name, from, about)                                                  \
    m = &table[FV_METHOD_##of_stage##_##of_name];                                                  \
    *m = (fv_method_info){.stage = FV_STAGE_##of_stage,                                            \
                          .id = FV_METHOD_##of_stage##_##of_name,                                  \
                          .name = #of_name,                                                        \
                          .source = from,                                                          \
                          .summary = about};
#define ADD(stage, method, param, field, kind, ...)                                                \
    add_param(m, #method,                                                                          \
              (fv_param_info){.name = #param,                                                      \
                              .type = FV_PARAM_##kind,                                             \
                              .offset = offsetof(FV_PARAMS(stage, method), field),                 \
                              __VA_ARGS__});
#define FV_PARAM(stage, method, param, kind, usual, from, to, of, about)                           \
    ADD(stage, method, param, param, kind, .fallback = usual, .min = from, .max = to, .unit = of,  \
        .meaning = about)
#define FV_PARAM_QUIET(stage, method, param, kind, usual, from, to, of, about)                     \
    ADD(stage, method, param, param, kind, .fallback = usual, .min = from, .max = to, .unit = of,  \
        .meaning = about, .quiet = true)
#define FIRST_FIELD(param, first, ...) FV_WORD_FIELD(param, first)
#define WORD_TEXT(param, word_of) #word_of,
#define FV_CHOICE(stage, method, param, about, ...)                                                \
    ADD(stage, method, param, FIRST_FIELD(param, __VA_ARGS__, ), CHOICE, .unit = "",               \
        .meaning = about, .word = {FV_EACH(WORD_TEXT, param, __VA_ARGS__)})
#define FV_CHOICE_QUIET(stage, method, param, about, ...)                                          \
    ADD(stage, method, param, FIRST_FIELD(param, __VA_ARGS__, ), CHOICE, .unit = "",               \
        .meaning = about, .word = {FV_EACH(WORD_TEXT, param, __VA_ARGS__)}, .quiet = true)
#define FV_TEXT(stage, method, param, usual, about)                                                \
    ADD(stage, method, param, param, TEXT, .unit = "", .meaning = about, .text = usual)
#include "policy/methods.def"
}

const fv_method_info *fv_policy_methods(int32_t *n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init_table);
    *n = FV_N_METHOD;
    return table;
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
    static const char *const names[] = {
        [FV_PARAM_INT] = "int",     [FV_PARAM_SEED] = "int",     [FV_PARAM_FLOAT] = "float",
        [FV_PARAM_LAYER] = "layer", [FV_PARAM_LAYERS] = "layer", [FV_PARAM_CHOICE] = "choice",
        [FV_PARAM_TEXT] = "text"};
    return names[t];
}

bool fv_param_is_layer(fv_param_type t) { return t == FV_PARAM_LAYER || t == FV_PARAM_LAYERS; }
