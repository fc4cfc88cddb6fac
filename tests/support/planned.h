#ifndef FOVEA_TESTS_SUPPORT_PLANNED_H
#define FOVEA_TESTS_SUPPORT_PLANNED_H

/* The plan of a policy given as text, for a shape. For programs with Criterion. */
#include <criterion/criterion.h>

#include "policy/plan/plan.h"

/* The policy must parse; the result says whether it can be planned. */
static inline fv_status try_plan(const char *policy, fv_plan_shape shape, fv_plan *plan) {
    fv_policy p;
    cr_assert_eq(fv_policy_parse(policy, &p), FV_OK, "%s: %s", policy, fv_last_error());
    return fv_plan_make(&p, &shape, plan);
}

/* The policy must parse, and the plan must succeed. */
static inline fv_plan plan_of(const char *policy, fv_plan_shape shape) {
    fv_plan plan;
    cr_assert_eq(try_plan(policy, shape, &plan), FV_OK, "%s: %s", policy, fv_last_error());
    return plan;
}

#endif
