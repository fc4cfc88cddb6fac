/* kv/tier/seal.h: what is read is what was sealed, under its name only. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "kv/tier/seal.h"

enum { N = 3000 };
static fv_seal_keys keys;
static fv_seal_name name;
static uint8_t rows[N], sealed[FV_SEAL_HEAD + N + FV_SEAL_TAG], out[N];
static const fv_seal_head head = {.n = 70, .visual = true, .seconds = 1.5, .bytes = N};

static void make_keys(uint8_t secret, fv_seal_keys *k) {
    fv_key key = {{secret}};
    cr_assert_eq(fv_seal_keys_make(&key, k), FV_OK);
}

static void name_it(uint8_t id, fv_seal_name *n) {
    fv_chain_key key = {{id}};
    cr_assert_eq(fv_seal_name_of(&keys, &key, n), FV_OK);
}

static void seal(void) {
    fv_seal s;
    make_keys(1, &keys);
    name_it(1, &name);
    for (int i = 0; i < N; i++) rows[i] = (uint8_t)(i * 7);
    cr_assert_eq(fv_seal_begin(&s, &keys, &name, &head, sealed), FV_OK);
    cr_assert_eq(fv_seal_add(&s, rows, sealed + FV_SEAL_HEAD, 1000), FV_OK);
    cr_assert_eq(fv_seal_add(&s, rows + 1000, sealed + FV_SEAL_HEAD + 1000, N - 1000), FV_OK);
    cr_assert_eq(fv_seal_end(&s, sealed + FV_SEAL_HEAD + N), FV_OK);
}

static fv_status unseal(const fv_seal_keys *k, const fv_seal_name *n, const fv_seal_head *want,
                        double *seconds) {
    fv_seal s;
    FV_TRY(fv_unseal_begin(&s, k, n, sealed, want, seconds));
    cr_assert_eq(fv_unseal_add(&s, sealed + FV_SEAL_HEAD, out, N), FV_OK);
    return fv_unseal_end(&s, sealed + FV_SEAL_HEAD + N);
}

TestSuite(seal, .init = seal);

Test(seal, a_segment_comes_back_and_says_nothing_in_between) {
    double seconds;
    cr_assert_eq(unseal(&keys, &name, &head, &seconds), FV_OK);
    cr_assert_arr_eq(out, rows, N);
    cr_assert_eq(seconds, 1.5);
    int same = 0;
    for (int i = 0; i < N; i++) same += sealed[FV_SEAL_HEAD + i] == rows[i];
    cr_assert_lt(same, N / 16);
}

Test(seal, a_change_of_any_byte_is_found) {
    double seconds;
    for (size_t i = 0; i < sizeof sealed; i += i < 60 ? 1 : 97) {
        sealed[i] ^= 1;
        cr_assert_eq(unseal(&keys, &name, &head, &seconds), FV_EDATA, "byte %zu", i);
        sealed[i] ^= 1;
    }
    for (size_t i = FV_SEAL_HEAD + N; i < sizeof sealed; i++) {
        sealed[i] ^= 0x80;
        cr_assert_eq(unseal(&keys, &name, &head, &seconds), FV_EDATA, "byte %zu", i);
        sealed[i] ^= 0x80;
    }
    cr_assert_eq(unseal(&keys, &name, &head, &seconds), FV_OK);
}

Test(seal, another_name_another_key_and_another_shape_open_nothing) {
    double seconds;
    fv_seal_name other;
    fv_seal_keys foreign;
    name_it(2, &other);
    make_keys(2, &foreign);
    cr_assert_eq(unseal(&keys, &other, &head, &seconds), FV_EDATA);
    cr_assert_eq(unseal(&foreign, &name, &head, &seconds), FV_EDATA);
    fv_seal_head wants[] = {head, head, head};
    wants[0].n++;
    wants[1].visual = false;
    wants[2].bytes--;
    for (int i = 0; i < 3; i++) cr_assert_eq(unseal(&keys, &name, &wants[i], &seconds), FV_EDATA);
}

Test(seal, names_depend_on_the_secret_and_tenants_are_told_apart) {
    fv_seal_keys foreign;
    fv_chain_key key = {{1}};
    fv_seal_name other;
    uint8_t a[FV_SEAL_TENANT], b[FV_SEAL_TENANT];
    make_keys(2, &foreign);
    cr_assert_eq(fv_seal_name_of(&foreign, &key, &other), FV_OK);
    cr_assert_neq(memcmp(other.bytes, name.bytes, sizeof name.bytes), 0);
    cr_assert_eq(fv_seal_tenant_of(&keys, "ann", a), FV_OK);
    cr_assert_eq(fv_seal_tenant_of(&keys, "bob", b), FV_OK);
    cr_assert_neq(memcmp(a, b, sizeof a), 0);
}

Test(seal, the_same_segment_is_never_sealed_alike_twice) {
    uint8_t before[sizeof sealed];
    memcpy(before, sealed, sizeof sealed);
    seal();
    cr_assert_neq(memcmp(before, sealed, sizeof sealed), 0);
}
