/* serving/worker/room.c: which requests fit into a worker's memory. */
#include <criterion/criterion.h>
#include <stdint.h>

#include "serving/worker/room.h"

Test(room, weights_and_kv_share_the_memory) {
    cr_assert(fv_worker_check_memory(600, 400, 1000), "to the last byte");
    cr_assert_not(fv_worker_check_memory(600, 401, 1000));
    cr_assert_not(fv_worker_check_memory(600, SIZE_MAX, 1000), "the sum must not overflow");
}

Test(room, weights_alone_can_be_too_large) {
    cr_assert(fv_worker_check_memory(1000, 0, 1000));
    cr_assert_not(fv_worker_check_memory(1001, 0, 1000));
    cr_assert_not(fv_worker_check_memory(1001, 1, 1000));
}

Test(room, a_pool_without_a_limit_is_not_judged) { cr_assert(fv_worker_check_memory(1, 0, 1000)); }

Test(room, a_cache_takes_an_eighth_or_half_of_what_is_left) {
    cr_assert_eq(fv_worker_spare_memory(100, 100, 800), 100);
    cr_assert_eq(fv_worker_spare_memory(100, 0, 800), 100);
    cr_assert_eq(fv_worker_spare_memory(600, 100, 800), 50);
    cr_assert_eq(fv_worker_spare_memory(600, 200, 800), 0);
    cr_assert_eq(fv_worker_spare_memory(600, SIZE_MAX, 800), 0);
    cr_assert_eq(fv_worker_spare_memory(900, 1, 800), 0);
}
