/* policy/: a million policies through their text form; tests/unit/policy/test_policy.c has a few of
 * them. */
#include <criterion/criterion.h>

#include "tests/support/random_policy.h"

TestSuite(policy_texts, .timeout = 1800);

Test(policy_texts, any_policy_prints_to_a_text_that_parses_to_the_same_bits) {
    cr_assert_gt(check_policy_texts(20261122, 1000000), 1000000);
}
