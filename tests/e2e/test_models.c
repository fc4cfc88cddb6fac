/* Two models behind one router, and one that is replaced while clients keep asking, with processes:
 * nobody is refused, and each answer is of one checkpoint alone. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/caller.h"
#include "tests/support/crew.h"
#include "tests/support/net.h"

enum { LOAD = 3 };

static crew c;
static caller_rig rig;
static caller load[LOAD];

static void end(void) { crew_close(&c); }

TestSuite(models, .fini = end, .timeout = 300);

static void answers(const char *model, const char *worker) {
    command_run(&fleet_said,
                FOVEA_BIN "/fovea ask --to %s --max-tokens 3 --model '%s' --json hello",
                c.f.address, model);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
    cr_assert(strstr(fleet_said.out, worker) || strstr(fleet_said.err, worker), "%s%s",
              fleet_said.out, fleet_said.err);
}

/* Starts workers i of another checkpoint. */
static void start_others(int i, const char *model) {
    snprintf(c.prefill_args, sizeof c.prefill_args, "--served-model-name %s --checkpoint %s/other",
             model, c.f.dir);
    snprintf(c.decode_args, sizeof c.decode_args, "%s", c.prefill_args);
    crew_start_prefill(&c, i);
    crew_start_decode(&c, i);
    c.n_prefill = c.n_decode = i + 1;
    program_wait_said(&c.router, "worker=prefill-1 event=joined");
    program_wait_said(&c.router, "worker=decode-1 event=joined");
}

static void open_two(void) {
    crew_open(&c, "models", "tiny");
    command_run(&fleet_said,
                FOVEA_BIN "/fovea synth --shape tiny --dtype f32 --seed 6 --out %s/other", c.f.dir);
    cr_assert_eq(fleet_said.status, 0, "%s", fleet_said.err);
}

static void gateway_lists_both(void) {
    const char *d = c.f.dir;
    command_run(&fleet_said,
                FOVEA_BIN "/fovea-gateway --router %s --listen 127.0.0.1:0 >%s/gw.out 2>/dev/null "
                          "</dev/null & pid=$!; for i in $(seq 600); do "
                          "grep -q listening %s/gw.out && break; sleep 0.1; done; "
                          "python3 -c 'import json, sys, urllib.request as u\n"
                          "at = \"http://\" + open(sys.argv[1]).read().split()[-1]\n"
                          "print(*[m[\"id\"] for m in json.load(u.urlopen(at + "
                          "\"/v1/models\"))[\"data\"]])' %s/gw.out; kill $pid; wait $pid",
                c.f.address, d, d, d);
    cr_assert_str_eq(fleet_said.out, "ck other\n", "%s%s", fleet_said.out, fleet_said.err);
}

Test(models, requests_name_theirs) {
    open_two();
    crew_start(&c, 1, 1);
    answers("", "decode-0");
    start_others(1, "other");
    answers("ck", "decode-0");
    answers("other", "decode-1");
    gateway_lists_both();
    command_run(&fleet_said, FOVEA_BIN "/fovea ask --to %s hello", c.f.address);
    cr_assert(strstr(fleet_said.err, "the request must name one"), "%s", fleet_said.err);
    crew_stop(&c);
}

static int n_done(void) {
    int n = 0;
    for (int i = 0; i < LOAD; i++) {
        cr_assert_eq(load[i].n_failed, 0, "%s", load[i].why);
        n += load[i].n_done;
    }
    return n;
}

static void more(int n) {
    int until = n_done() + n;
    CALLER_UNTIL(&rig, n_done() >= until);
}

Test(models, a_checkpoint_is_replaced_under_load_and_nobody_is_refused) {
    open_two();
    crew_start(&c, 1, 1);
    caller_rig_open(&rig);
    for (int i = 0; i < LOAD; i++) {
        load[i].max_tokens = 4 + 4 * (uint32_t)i;
        caller_start(&rig, &load[i], c.f.address, NULL);
    }
    more(10);
    start_others(1, "ck");
    more(10);
    program_kill(&c.decode[0], SIGTERM);
    program_kill(&c.prefill[0], SIGTERM);
    more(20);
    for (int i = 0; i < LOAD; i++) caller_stop(&load[i]);
    for (int i = 0; i < LOAD; i++) {
        cr_assert_eq(load[i].n_retry, 0, "%s", load[i].why);
        cr_assert_str_eq(load[i].decode_worker, "decode-1");
        caller_close(&load[i]);
    }
    caller_rig_close(&rig);
    cr_assert_eq(program_wait(&c.decode[0]), 0);
    cr_assert_eq(program_wait(&c.prefill[0]), 0);
    answers("ck", "decode-1");
    crew_stop(&c);
}
