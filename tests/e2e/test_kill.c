/* kill -9 of a worker at each step of a hand-off, and of the router: the client gets the answer of
 * one process, or an immediate error when no worker is left, and the survivors hold nothing
 * afterwards.
 *
 * The worker to be killed is alone at first and hangs when a request reaches the failpoint
 * (common/failpoint.h), so the step is exact; then a second one joins, and the first is killed. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/answer.h"
#include "tests/support/crew.h"
#include "tests/support/latent.h"

#define FOVEA FOVEA_BIN "/fovea"
#define ASK "--image " FOVEA_TEST_DATA "/golden/demo.png --ignore-eos --max-tokens 12 'what is it?'"

enum { WAIT_STEPS = 12000, STEP_US = 10000 };

static crew c;
static command_result r;

static void open_crew(void) {
    crew_open(&c, "kill", "tiny");
    strcpy(c.decode_args, "--lease-ms 2000 --attach-ms 2000");
}

static void close_crew(void) { crew_close(&c); }

TestSuite(kill, .init = open_crew, .fini = close_crew, .timeout = 300);

/* ---- a client in the background ------------------------------------------------------ */

static void ask(const char *args) {
    command_run(&r,
                "rm -f %s/answer.rc; (" FOVEA
                " ask --json --to %s %s >%s/answer.json 2>%s/answer.err; echo $? >%s/rc; "
                "mv %s/rc %s/answer.rc) </dev/null >/dev/null 2>&1 &",
                c.f.dir, c.f.address, args, c.f.dir, c.f.dir, c.f.dir, c.f.dir, c.f.dir);
    cr_assert_eq(r.status, 0);
}

static bool answered(void) {
    char path[500];
    snprintf(path, sizeof path, "%s/answer.rc", c.f.dir);
    return access(path, F_OK) == 0;
}

/* Waits for the client's exit status; its stderr is then in r.out. */
static int wait_answer(void) {
    for (int i = 0; i < WAIT_STEPS && !answered(); i++) usleep(STEP_US);
    cr_assert(answered(), "the client waits for ever");
    command_run(&r, "cat %s/answer.rc", c.f.dir);
    int status = atoi(r.out);
    command_run(&r, "cat %s/answer.err", c.f.dir);
    return status;
}

static void assert_answer_of_one_process(const char *args) {
    char where[500], path[500];
    json_error_t err;
    cr_assert_eq(wait_answer(), 0, "%s", r.out);
    snprintf(where, sizeof where, "--checkpoint %s/ck", c.f.dir);
    snprintf(path, sizeof path, "%s/answer.json", c.f.dir);
    json_t *there = json_load_file(path, 0, &err);
    cr_assert_not_null(there, "%s", err.text);
    answer_assert_same(answer_ask(where, args), there, false, args);
}

static void assert_unavailable(void) {
    cr_assert_eq(wait_answer(), 1, "%s", r.out);
    cr_assert(strstr(r.out, "UNAVAILABLE"), "%s", r.out);
}

/* ---- a worker dies ------------------------------------------------------------------- */

static void wait_failpoint(const program *p, const char *failpoint) {
    char words[100];
    snprintf(words, sizeof words, "event=failpoint name=%s", failpoint);
    program_wait_said(p, words);
    cr_assert_not(answered(), "it was answered before anybody died");
}

