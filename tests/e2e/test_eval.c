/* fovea eval, as a user runs it: the same suite in one run, in several runs, and over a fleet. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/fleet.h"

#define FOVEA FOVEA_BIN "/fovea"
#define TWO "--policy exact --policy 'prune=random,layer=1' --items 22"
enum { ANSWERS = 44 };

static fleet f;
static command_result r;

static void begin(void) {
    fleet_open(&f, "eval");
    fleet_synth(&f, "tiny");
}
static void end(void) { fleet_close(&f); }

TestSuite(eval, .init = begin, .fini = end, .timeout = 600);

/* Runs with results in dir/`out`. */
static void eval(const char *out, const char *args) {
    command_run(&r, FOVEA " eval --checkpoint %s/ck --out %s/%s %s", f.dir, f.dir, out, args);
}

static void eval_well(const char *out, const char *args) {
    eval(out, args);
    cr_assert_eq(r.status, 0, "%s: %s", args, r.err);
}

static void eval_fails(const char *out, const char *args, const char *words) {
    eval(out, args);
    cr_assert_eq(r.status, 2, "%s gave %d: %s", args, r.status, r.err);
    cr_assert(strstr(r.err, words), "%s said: %s", args, r.err);
}

static json_t *results_of(const char *out) {
    char path[600];
    json_error_t err;
    snprintf(path, sizeof path, "%s/%s/results.json", f.dir, out);
    json_t *json = json_load_file(path, 0, &err);
    cr_assert_not_null(json, "%s: %s", path, err.text);
    return json;
}

/* Results without what may differ: times, worker names, the KV dtype and which worker chose the
 * first token, none of which changes an answer under these policies; and the checkpoint's
 * calibration, which a fleet does not report. */
static json_t *lasting(const char *out) {
    json_t *json = results_of(out), *policy;
    size_t i;
    json_object_del(json_object_get(json, "eval"), "by");
    json_object_del(json_object_get(json, "eval"), "kv_dtype");
    json_object_del(json_object_get(json, "eval"), "compute");
    json_object_del(json_object_get(json, "eval"), "first");
    json_object_del(json_object_get(json, "eval"), "measured");
    json_array_foreach(json_object_get(json, "results"), i, policy) {
        json_object_del(policy, "ttft_ms");
        json_object_del(policy, "tpot_ms");
    }
    return json;
}

static void same_results(const char *a, const char *b) {
    json_t *x = lasting(a), *y = lasting(b);
    char *one = json_dumps(x, JSON_SORT_KEYS), *two = json_dumps(y, JSON_SORT_KEYS);
    cr_assert_str_eq(one, two);
    free(one);
    free(two);
    json_decref(x);
    json_decref(y);
}

/* Answers and scores of all items, in order. */
static void same_answers(const char *a, const char *b) {
    command_run(&r,
                "cd %s; for x in %s %s; do tail -n +2 $x/items.jsonl | "
                "sed 's/,\"ttft_s\".*//' | sort > $x.sorted; done; cmp %s.sorted %s.sorted && "
                "wc -l < %s.sorted",
                f.dir, a, b, a, b, a);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert_eq(atoi(r.out), ANSWERS);
}

Test(eval, scores_every_task_under_every_policy_on_the_same_items) {
    eval_well("a", TWO);
    cr_assert(strstr(r.out, "policy 2: prune=random,layer=1,keep=0.5,seed=0"), "%s", r.out);
    cr_assert(strstr(r.out, "caption"), "%s", r.out);
    json_t *json = results_of("a"), *policy;
    size_t p;
    json_array_foreach(json_object_get(json, "results"), p, policy) {
        json_t *groups = json_object_get(policy, "groups"), *group;
        size_t g;
        cr_assert_eq(json_array_size(groups), 13);
        json_array_foreach(groups, g, group) {
            const json_t *kv = json_object_get(group, "kv_bytes");
            double exact = json_number_value(json_object_get(kv, "visual_exact"));
            double held = json_number_value(json_object_get(kv, "visual"));
            if (g < 11) cr_assert_eq(json_integer_value(json_object_get(group, "n")), 2);
            cr_assert_gt(exact, 0);
            /* half of the tokens in two of three layers */
            cr_assert_float_eq(held, p == 0 ? exact : exact * 2 / 3, 1e-6);
        }
    }
    json_decref(json);
}

Test(eval, how_many_items_go_at_a_time_changes_no_answer) {
    eval_well("a", TWO " --concurrency 1");
    eval_well("b", TWO " --concurrency 7 --threads 2");
    same_answers("a", "b");
    same_results("a", "b");
}

