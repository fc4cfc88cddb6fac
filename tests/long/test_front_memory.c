/* Longer attacks on the router's client port, alone and behind nghttpx, and its memory 45 seconds
 * after each: tests/e2e/front_attacks.py lists them. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/crew.h"

static crew c;

static void end(void) { crew_close(&c); }

enum { MEMORY_MIB = 1024, RISE_MIB = MEMORY_MIB * 3 / 4 };

Test(front_memory, memory_taken_by_an_attack_is_released, .fini = end, .timeout = 2400) {
    char set[500];
    crew_open(&c, "front_memory", "nano");
    snprintf(c.router_args, sizeof c.router_args, "--memory-bytes %d --queue 512 --log warn",
             MEMORY_MIB << 20);
    crew_start(&c, 1, 1);
    snprintf(set, sizeof set, "%s/contracts.bin", c.f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    command_run(&fleet_said,
                "test -x /usr/bin/python3 || exit 77; /usr/bin/python3 -B " FOVEA_TEST_DATA
                "/e2e/front_attacks.py %s %d %s " FOVEA_TEST_DATA
                "/golden/demo.png " FOVEA_TEST_DATA
                "/../deploy/kubernetes/router/nghttpx.conf %lld 5 45 2>&1",
                c.f.address, (int)c.router.pid, set, (long long)RISE_MIB << 20);
    FLEET_MAY_SKIP(end, "no /usr/bin/python3 with grpc, or no nghttpx (packages python3-grpcio, "
                        "nghttp2-proxy)");
    printf("%s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    crew_stop(&c);
}
