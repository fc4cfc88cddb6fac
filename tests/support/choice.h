#ifndef FOVEA_TESTS_SUPPORT_CHOICE_H
#define FOVEA_TESTS_SUPPORT_CHOICE_H

/* A method's parameters by their names. */
#include <criterion/criterion.h>
#include <string.h>

#include "policy/policy.h"

static inline int32_t choice_index(const fv_choice *c, const char *param) {
    for (int32_t i = 0; i < c->method->n_param; i++)
        if (strcmp(c->method->param[i].name, param) == 0) return i;
    cr_assert_fail("%s has no parameter %s", c->method->name, param);
    return -1;
}

static inline double choice_value(const fv_choice *c, const char *param) {
    return c->value[choice_index(c, param)];
}

static inline int32_t choice_layer(const fv_choice *c, const char *param, int32_t n_layer) {
    return fv_choice_layer(c, choice_index(c, param), n_layer);
}

/* fv_choice_print of it is `value`. */
static inline bool choice_is(const fv_choice *c, const char *param, const char *value) {
    char text[FV_PARAM_TEXT_MAX];
    fv_choice_print(c, choice_index(c, param), text);
    return strcmp(text, value) == 0;
}

#endif
