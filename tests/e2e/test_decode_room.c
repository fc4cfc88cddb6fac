/* decode-worker/schedule/opens.c over a real connection: which requests get memory when there is
 * not enough for all. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/e2e/decode_rig.h"

TestSuite(decode_room, .init = write_checkpoint, .fini = remove_checkpoint, .timeout = 240);

enum { LARGE = MANY, SMALL = TOKENS, N = 6 };
static handoff h[N];
static uint64_t bytes_large, bytes_small;
static bool expects; /* the worker reserves memory for as many tokens as it expects */

static uint64_t bytes_used(void) {
    Fovea__Inference__V1__Load l = fv_decode_worker_load(rig.worker);
    return l.bytes_granted + l.bytes_held;
}
static uint32_t n_waiting(void) { return fv_decode_worker_load(rig.worker).n_waiting; }
static bool has_room(const handoff *x) { return atomic_load(&x->state) == 1; }
static bool is_over(const handoff *x) { return atomic_load(&x->state) == 2; }

/* Asks for a grant, and sends nothing once it has one. */
static void ask_for(handoff *x, int32_t max_tokens, uint32_t age_ms, uint32_t wait_ms) {
    prefill(x, "", max_tokens, 0, NULL);
    x->hold = true;
    x->age_ms = age_ms;
    x->wait_ms = wait_ms;
    tell(x, run_ship);
}

static void give_back(handoff *x) { tell(x, run_abandon); }

/* The sizes of large and small requests, then a worker with this much memory. Memory is reserved for all tokens,
 * so that the sizes say what fits. */
static void open_with(fv_decode_options *opt, double n_large, double n_small) {
    fv_decode_options all = fv_decode_options_default();
    all.reserve_all = true;
    open_all(&all);
    ask_for(&h[0], LARGE, 0, 0);
    UNTIL(has_room(&h[0]));
    UNTIL((bytes_large = bytes_used()) > 0);
    ask_for(&h[1], SMALL, 0, 0);
    UNTIL(has_room(&h[1]));
    UNTIL((bytes_small = bytes_used() - bytes_large) > 0);
    cr_assert_gt(bytes_large, 3 * bytes_small);
    for (int i = 0; i < 2; i++) {
        give_back(&h[i]);
        UNTIL(is_over(&h[i]));
        handoff_free(&h[i]);
    }
    close_all();
    memset(h, 0, sizeof h);
    rig.exporting = NULL;
    opt->reserve_all = !expects;
    opt->kv_bytes = (size_t)(n_large * (double)bytes_large + n_small * (double)bytes_small);
    open_all(opt);
}

static void close_with(int n) {
    for (int i = 0; i < n; i++) {
        if (!is_over(&h[i])) give_back(&h[i]);
        UNTIL(is_over(&h[i]));
        handoff_free(&h[i]);
    }
    close_all();
}

Test(decode_room, small_requests_do_not_overtake_a_large_one_that_waits) {
    fv_decode_options opt = fv_decode_options_default();
    open_with(&opt, 1, 1.5);
    ask_for(&h[0], SMALL, 0, 0);
    ask_for(&h[1], SMALL, 0, 0);
    UNTIL(has_room(&h[0]) && has_room(&h[1]));
    ask_for(&h[2], LARGE, 500, 20000); /* enough memory is left for one small request */
    UNTIL(n_waiting() == 1);
    cr_assert_geq(fv_decode_worker_load(rig.worker).bytes_waiting, bytes_large);
    ask_for(&h[3], SMALL, 0, 20000);
    ask_for(&h[4], SMALL, 100, 20000);
    UNTIL(n_waiting() == 3);
    run_loop_ms(100);
    cr_assert(!has_room(&h[3]) && !has_room(&h[4]), "there would be room for them");
    give_back(&h[0]);
    UNTIL(has_room(&h[2]));
    cr_assert_eq(n_waiting(), 2);
    give_back(&h[1]);
    UNTIL(has_room(&h[4]));
    cr_assert_not(has_room(&h[3]), "the older one first");
    give_back(&h[2]);
    UNTIL(has_room(&h[3]));
    close_with(5);
}

