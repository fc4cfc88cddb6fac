/* Debian's Prometheus scrapes a fleet: prometheus.py has the comparisons. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/crew.h"

static crew c;
static program gateway;

static void end(void) {
    program_kill(&gateway, SIGKILL);
    crew_close(&c);
}

Test(prometheus, has_the_numbers_of_a_fleet_and_series_for_the_dashboard, .fini = end,
     .timeout = 600) {
    char set[500];
    crew_open(&c, "prometheus", "nano");
    for (int i = 0; i < 3; i++)
        snprintf(i == 0   ? c.router_args
                 : i == 1 ? c.prefill_args
                          : c.decode_args,
                 64, "--metrics 0");
    crew_start(&c, 1, 1);
    program_start(&gateway, c.f.dir, "gateway", "fovea-gateway", "--router %s --metrics 0",
                  c.f.address);
    snprintf(set, sizeof set, "%s/contracts.bin", c.f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    command_run(&fleet_said,
                "test -x /usr/bin/python3 || exit 77; /usr/bin/python3 -B " FOVEA_TEST_DATA
                "/e2e/prometheus.py %s %s " FOVEA_TEST_DATA
                "/golden/demo.png %s %s %s %s %s %s 2>&1",
                c.f.address, set, c.f.dir, gateway.address, c.router.metrics, c.prefill[0].metrics,
                c.decode[0].metrics, gateway.metrics);
    FLEET_MAY_SKIP(end, "%.1000s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    program_kill(&gateway, SIGTERM);
    cr_assert_eq(program_wait(&gateway), 0);
    crew_stop(&c);
}
