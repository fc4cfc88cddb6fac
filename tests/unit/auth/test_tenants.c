/* auth/tenants.c: the file of tenants, and finding a credential's tenant. */
#include "auth/tenants.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/jwt.h"
#include "tests/support/tensor_file.h"

TestSuite(tenants, .timeout = 240);

static char dir[512], path[600];
static const double now = 1700000000;

static fv_status read_text(const char *text, fv_tenants **out) {
    if (!dir[0]) scratch_dir(dir, sizeof dir);
    write_text(dir, "tenants.json", text);
    snprintf(path, sizeof path, "%s/tenants.json", dir);
    return fv_tenants_read(path, out);
}

/* printf %s KEY | sha256sum */
#define KEY_A "fovea-key-a"
#define SHA_A "efd1397abec326181d22e93a1d02f2c6b4d9c1acc0286d281672ce477983d75a"
#define KEY_B "fovea-key-b"
#define SHA_B "3ae1e439be6824c6c73d1bc577322fe992314a5f352f20ccd81f1e3f258fad27"

Test(tenants, an_api_key_is_its_tenants) {
    fv_tenants *t;
    const fv_tenant *found;
    cr_assert_eq(read_text("{\"tenants\":{\"a\":{\"keys\":[\"" SHA_A "\"]},"
                           "\"b\":{\"keys\":[\"" SHA_B "\"]}}}",
                           &t),
                 FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_tenants_find(t, KEY_A, strlen(KEY_A), now, &found, NULL), FV_OK);
    cr_assert_str_eq(found->name, "a");
    double until_s = 0;
    cr_assert_eq(fv_tenants_find(t, KEY_B, strlen(KEY_B), now, &found, &until_s), FV_OK);
    cr_assert(isinf(until_s), "a key does not expire");
    cr_assert_str_eq(found->name, "b");
    cr_assert_eq(fv_tenants_find(t, KEY_A, strlen(KEY_A) - 1, now, &found, NULL), FV_EAUTH);
    cr_assert_eq(fv_tenants_find(t, SHA_A, strlen(SHA_A), now, &found, NULL), FV_EAUTH,
                 "the hash is no key");
    cr_assert_eq(fv_tenants_find(t, "a.b.c", 5, now, &found, NULL), FV_EAUTH);
    cr_assert_eq(fv_tenants_find(t, "", 0, now, &found, NULL), FV_EAUTH);
    fv_tenants_free(t);
}

Test(tenants, a_file_of_one_tenant_has_its_keys) {
    static const char *const keys[] = {KEY_A, KEY_B, "", "a b", "\xc3\xa9"};
    fv_tenants *t;
    const fv_tenant *found;
    char *text;
    cr_assert_eq(fv_tenants_print("one", keys, 2, &text), FV_OK, "%s", fv_last_error());
    cr_assert(!strstr(text, KEY_A) && strstr(text, SHA_A) && strstr(text, SHA_B), "%s", text);
    cr_assert_eq(read_text(text, &t), FV_OK, "%s", fv_last_error());
    free(text);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(fv_tenants_find(t, keys[i], strlen(keys[i]), now, &found, NULL), FV_OK);
        cr_assert(strcmp(found->name, "one") == 0 && found->concurrent == 0);
    }
    cr_assert_eq(fv_tenants_find(t, "fovea-key-c", 11, now, &found, NULL), FV_EAUTH);
    fv_tenants_free(t);
    for (int i = 2; i < 5; i++)
        cr_assert_eq(fv_tenants_print("one", &keys[i], 1, &text), FV_EINVAL, "%d", i);
}

Test(tenants, each_router_has_its_share_of_the_limits) {
    fv_tenants *t;
    const fv_tenant *all;
    cr_assert_eq(
        read_text("{\"routers\":4,\"tenants\":{\"a\":{\"requests_per_s\":10,\"megapixels_per_s\":6,"
                  "\"concurrent\":9,\"kv_bytes\":4e9,\"weight\":2.5,"
                  "\"policies\":[\"\",\"quality\"]},\"b\":{\"concurrent\":1},\"c\":{}}}",
                  &t),
        FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_tenants_all(t, &all), 3);
    cr_assert_eq(all[0].requests_per_s, 2.5);
    cr_assert_eq(all[0].megapixels_per_s, 1.5);
    cr_assert_eq(all[0].concurrent, 2);
    cr_assert_eq(all[0].kv_bytes, 4000000000, "the decode worker counts for all routers");
    cr_assert_eq(all[0].weight, 2.5);
    cr_assert_eq(all[0].n_policy, 2);
    cr_assert_str_eq(all[0].policies[1], "quality");
    cr_assert_eq(all[1].concurrent, 1, "one at least");
    cr_assert(all[2].requests_per_s == 0 && all[2].concurrent == 0 &&
              all[2].megapixels_per_s == 0 && all[2].weight == 1 && !all[2].policies);
    fv_tenants_free(t);
}

