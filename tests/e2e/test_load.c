/* More concurrent requests than a fleet accepts: each is answered in full or rejected with
 * RESOURCE_EXHAUSTED, and nothing is left of any of them. */
#include <criterion/criterion.h>
#include <jansson.h>

#include "tests/support/fleet.h"

#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

#ifdef __SANITIZE_ADDRESS__
enum { N_CALL = 300 };
#else
enum { N_CALL = 1000 };
#endif

static command_result r;
static fleet f;

static void open_fleet(void) { fleet_open(&f, "load"); }
static void close_fleet(void) { fleet_close(&f); }

TestSuite(load, .init = open_fleet, .fini = close_fleet, .timeout = 300);

static int count(const json_t *row, const char *key) {
    const json_t *v = json_object_get(row, key);
    cr_assert(json_is_integer(v), "there is no %s", key);
    return (int)json_integer_value(v);
}

/* All calls start at once; *refused of them are rejected. */
static void burst(const char *args, int *ok, int *refused) {
    json_error_t err;
    command_run(&r,
                FOVEA_BIN "/fovea bench --to %s --json --warmup 0 --concurrency %d --requests %d "
                          "--max-tokens 4 --ignore-eos %s",
                f.address, N_CALL, N_CALL, args);
    json_t *root = json_loads(r.out, 0, &err);
    cr_assert_not_null(root, "%s; %s", err.text, r.err);
    const json_t *row = json_array_get(json_object_get(root, "rows"), 0);
    char *errors = json_dumps(json_object_get(row, "errors"), 0);
    *ok = count(row, "ok");
    *refused = count(row, "refused");
    cr_assert_eq(count(row, "failed"), 0, "%s", errors);
    cr_assert_eq(*ok + *refused, N_CALL);
    cr_assert_eq(count(row, "tokens"), 4 * *ok);
    cr_assert_eq(r.status, 0);
    free(errors);
    json_decref(root);
}

Test(load, a_thousand_calls_at_once_are_answered_or_refused_and_leave_nothing) {
    int ok, refused;
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--prefill 1 --decode 2");
    burst("", &ok, &refused);
    cr_assert_gt(ok, 0);
    fleet_wait_idle(&f);
    burst("--image " IMAGE, &ok, &refused);
    cr_assert_gt(ok, 0);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

/* With KV memory for a few requests the others wait; the queue is bounded, and so is memory. */
Test(load, little_memory_makes_requests_wait_and_loses_none) {
    int ok, refused;
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--prefill 1 --decode 2 --kv-bytes 2000000");
    burst("", &ok, &refused);
    cr_assert_gt(ok, 0);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}