Test(eval, an_interrupted_run_continues_where_it_stopped) {
    eval_well("whole", TWO);
    eval_well("part", TWO);
    /* Leaves the files as if the run had been killed while writing the 18th answer. */
    command_run(&r,
                "cd %s/part && head -n 18 items.jsonl > x && printf '{\"policy\":1,\"it' >> x "
                "&& mv x items.jsonl && head -n 18 items.jsonl > kept && "
                "rm results.json",
                f.dir);
    eval_well("part", TWO);
    same_answers("whole", "part");
    same_results("whole", "part");
    command_run(&r, "cd %s/part && head -n 18 items.jsonl | cmp - kept", f.dir);
    cr_assert_eq(r.status, 0, "what was answered already was asked again: %s", r.out);
}

Test(eval, a_complete_run_asks_nothing_and_reports_the_same) {
    eval_well("a", TWO);
    command_run(&r, "cd %s/a && cp results.json before && cp items.jsonl items.before", f.dir);
    eval_well("a", TWO);
    command_run(&r,
                "cd %s/a && grep -q \"two-hop\" report.html && cmp results.json before && cmp "
                "items.jsonl items.before",
                f.dir);
    cr_assert_eq(r.status, 0, "%s", r.out);
}

/* The two have different policies, and one has fewer items. */
Test(eval, what_a_smaller_run_has_answered_is_not_asked_again) {
    eval_well("small", "--items 11 --policy prune=vtw,layer=1 --policy 'prune=random,layer=1'");
    eval_well("whole", TWO);
    command_run(&r, "cd %s && sed -i 's/\"answers\":\\[\"/&taken over /' small/items.jsonl", f.dir);
    char args[900];
    snprintf(args, sizeof args, TWO " --reuse %s/small", f.dir);
    eval_well("more", args);
    command_run(&r,
                "cd %s/more && grep -c 'taken over' items.jsonl; grep 'taken over' items.jsonl | "
                "grep -vc '\"policy\":1'; wc -l < items.jsonl",
                f.dir);
    cr_assert_str_eq(r.out, "11\n0\n45\n");
    command_run(&r, "cd %s && sed -i 's/taken over //' more/items.jsonl", f.dir);
    same_answers("whole", "more");
    snprintf(args, sizeof args, TWO " --seed 1 --reuse %s/small", f.dir);
    eval_fails("other", args, "another 'seed': it has no answers for this evaluation");
}

/* Over the fleet, which is already running. */
static void eval_over(const char *out, const char *args) {
    char all[300];
    snprintf(all, sizeof all, "--to %s %s", f.address, args);
    eval_well(out, all);
}

