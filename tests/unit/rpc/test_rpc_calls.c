/* rpc/call.c, rpc/client.c, rpc/server.c: calls that succeed or are ended by one side. net_close
 * asserts that all calls ended, and that nothing is left on the loop. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "rpc/message.h"
#include "tests/support/net.h"

TestSuite(rpc_calls, .timeout = 240);

static net r;
static net_heard h;

static const uint32_t five_of_ten[] = {5, 10};

Test(rpc_calls, a_unary_call_brings_one_answer) {
    net_open(&r);
    net_ask_wait(&r, &h, NET_ECHO, "hello", 5);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.n, 1);
    cr_assert_eq(h.bytes, 5);
    net_close(&r, 1000);
    cr_assert_eq(r.seen.end.status, FV_OK);
}

Test(rpc_calls, an_empty_message_is_a_message) {
    net_open(&r);
    net_ask_wait(&r, &h, NET_ECHO, "", 0);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.n, 1);
    net_close(&r, 1000);
}

Test(rpc_calls, a_server_stream_brings_all_and_then_ok) {
    net_open(&r);
    net_ask_wait(&r, &h, NET_COUNT, five_of_ten, 8);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.n, 5);
    cr_assert_eq(h.bytes, 50);
    net_close(&r, 1000);
}

Test(rpc_calls, a_stream_of_nothing_is_ok) {
    net_open(&r);
    net_ask_wait(&r, &h, NET_COUNT, (uint32_t[]){0, 0}, 8);
    cr_assert_eq(h.end.status, FV_OK);
    cr_assert_eq(h.n, 0);
    net_close(&r, 1000);
}

Test(rpc_calls, a_client_stream_ends_with_its_half_close) {
    net_open(&r);
    net_call(&r, &h, NET_COLLECT, 10000);
    for (int i = 0; i < 20; i++)
        cr_assert_eq(fv_rpc_call_send_buffer(h.call, net_zeros(100)), FV_OK);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.numbers[0], 20);
    cr_assert_eq(h.numbers[1], 2000);
    cr_assert_eq(r.seen.half_closed, 1);
    net_close(&r, 1000);
}

Test(rpc_calls, a_client_stream_may_be_empty) {
    net_open(&r);
    net_call(&r, &h, NET_COLLECT, 10000);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.numbers[0], 0);
    net_close(&r, 1000);
}

Test(rpc_calls, both_sides_session_in_turn) {
    net_open(&r);
    net_call(&r, &h, NET_SESSION, 10000);
    for (int i = 1; i <= 10; i++) {
        cr_assert_eq(fv_rpc_call_send_buffer(h.call, net_bytes("turn", 4)), FV_OK);
        net_wait_for(&r, &h.n, i);
    }
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    net_close(&r, 1000);
}

Test(rpc_calls, nothing_can_be_sent_after_a_half_close) {
    net_open(&r);
    net_call(&r, &h, NET_SESSION, 10000);
    fv_rpc_call_close_send(h.call);
    cr_assert_eq(fv_rpc_call_send_buffer(h.call, net_zeros(1)), FV_ECANCELLED);
    net_wait(&r, &h.over);
    net_close(&r, 1000);
}

Test(rpc_calls, metadata_travels_with_the_request_and_with_the_status) {
    net_open(&r);
    net_ask_wait(&r, &h, NET_ECHO, "x", 1);
    cr_assert_str_eq(r.seen.traceparent, "00-ab-cd-01");
    cr_assert_str_eq(r.seen.forwarded, "192.0.2.7");
    cr_assert_str_eq(h.trailer, "here");
    cr_assert(strstr(r.seen.peer, "127.0.0.1"), "%s", r.seen.peer);
    net_close(&r, 1000);
}

Test(rpc_calls, every_failure_arrives_with_its_code_its_sentence_and_its_origin) {
    net_open(&r);
    for (uint8_t st = 1; st < FV_N_STATUS; st++) {
        h = (net_heard){0};
        net_ask_wait(&r, &h, NET_FAIL, &st, 1);
        cr_assert_eq(h.end.status, (fv_status)st, "%s", fv_status_name((fv_status)st));
        cr_assert_str_eq(h.text, "it failed: 100% \xc3\xa4");
        cr_assert_eq(h.end.retry_ms, st == FV_EBUSY ? 1234 : -1);
        cr_assert_eq(h.end.origin, (fv_origin)(st % FV_N_ORIGIN));
        cr_assert_eq(h.n, 0);
    }
    net_close(&r, 1000);
}

/* ---- deadlines and cancellation --------------------------------------------------------- */

Test(rpc_calls, the_server_knows_the_deadline) {
    net_open(&r);
    net_ask(&r, &h, NET_ECHO, 5000, "x", 1);
    net_wait(&r, &h.over);
    /* The deadline is rounded up to three digits on the wire. */
    cr_assert(r.seen.left_ms > 3000 && r.seen.left_ms <= 5100, "%d", (int)r.seen.left_ms);
    net_close(&r, 1000);
}

