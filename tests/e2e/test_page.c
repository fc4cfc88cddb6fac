/* The gateway's page in a browser: page.py has the cases; --long runs all of them. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/fleet.h"
#include "tests/support/thorough.h"

static fleet f;

static void end(void) { fleet_close(&f); }

Test(page, works_in_a_browser, .fini = end, .timeout = 600) {
    char address[64];
    fleet_open(&f, "page");
    command_run(&fleet_said, "ln -s " FOVEA_TEST_DATA "/../checkpoints/nano %s/ck", f.dir);
    fleet_start(&f, "--http 127.0.0.1:0 --threads 1");
    fleet_gateway(&f, address);
    command_run(
        &fleet_said,
        "command -v python3 >/dev/null || exit 77; cd %s && TMPDIR=$PWD python3 -B " FOVEA_TEST_DATA
        "/e2e/page.py %s " FOVEA_TEST_DATA "/../checkpoints/nano/picture.png %s 2>&1",
        f.dir, address, thorough() ? "." : "");
    FLEET_MAY_SKIP(end, "%.1000s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}
