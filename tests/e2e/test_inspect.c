/* `fovea inspect`, run as a user runs it: exit statuses, text and JSON. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"

#define FOVEA FOVEA_BIN "/fovea"

static command_result r;
static char dir[512];

static void make_checkpoint(void) {
    snprintf(dir, sizeof dir, "%s/inspect-%d", FOVEA_TEST_TMP, (int)getpid());
    command_run(&r, FOVEA " synth --shape tiny --family qwen2_vl --out %s", dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
}

static void drop_checkpoint(void) { command_run(&r, "rm -rf '%s' '%s.hub'", dir, dir); }

TestSuite(inspect, .init = make_checkpoint, .fini = drop_checkpoint, .timeout = 300);

/* Runs the command; expects this exit status and these words on its output. */
static void inspect(const char *args, int status, const char *words) {
    command_run(&r, FOVEA " inspect %s", args);
    cr_assert_eq(r.status, status, "%s gave %d: %s%s", args, r.status, r.out, r.err);
    cr_assert(strstr(status == 2 ? r.err : r.out, words), "%s said: %s%s", args, r.out, r.err);
}

Test(inspect, the_exit_status_says_whether_a_checkpoint_can_be_served) {
    char args[600];
    inspect(dir, 0, "served       yes");
    cr_assert(strstr(r.out, "family       qwen2_vl\n"), "%s", r.out);
    snprintf(args, sizeof args, "--context 100 --kv-dtype f32 %s", dir);
    inspect(args, 0, "in f32; ");
    command_run(&r, "rm %s/tokenizer.json", dir);
    inspect(dir, 1, "tokenizer.json\n");
    cr_assert(strstr(r.out, "to do: "), "%s", r.out);
    cr_assert(strstr(r.out, "served       no"), "%s", r.out);
    inspect("", 2, "name one checkpoint");
    inspect("a b", 2, "name one checkpoint");
    snprintf(args, sizeof args, "--context -1 %s", dir);
    inspect(args, 2, "--context");
}

Test(inspect, json_has_the_sizes_and_the_faults) {
    char args[600];
    snprintf(args, sizeof args, "--json --context 10 --kv-dtype bf16 %s", dir);
    inspect(args, 0, "{");
    json_t *root = json_loads(r.out, 0, NULL);
    const json_t *net = json_object_get(root, "network"), *m = json_object_get(root, "memory");
    json_int_t token = 4 * json_integer_value(json_object_get(net, "layers")) *
                       json_integer_value(json_object_get(net, "kv_heads")) *
                       json_integer_value(json_object_get(net, "head_width"));
    cr_assert(json_is_true(json_object_get(root, "can_serve")));
    cr_assert_gt(token, 0);
    cr_assert_eq(json_integer_value(json_object_get(m, "kv_bytes_a_token")), token);
    cr_assert_eq(json_integer_value(json_object_get(m, "kv_bytes")), 10 * token);
    json_decref(root);
    command_run(&r, "rm %s/config.json", dir);
    inspect(args, 1, "{");
    root = json_loads(r.out, 0, NULL);
    const json_t *fault = json_array_get(json_object_get(root, "faults"), 0);
    cr_assert(json_is_false(json_object_get(root, "can_serve")));
    cr_assert(json_is_true(json_object_get(fault, "fatal")));
    cr_assert(strstr(json_string_value(json_object_get(fault, "file")), "/config.json"));
    json_decref(root);
}

Test(inspect, a_model_in_the_cache_is_named_as_on_the_hub_whole_or_not) {
    char args[1400];
    command_run(
        &r,
        "mkdir -p %s.hub/models--org--m/refs %s.hub/models--org--m/snapshots && printf 0a1b "
        "> %s.hub/models--org--m/refs/main && cp -r %s %s.hub/models--org--m/snapshots/0a1b",
        dir, dir, dir, dir, dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    snprintf(args, sizeof args, "--hf-hub-cache %s.hub org/m", dir);
    inspect(args, 0, "served       yes");
    command_run(&r, "rm %s.hub/models--org--m/snapshots/0a1b/model.safetensors", dir);
    inspect(args, 1, "`hf download org/m`");
    snprintf(args, sizeof args, "--hf-hub-cache %s.hub org/other", dir);
    command_run(&r, FOVEA " inspect %s", args);
    cr_assert_eq(r.status, 1);
    cr_assert(strstr(r.err, "`hf download org/other`"), "%s", r.err);
}
