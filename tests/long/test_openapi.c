/* The gateway's description of itself, by tools of PyPI: openapi.py has the checks. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/fleet.h"

static fleet f;

static void end(void) { fleet_close(&f); }

Test(openapi, the_description_is_valid_and_kept, .fini = end, .timeout = 900) {
    char address[64];
    fleet_open(&f, "openapi");
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--http 127.0.0.1:0 --threads 1");
    fleet_gateway(&f, address);
    command_run(&fleet_said,
                "python=" FOVEA_TEST_DATA "/../build/openai-venv/bin/python; "
                "[ -x $python ] || python=python3; "
                "$python -B " FOVEA_TEST_DATA "/long/openapi.py %s 2>&1",
                address);
    FLEET_MAY_SKIP(end, "%.1000s", fleet_said.out);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}
