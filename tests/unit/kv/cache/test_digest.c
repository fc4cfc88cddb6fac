/* kv/cache/digest.h: fields are told apart, whatever their bytes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "kv/cache/digest.h"

enum { N = FV_DIGEST_BYTES };

static void end(fv_digest *d, uint8_t out[N]) { cr_assert_eq(fv_digest_end(d, out), FV_OK); }

/* The digest of two texts, with the second one as bytes if `bytes`. */
static void of_two(const char *a, const char *b, bool bytes, uint8_t out[N]) {
    fv_digest d;
    fv_digest_begin(&d, "test");
    fv_digest_text(&d, a);
    if (bytes)
        fv_digest_bytes(&d, b, strlen(b));
    else
        fv_digest_text(&d, b);
    end(&d, out);
}

Test(digest, moving_a_byte_to_the_next_field_changes_it) {
    uint8_t a[N], b[N];
    of_two("ab", "c", false, a);
    of_two("a", "bc", false, b);
    cr_assert_neq(memcmp(a, b, N), 0);
    of_two("abc", "", false, b);
    cr_assert_neq(memcmp(a, b, N), 0);
    of_two("ab", "c", false, b);
    cr_assert_eq(memcmp(a, b, N), 0, "equal fields have equal digests");
}

Test(digest, the_type_of_a_field_counts) {
    uint8_t a[N], b[N];
    of_two("ab", "c", false, a);
    of_two("ab", "c", true, b);
    cr_assert_neq(memcmp(a, b, N), 0);
}

Test(digest, a_text_that_spells_a_field_is_not_that_field) {
    /* The bytes that separate "x" and "y", given as a text of their own. */
    const char spelled[] = {'x', 3, 1, 0, 0, 0, 0, 0, 0, 0, 'y'};
    uint8_t a[N], b[N];
    fv_digest d;
    of_two("x", "y", false, a);
    fv_digest_begin(&d, "test");
    fv_digest_bytes(&d, spelled, sizeof spelled);
    end(&d, b);
    cr_assert_neq(memcmp(a, b, N), 0);
}

Test(digest, numbers_are_a_field_of_any_length) {
    int32_t number[600];
    uint8_t whole[N], parts[N], again[N];
    for (int32_t i = 0; i < 600; i++) number[i] = i * 7919 - 300;
    fv_digest d;
    fv_digest_begin(&d, "test");
    fv_digest_numbers(&d, number, 600);
    end(&d, whole);
    fv_digest_begin(&d, "test");
    fv_digest_numbers(&d, number, 300);
    fv_digest_numbers(&d, number + 300, 300);
    end(&d, parts);
    cr_assert_neq(memcmp(whole, parts, N), 0);
    fv_digest_begin(&d, "test");
    fv_digest_numbers(&d, number, 600);
    end(&d, again);
    cr_assert_eq(memcmp(whole, again, N), 0);
}

Test(digest, purposes_are_apart_and_no_text_is_an_empty_one) {
    uint8_t a[N], b[N];
    fv_digest d;
    fv_digest_begin(&d, "one");
    end(&d, a);
    fv_digest_begin(&d, "two");
    end(&d, b);
    cr_assert_neq(memcmp(a, b, N), 0);
    fv_digest_begin(&d, "one");
    fv_digest_text(&d, NULL);
    end(&d, a);
    fv_digest_begin(&d, "one");
    fv_digest_text(&d, "");
    end(&d, b);
    cr_assert_eq(memcmp(a, b, N), 0);
}

Test(digest, a_known_digest_stays) {
    /* Keys may be kept beyond a process: python3 -c 'import hashlib; h = lambda t, b: bytes([t]) +
     * len(b).to_bytes(8, "little") + b; print(hashlib.sha256(h(1, b"test") + h(3, b"a") + h(4,
     * (5).to_bytes(8, "little"))).hexdigest())' */
    uint8_t got[N];
    char hex[2 * N + 1];
    fv_digest d;
    fv_digest_begin(&d, "test");
    fv_digest_text(&d, "a");
    fv_digest_number(&d, 5);
    end(&d, got);
    for (int i = 0; i < N; i++) sprintf(hex + 2 * i, "%02x", got[i]);
    cr_assert_str_eq(hex, "493210d7e3ea8819e187065b0e43716c88ee546e1c2212a3b13381ea59f0d797");
}
