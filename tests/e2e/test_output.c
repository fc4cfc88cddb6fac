/* A command's output is written in full, or the command says that it is not and exits with 1:
 * /dev/full stands for a full disk, and a folder for a file that cannot be opened. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/fleet.h"

#define FOVEA FOVEA_BIN "/fovea"
#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

static command_result r;
static fleet f;
static char ck[512];

static void open_fleet(void) {
    fleet_open(&f, "output");
    fleet_synth(&f, "tiny");
    snprintf(ck, sizeof ck, "%s/ck", f.dir);
}

static void close_fleet(void) { fleet_close(&f); }

TestSuite(output, .init = open_fleet, .fini = close_fleet, .timeout = 300);

static void lost(const char *what) {
    cr_assert_eq(r.status, 1, "%s: %d: %s", what, r.status, r.err);
    cr_assert(strstr(r.err, "cannot write"), "%s: %s", what, r.err);
    cr_assert(strstr(r.err, "No space left on device"), "%s: %s", what, r.err);
}

Test(output, a_full_disk_behind_standard_output_is_a_failure) {
    command_run(&r, FOVEA " ask --checkpoint %s --max-tokens 2 --ignore-eos hi > /dev/full", ck);
    lost("ask");
    command_run(&r, FOVEA " ask --checkpoint %s --json --max-tokens 2 hi > /dev/full", ck);
    lost("ask --json");
    command_run(&r, FOVEA " policies > /dev/full");
    lost("policies");
    command_run(&r, FOVEA " policies --json > /dev/full");
    lost("policies --json");
    command_run(&r, FOVEA " ask --help > /dev/full");
    lost("help");
    command_run(&r, FOVEA " --version > /dev/full");
    lost("version");
    command_run(&r, FOVEA " synth --shape tiny --out %s/other > /dev/full", f.dir);
    lost("synth");
    command_run(&r, FOVEA " ask --checkpoint %s --max-tokens 2 hi 2> /dev/full", ck);
    cr_assert_eq(r.status, 1, "the report is lost");
}

Test(output, a_full_disk_after_a_file_is_a_failure) {
    command_run(
        &r, FOVEA " ask --checkpoint %s --image " IMAGE " --max-tokens 2 --overlay /dev/full hi",
        ck);
    lost("--overlay");
    command_run(&r,
                "mkdir %s/t && ln -s /dev/full %s/t/report.json && " FOVEA
                " trace --checkpoint %s --max-tokens 2 --prompt hi --out %s/t",
                f.dir, f.dir, ck, f.dir);
    lost("trace");
}

static int count_requests(void) {
    command_run(&fleet_said, "grep -c event=done %s/up.err", f.dir);
    int n = 0;
    sscanf(fleet_said.out, "%d", &n);
    return n;
}

Test(output, over_a_fleet_it_is_a_failure_too_and_known_before_anything_is_asked) {
    fleet_start(&f, "--log warn,router=info");
    command_run(&r, FOVEA " bench --to %s --requests 1 --out %s", f.address, f.dir);
    cr_assert_eq(r.status, 1, "%s", r.err);
    cr_assert(strstr(r.err, "Is a directory"), "%s", r.err);
    command_run(&r, FOVEA " ask --to %s --image " IMAGE " --overlay /nowhere/k.png hi", f.address);
    cr_assert_eq(r.status, 1, "%s", r.err);
    cr_assert(strstr(r.err, "cannot write /nowhere/k.png"), "%s", r.err);
    cr_assert_eq(count_requests(), 0, "%s", fleet_said.out);
    command_run(&r, FOVEA " ask --to %s --image " IMAGE " --max-tokens 2 --overlay /dev/full hi",
                f.address);
    lost("ask --to --overlay");
    cr_assert_null(strstr(r.err, f.address), "no failure of the fleet's: %s", r.err);
    command_run(&r, FOVEA " bench --to %s --requests 1 --max-tokens 2 --out /dev/full", f.address);
    lost("bench --out");
    command_run(&r, FOVEA " bench --to %s --requests 1 --max-tokens 2 > /dev/full", f.address);
    lost("bench");
    command_run(&r, FOVEA " ask --to %s --max-tokens 2 --ignore-eos hi > /dev/full", f.address);
    lost("ask --to");
    cr_assert_gt(count_requests(), 0, "the log tells requests: %s", fleet_said.out);
}

Test(output, an_output_that_was_only_looked_at_is_not_left_behind) {
    command_run(&r,
                FOVEA " ask --checkpoint /nonexistent --image " IMAGE
                      " --overlay %s/new.png hi; ls %s/new.png",
                f.dir, f.dir);
    cr_assert_neq(r.status, 0);
    cr_assert_str_empty(r.out);
    command_run(&r,
                "echo old > %s/old.png; " FOVEA " ask --checkpoint /nonexistent --image " IMAGE
                " --overlay %s/old.png hi; cat %s/old.png",
                f.dir, f.dir, f.dir);
    cr_assert_str_eq(r.out, "old\n");
}

Test(output, an_overlay_is_a_png_and_its_name_says_so) {
    command_run(&r, FOVEA " ask --checkpoint %s --image " IMAGE " --overlay %s/k.jpg hi", ck,
                f.dir);
    cr_assert_eq(r.status, 2, "%s", r.err);
    cr_assert(strstr(r.err, "a PNG is written; name it FILE.png"), "%s", r.err);
}
