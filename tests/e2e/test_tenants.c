/* A fleet with tenants, from outside: API keys and JWT at the command line.
 * tests/unit/router/test_router_tenants.c has the limits. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/fleet.h"
#include "tests/support/jwt.h"
#include "tests/support/tensor_file.h"

TestSuite(tenants, .timeout = 300);

static fleet f;

/* printf %s KEY | sha256sum */
#define KEY_A "fovea-key-a"
#define SHA_A "efd1397abec326181d22e93a1d02f2c6b4d9c1acc0286d281672ce477983d75a"

static void ask(const char *key) {
    if (key) write_text(f.dir, "key", key);
    command_run(&fleet_said, FOVEA_BIN "/fovea ask --to %s --max-tokens 3 %s%s%s hello", f.address,
                key ? "--api-key-file " : "", key ? f.dir : "", key ? "/key" : "");
}

static void refused(const char *key, const char *why) {
    ask(key);
    cr_assert_neq(fleet_said.status, 0, "%s was let in", key);
    cr_assert(strstr(fleet_said.err, why), "%s", fleet_said.err);
}

Test(tenants, keys_and_tokens_of_tenants_are_answered_and_others_are_not) {
    char text[1000], claims[300], args[1200];
    fleet_open(&f, "tenants");
    fleet_synth(&f, "tiny");
    json_t *key = jwt_key("ES256", "k"), *wrong = jwt_key("ES256", "k");
    char *set = jwt_set(&key, 1);
    write_text(f.dir, "jwks.json", set);
    snprintf(text, sizeof text,
             "{\"jwt\":{\"issuer\":\"me\",\"audience\":\"fovea\",\"keys\":\"%s/jwks.json\"},"
             "\"tenants\":{\"a\":{\"keys\":[\"" SHA_A "\"]},\"b\":{}}}",
             f.dir);
    write_text(f.dir, "tenants.json", text);
    write_text(f.dir, "first", KEY_A "\n");
    snprintf(args, sizeof args, "--tenants %s/tenants.json --api-key-file %s/first", f.dir, f.dir);
    fleet_start(&f, args);
    refused(NULL, "send an API key or a JWT");
    refused("another", "unknown API key");
    ask(KEY_A);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
    long now = (long)time(NULL);
    snprintf(claims, sizeof claims,
             "{\"iss\":\"me\",\"aud\":\"fovea\",\"exp\":%ld,\"nbf\":%ld,\"tenant\":\"b\"}",
             now + 600, now);
    char *good = jwt_token(key, "ES256", NULL, claims);
    char *bad = jwt_token(wrong, "ES256", NULL, claims);
    ask(good);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
    refused(bad, "the token's signature is not valid");
    free(good);
    free(bad);
    free(set);
    json_decref(key);
    json_decref(wrong);
    fleet_stop(&f);
    fleet_close(&f);
}

/* printf %s KEY | sha256sum */
#define KEY_B "fovea-key-b"
#define SHA_B "3ae1e439be6824c6c73d1bc577322fe992314a5f352f20ccd81f1e3f258fad27"
#define KV_BYTES "600000"

static void end(void) { fleet_close(&f); }

static void run_script(const char *script, const char *set, const char *more) {
    command_run(&fleet_said, "/usr/bin/python3 -B " FOVEA_TEST_DATA "/e2e/%s %s %s %s 2>&1", script,
                f.address, set, more);
    FLEET_MAY_SKIP(end, "no python3-grpcio");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
}

Test(tenants, one_has_no_more_kv_than_it_may_and_nothing_secret_is_logged) {
    char args[1200], set[500];
    fleet_open(&f, "tenant-kv");
    fleet_synth(&f, "tiny");
    write_text(f.dir, "tenants.json",
               "{\"tenants\":{\"a\":{\"keys\":[\"" SHA_A "\"],\"kv_bytes\":" KV_BYTES
               "},\"b\":{\"keys\":[\"" SHA_B "\"]}}}");
    write_text(f.dir, "first", KEY_B "\n");
    snprintf(args, sizeof args, "--tenants %s/tenants.json --api-key-file %s/first --log debug",
             f.dir, f.dir);
    fleet_start(&f, args);
    snprintf(set, sizeof set, "%s/contracts.bin", f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    run_script("tenant_kv.py", set, KEY_A " " KEY_B " " KV_BYTES);
    snprintf(args, sizeof args, KEY_A " %s/up.err", f.dir);
    run_script("secrets.py", set, args);
    fleet_stop(&f);
    fleet_close(&f);
}

/* A tenant that fills every slot of a decode worker, and much of the queue besides, by many requests or by few long
 * ones. */
Test(tenants, the_load_of_one_does_not_delay_another) {
    static const char *const loads[] = {"60 300", "6 900"};
    char args[1200], set[500];
    setenv("FOVEA_BATCH", "4", 1);
    fleet_open(&f, "tenant-slots");
    fleet_synth(&f, "tiny");
    write_text(f.dir, "tenants.json",
               "{\"tenants\":{\"a\":{\"keys\":[\"" SHA_A "\"]},\"b\":{\"keys\":[\"" SHA_B "\"]}}}");
    write_text(f.dir, "first", KEY_B "\n");
    snprintf(args, sizeof args, "--tenants %s/tenants.json --api-key-file %s/first", f.dir, f.dir);
    fleet_start(&f, args);
    snprintf(set, sizeof set, "%s/contracts.bin", f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    for (int i = 0; i < 2; i++) run_script("tenant_slots.py", set, loads[i]);
    fleet_stop(&f);
    fleet_close(&f);
}
