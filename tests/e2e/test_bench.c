/* `fovea bench` against a fleet of tiny models: its numbers add up, and it fails when it should. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/fleet.h"
#include "tests/support/tensor_file.h"

#define BENCH FOVEA_BIN "/fovea bench"
#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

static command_result r;
static fleet f;

static void open_fleet(void) { fleet_open(&f, "bench"); }
static void close_fleet(void) { fleet_close(&f); }

TestSuite(bench, .init = open_fleet, .fini = close_fleet, .timeout = 300);

static json_t *bench_json(const char *args) {
    json_error_t err;
    command_run(&r, BENCH " --to %s --json %s", f.address, args);
    cr_assert_eq(r.status, 0, "%s: %s", args, r.err);
    json_t *root = json_loads(r.out, 0, &err);
    cr_assert_not_null(root, "%s", err.text);
    return root;
}

static double number(const json_t *row, const char *group, const char *key) {
    const json_t *o = group ? json_object_get(row, group) : row;
    const json_t *v = json_object_get(o, key);
    cr_assert(json_is_number(v), "there is no %s.%s", group ? group : "", key);
    return json_number_value(v);
}

static void assert_ordered(const json_t *samples) {
    static const char *const names[] = {"min", "p1",  "p5",  "p10", "p25",   "p50",
                                        "p75", "p90", "p95", "p99", "p99.9", "max"};
    for (size_t i = 1; i < sizeof names / sizeof names[0]; i++)
        cr_assert_leq(number(samples, NULL, names[i - 1]), number(samples, NULL, names[i]));
    cr_assert_geq(number(samples, NULL, "min"), 0);
    cr_assert_geq(number(samples, NULL, "mean"), number(samples, NULL, "min"));
    cr_assert_leq(number(samples, NULL, "mean"), number(samples, NULL, "max"));
}

/* A result row of n requests of n_token tokens each, none rejected. */
static void assert_row(const json_t *row, int n, int n_token) {
    static const char *const times[] = {"ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"};
    cr_assert_eq(number(row, NULL, "ok"), n);
    cr_assert_eq(number(row, NULL, "refused"), 0);
    cr_assert_eq(number(row, NULL, "failed"), 0);
    cr_assert_eq(number(row, NULL, "tokens"), n * n_token);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        assert_ordered(json_object_get(row, times[i]));
    cr_assert_eq(number(row, "ttft_ms", "n"), n);
    cr_assert_eq(number(row, "e2e_ms", "n"), n);
    cr_assert_eq(number(row, "itl_ms", "n"), n * (n_token - 1));
    cr_assert_leq(number(row, "ttft_ms", "max"), number(row, "e2e_ms", "max"));
    cr_assert_leq(number(row, "e2e_ms", "max"), 1e3 * number(row, NULL, "seconds"));
    double rate = number(row, NULL, "tokens_per_s") * number(row, NULL, "seconds");
    cr_assert(rate > 0.999 * n * n_token && rate < 1.001 * n * n_token);
    assert_ordered(json_object_get(json_object_get(row, "handoff_ms"), "commit"));
    cr_assert_eq(json_array_size(json_object_get(row, "errors")), 0);
}

Test(bench, counts_add_up_and_percentiles_are_in_order) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    json_t *root = bench_json("--concurrency 1,4 --requests 12 --image " IMAGE
                              " --max-tokens 5 --ignore-eos --ttft-ms 1e8 --itl-ms 1e8");
    json_t *rows = json_object_get(root, "rows");
    cr_assert_eq(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(rows, i);
        assert_row(row, 12, 5);
        cr_assert_eq(number(row, NULL, "concurrency"), i ? 4 : 1);
        cr_assert_str_eq(json_string_value(json_object_get(row, "policy")), "exact");
        /* everything was in time */
        cr_assert_float_eq(number(row, NULL, "goodput_per_s"), number(row, NULL, "requests_per_s"),
                           1e-9);
        json_t *bytes = json_object_get(row, "bytes");
        cr_assert_eq(number(bytes, "raw", "mean"), number(bytes, "resident", "mean"));
        cr_assert_gt(number(bytes, "sent", "mean"), number(bytes, "raw", "mean"));
        cr_assert_gt(number(bytes, "resident_end", "mean"), number(bytes, "resident", "mean"));
    }
    json_decref(root);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(bench, each_policy_has_its_results_and_goodput_is_zero_when_all_are_late) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    json_t *root = bench_json(
        "--policy '' --policy prune=vtw,layer=1 --concurrency 2 --requests 6 --image " IMAGE
        " --image " IMAGE " --max-tokens 4 --ignore-eos --ttft-ms 0.001");
    json_t *rows = json_object_get(root, "rows");
    cr_assert_eq(json_array_size(rows), 2);
    double resident[2], raw[2];
    for (size_t i = 0; i < 2; i++) {
        json_t *row = json_array_get(rows, i), *bytes = json_object_get(row, "bytes");
        assert_row(row, 6, 4);
        cr_assert_eq(number(row, NULL, "goodput_per_s"), 0);
        resident[i] = number(bytes, "resident", "mean");
        raw[i] = number(bytes, "raw", "mean");
    }
    cr_assert_eq(raw[0], raw[1]);
    cr_assert_lt(resident[1], resident[0]);
    json_decref(root);
    fleet_stop(&f);
}

