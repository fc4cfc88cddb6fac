/* The client in Go: built as its README says, and its answers over TLS with a key. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/certs.h"
#include "tests/support/fleet.h"
#include "tests/support/tensor_file.h"

static fleet f;

static void end(void) { fleet_close(&f); }

static void ask(const char *more) {
    command_run(&fleet_said,
                "%s/go/ask -to %s -tls-ca %s/ca.crt -image " FOVEA_TEST_DATA
                "/golden/demo.png -max-tokens 4 %s 'what is it?'",
                f.dir, f.address, f.dir, more);
}

static void refused(const char *more, const char *words) {
    ask(more);
    cr_assert_eq(fleet_said.status, 1, "%s: %s", more, fleet_said.out);
    cr_assert(strstr(fleet_said.err, words), "%s: %s", more, fleet_said.err);
}

/* printf %s fovea-key-a | sha256sum */
#define TENANTS                                                                                    \
    "{\"tenants\":{\"a\":{\"keys\":["                                                              \
    "\"efd1397abec326181d22e93a1d02f2c6b4d9c1acc0286d281672ce477983d75a\"]}}}"

Test(go_client, is_built_offline_and_gets_along_with_a_fleet, .fini = end, .timeout = 1200) {
    char args[3000], more[700];
    command_run(&fleet_said, "command -v go protoc-gen-go protoc-gen-go-grpc && test -d "
                             "/usr/share/gocode/src/google.golang.org/grpc");
    if (fleet_said.status != 0) cr_skip("no Go with gRPC (packages in clients/go/README.md)");
    fleet_open(&f, "go");
    fleet_synth(&f, "tiny");
    command_run(&fleet_said, FOVEA_TEST_DATA "/../clients/go/build %s/go 2>&1", f.dir);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    certs_authority(f.dir, "ca");
    certs_issue(f.dir, "ca", "all",
                "DNS:fovea-router,DNS:fovea-prefill,DNS:fovea-decode,IP:127.0.0.1", 24);
    write_text(f.dir, "tenants.json", TENANTS);
    write_text(f.dir, "key", "fovea-key-a\n");
    snprintf(args, sizeof args,
             "--tls-cert %s/all.crt --tls-key %s/all.key --tls-ca %s/ca.crt --tenants "
             "%s/tenants.json --api-key-file %s/key",
             f.dir, f.dir, f.dir, f.dir, f.dir);
    fleet_start(&f, args);
    snprintf(more, sizeof more, "-api-key-file %s/key -policy 'prune=random,layer=1'", f.dir);
    ask(more);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
    cr_assert(strstr(fleet_said.err, "prune=random,layer=1,keep=0.5,seed=0"), "%s", fleet_said.err);
    cr_assert(strstr(fleet_said.err, "4 generated"), "%s", fleet_said.err);
    refused("", "Unauthenticated: ");
    snprintf(more, sizeof more, "-api-key-file %s/key -policy prune=magic", f.dir);
    refused(more, "InvalidArgument: ");
    fleet_stop(&f);
}