Test(tenants, a_file_that_is_wrong_is_refused_with_the_reason) {
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"", "tenants.json"},
        {"{\"tenants\":{}}", "at least one"},
        {"{\"tenants\":{\"a\":{}},\"tenant\":1}", "unknown field 'tenant'"},
        {"{\"tenants\":{\"a\":{\"concurent\":1}}}", "unknown field 'concurent'"},
        {"{\"tenants\":{\"a\":{\"concurrent\":0}}}", "at least 1"},
        {"{\"tenants\":{\"a\":{\"weight\":0}}}", "weight"},
        {"{\"tenants\":{\"a\":{\"weight\":\"2\"}}}", "weight"},
        {"{\"tenants\":{\"a/b\":{}}}", "letters, digits"},
        {"{\"tenants\":{\"\":{}}}", "letters, digits"},
        {"{\"tenants\":{\"a-name-of-more-than-32-characters\":{}}}", "letters, digits"},
        {"{\"tenants\":{\"a\":{},\"a\":{}}}", "duplicate"},
        {"{\"tenants\":{\"a\":{\"keys\":[\"12\"]}}}", "64 hexadecimal"},
        {"{\"tenants\":{\"a\":{\"keys\":[1]}}}", "64 hexadecimal"},
        {"{\"tenants\":{\"a\":{\"keys\":[\"" SHA_A "\"]},\"b\":{\"keys\":[\"" SHA_A "\"]}}}",
         "the same key"},
        {"{\"tenants\":{\"a\":{\"policies\":[]}}}", "policies"},
        {"{\"routers\":0,\"tenants\":{\"a\":{}}}", "routers"},
        {"{\"jwt\":{},\"tenants\":{\"a\":{}}}", "issuer, audience and keys"},
        {"{\"jwt\":{\"issuer\":\"i\",\"audience\":\"a\",\"keys\":\"/nowhere/k\"},"
         "\"tenants\":{\"a\":{}}}",
         "/nowhere/k"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fv_tenants *t;
        cr_assert_neq(read_text(rows[i].text, &t), FV_OK, "%s", rows[i].text);
        cr_assert(strstr(fv_last_error(), rows[i].why), "%s: %s", rows[i].text, fv_last_error());
    }
}

Test(tenants, a_tokens_claim_names_the_tenant) {
    fv_tenants *t;
    const fv_tenant *found;
    char text[2000];
    json_t *key = jwt_key("ES256", NULL);
    char *set = jwt_set(&key, 1);
    scratch_dir(dir, sizeof dir);
    write_text(dir, "keys.json", set);
    snprintf(text, sizeof text,
             "{\"jwt\":{\"issuer\":\"i\",\"audience\":\"f\",\"keys\":\"%s/keys.json\","
             "\"claim\":\"org\"},\"tenants\":{\"a\":{},\"b\":{}}}",
             dir);
    cr_assert_eq(read_text(text, &t), FV_OK, "%s", fv_last_error());
    for (int i = 0; i < 3; i++) {
        static const fv_status expected[] = {FV_OK, FV_EDENIED, FV_EAUTH};
        static const char *const who[] = {"\"org\":\"b\"", "\"org\":\"c\"", "\"tenant\":\"b\""};
        char claims[200];
        snprintf(claims, sizeof claims, "{\"iss\":\"i\",\"aud\":\"f\",\"exp\":2e9,\"nbf\":0,%s}",
                 who[i]);
        char *token = jwt_token(key, "ES256", NULL, claims);
        cr_assert_eq(fv_tenants_find(t, token, strlen(token), now, &found, NULL), expected[i], "%s",
                     who[i]);
        free(token);
    }
    cr_assert_str_eq(found->name, "b");
    double until_s = 0;
    char *token = jwt_token(key, "ES256", NULL,
                            "{\"iss\":\"i\",\"aud\":\"f\",\"exp\":2e9,\"nbf\":0,\"org\":\"a\"}");
    cr_assert_eq(fv_tenants_find(t, token, strlen(token), now, &found, &until_s), FV_OK);
    cr_assert(until_s == 2e9, "%g", until_s);
    free(token);
    fv_tenants_free(t);
    free(set);
    json_decref(key);
}