Test(bench, answers_have_a_form_and_the_template_its_variables) {
    fleet_synth(&f, "tiny");
    write_text(f.dir, "variables.json", "{\"unused\": 1}");
    fleet_start(&f, "");
    char args[700];
    snprintf(args, sizeof args,
             "--requests 3 --max-tokens 50 --ignore-eos --regex '[ab]{4}' --chat-variables "
             "%s/variables.json",
             f.dir);
    json_t *root = bench_json(args), *row = json_array_get(json_object_get(root, "rows"), 0);
    cr_assert(json_is_true(json_object_get(root, "form")));
    cr_assert_eq(number(row, NULL, "ok"), 3);
    cr_assert(number(row, NULL, "tokens") <= 3 * 5, "each answer ends after its last letter");
    json_decref(root);
    command_run(&r, BENCH " --to %s --regex a --choice b", f.address);
    cr_assert(r.status == 2 && strstr(r.err, "only one of"), "%d: %s", r.status, r.err);
    fleet_stop(&f);
}

Test(bench, an_open_loop_keeps_its_rate_and_a_file_has_what_json_prints) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    json_t *root = bench_json("--rate 20 --requests 20 --max-tokens 3 --ignore-eos --seed 4");
    json_t *row = json_array_get(json_object_get(root, "rows"), 0);
    assert_row(row, 20, 3);
    cr_assert_eq(number(row, NULL, "rate"), 20);
    /* later than the twentieth arrival time that seed 4 gives */
    cr_assert_gt(number(row, NULL, "seconds"), 0.4);
    cr_assert_gt(number(row, NULL, "client_cpu_seconds"), 0);
    cr_assert_eq(number(row, "lag_ms", "n"), 20);
    cr_assert_geq(number(row, "lag_ms", "min"), -1, "timers count whole milliseconds");
    cr_assert_null(json_object_get(row, "goodput_per_s"), "there is no limit to be met");
    json_decref(root);

    command_run(&r, BENCH " --to %s --requests 3 --max-tokens 2 --out %s/out.json", f.address,
                f.dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.out, "TTFT p50"), "%s", r.out);
    cr_assert(strstr(r.out, "exposed"), "%s", r.out);
    char path[500];
    json_error_t err;
    snprintf(path, sizeof path, "%s/out.json", f.dir);
    root = json_load_file(path, 0, &err);
    cr_assert_not_null(root, "%s", err.text);
    cr_assert_eq(json_array_size(json_object_get(root, "rows")), 1);
    json_decref(root);
    fleet_stop(&f);
}

Test(bench, goodput_counts_what_was_answered_by_its_deadline_while_requests_came) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    json_t *root = bench_json("--rate 20 --requests 20 --max-tokens 3 --deadline-ms 100000");
    json_t *row = json_array_get(json_object_get(root, "rows"), 0);
    cr_assert_eq(number(row, NULL, "ok"), 20);
    cr_assert_eq(number(row, NULL, "late"), 0);
    cr_assert_gt(number(row, NULL, "goodput_per_s"), 0);
    cr_assert_eq(number(row, NULL, "goodput_per_s"), number(row, NULL, "steady_good_per_s"));
    json_decref(root);
    /* No request meets a deadline of a millisecond. It is a failure only when all of them miss
     * it. */
    command_run(&r, BENCH " --to %s --rate 50 --requests 10 --max-tokens 3 --deadline-ms 1 --json",
                f.address);
    cr_assert_eq(r.status, 1, "%s", r.err);
    root = json_loads(r.out, 0, NULL);
    cr_assert_not_null(root, "%s", r.out);
    row = json_array_get(json_object_get(root, "rows"), 0);
    cr_assert_eq(number(row, NULL, "late") + number(row, NULL, "refused"), 10);
    cr_assert_eq(number(row, NULL, "failed"), 0);
    cr_assert_eq(number(row, NULL, "goodput_per_s"), 0);
    json_decref(root);
    fleet_stop(&f);
}

Test(bench, requests_that_fail_are_counted_by_code_with_their_sentence) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    command_run(&r,
                BENCH " --to %s --requests 3 --prompt \"$(head -c 5000 /dev/zero | tr '\\0' z)\"",
                f.address);
    cr_assert_eq(r.status, 1, "%s", r.out);
    cr_assert(strstr(r.out, "exact: 3 times INVALID_ARGUMENT: "), "%s", r.out);
    command_run(&r, BENCH " --to %s --requests 2 --max-tokens 2 --out %s/no/such.json", f.address,
                f.dir);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.err, "cannot write"), "%s", r.err);
    fleet_stop(&f);
}

static void bench_fails(const char *args, int status, const char *words) {
    command_run(&r, BENCH " %s", args);
    cr_assert_eq(r.status, status, "%s gave %d: %s", args, r.status, r.err);
    cr_assert(strstr(r.err, words), "%s said: %s", args, r.err);
    cr_assert_str_empty(r.out);
}

Test(bench, wrong_usage_is_2_with_a_sentence_and_nobody_there_is_1) {
    bench_fails("", 2, "--to HOST:PORT is needed");
    bench_fails("--to nowhere", 2, "nowhere");
    bench_fails("--to 127.0.0.1:1 what", 2, "unexpected argument 'what'");
    bench_fails("--to 127.0.0.1:1 --concurrency 1,,2", 2, "write numbers");
    bench_fails("--to 127.0.0.1:1 --concurrency 0", 2, "write numbers");
    bench_fails("--to 127.0.0.1:1 --concurrency 4,", 2, "write numbers");
    bench_fails("--to 127.0.0.1:1 --concurrency 64 --requests 8", 2, "too few for 64");
    bench_fails("--to 127.0.0.1:1 --concurrency 2 --rate 3", 2, "exclude each other");
    bench_fails("--to 127.0.0.1:1 --policy prune=nonesuch", 2, "nonesuch");
    bench_fails("--to 127.0.0.1:1 --image /no/such/file", 1, "/no/such/file");
    bench_fails("--to 127.0.0.1:1", 1, "UNAVAILABLE");
}