static void prefill_dies(const char *failpoint) {
    snprintf(c.prefill_args, sizeof c.prefill_args, "--hang-at %s", failpoint);
    crew_start(&c, 1, 1);
    ask(ASK);
    wait_failpoint(&c.prefill[0], failpoint);
    c.prefill_args[0] = '\0';
    c.n_prefill = 2;
    crew_start_prefill(&c, 1);
    program_wait_said(&c.prefill[1], "event=joined");
    program_kill(&c.prefill[0], SIGKILL);
    assert_answer_of_one_process(ASK);
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

Test(kill, prefill_with_the_request_queued) { prefill_dies("prefill-queued"); }
Test(kill, prefill_that_asks_for_a_grant) { prefill_dies("prefill-opening"); }
Test(kill, prefill_that_has_a_grant) { prefill_dies("prefill-ready"); }
Test(kill, prefill_that_computes) { prefill_dies("prefill-computing"); }
Test(kill, prefill_that_has_sent_the_first_token) { prefill_dies("prefill-token"); }
Test(kill, prefill_that_sends_the_kv) { prefill_dies("prefill-exporting"); }
Test(kill, prefill_when_the_decode_worker_has_all) { prefill_dies("prefill-committed"); }
Test(kill, prefill_that_was_done) { prefill_dies("prefill-over"); }

static void decode_dies_asked(const char *failpoint, const char *args) {
    snprintf(c.decode_args, sizeof c.decode_args, "--lease-ms 2000 --attach-ms 2000 --hang-at %s",
             failpoint);
    crew_start(&c, 1, 1);
    ask(args);
    wait_failpoint(&c.decode[0], failpoint);
    strcpy(c.decode_args, "--lease-ms 2000 --attach-ms 2000");
    c.n_decode = 2;
    crew_start_decode(&c, 1);
    program_wait_said(&c.decode[1], "event=joined");
    program_kill(&c.decode[0], SIGKILL);
    assert_answer_of_one_process(args);
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

static void decode_dies(const char *failpoint) { decode_dies_asked(failpoint, ASK); }

Test(kill, decode_that_has_granted) { decode_dies("decode-granted"); }
Test(kill, decode_that_receives) { decode_dies("decode-receiving"); }
Test(kill, decode_that_has_all_and_is_not_attached) { decode_dies("decode-committed"); }
Test(kill, decode_in_the_middle_of_the_answer) { decode_dies("decode-running"); }
Test(kill, decode_in_the_middle_of_an_answer_that_evicts) {
    decode_dies_asked("decode-running",
                      ASK " --policy 'prune=pvtp,layer=1,stride=1,first=0.3;evict=vta,tau=12'");
}
Test(kill, decode_in_the_middle_of_an_answer_from_factors) {
    decode_dies_asked("decode-running",
                      ASK " --policy 'pack=svd,rank_k=6,rank_v=5,gain=0;expand=attention'");
}
Test(kill, decode_in_the_middle_of_an_answer_whose_text_becomes_codes) {
    decode_dies_asked("decode-running",
                      "--image " FOVEA_TEST_DATA "/golden/demo.png --ignore-eos --max-tokens 40 "
                      "--policy pack=quant,compress_text=all,bits_text=4,recompress=16 hello");
}
/* The other worker makes the codes again from the remaining tokens. */
Test(kill, decode_in_the_middle_of_an_answer_from_codes_of_keys) {
    char dir[600];
    snprintf(dir, sizeof dir, "%s/ck", c.f.dir);
    latent_write(dir);
    decode_dies_asked("decode-running",
                      ASK " --policy 'pack=latent,budget=1/16,keys=codes;evict=vta,tau=14,layer=1,"
                          "shallow=rank_by_first_tap'");
}
Test(kill, decode_in_the_middle_of_an_answer_with_positions_in_a_grid) {
    fleet_synth(&c.f, "tiny --text-family qwen3_vl_text --force");
    decode_dies("decode-running");
}
Test(kill, decode_that_has_not_sent_finished) { decode_dies("decode-over"); }

/* An answer under rules for its tokens is the same when another pair continues it. */
static void answer_under_rules(const char *to, bool in_background) {
    command_run(&r,
                "rm -f %s/answer.rc; (python3 -B " FOVEA_TEST_DATA
                "/e2e/rules_answer.py %s " FOVEA_BIN
                "/fovea-gateway >%s/%s 2>%s/answer.err; echo $? >%s/rc; mv %s/rc %s/answer.rc) "
                "</dev/null >/dev/null 2>&1 %s",
                c.f.dir, c.f.address, c.f.dir, to, c.f.dir, c.f.dir, c.f.dir, c.f.dir,
                in_background ? "&" : "");
    cr_assert_eq(r.status, 0);
}

Test(kill, decode_in_the_middle_of_an_answer_under_rules) {
    command_run(&r, "command -v python3 >/dev/null");
    if (r.status != 0) cr_skip("no python3");
    strcat(c.decode_args, " --hang-at decode-running");
    crew_start(&c, 1, 1);
    answer_under_rules("replayed", true);
    wait_failpoint(&c.decode[0], "decode-running");
    strcpy(c.decode_args, "--lease-ms 2000 --attach-ms 2000");
    c.n_decode = 2;
    crew_start_decode(&c, 1);
    program_wait_said(&c.decode[1], "event=joined");
    program_kill(&c.decode[0], SIGKILL);
    cr_assert_eq(wait_answer(), 0, "%s", r.out);
    answer_under_rules("whole", false);
    cr_assert_eq(wait_answer(), 0, "%s", r.out);
    command_run(&r, "cd %s && cat replayed whole && cmp replayed whole", c.f.dir);
    cr_assert_eq(r.status, 0, "%s", r.out);
    cr_assert(strstr(r.out, "token_ids"));
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

/* ---- a worker hangs ------------------------------------------------------------------ */

/* A hung worker is alive and keeps reporting but makes no progress: its request is replayed. A
 * worker that hangs outside the request is detected when its own requests make no progress
 * either. */
static void worker_hangs(program *hung, const char *failpoint) {
    bool p = hung == &c.prefill[0];
    snprintf(c.router_args, sizeof c.router_args, "--stall-ms 3000");
    snprintf(p ? c.prefill_args : c.decode_args, sizeof c.prefill_args,
             "--hang-at %s --probe-ms 300 --unhealthy-ms 1000", failpoint);
    crew_start(&c, 1, 1);
    ask(ASK);
    wait_failpoint(hung, failpoint);
    (p ? c.prefill_args : c.decode_args)[0] = '\0';
    if (p) {
        c.n_prefill = 2;
        crew_start_prefill(&c, 1);
    } else {
        c.n_decode = 2;
        crew_start_decode(&c, 1);
    }
    assert_answer_of_one_process(ASK);
    program_kill(hung, SIGKILL);
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

Test(kill, nobody_when_a_prefill_worker_hangs_as_it_computes) {
    worker_hangs(&c.prefill[0], "prefill-computing");
}
Test(kill, nobody_when_a_prefill_worker_hangs_ahead_of_the_request) {
    worker_hangs(&c.prefill[0], "prefill-queued");
}
Test(kill, nobody_when_a_decode_worker_hangs_in_the_middle_of_the_answer) {
    worker_hangs(&c.decode[0], "decode-running");
}

/* ---- no worker is left --------------------------------------------------------------- */

Test(kill, the_only_prefill_worker) {
    strcpy(c.prefill_args, "--hang-at prefill-computing");
    crew_start(&c, 1, 1);
    ask(ASK);
    wait_failpoint(&c.prefill[0], "prefill-computing");
    program_kill(&c.prefill[0], SIGKILL);
    assert_unavailable();
    crew_wait_idle(&c, 0, 1);
    c.prefill_args[0] = '\0';
    crew_start_prefill(&c, 0);
    crew_wait_idle(&c, 1, 1);
    ask(ASK);
    assert_answer_of_one_process(ASK);
    crew_stop(&c);
}

Test(kill, the_only_decode_worker) {
    strcat(c.decode_args, " --hang-at decode-running");
    crew_start(&c, 1, 1);
    ask(ASK);
    wait_failpoint(&c.decode[0], "decode-running");
    program_kill(&c.decode[0], SIGKILL);
    assert_unavailable();
    crew_wait_idle(&c, 1, 0);
    strcpy(c.decode_args, "");
    crew_start_decode(&c, 0);
    crew_wait_idle(&c, 1, 1);
    ask(ASK);
    assert_answer_of_one_process(ASK);
    crew_stop(&c);
}

/* ---- the router ---------------------------------------------------------------------- */

/* A request hangs at this failpoint of a worker; the router is killed and started again. */
static void router_dies(program *worker, void (*start)(crew *c, int i), const char *failpoint) {
    ask(ASK);
    wait_failpoint(worker, failpoint);
    program_kill(&c.router, SIGKILL);
    assert_unavailable();
    program_kill(worker, SIGKILL);
    c.prefill_args[0] = '\0';
    strcpy(c.decode_args, "--lease-ms 2000 --attach-ms 2000");
    crew_start_router(&c);
    start(&c, 0);
    crew_wait_idle(&c, 1, 1); /* the other worker has rejoined by itself */
    ask(ASK);
    assert_answer_of_one_process(ASK);
    crew_stop(&c);
}

Test(kill, router_while_a_prompt_is_prefilled) {
    strcpy(c.prefill_args, "--hang-at prefill-computing");
    crew_start(&c, 1, 1);
    router_dies(&c.prefill[0], crew_start_prefill, "prefill-computing");
}

Test(kill, router_before_the_hand_off_is_attached) {
    strcat(c.decode_args, " --hang-at decode-committed");
    crew_start(&c, 1, 1);
    router_dies(&c.decode[0], crew_start_decode, "decode-committed");
}

Test(kill, router_while_an_answer_runs) {
    strcat(c.decode_args, " --hang-at decode-running");
    crew_start(&c, 1, 1);
    router_dies(&c.decode[0], crew_start_decode, "decode-running");
}

Test(kill, router_and_all_workers_come_back_with_nothing_held) {
    crew_start(&c, 2, 2);
    ask("--ignore-eos --max-tokens 200 'a long answer'");
    program_kill(&c.router, SIGKILL);
    assert_unavailable();
    crew_start_router(&c);
    crew_wait_idle(&c, 2, 2);
    ask(ASK);
    assert_answer_of_one_process(ASK);
    crew_stop(&c);
}
