/* gateway/generate.c, gateway/alive.h: streams that wait, and requests with several prompts. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/support/gateway_rig.h"

static gateway_rig rig;
static gateway_client c;

static void end(void) { gateway_rig_close(&rig); }

TestSuite(gateway_streams, .fini = end, .timeout = 240);

#define CHAT "/v1/chat/completions"
#define HELLO                                                                                      \
    "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":3,\"temperature\":0"

static void open_with(int32_t keep_alive_ms) {
    gateway_rig_open(&rig, &(fv_gateway_options){.keep_alive_ms = keep_alive_ms});
}

/* No Accepted comes, as in a long queue. */
static void ask_stalled(const char *body) {
    rig.router.p.step = FAKE_NOTHING;
    gateway_send(&c, &rig, "POST", CHAT, "", body);
}

Test(gateway_streams, one_that_waits_begins_and_gets_comments) {
    open_with(100);
    ask_stalled("{" HELLO ",\"stream\":true}");
    gateway_await(&c, "\r\n\r\n");
    cr_assert(strstr(c.got, "HTTP/1.1 200 OK\r\n") &&
                  strstr(c.got, "\r\nX-Accel-Buffering: no\r\n") &&
                  strstr(c.got, "\r\nContent-Type: text/event-stream\r\n"),
              "%s", c.got);
    while (gateway_count(&c, ": keep-alive\n\n") < 3) gateway_turn(&c, 10);
    cr_assert(!strstr(c.got, "data: "), "%s", c.got);
    fake_go_on(&rig.router.p);
    gateway_await(&c, "data: [DONE]\n\n");
    cr_assert_eq(gateway_count(&c, "\"role\":\"assistant\""), 1);
    cr_assert_eq(gateway_count(&c, "\"finish_reason\":\"length\""), 1);
    gateway_leave(&c);
}

Test(gateway_streams, one_that_has_begun_ends_with_its_error) {
    open_with(100);
    ask_stalled("{" HELLO ",\"stream\":true}");
    gateway_await(&c, ": keep-alive\n\n");
    rig.router.p.origin = FV_ORIGIN_CALLER;
    fake_fail(&rig.router.p, FV_EINVAL, NULL);
    gateway_await(&c, "data: [DONE]\n\n");
    cr_assert_eq(gateway_count(&c, "data: {\"error\":{"), 1, "%s", c.got);
    cr_assert(strstr(c.got, "invalid_request_error"), "%s", c.got);
    gateway_leave(&c);
}

Test(gateway_streams, a_wrong_request_has_its_status) {
    open_with(100);
    gateway_send(&c, &rig, "POST", CHAT, "", "{" HELLO ",\"stream\":true,\"top_p\":7}");
    gateway_await(&c, "HTTP/1.1 400");
    gateway_leave(&c);
    rig.router.p.step = FAKE_NOTHING;
    rig.router.p.fail = FV_EINVAL;
    rig.router.p.origin = FV_ORIGIN_CALLER;
    gateway_send(&c, &rig, "POST", CHAT, "", "{" HELLO ",\"stream\":true}");
    gateway_await(&c, "HTTP/1.1 400");
    gateway_leave(&c);
}

Test(gateway_streams, others_get_no_comments) {
    open_with(50);
    ask_stalled("{" HELLO "}");
    gateway_turn(&c, 400);
    cr_assert_str_empty(c.got);
    fake_go_on(&rig.router.p);
    gateway_await(&c, "\"finish_reason\":\"length\"");
    cr_assert(strstr(c.got, "HTTP/1.1 200 OK\r\n") && !strstr(c.got, "keep-alive"), "%s", c.got);
    gateway_leave(&c);
}

Test(gateway_streams, comments_can_be_turned_off) {
    open_with(0);
    ask_stalled("{" HELLO ",\"stream\":true}");
    gateway_turn(&c, 1300);
    cr_assert_str_empty(c.got);
    gateway_leave(&c);
    router_rig_wait_for(&rig.router, &rig.router.p.cancelled, 1);
}

Test(gateway_streams, a_client_that_leaves_one_that_waits_ends_it) {
    open_with(50);
    ask_stalled("{" HELLO ",\"stream\":true,\"n\":2}");
    gateway_await(&c, ": keep-alive\n\n");
    gateway_leave(&c);
    router_rig_wait_for(&rig.router, &rig.router.p.cancelled, 1);
}

Test(gateway_streams, usage_comes_with_each_chunk_if_asked_for) {
    open_with(0);
    gateway_send(&c, &rig, "POST", CHAT, "",
                 "{" HELLO ",\"stream\":true,\"stream_options\":{\"include_usage\":true,"
                 "\"continuous_usage_stats\":true}}");
    gateway_await(&c, "data: [DONE]\n\n");
    cr_assert_eq(gateway_count(&c, "data: {"), gateway_count(&c, "\"usage\":{"), "%s", c.got);
    cr_assert(strstr(c.got, "\"completion_tokens\":1,") &&
              strstr(c.got, "\"completion_tokens\":2,"));
    gateway_leave(&c);
    gateway_send(&c, &rig, "POST", CHAT, "",
                 "{" HELLO ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    gateway_await(&c, "data: [DONE]\n\n");
    cr_assert_eq(gateway_count(&c, "\"usage\":{"), 1, "%s", c.got);
    cr_assert_eq(gateway_count(&c, "data: {"), gateway_count(&c, "\"usage\":null") + 1);
    gateway_leave(&c);
}

Test(gateway_streams, prompts_of_a_list_are_answered_in_order) {
    open_with(0);
    gateway_ask(&c, &rig, "POST", "/v1/completions", "",
                "{\"prompt\":[\"a\",[1,2],\"c\"],\"n\":2,\"max_tokens\":2}");
    cr_assert(strstr(c.got, "HTTP/1.1 200 OK\r\n"), "%s", c.got);
    cr_assert_eq(rig.router.p.calls, 6);
    const char *at = c.got;
    for (int i = 0; i < 6; i++) {
        char index[32];
        snprintf(index, sizeof index, "{\"index\":%d,", i);
        cr_assert(at = strstr(at, index), "%d: %s", i, c.got);
    }
    cr_assert(strstr(c.got, "\"completion_tokens\":12,"), "%s", c.got);
}
