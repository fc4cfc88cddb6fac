/* router/hints.h: who keeps what, within its memory, whatever is reported. */
#include <criterion/criterion.h>

#include "router/hints.h"

static fv_hints *h;
static int worker[64]; /* stand for workers */

static void open_of(size_t n_max) { cr_assert_eq(fv_hints_open(n_max, &h), FV_OK); }

static void close_it(void) { fv_hints_close(h); }

TestSuite(router_hints, .fini = close_it, .timeout = 60);

static void add(uint64_t name, uint16_t place, uint32_t tokens) {
    fv_hints_add(h, name, place, &(fv_hint){.tokens = tokens});
}

/* How many workers keep it. */
static int32_t holders(uint64_t name) {
    void *found[FV_HINT_HOLDERS];
    fv_hint hint;
    return fv_hints_find(h, name, &hint, found);
}

Test(router_hints, who_keeps_a_beginning_is_found_until_it_is_given_up) {
    void *found[FV_HINT_HOLDERS];
    fv_hint hint;
    open_of(100);
    uint16_t a = fv_hints_enter(h, &worker[0]), b = fv_hints_enter(h, &worker[1]);
    cr_assert(a && b && a != b);
    cr_assert_eq(holders(7), 0);
    fv_hints_add(h, 7, a, &(fv_hint){.tokens = 64, .seconds = 0.5f});
    cr_assert_eq(fv_hints_find(h, 7, &hint, found), 1);
    cr_assert(found[0] == &worker[0] && hint.tokens == 64 && hint.seconds == 0.5f && !hint.guess);
    add(7, b, 64); /* of a decode worker, which knows no seconds */
    cr_assert_eq(fv_hints_find(h, 7, &hint, found), 2);
    cr_assert_eq(hint.seconds, 0.5f);
    add(7, b, 64);
    cr_assert_eq(holders(7), 2);
    fv_hints_remove(h, 7, a);
    fv_hints_remove(h, 7, a);
    fv_hints_remove(h, 8, a);
    cr_assert_eq(fv_hints_find(h, 7, &hint, found), 1);
    cr_assert_eq(found[0], &worker[1]);
    fv_hints_remove(h, 7, b);
    cr_assert_eq(fv_hints_count(h), 0);
}

Test(router_hints, a_guess_gives_way_to_a_report_and_changes_none) {
    void *found[FV_HINT_HOLDERS];
    fv_hint hint;
    open_of(100);
    uint16_t a = fv_hints_enter(h, &worker[0]), b = fv_hints_enter(h, &worker[1]);
    fv_hints_add(h, 7, a, &(fv_hint){.tokens = 60, .guess = true});
    cr_assert(fv_hints_find(h, 7, &hint, found) == 1 && hint.tokens == 60 && hint.guess);
    add(7, a, 64);
    cr_assert(fv_hints_find(h, 7, &hint, found) == 1 && hint.tokens == 64 && !hint.guess);
    fv_hints_add(h, 7, b, &(fv_hint){.tokens = 50, .guess = true});
    cr_assert(fv_hints_find(h, 7, &hint, found) == 2 && hint.tokens == 64 && !hint.guess);
}

Test(router_hints, what_is_wrong_in_itself_is_ignored) {
    open_of(1);
    uint16_t a = fv_hints_enter(h, &worker[0]);
    add(0, a, 64);
    add(7, 0, 64);
    add(7, a, 0);
    cr_assert_eq(fv_hints_count(h), 0);
    fv_hints_remove(h, 7, 0);
    fv_hints_leave(h, 0);
    cr_assert_eq(fv_hints_open(0, &h), FV_EINVAL);
    cr_assert_eq(fv_hints_open((size_t)FV_HINTS_MAX + 1, &h), FV_EINVAL);
}

Test(router_hints, a_full_index_forgets_what_was_not_asked_for) {
    enum { N = 1000, HOT = 10 };
    open_of(N);
    uint16_t a = fv_hints_enter(h, &worker[0]);
    for (uint64_t name = 1; name <= 20 * N; name++) {
        add(name, a, 64);
        for (uint64_t hot = 1; hot <= HOT; hot++) (void)holders(hot);
        cr_assert_leq(fv_hints_count(h), (size_t)N);
    }
    cr_assert_eq(fv_hints_count(h), N);
    int32_t left = 0;
    for (uint64_t hot = 1; hot <= HOT; hot++) left += holders(hot);
    cr_assert_eq(left, HOT);
}

