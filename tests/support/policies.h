#ifndef FOVEA_TESTS_SUPPORT_POLICIES_H
#define FOVEA_TESTS_SUPPORT_POLICIES_H

/* POLICIES OF THE TABLE (policy/methods.def), for tests that concern every method, so that a new
 * row is tested without adding it to a list. For programs with Criterion. */
#include "policy/plan/plan.h"

enum { POLICIES_MAX = 256, POLICIES_TEXT = 512 };

/* Starts as {0}; each function below appends. */
typedef struct policies {
    int32_t n;
    char text[POLICIES_MAX][POLICIES_TEXT];
} policies;

/* Every preset, "preset=<name>"; those with a condense stage only with `tower`. */
void policies_add_presets(policies *list, bool tower);

/* Every method, with its defaults where these change the plan of the shape; else with one parameter
 * at its minimum, its maximum or another choice, or after a policy that makes it act. Fails when
 * none does. Methods of the condense stage only with `tower`. */
void policies_add_methods(policies *list, const fv_plan_shape *shape, bool tower);

/* The same with each other choice of the method's parameters in turn, where the shape accepts
 * it. */
void policies_add_words(policies *list, const fv_plan_shape *shape, bool tower);

/* Every method together with as many others as it may be combined with, one per stage; which ones
 * differs from method to method. */
void policies_add_together(policies *list, const fv_plan_shape *shape, bool tower);

/* Whether a plan differs from that of `exact`. */
bool plan_acts(const fv_plan *plan);

#endif