Test(rpc_calls, a_deadline_ends_the_call_on_both_sides) {
    net_open(&r);
    net_ask(&r, &h, NET_STALL, 100, "x", 1);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    cr_assert_eq(h.end.status, FV_EDEADLINE);
    net_wait_for(&r, &r.seen.ended, 1);
    cr_assert_eq(r.seen.cancelled, 1);
    cr_assert_eq(r.seen.end.status, FV_ECANCELLED);
    net_close(&r, 1000);
}

Test(rpc_calls, cancelling_at_once_ends_the_call) {
    net_open(&r);
    net_ask(&r, &h, NET_STALL, 10000, "x", 1);
    fv_rpc_call_cancel(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_ECANCELLED);
    net_close(&r, 1000);
}

Test(rpc_calls, cancelling_before_anything_was_sent_ends_the_call) {
    net_open(&r);
    net_call(&r, &h, NET_SESSION, 10000);
    fv_rpc_call_cancel(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_ECANCELLED);
    net_close(&r, 1000);
}

Test(rpc_calls, cancelling_while_the_server_works_tells_it) {
    net_open(&r);
    net_ask(&r, &h, NET_STALL, 10000, "x", 1);
    net_wait_for(&r, &r.seen.messages, 1);
    fv_rpc_call_cancel(h.call);
    net_wait_for(&r, &r.seen.ended, 1);
    cr_assert_eq(r.seen.cancelled, 1);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_ECANCELLED);
    net_close(&r, 1000);
}

Test(rpc_calls, cancelling_in_the_middle_of_a_stream_ends_it) {
    net_open(&r);
    net_ask(&r, &h, NET_COUNT, 10000, (uint32_t[]){100000, 1000}, 8);
    net_wait_for(&r, &h.n, 3);
    int32_t n = h.n;
    fv_rpc_call_cancel(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.n, n, "no message after the cancellation");
    net_wait_for(&r, &r.seen.ended, 1);
    net_close(&r, 1000);
}

Test(rpc_calls, cancelling_while_the_client_sends_ends_it) {
    net_open(&r);
    net_call(&r, &h, NET_COLLECT, 10000);
    while (fv_rpc_call_writable(h.call))
        cr_assert_eq(fv_rpc_call_send_buffer(h.call, net_zeros(10000)), FV_OK);
    fv_rpc_call_cancel(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_ECANCELLED);
    net_close(&r, 1000);
    cr_assert_eq(r.seen.half_closed, 0, "a broken stream is no end");
}

Test(rpc_calls, a_message_that_the_caller_refuses_ends_the_call_with_its_reason) {
    net_open(&r);
    h.fail_at = 2;
    net_ask_wait(&r, &h, NET_COUNT, (uint32_t[]){1000, 1000}, 8);
    cr_assert_eq(h.n, 2);
    cr_assert_eq(h.end.status, FV_EDATA);
    cr_assert_str_eq(h.text, "that is enough");
    net_close(&r, 1000);
}

/* The server has usually finished by then, with OK. */
Test(rpc_calls, a_last_message_that_the_caller_refuses_is_no_success) {
    net_open(&r);
    for (int i = 0; i < 50; i++) {
        h = (net_heard){.fail_at = 1};
        net_ask_wait(&r, &h, NET_COUNT, (uint32_t[]){1, 10}, 8);
        cr_assert_eq(h.end.status, FV_EDATA, "round %d", i);
        cr_assert_str_eq(h.text, "that is enough");
    }
    net_close(&r, 1000);
}

Test(rpc_calls, finishing_before_the_client_has_said_all_ends_its_sending) {
    net_open(&r);
    net_call(&r, &h, NET_FAIL, 10000);
    uint8_t st = FV_ENOTFOUND;
    cr_assert_eq(fv_rpc_call_send_buffer(h.call, net_bytes(&st, 1)), FV_OK);
    net_wait(&r, &h.over); /* without a half-close */
    cr_assert_eq(h.end.status, FV_ENOTFOUND);
    net_close(&r, 1000);
}

/* ---- calls on behalf of calls ----------------------------------------------------------- */

Test(rpc_calls, cancelling_a_call_cancels_those_made_for_it) {
    net_open(&r);
    net_call(&r, &h, NET_RELAY, 50000);
    net_wait_for(&r, &r.seen.messages, 1); /* the inner one has arrived */
    cr_assert(r.seen.left_ms <= 51000, "the outer deadline holds for both: %d",
              (int)r.seen.left_ms);
    fv_rpc_call_cancel(h.call);
    net_wait_for(&r, &r.seen.ended, 2);
    cr_assert_eq(r.seen.cancelled, 2);
    net_wait_for(&r, &r.seen.relay_ended, 1);
    cr_assert_eq(r.seen.relay_status, FV_ECANCELLED);
    net_close(&r, 1000);
}

