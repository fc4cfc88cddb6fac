/* Adapters in a fleet of processes: answers are those of one process, they are listed, and workers without an adapter are
 * another fleet. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/file.h"
#include "tests/support/adapter_file.h"
#include "tests/support/crew.h"

enum { TEXT_MAX = 4096 };

static crew c;
static char adapters[2400]; /* options */

static void end(void) { crew_close(&c); }

TestSuite(adapters, .fini = end, .timeout = 300);

static void open_all(void) {
    char dir[2][1100], checkpoint[1100];
    crew_open(&c, "adapters", "tiny");
    snprintf(checkpoint, sizeof checkpoint, "%s/ck", c.f.dir);
    for (int i = 0; i < 2; i++) {
        snprintf(dir[i], sizeof dir[i], "%s/%s", c.f.dir, i ? "two" : "one");
        cr_assert_eq(fv_dir_make(dir[i]), FV_OK);
        adapter_write(dir[i], checkpoint, 5 + (uint64_t)i);
    }
    snprintf(adapters, sizeof adapters, "--adapter one=%s --adapter two=%s", dir[0], dir[1]);
    snprintf(c.prefill_args, sizeof c.prefill_args, "%s", adapters);
    snprintf(c.decode_args, sizeof c.decode_args, "%s", adapters);
}

/* The answer to the same question with these options. */
static void answer(const char *options, char out[TEXT_MAX]) {
    command_run(&fleet_said, FOVEA_BIN "/fovea ask %s --max-tokens 12 --ignore-eos hello", options);
    cr_assert_eq(fleet_said.status, 0, "%s: %s", options, fleet_said.err);
    cr_assert_lt(strlen(fleet_said.out), TEXT_MAX);
    strcpy(out, fleet_said.out);
}

static void here(const char *model, char out[TEXT_MAX]) {
    char options[4096];
    if (model[0])
        snprintf(options, sizeof options, "--checkpoint %s/ck %s --model %s", c.f.dir, adapters,
                 model);
    else
        snprintf(options, sizeof options, "--checkpoint %s/ck", c.f.dir);
    answer(options, out);
}

static void there(const char *model, char out[TEXT_MAX]) {
    char options[4096];
    snprintf(options, sizeof options, "--to %s --model '%s'", c.f.address, model);
    answer(options, out);
}

static void expect_answers_of(const char *model) {
    char ours[TEXT_MAX], theirs[TEXT_MAX];
    here(model, ours);
    for (int i = 0; i < 2; i++) { /* the second time from kept KV */
        there(model, theirs);
        cr_expect_str_eq(ours, theirs, "model '%s', time %d", model, i);
    }
}

/* Asks the gateway, by curl's means of Python. */
static void gateway_says(const char *python, const char *expected) {
    const char *d = c.f.dir;
    command_run(&fleet_said,
                FOVEA_BIN "/fovea-gateway --router %s --listen 127.0.0.1:0 >%s/gw.out 2>/dev/null "
                          "</dev/null & pid=$!; for i in $(seq 600); do "
                          "grep -q listening %s/gw.out && break; sleep 0.1; done; "
                          "python3 -c 'import json, sys, urllib.request as u\n"
                          "at = \"http://\" + open(sys.argv[1]).read().split()[-1]\n"
                          "%s' %s/gw.out; kill $pid; wait $pid",
                c.f.address, d, d, python, d);
    cr_expect_str_eq(fleet_said.out, expected, "%s%s", fleet_said.out, fleet_said.err);
}

Test(adapters, a_request_names_its_adapter) {
    char base[TEXT_MAX], one[TEXT_MAX];
    open_all();
    crew_start(&c, 1, 1);
    expect_answers_of("");
    expect_answers_of("one");
    expect_answers_of("two");
    here("", base);
    here("one", one);
    cr_expect_str_neq(base, one);
    gateway_says("print(*[(m[\"id\"], m.get(\"parent\")) for m in json.load(u.urlopen(at + "
                 "\"/v1/models\"))[\"data\"]])",
                 "('ck', None) ('one', 'ck') ('two', 'ck')\n");
    gateway_says("print(json.load(u.urlopen(at + \"/v1/chat/completions\", "
                 "json.dumps({\"model\": \"two\", \"max_tokens\": 2, \"messages\": "
                 "[{\"role\": \"user\", \"content\": \"hello\"}]}).encode()))[\"model\"])",
                 "two\n");
    command_run(&fleet_said, FOVEA_BIN "/fovea ask --to %s --model three hello", c.f.address);
    cr_expect(strstr(fleet_said.err, "unknown model 'three'") &&
                  strstr(fleet_said.err, "its adapter one"),
              "%s", fleet_said.err);
    crew_stop(&c);
}

Test(adapters, workers_without_an_adapter_are_another_fleet) {
    open_all();
    crew_start(&c, 1, 1);
    c.prefill_args[0] = c.decode_args[0] = '\0';
    crew_start_prefill(&c, 1);
    crew_start_decode(&c, 1);
    c.n_prefill = c.n_decode = 2;
    program_wait_said(&c.router, "event=another-fleet");
    program_wait_said(&c.router, "worker=prefill-1 event=joined");
    program_wait_said(&c.router, "worker=decode-1 event=joined");
    for (int i = 0; i < 4; i++) {
        command_run(&fleet_said,
                    FOVEA_BIN "/fovea ask --to %s --model one --max-tokens 3 --json hello",
                    c.f.address);
        cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
        cr_expect(!strstr(fleet_said.out, "decode-1"), "%s", fleet_said.out);
    }
    expect_answers_of("");
    program_kill(&c.prefill[0], SIGTERM);
    program_kill(&c.decode[0], SIGTERM);
    cr_assert_eq(program_wait(&c.prefill[0]), 0);
    cr_assert_eq(program_wait(&c.decode[0]), 0);
    expect_answers_of("");
    crew_stop(&c);
}
