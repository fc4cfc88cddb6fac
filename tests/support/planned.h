#ifndef FOVEA_TESTS_SUPPORT_PLANNED_H
#define FOVEA_TESTS_SUPPORT_PLANNED_H

/* What a policy, as it is written, comes to for a shape. For programs with Criterion. */
#include <criterion/criterion.h>

#include "policy/plan/plan.h"

/* The policy can be read; whether it can be planned is the answer. */
static inline fv_status try_plan(const char *policy, fv_plan_shape shape, fv_plan *plan) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s: %s", policy, fv_last_error());
    return fv_plan_make(&p, &shape, plan);
}

/* It can be planned as well. */
static inline fv_plan plan_of(const char *policy, fv_plan_shape shape) {
    fv_plan plan;
    cr_assert_eq(try_plan(policy, shape, &plan), FV_OK, "%s: %s", policy, fv_last_error());
    return plan;
}

#endif
