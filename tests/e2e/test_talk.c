/* Several questions in one conversation with a fleet, as `fovea ask --then` asks them. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fleet.h"

#define FOVEA FOVEA_BIN "/fovea"
#define PICTURE FOVEA_TEST_DATA "/golden/demo.png"

static command_result r;
static fleet f;

static void open_fleet(void) { fleet_open(&f, "talk"); }
static void close_fleet(void) { fleet_close(&f); }

TestSuite(talk, .init = open_fleet, .fini = close_fleet, .timeout = 300);

/* ---- fovea ask --then ------------------------------------------------------------------- */

static json_t *ask_many(const char *args) {
    json_error_t err;
    command_run(&r, FOVEA " ask --to %s --json --ignore-eos --max-tokens 6 %s", f.address, args);
    cr_assert_eq(r.status, 0, "%s: %s", args, r.err);
    json_t *list = json_loads(r.out, 0, &err);
    cr_assert_not_null(list, "%s", err.text);
    cr_assert(json_is_array(list));
    return list;
}

static int64_t tokens_of(const json_t *list, size_t i, const char *key) {
    const json_t *report = json_object_get(json_array_get(list, i), "report");
    return json_integer_value(json_object_get(json_object_get(report, "tokens"), key));
}

static const char *transport_of(const json_t *list, size_t i) {
    const json_t *report = json_object_get(json_array_get(list, i), "report");
    return json_string_value(json_object_get(json_object_get(report, "handoff"), "transport"));
}

Test(talk, where_nothing_is_kept_the_whole_conversation_goes_again) {
    setenv("FOVEA_KEEP_MS_MAX", "0", 1);
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    json_t *list = ask_many("--image " PICTURE " 'what is it?' --then 'and then?' --then 'why?'");
    for (size_t i = 0; i < 3; i++) {
        cr_assert_eq(tokens_of(list, i, "images"), 1);
        cr_assert_str_eq(transport_of(list, i), "grpc");
        if (i) cr_assert_gt(tokens_of(list, i, "prompt"), tokens_of(list, i - 1, "prompt"));
    }
    json_decref(list);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(talk, answers_are_streamed_one_after_the_other) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    command_run(&r,
                FOVEA " ask --to %s --ignore-eos --max-tokens 4 --raw --image " PICTURE
                      " '<image> a' --then ' b' --then ' c'",
                f.address);
    cr_assert_eq(r.status, 0, "%s", r.err);
    int n = 0;
    for (const char *at = r.err; (at = strstr(at, "4 out, finish: length")) != NULL; at++) n++;
    cr_assert_eq(n, 3, "%s", r.err);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(talk, then_needs_a_fleet) {
    fleet_synth(&f, "tiny");
    command_run(&r, FOVEA " ask --checkpoint %s/ck hello --then again", f.dir);
    cr_assert_eq(r.status, 2);
    cr_assert(strstr(r.err, "--then needs --to HOST:PORT"), "%s", r.err);
}
