#ifndef FOVEA_POLICY_PARAMS_H
#define FOVEA_POLICY_PARAMS_H

/* TYPED PARAMETERS, one struct per method of methods.def, filled from a parsed policy by
 * fv_choice_params. A method reads fields, so a wrong name does not compile:
 *
 *     row          field
 *     INT          int32_t keep
 *     SEED         uint32_t seed
 *     FLOAT        double keep
 *     LAYER(S)     int32_t layer, mapped to the checkpoint's depth
 *     FV_CHOICE    bool mode_drop, mode_mask: one per word; exactly one is true
 *     FV_TEXT      char schedule[FV_PARAM_TEXT_MAX]
 *
 *     typedef struct fv_prune_fastv_params { int32_t layer; double keep; bool mode_drop, mode_mask; }
 *
 * fv_params holds the parameters of one method, under stage_method:
 *
 *     const fv_prune_fastv_params *p = &params->prune_fastv; */
#include <stdbool.h>
#include <stdint.h>

enum { FV_PARAM_TEXT_MAX = 128 }; /* bytes of a text with its terminator */

/* ---- names from rows -------------------------------------------------------------------- */

/* FV_NAME(fv_plan_, PRUNE, fastv) is fv_plan_prune_fastv. */
#define FV_NAME(prefix, stage, name) FV_NAME_1(prefix, FV_LOWER_##stage, name)
#define FV_NAME_1(prefix, stage, name) FV_NAME_2(prefix, stage, name)
#define FV_NAME_2(prefix, stage, name) prefix##stage##_##name
#define FV_LOWER_CONDENSE condense
#define FV_LOWER_PRUNE prune
#define FV_LOWER_LAZY lazy
#define FV_LOWER_SELECT select
#define FV_LOWER_PACK pack
#define FV_LOWER_EXPAND expand
#define FV_LOWER_EVICT evict

/* Names of a method's struct, of its member of fv_params, and of the field for a word of a
 * choice. */
#define FV_PARAMS(stage, name) FV_PARAMS_1(FV_LOWER_##stage, name)
#define FV_PARAMS_1(stage, name) FV_PARAMS_2(stage, name)
#define FV_PARAMS_2(stage, name) fv_##stage##_##name##_params
#define FV_PARAMS_MEMBER(stage, name) FV_NAME_1(, FV_LOWER_##stage, name)
#define FV_WORD_FIELD(param, word) param##_##word

/* FV_EACH(f, x, a, b) is f(x, a) f(x, b), for 1 to 8 words. */
#define FV_EACH(f, x, ...) FV_EACH_OF(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)(f, x, __VA_ARGS__)
#define FV_EACH_OF(a, b, c, d, e, f, g, h, n, ...) FV_EACH_##n
#define FV_EACH_1(f, x, a) f(x, a)
#define FV_EACH_2(f, x, a, ...) f(x, a) FV_EACH_1(f, x, __VA_ARGS__)
#define FV_EACH_3(f, x, a, ...) f(x, a) FV_EACH_2(f, x, __VA_ARGS__)
#define FV_EACH_4(f, x, a, ...) f(x, a) FV_EACH_3(f, x, __VA_ARGS__)
#define FV_EACH_5(f, x, a, ...) f(x, a) FV_EACH_4(f, x, __VA_ARGS__)
#define FV_EACH_6(f, x, a, ...) f(x, a) FV_EACH_5(f, x, __VA_ARGS__)
#define FV_EACH_7(f, x, a, ...) f(x, a) FV_EACH_6(f, x, __VA_ARGS__)
#define FV_EACH_8(f, x, a, ...) f(x, a) FV_EACH_7(f, x, __VA_ARGS__)

/* ---- the structs ------------------------------------------------------------------------ */

/* clang-format off */
#define FV_FIELD_INT(name) int32_t name;
#define FV_FIELD_SEED(name) uint32_t name;
#define FV_FIELD_FLOAT(name) double name;
#define FV_FIELD_LAYER(name) int32_t name;
#define FV_FIELD_LAYERS(name) int32_t name;
#define FV_FIELD_WORD(param, word) bool FV_WORD_FIELD(param, word);

/* Each FV_METHOD row ends the struct before it and begins its own. `unused` is there because a
 * struct must have a field. */
struct fv_params_none { char unused;
#define FV_METHOD(stage, name, source, summary) }; struct FV_PARAMS(stage, name) { char unused;
#define FV_PARAM(stage, method, name, type, ...) FV_FIELD_##type(name)
#define FV_CHOICE(stage, method, name, meaning, ...) FV_EACH(FV_FIELD_WORD, name, __VA_ARGS__)
#define FV_TEXT(stage, method, name, fallback, meaning) char name[FV_PARAM_TEXT_MAX];
#include "policy/methods.def"
};
/* clang-format on */

#define FV_METHOD(stage, name, source, summary)                                                    \
    typedef struct FV_PARAMS(stage, name) FV_PARAMS(stage, name);
#include "policy/methods.def"

typedef union fv_params {
#define FV_METHOD(stage, name, source, summary)                                                    \
    FV_PARAMS(stage, name) FV_PARAMS_MEMBER(stage, name);
#include "policy/methods.def"
} fv_params;

#endif
