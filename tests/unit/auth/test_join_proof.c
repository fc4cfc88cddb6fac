/* auth/mac.c, auth/fleet_secret.c, auth/join_proof.c: known answers, and proofs of something
 * else. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auth/fleet_secret.h"
#include "auth/join_proof.h"
#include "common/file.h"

static void hex(const uint8_t *p, size_t n, char *out) {
    for (size_t i = 0; i < n; i++) sprintf(out + 2 * i, "%02x", p[i]);
}

/* ---- MAC -------------------------------------------------------------------------------- */

/* Rendered with Python's hmac: hmac.new(key, len8(a) + a + len8(b) + b, sha256). */
Test(join_proof, mac_known_answers) {
    fv_key key;
    uint8_t mac[FV_MAC_BYTES];
    char got[65];
    for (int i = 0; i < 32; i++) key.bytes[i] = (uint8_t)i;
    fv_mac_field fields[] = {{"what for", 8}, {"", 0}, {"abc", 3}};
    cr_assert_eq(fv_mac(&key, fields, 3, mac), FV_OK);
    hex(mac, 32, got);
    cr_assert_str_eq(got, "4d36c8465199fb77552f0c6a8a02ebb6368f6f9a7c9f09e5547c4bba42d37852");
    cr_assert_eq(fv_mac(&key, NULL, 0, mac), FV_OK);
    hex(mac, 32, got);
    cr_assert_str_eq(got, "d38b42096d80f45f826b44a9d5607de72496a415d3f4a1a8c88e3bb9da8dc1cb");
}

Test(join_proof, mac_fields_do_not_run_together) {
    fv_key key = {{1}};
    uint8_t a[FV_MAC_BYTES], b[FV_MAC_BYTES];
    fv_mac_field one[] = {{"ab", 2}, {"c", 1}}, other[] = {{"a", 1}, {"bc", 2}};
    cr_assert_eq(fv_mac(&key, one, 2, a), FV_OK);
    cr_assert_eq(fv_mac(&key, other, 2, b), FV_OK);
    cr_assert_not(fv_mac_equal(a, b, sizeof a));
    cr_assert(fv_mac_equal(a, a, sizeof a));
}

Test(join_proof, mac_more_than_fits_is_refused) {
    static char many[FV_MAC_INPUT_MAX + 1];
    fv_key key = {{1}};
    uint8_t mac[FV_MAC_BYTES];
    fv_mac_field most = {many, FV_MAC_INPUT_MAX - 8}, more = {many, FV_MAC_INPUT_MAX - 7};
    cr_assert_eq(fv_mac(&key, &most, 1, mac), FV_OK);
    cr_assert_eq(fv_mac(&key, &more, 1, mac), FV_EINVAL);
}

Test(join_proof, mac_keys_for_two_purposes_differ) {
    fv_key from = {{7}}, a, b;
    cr_assert_eq(fv_key_derive(&from, "join", &a), FV_OK);
    cr_assert_eq(fv_key_derive(&from, "calls", &b), FV_OK);
    cr_assert_not(fv_mac_equal(&a, &b, sizeof a));
    cr_assert_not(fv_mac_equal(&a, &from, sizeof a));
}

/* ---- the secret ------------------------------------------------------------------------- */

static const char secret[] = "0123456789abcdef0123456789abcdef";

Test(join_proof, fleet_secret_white_space_around_it_does_not_count) {
    fv_key a, b;
    char spaced[64];
    snprintf(spaced, sizeof spaced, " \t%s\r\n\n", secret);
    cr_assert_eq(fv_fleet_secret_key(secret, strlen(secret), &a), FV_OK);
    cr_assert_eq(fv_fleet_secret_key(spaced, strlen(spaced), &b), FV_OK);
    cr_assert(fv_mac_equal(&a, &b, sizeof a));
    cr_assert_eq(fv_fleet_secret_key("0123456789abcdef0123456789abcdeF", 32, &b), FV_OK);
    cr_assert_not(fv_mac_equal(&a, &b, sizeof a));
}

