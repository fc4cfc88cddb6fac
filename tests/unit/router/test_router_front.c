/* router/front.c: how the router's memory is divided. */
#include <criterion/criterion.h>
#include <string.h>

#include "router/front.h"

Test(router_front, what_is_given_counts_and_the_machine_otherwise) {
    cr_assert_eq(fv_front_memory(12345), 12345);
    cr_assert_gt(fv_front_memory(0), 1 << 20);
}

Test(router_front, requests_and_the_network_share_half_of_the_memory) {
    size_t queue, memory = (size_t)1 << 30;
    cr_assert_eq(fv_front_queue_bytes(memory, 0, &queue), FV_OK);
    fv_rpc_limits limits = fv_front_limits(memory, 30000);
    cr_assert_eq(queue, 256 << 20);
    cr_assert_eq(limits.memory, 256 << 20);
    cr_assert_eq(limits.streams, 128);
    cr_assert_eq(limits.metadata, 16 << 10);
    cr_assert_eq(limits.first_message_ms, 30000);
}

Test(router_front, a_queue_that_would_fill_the_memory_is_refused) {
    size_t queue = 7, memory = (size_t)1 << 30;
    cr_assert_eq(fv_front_queue_bytes(memory, memory / 2, &queue), FV_OK);
    cr_assert_eq(queue, memory / 2);
    cr_assert_eq(fv_front_queue_bytes(memory, memory / 2 + 1, &queue), FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "--queue-bytes"), "%s", fv_last_error());
    cr_assert_eq(queue, memory / 2, "untouched");
}
