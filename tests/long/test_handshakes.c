/* rpc/tls.c: ten thousand handshakes; tests/unit/rpc/test_rpc_tls.c has a few. */
#include <criterion/criterion.h>

#include "tests/support/certs.h"
#include "tests/support/handshakes.h"
#include "tests/support/tensor_file.h"

TestSuite(handshakes, .timeout = 1800);

static fv_tls *tls(const char *dir, const char *pair) {
    fv_tls *t;
    fv_tls_files files = {.cert = certs_path(dir, pair, "crt"),
                          .key = certs_path(dir, pair, "key"),
                          .ca = certs_path(dir, "ca", "crt")};
    cr_assert_eq(fv_tls_open(&files, &t), FV_OK, "%s", fv_last_error());
    return t;
}

Test(handshakes, ten_thousand_leave_nothing_behind) {
    enum { GROWTH = 512 << 10 };
    static net r;
    char dir[512];
    scratch_dir(dir, sizeof dir);
    certs_authority(dir, "ca");
    certs_issue(dir, "ca", "server", "DNS:fovea-decode", 24);
    certs_issue(dir, "ca", "client", "DNS:fovea-router", 24);
    r.server_tls = tls(dir, "server");
    r.channel_tls = tls(dir, "client");
    r.server_name = "fovea-decode";
    net_open(&r);
    cr_assert_lt(handshakes_growth(&r, 200, 10000, GROWTH), GROWTH);
    net_close(&r, 1000);
    fv_tls_close(r.server_tls);
    fv_tls_close(r.channel_tls);
}
