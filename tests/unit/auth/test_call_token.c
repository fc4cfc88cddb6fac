/* auth/call_token.c, auth/nonces.c: tokens as text, what their MAC covers, and nonces. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "auth/call_token.h"
#include "auth/nonces.h"

#define OPEN "/fovea.handoff.v1.Handoff/Open"

static const uint8_t incarnation[] = "incarnation no.1";
static const fv_call_to d0 = {OPEN, "decode-0", incarnation};
static char text[FV_CALL_TOKEN_MAX];

static fv_key key(void) {
    fv_key k;
    for (int i = 0; i < FV_MAC_BYTES; i++) k.bytes[i] = (uint8_t)i;
    return k;
}

static fv_call_token a_token(void) {
    return (fv_call_token){
        .made_ms = 1234567, .valid_ms = 30000, .request_id = "req-17", .address = "10.0.0.7:8202"};
}

static void write(void) {
    fv_key k = key();
    fv_call_token t = a_token();
    cr_assert_eq(fv_call_token_write(&k, &d0, &t, text), FV_OK, "%s", fv_last_error());
}

Test(call_token, what_was_written_is_read_and_holds) {
    fv_key k = key();
    fv_call_token t;
    write();
    cr_assert_eq(fv_call_token_read(text, strlen(text), &t), FV_OK, "%s", text);
    cr_assert_eq(t.made_ms, 1234567);
    cr_assert_eq(t.valid_ms, 30000);
    cr_assert_str_eq(t.request_id, "req-17");
    cr_assert_str_eq(t.address, "10.0.0.7:8202");
    cr_assert(fv_call_token_verify(&k, &d0, &t));
}

Test(call_token, request_and_address_may_be_empty) {
    fv_key k = key();
    fv_call_token t = {.made_ms = 0}, back;
    cr_assert_eq(fv_call_token_write(&k, &d0, &t, text), FV_OK);
    cr_assert_eq(fv_call_token_read(text, strlen(text), &back), FV_OK, "%s", text);
    cr_assert_str_eq(back.request_id, "");
    cr_assert(fv_call_token_verify(&k, &d0, &back));
}

/* The MAC was rendered with Python's hmac, as in test_join_proof.c. */
Test(call_token, known_answer) {
    static const char known[] =
        "1 000102030405060708090a0b0c0d0e0f 1234567 30000 req-17 10.0.0.7:8202 "
        "5eb07c3a5705b4ee5b1a983bc31238d279304955542bbb5266dc8fa342aa859b";
    fv_key k = key();
    fv_call_token t;
    cr_assert_eq(fv_call_token_read(known, strlen(known), &t), FV_OK);
    cr_assert(fv_call_token_verify(&k, &d0, &t));
}

Test(call_token, tokens_of_one_call_differ) {
    char first[FV_CALL_TOKEN_MAX];
    write();
    strcpy(first, text);
    write();
    cr_assert_str_neq(first, text);
}

Test(call_token, holds_for_one_method_of_one_process) {
    fv_key k = key(), other = key();
    fv_call_token t;
    fv_call_to x = d0;
    write();
    cr_assert_eq(fv_call_token_read(text, strlen(text), &t), FV_OK);
    x.method = "/fovea.handoff.v1.Handoff/Pair";
    cr_assert_not(fv_call_token_verify(&k, &x, &t));
    x = d0;
    x.worker = "decode-1";
    cr_assert_not(fv_call_token_verify(&k, &x, &t));
    x = d0;
    x.incarnation = (const uint8_t *)"incarnation no.2";
    cr_assert_not(fv_call_token_verify(&k, &x, &t), "it was started again");
    other.bytes[0] ^= 1;
    cr_assert_not(fv_call_token_verify(&other, &d0, &t));
}

/* With any character changed, a token is invalid or does not verify. */
Test(call_token, no_character_can_be_changed) {
    fv_key k = key();
    write();
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        static const char others[] = "0a1 Z-";
        char was = text[i];
        for (const char *c = others; *c; c++) {
            fv_call_token t;
            if (*c == was) continue;
            text[i] = *c;
            cr_assert(fv_call_token_read(text, n, &t) != FV_OK ||
                          !fv_call_token_verify(&k, &d0, &t),
                      "%zu: %s", i, text);
        }
        text[i] = was;
    }
}

