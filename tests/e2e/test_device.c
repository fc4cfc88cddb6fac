/* --device as a user meets it: without a plugin or without a GPU it ends with a sentence. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "tests/support/command.h"

#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"

static command_result r;

static void refused(int status, const char *words) {
    cr_expect(eq(int, r.status, status), "%s", r.err);
    cr_expect(strstr(r.err, words) != NULL, "%s", r.err);
}

Test(device, cuda_without_a_plugin_is_refused_and_says_where_it_was_looked_for, .timeout = 120) {
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint " NANO
                              " --device cuda --plugin-dir /nowhere --max-tokens 1 hi");
    refused(1, "/nowhere/libfovea_cuda.so is not there");
}

Test(device, a_device_that_nobody_knows_is_refused, .timeout = 120) {
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint " NANO " --device abacus --max-tokens 1 hi");
    refused(2, "'abacus': choose auto, cpu or cuda");
}

/* The workers find out, and the fleet ends with what they said. */
Test(device, a_fleet_on_cuda_does_not_start_without_it, .timeout = 300) {
    command_run(&r, FOVEA_BIN "/fovea up --checkpoint " NANO
                              " --device cuda --plugin-dir /nowhere --listen 127.0.0.1:0");
    refused(1, "/nowhere/libfovea_cuda.so is not there");
}

Test(device, auto_is_the_cpu_where_nothing_else_is_there, .timeout = 300) {
    command_run(&r, FOVEA_BIN "/fovea ask --checkpoint " NANO
                              " --plugin-dir /nowhere --max-tokens 4 \"Say a word.\"");
    cr_expect(eq(int, r.status, 0), "%s", r.err);
}