Test(router_hints, an_image_that_all_keep_has_as_many_holders_as_are_remembered) {
    uint16_t place[64];
    open_of(4);
    for (int i = 0; i < 64; i++) {
        place[i] = fv_hints_enter(h, &worker[i]);
        add(7, place[i], 64);
    }
    cr_assert_eq(holders(7), FV_HINT_HOLDERS);
    for (int i = 0; i < 64; i++) fv_hints_remove(h, 7, place[i]);
    cr_assert_eq(fv_hints_count(h), 0);
}

Test(router_hints, a_worker_that_leaves_is_not_found_and_its_place_is_swept) {
    enum { N = 50000 };
    open_of(N);
    uint16_t a = fv_hints_enter(h, &worker[0]), b = fv_hints_enter(h, &worker[1]);
    for (uint64_t name = 1; name <= N; name++) add(name, name % 2 ? a : b, 64);
    fv_hints_leave(h, a);
    cr_assert_eq(holders(1), 0);
    cr_assert_eq(holders(2), 1);
    uint16_t c = fv_hints_enter(h, &worker[2]);
    cr_assert(c != a, "names of the worker that left would be another's");
    for (int i = 0; i < 10; i++) fv_hints_tick(h);
    cr_assert_eq(fv_hints_count(h), N / 2);
    for (uint64_t name = 1; name <= N; name++) cr_assert_eq(holders(name), name % 2 == 0);
}

Test(router_hints, places_are_used_again_and_again) {
    open_of(8);
    for (int i = 0; i < 200000; i++) {
        uint16_t a = fv_hints_enter(h, &worker[i % 64]);
        cr_assert(a, "round %d", i);
        add((uint64_t)i % 16 + 1, a, 64);
        fv_hints_leave(h, a);
        fv_hints_tick(h);
    }
    cr_assert_eq(fv_hints_count(h), 0);
}

Test(router_hints, a_worker_that_reports_rubbish_has_only_so_many) {
    open_of(FV_HINTS_WORKER_MAX + 1000);
    uint16_t liar = fv_hints_enter(h, &worker[0]), a = fv_hints_enter(h, &worker[1]);
    for (uint64_t name = 1; name <= 500; name++) add(name, a, 64);
    for (uint64_t i = 0; i < FV_HINTS_WORKER_MAX + 5000; i++)
        add(i * UINT64_C(0x9e3779b97f4a7c15) + 1000003, liar, UINT32_MAX);
    cr_assert_leq(fv_hints_count(h), (size_t)FV_HINTS_WORKER_MAX + 500);
    for (uint64_t name = 1; name <= 500; name++) cr_assert_eq(holders(name), 1);
}

/* Random changes beside a model that remembers all. */
Test(router_hints, finds_what_a_simple_table_finds) {
    enum { WORKERS = 8, NAMES = 64 };
    static bool keeps[NAMES][WORKERS];
    uint16_t place[WORKERS];
    uint64_t x = 1;
    open_of(NAMES);
    for (int i = 0; i < WORKERS; i++) place[i] = fv_hints_enter(h, &worker[i]);
    for (int step = 0; step < 100000; step++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407;
        const int name = (int)(x >> 33) % NAMES, w = (int)(x >> 40) % WORKERS;
        switch ((x >> 50) % 16) {
        case 0:
            fv_hints_leave(h, place[w]);
            for (int n = 0; n < NAMES; n++) keeps[n][w] = false;
            place[w] = fv_hints_enter(h, &worker[w]);
            break;
        case 1: fv_hints_tick(h); break;
        case 2:
        case 3:
        case 4:
        case 5:
            fv_hints_remove(h, (uint64_t)name + 1, place[w]);
            keeps[name][w] = false;
            break;
        default: add((uint64_t)name + 1, place[w], 64); keeps[name][w] = true;
        }
        void *found[FV_HINT_HOLDERS];
        fv_hint hint;
        int32_t n = fv_hints_find(h, (uint64_t)name + 1, &hint, found), want = 0;
        for (int i = 0; i < WORKERS; i++) want += keeps[name][i];
        cr_assert_eq(n, want, "step %d", step);
        for (int32_t i = 0; i < n; i++) cr_assert(keeps[name][(int *)found[i] - worker]);
    }
}
