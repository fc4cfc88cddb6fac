/* The client's address, passed on from a proxy by the gateway and the router to the decode worker,
 * which shares its slots by it. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/gateway.h"
#include "tests/support/router_rig.h"

static router_rig rig;
static fv_gateway *gateway;
static fv_trusted *trusted;
static bool closed;

static void on_closed(void *user) {
    (void)user;
    closed = true;
}

static void open_all(void) {
    static const char *const proxies[] = {"127.0.0.0/8"};
    fv_router_options router = router_rig_options();
    cr_assert_eq(fv_trusted_open(proxies, 1, &trusted), FV_OK);
    router.trusted = trusted;
    router_rig_with_workers(&rig, &router);
    fv_gateway_options opt = {.bridge = rig.bridge,
                              .listen = "127.0.0.1:0",
                              .router = rig.target,
                              .body_max = 1 << 20,
                              .bodies_max = 1 << 20,
                              .json_max = 1 << 20,
                              .connections = 16,
                              .read_ms = 60000,
                              .deadline_ms = 60000,
                              .trusted = trusted};
    cr_assert_eq(fv_gateway_open(&opt, &gateway), FV_OK, "%s", fv_last_error());
}

static void close_all(void) {
    fv_gateway_close(gateway, on_closed, NULL);
    while (!closed) uv_run(&rig.loop, UV_RUN_ONCE);
    router_rig_close(&rig);
    fv_trusted_close(trusted);
}

TestSuite(gateway_address, .init = open_all, .fini = close_all, .timeout = 240);

/* The name by which the decode worker shares its slots, for a request with this header line. */
static const char *share_of(const char *header) {
    static const char body[] =
        "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}]}";
    char text[1024];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), calls = rig.d.calls;
    int n = snprintf(text, sizeof text,
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: "
                     "%zu\r\n\r\n%s",
                     header, sizeof body - 1, body);
    to.sin_port = htons((uint16_t)atoi(strrchr(fv_gateway_address(gateway), ':') + 1));
    cr_assert_eq(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    cr_assert_eq(write(fd, text, (size_t)n), n);
    router_rig_wait_for(&rig, &rig.d.calls, calls + 1);
    close(fd);
    return rig.d.share;
}

Test(gateway_address, the_fleet_is_shared_by_the_address_of_the_gateways_client) {
    cr_assert_str_eq(share_of(""), "address 127.0.0.1");
    cr_assert_str_eq(share_of("X-Forwarded-For: 198.51.100.7, 192.0.2.9\r\n"), "address 192.0.2.9");
    cr_assert_str_eq(share_of("X-Forwarded-For: 2001:db8::7\r\n"), "address 2001:db8::/64");
    cr_assert_str_eq(rig.d.tenant, "", "an address owns nothing");
}
