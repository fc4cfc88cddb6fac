/* decode-worker/schedule/memory.h in a fleet: answers that are preempted for lack of KV, and replayed. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fleet.h"

static fleet f;

static void end(void) { fleet_close(&f); }

TestSuite(growing, .fini = end, .timeout = 600);

static void run(const char *args) {
    char address[64];
    fleet_start(&f, args);
    fleet_gateway(&f, address);
    command_run(&fleet_said,
                "command -v python3 >/dev/null || exit 77; python3 -B " FOVEA_TEST_DATA
                "/e2e/growing_answers.py %s 2>&1",
                address);
    FLEET_MAY_SKIP(end, "no python3");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_wait_idle(&f);
}

static int preemptions(void) {
    command_run(&fleet_said, "grep -c event=preempted %s/up.err", f.dir);
    return atoi(fleet_said.out);
}

Test(growing, answers_in_a_pool_that_is_too_small_for_all_are_the_same_as_alone) {
    fleet_open(&f, "growing");
    fleet_synth(&f, "tiny");
    run("--http 127.0.0.1:0 --threads 1 --log info --kv-bytes 900000 --replays 0");
    cr_assert_gt(preemptions(), 0);
    fleet_stop(&f);
}

Test(growing, with_all_memory_reserved_nobody_is_preempted) {
    fleet_open(&f, "reserving");
    fleet_synth(&f, "tiny");
    run("--http 127.0.0.1:0 --threads 1 --log info --kv-bytes 900000 --reserve full");
    cr_assert_eq(preemptions(), 0);
    fleet_stop(&f);
}
