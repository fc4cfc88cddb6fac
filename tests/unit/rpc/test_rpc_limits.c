/* rpc/server.c: fv_rpc_limits, what one server grants its peers. tests/support/rpc_smoke.py and
 * tests/e2e/test_front.c test that messages are not decompressed. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/net.h"

TestSuite(rpc_limits, .timeout = 240);

static net r;
static net_heard h, second, third;

/* ---- calls of a connection -------------------------------------------------------------- */

static void three_at_a_time(int32_t streams) {
    r.limits.streams = streams;
    net_open(&r);
    net_call(&r, &h, NET_SESSION, 10000);
    net_call(&r, &second, NET_SESSION, 10000);
    net_wait_for(&r, &r.seen.started, 2);
    net_ask(&r, &third, NET_ECHO, 10000, "x", 1);
}

static void end_all(void) {
    fv_rpc_call_close_send(h.call);
    fv_rpc_call_close_send(second.call);
    net_wait(&r, &h.over);
    net_wait(&r, &second.over);
    net_wait(&r, &third.over);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(third.end.status, FV_OK, "%s", third.text);
    net_close(&r, 1000);
}

Test(rpc_limits, a_connection_that_has_all_its_calls_waits_for_one_to_end) {
    three_at_a_time(2);
    net_sleep(&r, 200);
    cr_assert_eq(r.seen.started, 2, "the third call waits at its client");
    end_all();
}

Test(rpc_limits, without_a_limit_it_does_not_wait) {
    three_at_a_time(0);
    net_wait(&r, &third.over);
    end_all();
}

/* ---- metadata --------------------------------------------------------------------------- */

static void ask_with_metadata(size_t bytes) {
    static char value[40000];
    memset(value, 'v', bytes);
    value[bytes] = '\0';
    fv_rpc_metadata m = {"x-large", value};
    r.limits.metadata = 16 << 10;
    net_open(&r);
    net_call_with(&r, &h, NET_ECHO, 10000, &m);
    fv_rpc_call_send_buffer(h.call, net_zeros(1));
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
}

Test(rpc_limits, metadata_within_its_limit_is_taken) {
    ask_with_metadata(12 << 10);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    net_close(&r, 1000);
}

Test(rpc_limits, metadata_over_its_limit_is_refused_before_any_handler) {
    ask_with_metadata(17 << 10);
    cr_assert_eq(h.end.code, GRPC_STATUS_RESOURCE_EXHAUSTED, "%s", h.text);
    cr_assert_eq(r.seen.messages, 0);
    net_close(&r, 1000);
}

/* ---- the deadline of the first message -------------------------------------------------- */

Test(rpc_limits, a_call_whose_message_does_not_come_is_ended) {
    r.limits.first_message_ms = 100;
    net_open(&r);
    net_call(&r, &h, NET_ECHO, 60000);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    cr_assert(strstr(h.text, "was not complete within 0.1 s"), "%s", h.text);
    net_ask_wait(&r, &second, NET_ECHO, "x", 1);
    cr_assert_eq(second.end.status, FV_OK, "the next one is served");
    net_close(&r, 1000);
}

Test(rpc_limits, calls_are_ended_in_their_order_and_others_go_on) {
    r.limits.first_message_ms = 400;
    net_open(&r);
    net_call(&r, &h, NET_SESSION, 60000);
    net_call(&r, &second, NET_SESSION, 60000);
    net_call(&r, &third, NET_SESSION, 60000);
    fv_rpc_call_send_buffer(second.call, net_zeros(1)); /* it leaves from the middle of the list */
    net_wait_for(&r, &second.n, 1);
    net_wait(&r, &h.over);
    net_wait(&r, &third.over);
    cr_assert_eq(h.end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    cr_assert_eq(third.end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    net_sleep(&r, 200);
    cr_assert_not(second.over, "its message has come, and the next may take any time");
    fv_rpc_call_close_send(second.call);
    net_wait(&r, &second.over);
    cr_assert_eq(second.end.status, FV_OK, "%s", second.text);
    net_close(&r, 1000);
}

Test(rpc_limits, a_client_that_goes_before_its_message_leaves_no_trace) {
    r.limits.first_message_ms = 300;
    net_open(&r);
    net_call(&r, &h, NET_SESSION, 60000);
    net_wait_for(&r, &r.seen.started, 1);
    fv_rpc_call_cancel(h.call);
    net_wait_for(&r, &r.seen.ended, 1);
    net_sleep(&r, 500); /* past its deadline: it must not be accessed any more */
    net_ask_wait(&r, &second, NET_ECHO, "x", 1);
    cr_assert_eq(second.end.status, FV_OK);
    net_close(&r, 1000);
}

Test(rpc_limits, a_server_that_stops_while_a_message_is_awaited_ends) {
    r.limits.first_message_ms = 60000;
    net_open(&r);
    net_call(&r, &h, NET_SESSION, 60000);
    net_wait_for(&r, &r.seen.started, 1);
    net_close(&r, 50);
}
