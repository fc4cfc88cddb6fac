#ifndef FOVEA_TESTS_SUPPORT_RANDOM_POLICY_H
#define FOVEA_TESTS_SUPPORT_RANDOM_POLICY_H

/* Random policies, for properties that must hold for any of them. */
#include "policy/policy.h"

/* A valid policy: any compatible methods, any values in their ranges, including numbers that need
 * 17 digits. *state (not 0) is the generator's and advances. */
void random_policy(uint64_t *state, fv_policy *out);

/* The same methods and the same values, bit for bit. */
bool same_policy(const fv_policy *a, const fv_policy *b);

/* Prints n random policies and parses the text; aborts with the text of the first that is not the
 * same afterwards. Returns how many values needed more than 10 digits. */
int64_t check_policy_texts(uint64_t seed, int32_t n);

#endif
