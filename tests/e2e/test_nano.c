/* The checkpoint that ships with the project gives the results of its model card. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/fleet.h"

#define FOVEA FOVEA_BIN "/fovea"
#define NANO FOVEA_TEST_DATA "/../checkpoints/nano"
#define RECORDED FOVEA_TEST_DATA "/golden/nano/answers.txt"

static fleet f;
static command_result r;

static void begin(void) { fleet_open(&f, "nano"); }
static void end(void) { fleet_close(&f); }

TestSuite(nano, .init = begin, .fini = end, .timeout = 600);

static json_t *load(const char *path) {
    json_error_t err;
    json_t *json = json_load_file(path, 0, &err);
    cr_assert_not_null(json, "%s: %s", path, err.text);
    return json;
}

/* ---- its answers ------------------------------------------------------------------------ */

/* Answers depend on every bit of the logits, which are the same on every machine. */
Test(nano, items_of_the_suite_are_answered_as_recorded) {
    command_run(&r,
                FOVEA " eval --checkpoint " NANO " --items 22 --policy exact --policy "
                      "prune=random,layer=4 --policy prune=fastv,layer=4 --out %s/eval",
                f.dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    command_run(&r,
                "cd %s && tail -n +2 eval/items.jsonl | sed 's/,\"scores\".*//' | sort > now && "
                "diff " RECORDED " now",
                f.dir);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
}

/* ---- its evaluation ------------------------------------------------------------------ */

static json_t *group_of(json_t *results, const char *policy, const char *name) {
    json_t *one, *group;
    size_t i, k;
    json_array_foreach(json_object_get(results, "results"), i, one) {
        if (strncmp(json_string_value(json_object_get(one, "policy")), policy, strlen(policy)) != 0)
            continue;
        json_array_foreach(json_object_get(one, "groups"), k, group) {
            if (strcmp(json_string_value(json_object_get(group, "group")), name) == 0) return group;
        }
    }
    cr_assert_fail("no group %s of a policy %s", name, policy);
    return NULL;
}

static double number(json_t *group, const char *what, const char *part) {
    return json_number_value(json_object_get(json_object_get(group, what), part));
}

/* A checkpoint that answers as well without the image cannot judge a policy. */
Test(nano, it_is_fit_to_judge_what_is_dropped) {
    json_t *results = load(NANO "/eval/results.json");
    cr_assert_geq(json_integer_value(json_object_get(group_of(results, "exact", "all"), "n")),
                  2000);
    json_t *random = group_of(results, "prune=random", "two-hop");
    json_t *fastv = group_of(results, "prune=fastv", "two-hop");
    cr_assert_lt(number(random, "difference", "high"), -0.02);
    cr_assert_gt(number(fastv, "difference", "low"), number(random, "difference", "high"));
    json_decref(results);
}
