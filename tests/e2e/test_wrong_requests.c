/* Wrong requests against real workers (wrong_requests.py): callers are told so, no request is tried
 * again, and no worker's breaker changes. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/crew.h"

static crew c;

static void end(void) { crew_close(&c); }

Test(wrong_requests, are_their_callers_fault_and_no_workers, .fini = end, .timeout = 600) {
    char set[500];
    crew_open(&c, "wrong", "tiny");
    crew_start(&c, 1, 1);
    snprintf(set, sizeof set, "%s/contracts.bin", c.f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    command_run(&fleet_said,
                "test -x /usr/bin/python3 || exit 77; /usr/bin/python3 -B " FOVEA_TEST_DATA
                "/e2e/wrong_requests.py %s %s " FOVEA_TEST_DATA "/golden/demo.png 2>&1",
                c.f.address, set);
    FLEET_MAY_SKIP(end, "no /usr/bin/python3 with grpc (package python3-grpcio)");
    printf("%s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    cr_assert_not(program_said(&c.router, "event=replay"), "a request was tried again");
    cr_assert(program_runs(&c.router) && program_runs(&c.prefill[0]) && program_runs(&c.decode[0]));
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}
