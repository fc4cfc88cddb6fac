/* kv/cache/kept_log.h: every reader ends with what is kept, whatever changed meanwhile. */
#include <criterion/criterion.h>
#include <string.h>

#include "kv/cache/kept_log.h"

static fv_kept_log *l;
static fv_kept_change got[FV_KEPT_READ_MAX];

static void close_it(void) { fv_kept_log_close(l); }

TestSuite(kept_log, .fini = close_it, .timeout = 60);

typedef struct key {
    uint8_t bytes[FV_DIGEST_BYTES];
} key;

static key key_of(uint64_t n) {
    key k = {{0}};
    memcpy(k.bytes, &n, sizeof n);
    return k;
}

static void keep(uint64_t k, uint64_t digest, uint32_t tokens) {
    fv_kept_log_keep(l, key_of(k).bytes, &(fv_kept_change){digest, tokens, 0.5f});
}

static void drop(uint64_t k) { fv_kept_log_drop(l, key_of(k).bytes); }

static int32_t read_on(uint64_t *cursor) {
    return fv_kept_log_read(l, cursor, got, FV_KEPT_READ_MAX);
}

Test(kept_log, a_reader_gets_changes_once_and_a_new_one_all) {
    uint64_t a = 0, b = 0;
    cr_assert_eq(fv_kept_log_open(100, &l), FV_OK);
    cr_assert_eq(read_on(&a), 0);
    keep(1, 11, 64);
    keep(2, 12, 128);
    keep(1, 11, 64); /* known */
    cr_assert_eq(read_on(&a), 2);
    cr_assert(got[0].digest == 11 && got[0].tokens == 64 && got[0].seconds == 0.5f);
    cr_assert_eq(read_on(&a), 0);
    drop(1);
    drop(1);
    drop(9);
    cr_assert_eq(read_on(&a), 1);
    cr_assert(got[0].digest == 11 && got[0].tokens == 0);
    cr_assert_eq(read_on(&b), 2);
    cr_assert(got[0].digest == 12 && got[1].digest == 11 && got[1].tokens == 0);
    keep(1, 11, 64);
    cr_assert_eq(read_on(&a), 1);
    cr_assert_eq(got[0].tokens, 64);
}

Test(kept_log, a_link_with_several_names_is_given_up_under_all) {
    uint64_t a = 0;
    cr_assert_eq(fv_kept_log_open(100, &l), FV_OK);
    keep(1, 11, 64);
    keep(1, 12, 64);
    keep(2, 13, 64);
    drop(1);
    cr_assert_eq(read_on(&a), 3);
    cr_assert(got[0].digest == 13 && got[0].tokens == 64);
    cr_assert(got[1].tokens == 0 && got[2].tokens == 0);
    keep(2, 11, 64); /* the name has moved to another link */
    drop(1);
    cr_assert_eq(read_on(&a), 1);
    cr_assert(got[0].digest == 11 && got[0].tokens == 64);
}

Test(kept_log, reads_are_in_pieces) {
    uint64_t a = 0;
    int32_t n = 0, most = 0;
    cr_assert_eq(fv_kept_log_open(FV_KEPT_LOG_MAX, &l), FV_OK);
    for (uint64_t i = 1; i <= 5000; i++) keep(i, i, 64);
    for (int32_t k; (k = read_on(&a)) > 0; n += k) {
        most = k > most ? k : most;
        for (int32_t i = 0; i < k; i++) cr_assert_eq(got[i].digest, (uint64_t)(n + i + 1));
    }
    cr_assert_eq(n, 5000);
    cr_assert_eq(most, FV_KEPT_READ_MAX);
}

Test(kept_log, a_full_log_forgets_the_oldest_changes) {
    uint64_t a = 0;
    cr_assert_eq(fv_kept_log_open(10, &l), FV_OK);
    for (uint64_t i = 1; i <= 1000; i++) {
        keep(i, i, 64);
        if (i > 5) drop(i - 5);
    }
    int32_t n = read_on(&a);
    cr_assert_eq(n, 10);
    for (int32_t i = 0; i < n; i++) cr_assert_geq(got[i].digest, (uint64_t)990);
    drop(1); /* forgotten */
    cr_assert_eq(read_on(&a), 0);
}

Test(kept_log, an_impossible_size_is_refused_and_no_log_is_fine) {
    uint64_t a = 0;
    cr_assert_eq(fv_kept_log_open(0, &l), FV_EINVAL);
    cr_assert_eq(fv_kept_log_open(FV_KEPT_LOG_MAX + 1, &l), FV_EINVAL);
    keep(1, 11, 64);
    drop(1);
    cr_assert_eq(read_on(&a), 0);
}

/* Readers that read now and then believe in the end what is true. */
Test(kept_log, readers_follow_random_changes) {
    enum { NAMES = 40, READERS = 3 };
    static uint32_t truth[NAMES], believed[READERS][NAMES];
    uint64_t cursor[READERS] = {0}, x = 3;
    cr_assert_eq(fv_kept_log_open(NAMES, &l), FV_OK);
    for (int step = 0; step < 50000; step++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        const uint32_t name = (uint32_t)(x >> 33) % NAMES;
        if ((x >> 60) % 3) {
            truth[name] = 64 * (1 + (uint32_t)(x >> 55) % 2);
            keep(name + 1, name + 100, truth[name]);
        } else {
            truth[name] = 0;
            drop(name + 1);
        }
        const int reader = (int)(x >> 40) % READERS;
        if (step < 49990 && (x >> 45) % 8) continue;
        for (int r = step < 49990 ? reader : 0; r < READERS; r++) {
            int32_t n = fv_kept_log_read(l, &cursor[r], got, step < 49990 ? 7 : NAMES);
            for (int32_t i = 0; i < n; i++) believed[r][got[i].digest - 100] = got[i].tokens;
            if (step < 49990) break;
            cr_assert_arr_eq(believed[r], truth, sizeof truth);
        }
    }
}
