/* The gateway beside a fleet, as `fovea up --http` starts it: gateway_client.py has the cases. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/fleet.h"

static fleet f;

static void end(void) { fleet_close(&f); }

static char address[64]; /* of the gateway */

static void start(const char *args) {
    fleet_start(&f, args);
    fleet_gateway(&f, address);
}

Test(gateway, serves_openais_api, .fini = end, .timeout = 600) {
    fleet_open(&f, "gateway");
    command_run(&fleet_said, "ln -s " FOVEA_TEST_DATA "/../checkpoints/nano %s/ck", f.dir);
    start("--http 127.0.0.1:0 --threads 1 --keep-ms-max 60000");
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/gateway_client.py %s " FOVEA_BIN "/fovea-gateway " FOVEA_TEST_DATA
                "/golden/demo.png 2>&1",
                address);
    FLEET_MAY_SKIP(end, "no python3");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(gateway, streams_outlive_the_patience_of_proxies, .fini = end, .timeout = 600) {
    fleet_open(&f, "gateway-proxy");
    command_run(&fleet_said, "ln -s " FOVEA_TEST_DATA "/../checkpoints/nano %s/ck", f.dir);
    start("--http 127.0.0.1:0 --threads 1 --silence-ms 60000 --stall-ms 60000");
    const int prefill = fleet_child(&f, "fovea-prefill");
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/gateway_proxy.py %s %d " FOVEA_TEST_DATA "/../build/proxies 2>&1",
                address, prefill);
    FLEET_MAY_SKIP(end, "no python3");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(gateway, chooses_tokens_under_rules_and_returns_prompts, .fini = end, .timeout = 600) {
    fleet_open(&f, "gateway-rules");
    command_run(&fleet_said, "ln -s " FOVEA_TEST_DATA "/../checkpoints/nano %s/ck", f.dir);
    start("--http 127.0.0.1:0 --threads 1 --keep-ms-max 60000");
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/gateway_rules.py %s " FOVEA_TEST_DATA "/golden/demo.png 2>&1",
                address);
    FLEET_MAY_SKIP(end, "no python3");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

/* Runs the cases of tools and responses for a fleet with these further arguments. */
static void expect_responses(const char *args, const char *cases) {
    char all[1000];
    snprintf(all, sizeof all, "--http 127.0.0.1:0 --threads 1 %s", args);
    fleet_open(&f, "gateway-responses");
    command_run(&fleet_said, "ln -s " FOVEA_TEST_DATA "/../checkpoints/nano %s/ck", f.dir);
    start(all);
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/gateway_responses.py %s %s 2>&1",
                address, cases);
    FLEET_MAY_SKIP(end, "no python3");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(gateway, responses_continue_each_other, .fini = end, .timeout = 600) {
    expect_responses("", "plain " FOVEA_TEST_DATA "/golden/demo.png");
}

Test(gateway, tools_and_reasoning_follow_the_template, .fini = end, .timeout = 600) {
    expect_responses("--chat " FOVEA_TEST_DATA "/golden/chat_tools/hermes.jinja", "marked");
}

Test(gateway, responses_are_kept_in_redis, .fini = end, .timeout = 600) {
    fleet_open(&f, "gateway-store");
    command_run(&fleet_said, "ln -s " FOVEA_TEST_DATA "/../checkpoints/nano %s/ck", f.dir);
    start("--http 127.0.0.1:0 --threads 1");
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/gateway_store.py %s " FOVEA_BIN "/fovea-gateway " FOVEA_TEST_DATA
                "/golden/demo.png %s 2>&1",
                f.address, f.dir);
    FLEET_MAY_SKIP(end, "no python3, or no redis-server");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_stop(&f);
}

/* Starts a fleet with a tenant `a`, whose key is "secret". */
static void start_with_tenant(const char *name) {
    char args[1000];
    fleet_open(&f, name);
    fleet_synth(&f, "tiny");
    command_run(&fleet_said,
                "cd %s && printf secret >key && printf "
                "'{\"tenants\":{\"a\":{\"keys\":[\"%%s\"],\"policies\":[\"exact\"]}}}' "
                "$(sha256sum <key | cut -c1-64) >tenants.json && chmod 600 key tenants.json",
                f.dir);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
    snprintf(args, sizeof args,
             "--http 127.0.0.1:0 --tenants %s/tenants.json --api-key-file %s/key", f.dir, f.dir);
    start(args);
}

Test(gateway, passes_the_callers_key_on, .fini = end, .timeout = 300) {
    start_with_tenant("gateway-key");
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/gateway_key.py %s secret 2>&1",
                address);
    FLEET_MAY_SKIP(end, "no python3");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_stop(&f);
}

Test(gateway, one_key_is_enough_to_protect_a_fleet, .fini = end, .timeout = 300) {
    fleet_open(&f, "gateway-api-key");
    fleet_synth(&f, "tiny");
    start("--http 127.0.0.1:0 --api-key sk-first-Key --api-key=sk-second-Key");
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/gateway_api_key.py %s %d sk-first-Key sk-second-Key -- " FOVEA_BIN
                "/fovea-gateway 2>&1",
                address, f.pid);
    FLEET_MAY_SKIP(end, "no python3");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    command_run(&fleet_said, FOVEA_BIN "/fovea ask --to %s hello", f.address);
    cr_assert(fleet_said.status != 0 && strstr(fleet_said.err, "requires a credential"), "%s",
              fleet_said.err);
    command_run(&fleet_said,
                "printf sk-second-Key >%s/key && " FOVEA_BIN
                "/fovea ask --to %s --api-key-file %s/key --max-tokens 2 hello",
                f.dir, f.address, f.dir);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
    fleet_stop(&f);
    command_run(&fleet_said, "! grep -r 'sk-[fs]' %s/up.out %s/up.err", f.dir, f.dir);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
}

Test(gateway, bodies_cost_no_more_than_they_should, .fini = end, .timeout = 600) {
    start_with_tenant("gateway-bodies");
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/gateway_bodies.py %s secret %d 2>&1",
                address, f.pid);
    FLEET_MAY_SKIP(end, "no python3");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_stop(&f);
}
