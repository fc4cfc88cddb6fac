/* Attacks on the router's client port, alone and behind nghttpx: front_attacks.py lists them. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/crew.h"
#include "tests/support/sanitized.h"

static crew c;

static void end(void) { crew_close(&c); }

/* How far the router's memory may rise: a quarter of its memory is for the network and a quarter
 * for requests; sanitizers keep freed memory. */
enum { MEMORY_MIB = 512, RISE_MIB = SANITIZED ? 4 * MEMORY_MIB : MEMORY_MIB * 3 / 4 };

Test(front, neighbours_are_answered_and_memory_is_bounded_under_attack, .fini = end,
     .timeout = 600) {
    char set[500];
    crew_open(&c, "front", "nano");
    snprintf(c.router_args, sizeof c.router_args,
             "--memory-bytes %d --queue 512 --first-message-ms 2000 --log warn", MEMORY_MIB << 20);
    crew_start(&c, 1, 1);
    snprintf(set, sizeof set, "%s/contracts.bin", c.f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    command_run(&fleet_said,
                "test -x /usr/bin/python3 || exit 77; /usr/bin/python3 -B " FOVEA_TEST_DATA
                "/e2e/front_attacks.py %s %d %s " FOVEA_TEST_DATA
                "/golden/demo.png " FOVEA_TEST_DATA
                "/../deploy/kubernetes/router/nghttpx.conf %lld 2>&1",
                c.f.address, (int)c.router.pid, set, (long long)RISE_MIB << 20);
    FLEET_MAY_SKIP(end, "no /usr/bin/python3 with grpc, or no nghttpx (packages python3-grpcio, "
                        "nghttp2-proxy)");
    printf("%s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    cr_assert(program_runs(&c.router) && program_runs(&c.prefill[0]) && program_runs(&c.decode[0]));
    cr_assert_not(program_said(&c.router, "event=lost"), "no worker was taken for lost");
    crew_stop(&c);
}
