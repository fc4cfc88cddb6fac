/* A fleet and Debian's Python client: fleet_client.py has the cases. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/crew.h"

static crew c;

static void end(void) { crew_close(&c); }

Test(python_client, gets_along_with_a_fleet, .fini = end, .timeout = 600) {
    char set[500];
    crew_open(&c, "python", "nano");
    crew_start(&c, 1, 1);
    snprintf(set, sizeof set, "%s/contracts.bin", c.f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    command_run(&fleet_said,
                "test -x /usr/bin/python3 || exit 77; /usr/bin/python3 -B " FOVEA_TEST_DATA
                "/e2e/fleet_client.py %s %s " FOVEA_TEST_DATA "/golden/demo.png %s %s %s 2>&1",
                c.f.address, set, c.fleet, c.prefill[0].address, c.decode[0].address);
    if (fleet_said.status == 77) cr_skip("no /usr/bin/python3 with grpc (package python3-grpcio)");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    crew_stop(&c);
}