Test(decode_room, age_counts_from_the_arrival_at_the_router_and_not_from_the_arrival_here) {
    fv_decode_options opt = fv_decode_options_default();
    open_with(&opt, 1, 0.5);
    ask_for(&h[0], LARGE, 0, 0);
    UNTIL(has_room(&h[0]));
    for (int i = 1; i < 4; i++) {
        ask_for(&h[i], LARGE, 10000 * (uint32_t)i, 20000);
        UNTIL(n_waiting() == (uint32_t)i);
    }
    for (int i = 3; i >= 1; i--) {
        give_back(&h[i == 3 ? 0 : i + 1]);
        UNTIL(has_room(&h[i]));
        cr_assert_eq(n_waiting(), (uint32_t)(i - 1));
    }
    close_with(4);
}

Test(decode_room, waiting_is_bounded_in_number_and_in_time) {
    fv_decode_options opt = fv_decode_options_default();
    opt.waiting_max = 2;
    opt.wait_s_max = 1;
    open_with(&opt, 1, 0.5);
    ask_for(&h[0], LARGE, 0, 0);
    UNTIL(has_room(&h[0]));
    ask_for(&h[1], SMALL, 0, 100);
    ask_for(&h[2], SMALL, 0, 20000);
    UNTIL(n_waiting() == 2);
    ask_for(&h[3], SMALL, 0, 20000);
    ask_for(&h[4], SMALL, 0, 0); /* its wait_ms is 0 */
    for (int i = 4; i >= 1; i--) {
        UNTIL(is_over(&h[i]));
        cr_assert_eq(h[i].status, FV_EBUSY, "%s", h[i].why);
    }
    cr_assert(strstr(h[3].why, "2 requests already wait"), "%s", h[3].why);
    cr_assert(strstr(h[1].why, "in time"), "%s", h[1].why);
    cr_assert_eq(n_waiting(), 0);
    cr_assert(has_room(&h[0]));
    close_with(5);
}

Test(decode_room, a_waiting_request_that_leaves_lets_the_next_ones_move_up) {
    fv_decode_options opt = fv_decode_options_default();
    open_with(&opt, 1, 1.5);
    ask_for(&h[0], SMALL, 0, 0);
    ask_for(&h[1], SMALL, 0, 0);
    UNTIL(has_room(&h[0]) && has_room(&h[1]));
    ask_for(&h[2], LARGE, 5000, 20000);
    UNTIL(n_waiting() == 1);
    ask_for(&h[3], SMALL, 0, 20000);
    UNTIL(n_waiting() == 2);
    give_back(&h[2]);
    UNTIL(has_room(&h[3]));
    UNTIL(is_over(&h[2]));
    cr_assert_eq(n_waiting(), 0);
    close_with(4);
}

Test(decode_room, what_never_fits_is_refused_at_once_as_too_large) {
    fv_decode_options opt = fv_decode_options_default();
    open_with(&opt, 0.5, 0);
    ask_for(&h[0], SMALL, 0, 0);
    UNTIL(has_room(&h[0]));
    ask_for(&h[1], LARGE, 0, 20000);
    UNTIL(is_over(&h[1]));
    cr_assert_eq(h[1].status, FV_ENOMEM, "%s", h[1].why);
    cr_assert(strstr(h[1].why, "--kv-bytes"), "%s", h[1].why);
    cr_assert(has_room(&h[0]));
    close_with(2);
}

Test(decode_room, a_closing_worker_sends_waiting_requests_elsewhere) {
    fv_decode_options opt = fv_decode_options_default();
    open_with(&opt, 1, 0.5);
    ask_for(&h[0], LARGE, 0, 0);
    UNTIL(has_room(&h[0]));
    ask_for(&h[1], SMALL, 0, 20000);
    ask_for(&h[2], LARGE, 0, 20000);
    UNTIL(n_waiting() == 2);
    fv_decode_worker_drain(rig.worker);
    UNTIL(is_over(&h[1]) && is_over(&h[2]));
    cr_assert_eq(h[1].status, FV_EBUSY, "%s", h[1].why);
    cr_assert(strstr(h[1].why, "shutting down"), "%s", h[1].why);
    cr_assert(has_room(&h[0]), "what was promised is kept");
    close_with(3);
}

