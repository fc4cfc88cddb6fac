/* rpc/health.c */
#include <criterion/criterion.h>
#include <string.h>

#include "grpc/health/v1/health.pb-c.h"
#include "rpc/health.h"
#include "tests/support/net.h"

TestSuite(rpc_health, .timeout = 240);

enum { SERVING = 1, NOT_SERVING = 2, SERVICE_UNKNOWN = 3 };

static net r;
static fv_health *health;

static void open_with_health(void) {
    cr_assert_eq(fv_health_open(&health), FV_OK);
    r.services[r.n_service++] = fv_health_service(health);
    net_open(&r);
}

static void close_with_health(void) {
    net_close(&r, 1000);
    fv_health_close(health);
}

static void ask(net_heard *h, const char *method, const char *service) {
    Grpc__Health__V1__HealthCheckRequest m = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    uint8_t bytes[256];
    m.service = (char *)(uintptr_t)service;
    size_t n = protobuf_c_message_pack(&m.base, bytes);
    net_ask(&r, h, method, 10000, bytes, n);
}

/* An answer is "08 <state>". */
static int state(const net_heard *h) { return (int)(h->numbers[0] >> 8 & 0xff); }

static int check(const char *service, fv_rpc_end *end) {
    net_heard h = {0};
    ask(&h, "/grpc.health.v1.Health/Check", service);
    net_wait(&r, &h.over);
    *end = h.end;
    return state(&h);
}

Test(rpc_health, check_says_what_was_set) {
    fv_rpc_end end;
    open_with_health();
    fv_health_set(health, "", FV_HEALTH_SERVING);
    fv_health_set(health, "a.B", FV_HEALTH_NOT_SERVING);
    cr_assert_eq(check("", &end), SERVING);
    cr_assert_eq(end.status, FV_OK);
    cr_assert_eq(check("a.B", &end), NOT_SERVING);
    fv_health_set(health, "a.B", FV_HEALTH_SERVING);
    cr_assert_eq(check("a.B", &end), SERVING);
    close_with_health();
}

Test(rpc_health, check_of_an_unknown_service_is_not_found) {
    fv_rpc_end end;
    open_with_health();
    check("no.Such", &end);
    cr_assert_eq(end.status, FV_ENOTFOUND);
    close_with_health();
}

Test(rpc_health, check_of_bytes_that_are_no_request_is_the_clients_mistake) {
    net_heard h = {0};
    open_with_health();
    net_ask_wait(&r, &h, "/grpc.health.v1.Health/Check", "\x0a\x01\xff", 3);
    cr_assert_eq(h.end.status, FV_EINVAL);
    close_with_health();
}

Test(rpc_health, watch_sends_every_change_and_nothing_else) {
    net_heard h = {0};
    open_with_health();
    ask(&h, "/grpc.health.v1.Health/Watch", "a.B");
    net_wait_for(&r, &h.n, 1);
    cr_assert_eq(state(&h), SERVICE_UNKNOWN);
    fv_health_set(health, "a.B", FV_HEALTH_SERVING);
    net_wait_for(&r, &h.n, 2);
    cr_assert_eq(state(&h), SERVING);
    fv_health_set(health, "a.B", FV_HEALTH_SERVING);
    fv_health_set(health, "other", FV_HEALTH_NOT_SERVING);
    fv_health_set(health, "a.B", FV_HEALTH_NOT_SERVING);
    net_wait_for(&r, &h.n, 3);
    cr_assert_eq(state(&h), NOT_SERVING);
    cr_assert_eq(h.n, 3);
    close_with_health();
    cr_assert_eq(h.end.code, GRPC_STATUS_UNAVAILABLE, "stopping ends the watch");
}

Test(rpc_health, a_stopping_server_tells_its_watchers_before_it_ends_them) {
    net_heard h = {0};
    open_with_health();
    fv_health_set(health, "", FV_HEALTH_SERVING);
    ask(&h, "/grpc.health.v1.Health/Watch", "");
    net_wait_for(&r, &h.n, 1);
    close_with_health();
    cr_assert_eq(h.n, 2);
    cr_assert_eq(state(&h), NOT_SERVING);
}

Test(rpc_health, a_watcher_that_goes_away_is_removed) {
    net_heard h[3] = {0};
    open_with_health();
    for (int i = 0; i < 3; i++) {
        ask(&h[i], "/grpc.health.v1.Health/Watch", "");
        net_wait_for(&r, &h[i].n, 1);
    }
    fv_rpc_call_cancel(h[1].call);
    net_wait(&r, &h[1].over);
    net_sleep(&r, 20);
    fv_health_set(health, "", FV_HEALTH_SERVING);
    net_wait_for(&r, &h[0].n, 2);
    net_wait_for(&r, &h[2].n, 2);
    close_with_health();
}

Test(rpc_health, a_slow_watcher_gets_the_last_state) {
    net_heard h = {.pause_each = true};
    open_with_health();
    ask(&h, "/grpc.health.v1.Health/Watch", "");
    net_wait_for(&r, &h.n, 1);
    for (int i = 0; i < 2000; i++)
        fv_health_set(health, "", i % 2 ? FV_HEALTH_SERVING : FV_HEALTH_NOT_SERVING);
    h.pause_each = false;
    fv_rpc_call_resume(h.call);
    net_sleep(&r, 200);
    cr_assert_eq(state(&h), SERVING);
    cr_assert_lt(h.n, 2000, "what was passed over is not made up for: %d", h.n);
    close_with_health();
}
