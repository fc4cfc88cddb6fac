/* Clients that do not read their answers, against a whole fleet: HTTP, gateway, router, decode
 * worker. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/fleet.h"

TestSuite(readers, .timeout = 400);

static fleet f;

static void end(void) { fleet_close(&f); }

Test(readers, streams_that_nobody_reads_hold_no_slots_and_end_and_leave_no_memory) {
    char set[500], http[64];
    setenv("FOVEA_BATCH", "8", 1);
    setenv("FOVEA_TRUSTED_PROXIES", "127.0.0.1", 1);
    setenv("FOVEA_UNREAD_MS", "4000", 1);
    fleet_open(&f, "readers");
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--http 127.0.0.1:0");
    snprintf(set, sizeof set, "%s/contracts.bin", f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    fleet_gateway(&f, http);
    command_run(&fleet_said,
                "/usr/bin/python3 -B " FOVEA_TEST_DATA "/e2e/unread_streams.py %s %s %s %d 2>&1",
                http, f.address, set, fleet_child(&f, "fovea-decode"));
    FLEET_MAY_SKIP(end, "no python3-grpcio");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_stop(&f);
    fleet_close(&f);
}
