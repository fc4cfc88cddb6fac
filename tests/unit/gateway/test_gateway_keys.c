/* gateway/keys.h: which headers show one of the keys. */
#include <criterion/criterion.h>
#include <string.h>

#include "gateway/keys.h"

Test(gateway_keys, wrong_ones_are_refused_at_start) {
    static const char *const wrong[] = {"", "a b", "\xc3\xa9", "a\n"};
    fv_keys *keys = NULL;
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(fv_keys_open(&wrong[i], 1, &keys), FV_EINVAL);
        cr_assert(strstr(fv_last_error(), "--api-key"), "%s", fv_last_error());
    }
    cr_assert(!keys);
}

Test(gateway_keys, only_a_whole_key_is_one) {
    static const char *const two[] = {"sk-one", "sk-two"};
    static const char *const no[] = {
        "Bearer sk-on", "Bearer sk-onee", "Bearer  sk-one", "Bearer sk-one ",
        "sk-one",       "Bearer",         "Bearer ",        ""};
    fv_keys *keys;
    cr_assert_eq(fv_keys_open(two, 2, &keys), FV_OK);
    cr_assert_eq(fv_keys_check(keys, "Bearer sk-one"), FV_OK);
    cr_assert_eq(fv_keys_check(keys, "bearer sk-two"), FV_OK);
    cr_assert_eq(fv_keys_check(keys, NULL), FV_EAUTH);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        cr_assert_eq(fv_keys_check(keys, no[i]), FV_EAUTH, "%s", no[i]);
        cr_assert(!strstr(fv_last_error(), "sk-"), "%s", fv_last_error());
    }
    fv_keys_close(keys);
}
