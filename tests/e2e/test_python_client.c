/* A fleet and Debian's gRPC for Python: fleet_client.py has the cases, python_package.py those of
 * our own package. */
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
    FLEET_MAY_SKIP(end, "no /usr/bin/python3 with grpc (package python3-grpcio)");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    command_run(
        &fleet_said,
        "cd %s && cp -r " FOVEA_TEST_DATA "/../clients/python package && protoc -I" FOVEA_TEST_DATA
        "/../proto --python_out=package fovea/inference/v1/inference.proto && "
        "PYTHONPATH=package /usr/bin/python3 -B " FOVEA_TEST_DATA
        "/e2e/python_package.py %s " FOVEA_TEST_DATA "/../checkpoints/nano/picture.png 2>&1",
        c.f.dir, c.f.address);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    crew_stop(&c);
}