Test(decode_room, a_draining_worker_is_idle_when_nothing_is_in_hand_and_grants_no_more) {
    fv_decode_options opt = fv_decode_options_default();
    open_with(&opt, 1, 2.5);
    cr_assert_not(fv_decode_worker_idle(rig.worker), "it does not drain yet");
    ask_for(&h[0], SMALL, 0, 0);
    UNTIL(has_room(&h[0]));
    fv_decode_worker_drain(rig.worker);
    ask_for(&h[1], SMALL, 0, 0); /* was sent before its router knew */
    UNTIL(has_room(&h[1]));
    give_back(&h[0]);
    UNTIL(is_over(&h[0]));
    run_loop_ms(50);
    cr_assert_not(fv_decode_worker_idle(rig.worker), "a hand-off is granted");
    give_back(&h[1]);
    UNTIL(fv_decode_worker_idle(rig.worker));
    ask_for(&h[2], SMALL, 0, 0);
    UNTIL(is_over(&h[2]));
    cr_assert_eq(h[2].status, FV_EBUSY, "%s", h[2].why);
    cr_assert(strstr(h[2].why, "shutting down"), "%s", h[2].why);
    close_with(3);
}

Test(decode_room, a_tenant_has_what_it_may_and_no_more_and_others_do_not_wait_for_it) {
    fv_decode_options opt = fv_decode_options_default();
    open_with(&opt, 1, 3.5);
    for (int i = 0; i < 4; i++) {
        h[i].tenant = i == 3 ? "lab" : "acme";
        h[i].tenant_bytes = bytes_large + bytes_small / 2;
    }
    ask_for(&h[0], LARGE, 0, 0);
    UNTIL(has_room(&h[0]));
    ask_for(&h[1], SMALL, 500, 20000);
    UNTIL(is_over(&h[1]));
    cr_assert_eq(h[1].status, FV_EBUSY, "%s", h[1].why);
    cr_assert(strstr(h[1].why, "this tenant has"), "%s", h[1].why);
    ask_for(&h[3], SMALL, 0, 0);
    UNTIL(has_room(&h[3]));
    give_back(&h[0]);
    UNTIL(is_over(&h[0]));
    ask_for(&h[2], SMALL, 0, 0);
    UNTIL(has_room(&h[2]));
    h[4].tenant = "acme";
    h[4].tenant_bytes = bytes_small - 1;
    ask_for(&h[4], SMALL, 0, 20000);
    UNTIL(is_over(&h[4]));
    cr_assert_eq(h[4].status, FV_ENOMEM, "it never may: %s", h[4].why);
    close_with(5);
}

Test(decode_room, more_fit_if_memory_is_reserved_for_what_is_expected) {
    fv_decode_options opt = fv_decode_options_default();
    expects = true;
    open_with(&opt, 1.9, 0);
    UNTIL(fv_decode_worker_load(rig.worker).tokens_expected > 300);
    cr_assert_lt(fv_decode_worker_load(rig.worker).tokens_expected, LARGE);
    ask_for(&h[0], LARGE, 0, 0);
    ask_for(&h[1], LARGE, 0, 0);
    UNTIL(has_room(&h[0]) && has_room(&h[1]));
    close_with(2);
}

Test(decode_room, what_would_not_fit_an_empty_pool_at_its_full_length_is_refused_nevertheless) {
    fv_decode_options opt = fv_decode_options_default();
    expects = true;
    open_with(&opt, 0.97, 0);
    ask_for(&h[0], LARGE, 0, 0);
    UNTIL(is_over(&h[0]));
    cr_assert_eq(h[0].status, FV_ENOMEM, "%s", h[0].why);
    h[1].open_ended = true;
    ask_for(&h[1], LARGE, 0, 0);
    UNTIL(has_room(&h[1]));
    close_with(2);
}

/* The prefill side's pool holds fewer tokens than the answer may have: nobody could replay it. */
Test(decode_room, what_nobody_could_replay_is_reserved_as_a_whole_or_is_shorter) {
    fv_decode_options opt = fv_decode_options_default();
    expects = true;
    open_with(&opt, 2.5, 0);
    h[0].bytes_replay = bytes_large / 2;
    ask_for(&h[0], LARGE, 0, 0);
    UNTIL(has_room(&h[0]));
    UNTIL(bytes_used() == bytes_large);
    h[1].bytes_replay = bytes_large / 2;
    h[1].open_ended = true;
    ask_for(&h[1], LARGE, 0, 0);
    UNTIL(has_room(&h[1]));
    UNTIL(bytes_used() > bytes_large);
    cr_assert_leq(bytes_used() - bytes_large, bytes_large / 2);
    close_with(2);
}
