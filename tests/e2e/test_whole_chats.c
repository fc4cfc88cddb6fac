/* Chats that are sent whole each time, and a fleet whose decode worker keeps answers. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/file.h"
#include "fovea_proto.h"
#include "tests/support/fleet.h"

TestSuite(whole_chats, .timeout = 400);

static fleet f;

static void end(void) { fleet_close(&f); }

static void chat_with(const char *shape) {
    char set[500];
    fleet_open(&f, "whole_chats");
    fleet_synth(&f, shape);
    fleet_start(&f, "");
    snprintf(set, sizeof set, "%s/contracts.bin", f.dir);
    cr_assert_eq(fv_file_write(set, fovea_proto_set, fovea_proto_set_size), FV_OK);
    command_run(&fleet_said,
                "/usr/bin/python3 -B " FOVEA_TEST_DATA "/e2e/whole_chats.py %s %s " FOVEA_TEST_DATA
                "/golden/demo.png 6 2>&1",
                f.address, set);
    FLEET_MAY_SKIP(end, "no python3-grpcio");
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.out);
    fleet_stop(&f);
    fleet_close(&f);
}

Test(whole_chats, each_turn_finds_what_has_run_and_has_the_bits_of_a_chat_without_a_cache) {
    chat_with("tiny");
}

Test(whole_chats, so_does_a_model_that_rotates_by_places_in_a_grid) {
    chat_with("tiny --text-family qwen2_vl_text");
}