Test(eval, a_fleet_gives_the_answers_of_one_process) {
    setenv("FOVEA_KEEP_MS_MAX", "0", 1);
    fleet_start(&f, "");
    unsetenv("FOVEA_KEEP_MS_MAX");
    eval_over("fleet", TWO " --concurrency 5");
    eval_well("process", TWO " --dialogs whole");
    same_answers("fleet", "process");
    same_results("fleet", "process");
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(eval, a_fleet_keeps_dialogs_that_policies_allow) {
    fleet_start(&f, "");
    eval_over("fleet", "--task dialog --items 4 --policy exact --policy prune=random,layer=1");
    json_t *json = results_of("fleet");
    const json_t *suite = json_object_get(json, "eval");
    cr_assert_str_eq(json_string_value(json_object_get(suite, "dialog")), "kept");
    json_decref(json);
    command_run(&r, "wc -l < %s/fleet/items.jsonl", f.dir);
    cr_assert_eq(atoi(r.out), 9);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

/* A single process keeps dialogs in the same table, and policies that drop tokens cost as much
 * accuracy as on a fleet. */
Test(eval, dialogs_that_are_kept_have_the_same_answers_here_and_on_a_fleet) {
    static const char args[] =
        "--task dialog --items 6 --policy exact --policy select=snapkv,heavy=0.1,recent=0.1 "
        "--policy evict=tova,keep=0.3 --policy pack=svd,rank_k=4,rank_v=4,gain=0 --kv-dtype f32";
    char local[400];
    setenv("FOVEA_KV_DTYPE", "f32", 1);
    fleet_start(&f, "");
    unsetenv("FOVEA_KV_DTYPE");
    eval_over("fleet", args);
    snprintf(local, sizeof local, "%s --first prefill", args);
    eval_well("process", local);
    command_run(&r,
                "cd %s; for x in fleet process; do tail -n +2 $x/items.jsonl | "
                "sed 's/,\"scores\".*//' | sort > $x.sorted; done; cmp fleet.sorted process.sorted "
                "&& wc -l < fleet.sorted",
                f.dir);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    cr_assert_eq(atoi(r.out), 24);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

/* A user's own benchmark; the fleet's client needs no checkpoint. */
Test(eval, a_benchmark_has_the_same_answers_here_and_on_a_fleet) {
    static const char args[] =
        "--data " FOVEA_TEST_DATA "/../eval/examples/shapes.jsonl --policy exact --policy "
        "prune=random,layer=1";
    char local[600];
    fleet_start(&f, "");
    command_run(&r, FOVEA " eval --to %s --out %s/fleet %s", f.address, f.dir, args);
    cr_assert_eq(r.status, 0, "%s", r.err);
    snprintf(local, sizeof local, "%s --first prefill --dialogs kept", args);
    eval_fails("process", local, "--dialogs does not work with --data");
    snprintf(local, sizeof local, "%s --first prefill", args);
    eval_well("process", local);
    same_results("fleet", "process");
    command_run(
        &r, "cd %s && grep -q 'of the benchmark' fleet/report.html && wc -l < fleet/items.jsonl",
        f.dir);
    cr_assert_eq(r.status, 0);
    cr_assert_eq(atoi(r.out), 25);
    json_t *json = results_of("process");
    const json_t *first = json_array_get(json_object_get(json, "results"), 0);
    static const char *const groups[] = {"exact_match", "contains", "vqa", "anls", "choice", "all"};
    for (size_t i = 0; i < 6; i++)
        cr_assert_str_eq(json_string_value(json_object_get(
                             json_array_get(json_object_get(first, "groups"), i), "group")),
                         groups[i]);
    json_decref(json);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(eval, results_say_how_it_was_asked_and_what_policies_are_called) {
    eval_well("a", "--items 11 --policy '' --policy preset=quality --policy paper-tova --policy "
                   "'preset=quality;evict=vta'");
    json_t *json = results_of("a");
    const json_t *suite = json_object_get(json, "eval"), *list = json_object_get(json, "results");
    static const char *const names[] = {"exact", "quality", "paper-tova",
                                        "preset=quality;evict=vta"};
    cr_assert_str_eq(json_string_value(json_object_get(suite, "first")), "held");
    cr_assert_str_eq(json_string_value(json_object_get(suite, "dialog")), "kept");
    for (size_t i = 0; i < 4; i++)
        cr_assert_str_eq(json_string_value(json_object_get(json_array_get(list, i), "name")),
                         names[i]);
    json_decref(json);
}

Test(eval, what_is_refused_ends_it_and_says_why) {
    eval_fails("a", "--items 22 --policy prune=random,layer=100", "this checkpoint has layers");
    eval("b", "--items 22 --kv-bytes 100000");
    cr_assert_eq(r.status, 1, "%s", r.err);
    cr_assert(strstr(r.err, "raise --kv-bytes"), "%s", r.err);
    fleet_start(&f, "");
    char args[300];
    snprintf(args, sizeof args, "--items 22 --policy prune=random,layer=100 --to %s", f.address);
    eval_fails("c", args, "this checkpoint has layers");
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(eval, a_fleet_that_serves_something_else_is_refused) {
    char args[300];
    fleet_start(&f, "");
    command_run(&r, FOVEA " synth --shape tiny --dtype f32 --seed 6 --force --out %s/ck", f.dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    snprintf(args, sizeof args, "--to %s " TWO, f.address);
    eval_fails("a", args, "the fleet at");
    fleet_stop(&f);
}

Test(eval, a_missing_fleet_is_an_error) {
    eval("a", "--to 127.0.0.1:9 " TWO);
    cr_assert_eq(r.status, 1, "%s", r.err);
    cr_assert(strstr(r.err, "127.0.0.1:9"), "%s", r.err);
}

Test(eval, spectra_are_of_every_layer_and_fall) {
    eval_well("a", TWO " --spectra 3");
    json_t *json = results_of("a"), *layer;
    const json_t *spectra = json_object_get(json, "spectra");
    cr_assert_eq(json_integer_value(json_object_get(spectra, "items")), 3);
    cr_assert_float_eq(json_number_value(json_object_get(spectra, "tokens")), 16, 1e-9);
    double share = json_number_value(json_object_get(spectra, "visual_share"));
    cr_assert(share > 0.1 && share < 0.5, "%g", share);
    size_t l;
    cr_assert_eq(json_array_size(json_object_get(spectra, "layers")), 3);
    json_array_foreach(json_object_get(spectra, "layers"), l, layer) {
        static const char *const which[] = {"k", "v"};
        for (int w = 0; w < 2; w++) {
            const json_t *list = json_object_get(layer, which[w]);
            cr_assert_eq(json_array_size(list), 16);
            cr_assert_float_eq(json_number_value(json_array_get(list, 0)), 1, 1e-9);
            for (size_t i = 1; i < 16; i++)
                cr_assert_leq(json_number_value(json_array_get(list, i)),
                              json_number_value(json_array_get(list, i - 1)));
        }
        double rank = json_number_value(json_object_get(layer, "k_rank99"));
        cr_assert(rank >= 1 && rank <= 16, "%g", rank);
        double mass = json_number_value(json_object_get(layer, "visual_mass"));
        cr_assert(mass > 0 && mass < 1, "%g", mass);
    }
    json_decref(json);
}

/* The first policy reproduces its own answers; another policy deviates from them as its own answers
 * do. */
Test(eval, policies_follow_the_answers_of_the_first) {
    eval_well("a", "--follow 20 --items 11 --policy exact --policy 'prune=random,layer=1' "
                   "--policy 'prune=random,layer=1,keep=0.1'");
    cr_assert(strstr(r.out, "along 11 answers of 20 tokens"), "%s", r.out);
    char path[600];
    snprintf(path, sizeof path, "%s/a/follow.json", f.dir);
    json_t *json = json_load_file(path, 0, NULL);
    cr_assert_not_null(json);
    double apart[3], before[3];
    for (size_t i = 0; i < 3; i++) {
        const json_t *p = json_array_get(json_object_get(json, "results"), i);
        apart[i] = json_number_value(json_object_get(p, "divergence"));
        before[i] = json_number_value(json_object_get(p, "before_other"));
        double same = json_number_value(json_object_get(p, "same"));
        cr_assert_eq(json_array_size(json_object_get(p, "spans")), 2); /* 1 - 10, 11 - 100 */
        cr_assert(i == 0 ? same == 1 && before[i] == 20 : same < 1 && before[i] < 20, "%zu: %g, %g",
                  i, same, before[i]);
        cr_assert_geq(json_number_value(json_object_get(p, "perplexity")), 1);
    }
    cr_assert_float_eq(apart[0], 0, 1e-9);
    cr_assert(apart[1] > 1e-6 && apart[2] > apart[1], "%g, %g", apart[1], apart[2]);
    json_decref(json);
}

/* Concurrent and sequential requests give the same line. */
Test(eval, following_does_not_depend_on_concurrency) {
    static const char args[] = "--follow 12 --items 11 --policy exact --policy "
                               "'prune=random,layer=1' --policy quality --concurrency";
    char line[200];
    json_t *json[2];
    for (int i = 0; i < 2; i++) {
        char path[600];
        snprintf(line, sizeof line, "%s %d", args, i ? 8 : 1);
        eval_well("a", line);
        snprintf(path, sizeof path, "%s/a/follow.json", f.dir);
        json[i] = json_load_file(path, 0, NULL);
    }
    cr_assert(json_equal(json[0], json[1]));
    json_decref(json[0]);
    json_decref(json[1]);
}

Test(eval, bad_arguments_are_refused_with_a_sentence) {
    eval_well("a", TWO);
    eval_fails("a", "--policy exact --items 22", "another 'policies'");
    eval_fails("a", TWO " --seed 1", "another 'seed'");
    eval_fails("a", TWO " --kv-dtype bf16", "another 'kv_dtype'");
    eval_fails("b", "--items 10", "one for each task");
    eval_fails("b", "--items 0", "--items");
    eval_fails("b", "--task smell", "unknown task 'smell'");
    eval_fails("b", "--policy prune=nothing", "nothing");
    eval_fails("b", "--policy '' --policy exact", "given twice");
    eval_fails("b", "--seed -1", "--seed");
    eval_fails("b", "--concurrency 0", "--concurrency");
    eval_fails("b", "--first now", "--first now: write held or prefill");
    eval_fails("b", "--first held --to 127.0.0.1:9", "does not work with --to");
    eval_fails("b", "--dialogs never", "--dialogs never: write kept or whole");
    eval_fails("b", "--spectra 3 --to 127.0.0.1:9", "does not work with --to");
    eval_fails("b", "--spectra 3 --kv-dtype f16", "--kv-dtype f32");
    eval_fails("b", "--spectra 23 --items 22", "more than the 22 items");
    eval_fails("b", "--follow 9 --to 127.0.0.1:9", "--follow does not work with --to");
    eval_fails("b", "--follow 9 --spectra 3", "--follow does not work with --spectra");
    eval_fails("b", "--follow 30000 --items 11", "--follow 30000");
    eval_fails("b", "more", "'more' is not an option");
    eval_fails("b", "--data /dev/null --seed 1", "--seed does not work with --data");
    command_run(&r, FOVEA " eval --items 22");
    cr_assert_eq(r.status, 2, "%s", r.err);
    cr_assert(strstr(r.err, "--checkpoint MODEL is needed"), "%s", r.err);
}
