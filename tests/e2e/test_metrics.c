/* /metrics of each daemon, after requests: metrics.py has the comparisons. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/crew.h"

static crew c;
static program gateway;
static fleet f;

static void end(void) {
    program_kill(&gateway, SIGKILL);
    crew_close(&c);
}

Test(metrics, of_each_daemon_are_what_was_sent, .fini = end, .timeout = 600) {
    char set[500];
    crew_open(&c, "metrics", "nano");
    snprintf(c.router_args, sizeof c.router_args, "--metrics 0 --log-format json");
    snprintf(c.prefill_args, sizeof c.prefill_args, "--metrics 0");
    snprintf(c.decode_args, sizeof c.decode_args, "--metrics 0");
    crew_start(&c, 1, 1);
    program_start(&gateway, c.f.dir, "gateway", "fovea-gateway", "--router %s --metrics 0",
                  c.f.address);
    snprintf(set, sizeof set, "%s/contracts.bin", c.f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    command_run(&fleet_said,
                "test -x /usr/bin/python3 || exit 77; /usr/bin/python3 -B " FOVEA_TEST_DATA
                "/e2e/metrics.py %s %s " FOVEA_TEST_DATA
                "/golden/demo.png %s/router.log %s %s %s %s %s "
                "2>&1",
                c.f.address, set, c.f.dir, gateway.address, c.router.metrics, c.prefill[0].metrics,
                c.decode[0].metrics, gateway.metrics);
    FLEET_MAY_SKIP(end, "%.1000s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fputs(fleet_said.out, stdout);
    program_kill(&gateway, SIGTERM);
    cr_assert_eq(program_wait(&gateway), 0);
    crew_stop(&c);
}

static void close_fleet(void) { fleet_close(&f); }

/* `fovea up` gives each process its own port, counting from the given one. */
Test(metrics, of_a_fleet_are_on_ports_in_a_row, .fini = close_fleet, .timeout = 300) {
    static const char *const names[] = {"fovea_workers{role=\"prefill\",state=\"ready\"} 1",
                                        "fovea_images_total 0", "fovea_conversations 0",
                                        "fovea_http_running_requests 0"};
    int port = 20000 + (int)getpid() % 10000;
    char args[64];
    fleet_open(&f, "metrics_up");
    fleet_synth(&f, "tiny");
    snprintf(args, sizeof args, "--metrics %d --http 127.0.0.1:0", port);
    fleet_start(&f, args);
    for (int i = 0; i < 4; i++) {
        command_run(&fleet_said,
                    "bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; "
                    "printf \"GET /metrics HTTP/1.0\\r\\n\\r\\n\" >&3; "
                    "grep -cFx -- \"$1\" <&3' - '%s'",
                    port + i, names[i]);
        cr_assert_eq(fleet_said.status, 0, "%d: %s", port + i, fleet_said.err);
    }
    fleet_stop(&f);
    command_run(&fleet_said, FOVEA_BIN "/fovea up --checkpoint %s/ck --metrics 0", f.dir);
    cr_assert_eq(fleet_said.status, 2);
    command_run(&fleet_said, FOVEA_BIN "/fovea up --checkpoint %s/ck --metrics 127.0.0.1:65534",
                f.dir);
    cr_assert_eq(fleet_said.status, 2);
}