Test(rpc_calls, finishing_a_call_ends_those_made_for_it) {
    net_open(&r);
    net_call(&r, &h, NET_RELAY, 50000);
    net_wait_for(&r, &r.seen.messages, 1);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.status, FV_OK);
    net_wait_for(&r, &r.seen.ended, 2);
    net_wait_for(&r, &r.seen.relay_ended, 1);
    net_close(&r, 1000);
}

/* ---- back-pressure ---------------------------------------------------------------------- */

Test(rpc_calls, a_slow_reader_bounds_the_memory_of_the_sender) {
    enum { N = 1000, BYTES = 16 << 10 };
    net_open(&r);
    h.pause_each = true;
    net_ask(&r, &h, NET_COUNT, 60000, (uint32_t[]){N, BYTES}, 8);
    net_wait_for(&r, &h.n, 1);
    net_sleep(&r, 200); /* what fits into the buffers has been sent by now */
    cr_assert_eq(h.n, 1, "a paused call is told nothing");
    cr_assert_eq(r.seen.ended, 0, "the sender waits");
    while (!h.over) {
        if (h.call) fv_rpc_call_resume(h.call);
        uv_run(&r.loop, UV_RUN_ONCE);
    }
    cr_assert_eq(h.end.status, FV_OK, "%s", h.text);
    cr_assert_eq(h.n, N);
    cr_assert_eq(h.bytes, (size_t)N * BYTES);
    cr_assert(r.seen.queue_most < NET_QUEUE_MAX + BYTES, "%zu", r.seen.queue_most);
    net_close(&r, 1000);
}

Test(rpc_calls, a_full_queue_is_reported_and_so_is_space) {
    net_open(&r);
    net_call(&r, &h, NET_COLLECT, 10000);
    int n = 0;
    while (fv_rpc_call_send_buffer(h.call, net_zeros(64 << 10)) == FV_OK) n++;
    cr_assert(n >= 3 && n <= 5, "%d", n);
    net_wait_for(&r, &h.writable, 1);
    cr_assert(fv_rpc_call_bytes_queued(h.call) <= NET_QUEUE_MAX / 2);
    fv_rpc_call_close_send(h.call);
    net_wait(&r, &h.over);
    cr_assert_eq(h.numbers[0], (uint32_t)n);
    net_close(&r, 1000);
}

Test(rpc_calls, a_paused_call_still_gets_its_deadline) {
    net_open(&r);
    h.pause_each = true;
    net_ask(&r, &h, NET_COUNT, 200, (uint32_t[]){1000, 16 << 10}, 8);
    net_wait(&r, &h.over);
    cr_assert_eq(h.end.code, GRPC_STATUS_DEADLINE_EXCEEDED);
    net_close(&r, 1000);
}

/* ---- many ------------------------------------------------------------------------------- */

Test(rpc_calls, many_at_once_are_kept_apart) {
    enum { N = 64 };
    static net_heard many[N];
    net_open(&r);
    for (uint32_t i = 0; i < N; i++) net_ask(&r, &many[i], NET_COUNT, 10000, (uint32_t[]){i, 8}, 8);
    for (uint32_t i = 0; i < N; i++) {
        net_wait(&r, &many[i].over);
        cr_assert_eq(many[i].n, (int)i);
    }
    net_close(&r, 1000);
}

static int answered;
static void on_reply(void *user, const fv_rpc_end *end, fv_rpc_call *c, grpc_byte_buffer *reply) {
    (void)c;
    *(fv_rpc_end *)user = *end;
    ((fv_rpc_end *)user)->text = "";
    answered++;
    cr_assert_eq(reply != NULL, end->status == FV_OK);
}

Test(rpc_calls, unary_answers_once_whether_it_goes_well_or_not) {
    net_open(&r);
    fv_rpc_end end[2];
    /* Any message will do: this one has no fields. */
    static const ProtobufCMessageDescriptor empty = {.magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC,
                                                     .name = "Empty",
                                                     .sizeof_message = sizeof(ProtobufCMessage)};
    ProtobufCMessage m = PROTOBUF_C_MESSAGE_INIT(&empty);
    cr_assert_eq(fv_rpc_unary(r.channel, NET_ECHO, &m, 5000, on_reply, &end[0], NULL), FV_OK);
    cr_assert_eq(fv_rpc_unary(r.channel, "/no.Where/None", &m, 5000, on_reply, &end[1], NULL),
                 FV_OK);
    net_wait_for(&r, &answered, 2);
    cr_assert_eq(end[0].status, FV_OK);
    cr_assert_eq(end[1].status, FV_EUNSUPPORTED);
    net_close(&r, 1000);
}
