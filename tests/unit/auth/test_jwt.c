/* auth/jwt.c: which tokens are valid, and by which keys. */
#include "auth/jwt.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/jwt.h"

TestSuite(jwt, .timeout = 240);

static const double now = 1700000000;

#define GOOD                                                                                       \
    "{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1700000100,\"nbf\":1699999900,\"tenant\":\"acme\"}"

static fv_jwt *open_set(json_t *const *keys, int n) {
    fv_jwt *j;
    char *set = jwt_set(keys, n);
    cr_assert_eq(fv_jwt_open("me", "fovea", set, strlen(set), &j), FV_OK, "%s", fv_last_error());
    free(set);
    return j;
}

static fv_status check(const fv_jwt *j, char *token, char out[33]) {
    fv_status st = fv_jwt_check(j, token, strlen(token), now, "tenant", out, 33, NULL);
    free(token);
    return st;
}

static void valid_with(const char *alg) {
    char tenant[33];
    json_t *key = jwt_key(alg, "k1");
    fv_jwt *j = open_set(&key, 1);
    cr_assert_eq(check(j, jwt_token(key, alg, NULL, GOOD), tenant), FV_OK, "%s", fv_last_error());
    cr_assert_str_eq(tenant, "acme");
    cr_assert_eq(check(j, jwt_token(key, alg, "{\"kid\":\"k1\"}", GOOD), tenant), FV_OK);
    cr_assert_eq(check(j, jwt_token(key, alg, "{\"kid\":\"k2\"}", GOOD), tenant), FV_EAUTH);
    fv_jwt_close(j);
    json_decref(key);
}

Test(jwt, tokens_of_both_algorithms_name_their_tenant) {
    valid_with("RS256");
    valid_with("ES256");
}

Test(jwt, another_keys_signature_is_not_valid) {
    char tenant[33];
    json_t *key = jwt_key("ES256", NULL), *other = jwt_key("ES256", NULL);
    fv_jwt *j = open_set(&key, 1);
    cr_assert_eq(check(j, jwt_token(other, "ES256", NULL, GOOD), tenant), FV_EAUTH);
    cr_assert(strstr(fv_last_error(), "signature"), "%s", fv_last_error());
    fv_jwt_close(j);
    json_t *both[] = {other, key};
    j = open_set(both, 2); /* without an id, each key is tried */
    cr_assert_eq(check(j, jwt_token(key, "ES256", NULL, GOOD), tenant), FV_OK);
    fv_jwt_close(j);
    json_decref(key);
    json_decref(other);
}

Test(jwt, every_changed_character_makes_it_invalid) {
    char tenant[33];
    json_t *key = jwt_key("ES256", NULL);
    fv_jwt *j = open_set(&key, 1);
    char *token = jwt_token(key, "ES256", NULL, GOOD);
    size_t n = strlen(token);
    for (size_t i = 0; i + 1 < n; i++) { /* the last one has unused bits */
        char was = token[i];
        token[i] = was == 'A' ? 'B' : 'A';
        cr_assert_neq(fv_jwt_check(j, token, n, now, "tenant", tenant, sizeof tenant, NULL), FV_OK,
                      "character %zu", i);
        token[i] = was;
    }
    for (size_t cut = 0; cut < n; cut++)
        cr_assert_eq(fv_jwt_check(j, token, cut, now, "tenant", tenant, sizeof tenant, NULL),
                     FV_EAUTH);
    free(token);
    fv_jwt_close(j);
    json_decref(key);
}

/* The key decides, not the header (RFC 8725 §2.1). */
Test(jwt, an_algorithm_that_is_not_the_keys_is_refused) {
    char tenant[33];
    json_t *ec = jwt_key("ES256", NULL), *secret = jwt_key("HS256", NULL);
    json_t *both[] = {ec, secret};
    fv_jwt *j = open_set(both, 2);
    cr_assert_eq(check(j, jwt_token(secret, "HS256", NULL, GOOD), tenant), FV_EAUTH);
    cr_assert_eq(check(j, strdup("eyJhbGciOiJub25lIn0.e30."), tenant), FV_EAUTH);
    cr_assert_eq(check(j, strdup("eyJhbGciOiJub25lIn0.e30.AAAA"), tenant), FV_EAUTH);
    cr_assert_eq(check(j, jwt_token(ec, "ES256", "{\"crit\":[\"x\"],\"x\":1}", GOOD), tenant),
                 FV_EAUTH);
    fv_jwt_close(j);
    json_decref(ec);
    json_decref(secret);
}

Test(jwt, keys_that_cannot_be_used_are_no_set) {
    fv_jwt *j;
    json_t *secret = jwt_key("HS256", NULL), *large = jwt_key("ES512", NULL);
    json_t *keys[] = {secret, large};
    char *set = jwt_set(keys, 2);
    cr_assert_eq(fv_jwt_open("me", "fovea", set, strlen(set), &j), FV_EDATA);
    cr_assert_eq(fv_jwt_open("me", "fovea", "{", 1, &j), FV_EDATA);
    cr_assert_eq(fv_jwt_open("me", "fovea", "[]", 2, &j), FV_EDATA);
    free(set);
    json_decref(secret);
    json_decref(large);
}

Test(jwt, issuer_audience_and_both_times_are_required) {
    static const struct {
        const char *claims;
        bool good;
    } rows[] = {
        {GOOD, true},
        {"{\"iss\":\"me\",\"aud\":[\"x\",\"fovea\"],\"exp\":1700000100,\"nbf\":0,\"tenant\":\"a\"}",
         true},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1699999941,\"nbf\":0,\"tenant\":\"a\"}", true},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1699999939,\"nbf\":0,\"tenant\":\"a\"}", false},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1800000000,\"nbf\":1700000059,\"tenant\":"
         "\"a\"}",
         true},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1800000000,\"nbf\":1700000061,\"tenant\":"
         "\"a\"}",
         false},
        {"{\"iss\":\"you\",\"aud\":\"fovea\",\"exp\":1700000100,\"nbf\":0,\"tenant\":\"a\"}",
         false},
        {"{\"aud\":\"fovea\",\"exp\":1700000100,\"nbf\":0,\"tenant\":\"a\"}", false},
        {"{\"iss\":\"me\",\"aud\":\"x\",\"exp\":1700000100,\"nbf\":0,\"tenant\":\"a\"}", false},
        {"{\"iss\":\"me\",\"exp\":1700000100,\"nbf\":0,\"tenant\":\"a\"}", false},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"nbf\":0,\"tenant\":\"a\"}", false},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1700000100,\"tenant\":\"a\"}", false},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":\"1700000100\",\"nbf\":0,\"tenant\":\"a\"}",
         false},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1700000100,\"nbf\":0}", false},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1700000100,\"nbf\":0,\"tenant\":1}", false},
        {"{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":1700000100,\"nbf\":0,"
         "\"tenant\":\"a-name-that-is-longer-than-tenants-have\"}",
         false},
        {"[]", false},
    };
    char tenant[33];
    json_t *key = jwt_key("ES256", NULL);
    fv_jwt *j = open_set(&key, 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cr_assert_eq(check(j, jwt_token(key, "ES256", NULL, rows[i].claims), tenant),
                     rows[i].good ? FV_OK : FV_EAUTH, "%s: %s", rows[i].claims, fv_last_error());
    fv_jwt_close(j);
    json_decref(key);
}
