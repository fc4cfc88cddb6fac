/* docs/CLIENTS.md: a client in Python that does as that page says notices neither a router that is
 * killed nor one that is full, and requests of the other router do not notice it at all. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/crew.h"
#include "tests/support/tensor_file.h"

static crew c;
static program client;

static void end(void) {
    program_kill(&client, SIGKILL);
    crew_close(&c);
}

/* printf %s KEY | sha256sum */
#define KEY_A "fovea-key-a"
#define SHA_A "efd1397abec326181d22e93a1d02f2c6b4d9c1acc0286d281672ce477983d75a"
#define KEY_B "fovea-key-b"
#define SHA_B "3ae1e439be6824c6c73d1bc577322fe992314a5f352f20ccd81f1e3f258fad27"

static void begin_phase(const char *phase) {
    char words[64];
    write_text(c.f.dir, phase, "");
    snprintf(words, sizeof words, "%s is over", phase);
    program_wait_said(&client, words);
}

Test(clients, notice_neither_a_router_that_is_killed_nor_a_limit, .fini = end, .timeout = 300) {
    char set[500];
    command_run(&fleet_said, "/usr/bin/python3 -c 'import grpc'");
    if (fleet_said.status != 0) cr_skip("no python3-grpcio");
    crew_open(&c, "clients", "tiny");
    write_text(c.f.dir, "tenants.json",
               "{\"tenants\":{\"a\":{\"keys\":[\"" SHA_A "\"],\"requests_per_s\":20},"
               "\"b\":{\"keys\":[\"" SHA_B "\"]}}}");
    snprintf(c.router_args, sizeof c.router_args, "--tenants %s/tenants.json", c.f.dir);
    crew_start_second(&c);
    crew_start(&c, 1, 1);
    program_wait_said(&c.second, "worker=prefill-0 event=joined");
    program_wait_said(&c.second, "worker=decode-0 event=joined");
    snprintf(set, sizeof set, "%s/contracts.bin", c.f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    program_start(&client, c.f.dir, "client", "/usr/bin/python3",
                  "-B " FOVEA_TEST_DATA "/e2e/clients.py %s " FOVEA_TEST_DATA
                  "/../docs/CLIENTS.md %s %s %s " KEY_A " " KEY_B,
                  set, c.f.address, c.second_address, c.f.dir);
    program_kill(&c.router, SIGKILL);
    begin_phase("phase-1");
    crew_start_router(&c);
    program_wait_said(&c.router, "worker=prefill-0 event=joined");
    program_wait_said(&c.router, "worker=decode-0 event=joined");
    write_text(c.f.dir, "phase-2-begins", "");
    program_wait_said(&client, "the second one is left");
    program_kill(&c.second, SIGKILL);
    begin_phase("phase-2");
    write_text(c.f.dir, "stop", "");
    cr_assert_eq(program_wait(&client), 0, "see %s/client.log", c.f.dir);
    crew_stop(&c);
}
