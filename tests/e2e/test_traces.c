/* Spans of each daemon at a collector of OpenTelemetry: traces.py has the comparisons. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/crew.h"

#define COLLECTOR_PYTHON FOVEA_TEST_DATA "/../build/collector-venv/bin/python"

static crew c;
static program collector, gateway;

static void end(void) {
    program_kill(&collector, SIGKILL);
    program_kill(&gateway, SIGKILL);
    crew_close(&c);
}

static void start_collector(const char *address) {
    program_start(&collector, c.f.dir, "collector", COLLECTOR_PYTHON,
                  "-B " FOVEA_TEST_DATA "/e2e/collector.py %s %s/spans", address, c.f.dir);
}

static void run(const char *part, const char *more) {
    command_run(&fleet_said,
                "/usr/bin/python3 -B " FOVEA_TEST_DATA "/e2e/traces.py %s %s %s/contracts.bin "
                "%s/spans " FOVEA_TEST_DATA "/golden/demo.png %s %s 2>&1",
                part, c.f.address, c.f.dir, c.f.dir, c.router.metrics, more);
    FLEET_MAY_SKIP(end, "%.1000s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
}

Test(traces, of_requests_reach_a_collector_and_nothing_waits_for_it, .fini = end, .timeout = 600) {
    char set[500], address[64];
    if (access(COLLECTOR_PYTHON, X_OK) != 0 || access("/usr/bin/python3", X_OK) != 0)
        cr_skip("there is no build/collector-venv: ./dev test makes it");
    crew_open(&c, "traces", "nano");
    snprintf(set, sizeof set, "%s/contracts.bin", c.f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    start_collector("127.0.0.1:0");
    snprintf(address, sizeof address, "%s", collector.address);
    snprintf(c.router_args, sizeof c.router_args, "--metrics 0 --otlp %s", address);
    snprintf(c.prefill_args, sizeof c.prefill_args, "--otlp %s", address);
    snprintf(c.decode_args, sizeof c.decode_args, "--otlp %s", address);
    crew_start(&c, 1, 1);
    run("spans", FOVEA_TEST_DATA "/../docs/METRICS.md");
    program_start(&gateway, c.f.dir, "gateway", "fovea-gateway", "--router %s --otlp %s",
                  c.f.address, address);
    run("gateway", gateway.address);
    program_kill(&gateway, SIGTERM);
    cr_assert_eq(program_wait(&gateway), 0);
    program_kill(&collector, SIGKILL);
    run("away", "");
    start_collector(address);
    run("back", "");
    crew_stop(&c);
    run("stopped", ""); /* pending spans are sent at the end */
}