Test(join_proof, fleet_secret_a_short_one_is_refused_and_the_sentence_says_how_to_make_one) {
    fv_key key;
    char spaced[64];
    snprintf(spaced, sizeof spaced, "   %.31s   ", secret);
    cr_assert_eq(fv_fleet_secret_key(spaced, strlen(spaced), &key), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "head -c 32 /dev/urandom | base64"), "%s", fv_last_error());
    cr_assert_eq(fv_fleet_secret_key("", 0, &key), FV_EINVAL);
}

Test(join_proof, fleet_secret_of_a_file) {
    char path[500];
    fv_key a, b;
    snprintf(path, sizeof path, "%s/secret-%d", FOVEA_TEST_TMP, (int)getpid());
    cr_assert_eq(fv_fleet_secret_read(path, &a), FV_EINVAL, "it is not there");
    cr_assert(strstr(fv_last_error(), path), "%s", fv_last_error());
    cr_assert_eq(fv_file_write(path, secret, strlen(secret)), FV_OK);
    chmod(path, 0600);
    cr_assert_eq(fv_fleet_secret_read(path, &a), FV_OK, "%s", fv_last_error());
    cr_assert_eq(fv_fleet_secret_key(secret, strlen(secret), &b), FV_OK);
    cr_assert(fv_mac_equal(&a, &b, sizeof a));
    unlink(path);
}

/* ---- proofs ----------------------------------------------------------------------------- */

static fv_join_transcript said(void) {
    return (fv_join_transcript){.nonce_worker = "the worker's nonce",
                                .nonce_router = "the router's nonce",
                                .role = 2,
                                .name = "decode-0",
                                .address = "10.0.0.7:8202",
                                .compat = "model=a\n",
                                .compat_hash = 17,
                                .incarnation = "incarnation"};
}

static const fv_key key = {{1, 2, 3}};

static bool holds(fv_join_kind kind, const fv_join_transcript *x) {
    fv_join_transcript right = said();
    uint8_t proof[FV_MAC_BYTES];
    cr_assert_eq(fv_join_prove(&key, FV_JOIN_WORKER, &right, proof), FV_OK);
    return fv_join_verify(&key, kind, x, proof, sizeof proof);
}

Test(join_proof, holds_for_what_was_said_and_for_nothing_else) {
    fv_join_transcript x = said();
    cr_assert(holds(FV_JOIN_WORKER, &x));
    cr_assert_not(holds(FV_JOIN_ROUTER, &x), "it cannot be sent back");
    cr_assert_not(holds(FV_JOIN_WELCOME, &x));
#define TAMPER(change)                                                                             \
    do {                                                                                           \
        x = said();                                                                                \
        change;                                                                                    \
        cr_assert_not(holds(FV_JOIN_WORKER, &x), "%s", #change);                                   \
    } while (0)
    TAMPER(x.nonce_worker[31] ^= 1);
    TAMPER(x.nonce_router[0] ^= 0x80);
    TAMPER(x.role = 1);
    TAMPER(x.name = "decode-1");
    TAMPER(x.name = NULL);
    TAMPER(x.address = "10.0.0.8:8202");
    TAMPER(x.compat = "model=b\n");
    TAMPER(x.compat_hash++);
    TAMPER(x.incarnation[15] ^= 1);
    TAMPER((x.name = "decode-010.0.0.7:8202", x.address = ""));
}

Test(join_proof, another_length_or_another_secret_is_invalid) {
    fv_join_transcript x = said();
    uint8_t proof[FV_MAC_BYTES + 1] = {0};
    fv_key other = key;
    cr_assert_eq(fv_join_prove(&key, FV_JOIN_WORKER, &x, proof), FV_OK);
    cr_assert(fv_join_verify(&key, FV_JOIN_WORKER, &x, proof, 32));
    cr_assert_not(fv_join_verify(&key, FV_JOIN_WORKER, &x, proof, 31));
    cr_assert_not(fv_join_verify(&key, FV_JOIN_WORKER, &x, proof, 33));
    cr_assert_not(fv_join_verify(&key, FV_JOIN_WORKER, &x, NULL, 0));
    other.bytes[31] ^= 1;
    cr_assert_not(fv_join_verify(&other, FV_JOIN_WORKER, &x, proof, 32));
}