Test(call_token, truncated_or_longer_it_is_invalid) {
    fv_call_token t;
    write();
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(fv_call_token_read(text, i, &t), FV_EAUTH, "%zu", i);
    text[n] = '0';
    cr_assert_eq(fv_call_token_read(text, n + 1, &t), FV_EAUTH);
    text[n] = ' ';
    cr_assert_eq(fv_call_token_read(text, n + 1, &t), FV_EAUTH);
}

Test(call_token, numbers_have_one_encoding) {
    static const char *const bad[] = {
        "1 000102030405060708090A0B0C0D0E0F 1 1 r a ",
        "1 000102030405060708090a0b0c0d0e0f 01 1 r a ",
        "1 000102030405060708090a0b0c0d0e0f +1 1 r a ",
        "1 000102030405060708090a0b0c0d0e0f -1 1 r a ",
        "1 000102030405060708090a0b0c0d0e0f 1 4294967296 r a ",
        "1 000102030405060708090a0b0c0d0e0f 9223372036854775808 1 r a ",
        "1 000102030405060708090a0b0c0d0e0f 1  r a ",
        "2 000102030405060708090a0b0c0d0e0f 1 1 r a "};
    char line[300];
    fv_call_token t;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(line, sizeof line, "%s%064d", bad[i], 0);
        cr_assert_eq(fv_call_token_read(line, strlen(line), &t), FV_EAUTH, "%s", line);
    }
}

Test(call_token, what_would_not_stand_in_a_header_is_refused) {
    fv_key k = key();
    fv_call_token t = {.request_id = "two words"}, u = {.address = "line\nbreak"};
    cr_assert_eq(fv_call_token_write(&k, &d0, &t, text), FV_EINVAL);
    cr_assert_eq(fv_call_token_write(&k, &d0, &u, text), FV_EINVAL);
}

/* ---- nonces ------------------------------------------------------------------------------ */

static void number(uint64_t x, uint8_t out[FV_NONCE_BYTES]) {
    memset(out, 0, FV_NONCE_BYTES);
    memcpy(out, &x, sizeof x);
    out[15] = (uint8_t)(x * 7);
}

static fv_status take(fv_nonces *s, uint64_t x, uint64_t until, uint64_t now) {
    uint8_t nonce[FV_NONCE_BYTES];
    number(x, nonce);
    return fv_nonces_take(s, nonce, until, now);
}

Test(call_token, nonces_each_is_accepted_once_until_it_expires) {
    fv_nonces *s;
    cr_assert_eq(fv_nonces_open(1000, &s), FV_OK);
    cr_assert_eq(take(s, 1, 100, 50), FV_OK);
    cr_assert_eq(take(s, 2, 100, 50), FV_OK);
    cr_assert_eq(take(s, 1, 100, 50), FV_EAUTH);
    cr_assert_eq(take(s, 1, 100, 99), FV_EAUTH);
    cr_assert_eq(take(s, 1, 300, 100), FV_OK,
                 "its token is not good any more, so it does not matter");
    fv_nonces_close(s);
    fv_nonces_close(NULL);
}

Test(call_token, nonces_are_remembered_until_they_expire) {
    fv_nonces *s;
    cr_assert_eq(fv_nonces_open(5000, &s), FV_OK);
    for (uint64_t round = 0; round < 4; round++) {
        uint64_t now = 1000 * round;
        for (uint64_t i = 0; i < 5000; i++)
            cr_assert_eq(take(s, 10000 * round + i, now + 1000, now), FV_OK);
        for (uint64_t i = 0; i < 5000; i += 7)
            cr_assert_eq(take(s, 10000 * round + i, now + 1000, now + 999), FV_EAUTH);
        cr_assert_eq(take(s, 10000 * round + 5000, now + 1000, now + 999), FV_EBUSY, "it is full");
        cr_assert_leq(fv_nonces_count(s), 5000);
    }
    fv_nonces_close(s);
}

/* Nonces that all hash to one slot. */
Test(call_token, nonces_taken_slots_are_skipped) {
    fv_nonces *s;
    cr_assert_eq(fv_nonces_open(100, &s), FV_OK);
    for (uint64_t i = 0; i < 30; i++) cr_assert_eq(take(s, i << 32, 100, 1), FV_OK);
    for (uint64_t i = 0; i < 30; i++) cr_assert_eq(take(s, i << 32, 100, 1), FV_EAUTH);
    fv_nonces_close(s);
}
