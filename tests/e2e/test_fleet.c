/* `fovea up` and its clients, run as a user runs them: answers equal those of one process, invalid
 * requests fail with a code and a message, and aborted ones leave nothing behind. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/answer.h"
#include "tests/support/fleet.h"

#define FOVEA FOVEA_BIN "/fovea"
#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"

static command_result r;
static fleet f;

static void open_fleet(void) { fleet_open(&f, "fleet"); }
static void close_fleet(void) { fleet_close(&f); }

TestSuite(fleet, .init = open_fleet, .fini = close_fleet, .timeout = 900);

/* Asks one process and the fleet the same; everything must be equal except times and the route. */
static void assert_same(const char *args) { answer_assert_one_process(f.dir, f.address, args); }

static void ask_fails(const char *args, int status, const char *words) {
    command_run(&r, FOVEA " ask --to %s %s", f.address, args);
    cr_assert_eq(r.status, status, "%s gave %d: %s", args, r.status, r.err);
    cr_assert(strstr(r.err, words), "%s said: %s", args, r.err);
    cr_assert_str_empty(r.out);
}

/* ---- success ----------------------------------------------------------------------------- */

Test(fleet, answers_are_those_of_one_process) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    assert_same("--image " IMAGE " --ignore-eos --max-tokens 16 'what is it?'");
    assert_same("--ignore-eos --max-tokens 5 'no picture'");
    assert_same("--image " IMAGE " --image " IMAGE " --max-tokens 9 'compare'");
    assert_same("--image " IMAGE " --image " IMAGE " --max-tokens 9 --ignore-eos --policy "
                "'pack=svd,rank_k=6,rank_v=5,gain=0;expand=attention' 'compare'");
    assert_same("--image " IMAGE " --max-tokens 50 --ignore-eos --policy "
                "pack=quant,bits=4,compress_text=all,bits_text=4,recompress=16 'what is it?'");
    assert_same("--image " IMAGE " --max-tokens 1 --logprobs 3 'one token'");
    assert_same("--image " IMAGE " --max-tokens 2 --ignore-eos 'two tokens'");
    assert_same("--raw --image " IMAGE " --max-tokens 4 'look: <image> well?'");
    assert_same("--system 'be brief' --chat chatml --max-tokens 4 --image " IMAGE " hello");
    assert_same("--chat " FOVEA_TEST_DATA "/golden/chat/llava.jinja --max-tokens 4 --image " IMAGE
                " hello");
    assert_same("--temperature 0.9 --top-k 40 --top-p 0.9 --repetition-penalty 1.2 --seed 7 "
                "--min-p 0.01 --presence-penalty 0.5 --frequency-penalty 0.25 "
                "--logprobs 5 --ignore-eos --max-tokens 24 --image " IMAGE " hello");
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(fleet, the_fleet_uses_the_checkpoints_calibration) {
    fleet_synth(&f, "tiny-gqa");
    command_run(&r, FOVEA " calibrate --checkpoint %s/ck --items 2 --lazy 1 --eta 100", f.dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    fleet_start(&f, "");
    assert_same("--policy lazy=vla,map=calibrated --image " IMAGE " --max-tokens 4 hello");
    assert_same("--policy 'prune=visipruner,shallow=0,detect=0;lazy=gla,map=calibrated' "
                "--image " IMAGE " --ignore-eos --max-tokens 4 hello");
    assert_same("--policy prune=vtw,from=calibrated --image " IMAGE " --max-tokens 4 hello");
    assert_same("--policy prune=fitprune,target=90 --image " IMAGE " --max-tokens 4 hello");
    fleet_stop(&f);
}

/* Gives the line of a report that starts with these words, up to the comma before what differs from
 * run to run. */
static void keep_line(const char *report, const char *start, char line[300]) {
    const char *at = strstr(report, start);
    cr_assert_not_null(at, "no '%s' in: %s", start, report);
    snprintf(line, 300, "%.*s", (int)strcspn(at, "\n"), at);
    char *seconds = strrchr(line, ',');
    if (seconds && strstr(seconds, " s")) *seconds = '\0';
}

static void assert_same_report(const char *policy, const char *start) {
    static const char args[] = "--image " IMAGE " --image " IMAGE " --max-tokens 2";
    char there[300], here[300];
    command_run(&r, FOVEA " ask --to %s %s --policy '%s' --overlay %s/there.png hello", f.address,
                args, policy, f.dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    keep_line(r.err, start, there);
    command_run(&r, FOVEA " ask --checkpoint %s/ck %s --policy '%s' --overlay %s/here.png hello",
                f.dir, args, policy, f.dir);
    cr_assert_eq(r.status, 0, "%s", r.err);
    keep_line(r.err, start, here);
    cr_assert_str_eq(here, there);
    command_run(&r, "cmp %s/here.png %s/there.png", f.dir, f.dir);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
}

Test(fleet, reports_and_overlays_are_those_of_one_process) {
    fleet_synth(&f, "tiny-gqa");
    fleet_start(&f, "");
    assert_same_report("prune=fastv,layer=1,keep=0.5;select=streaming", "stages   prune kept ");
    assert_same_report("pack=svd,rank_k=4,rank_v=4,gain=1", "packed   layers ");
    assert_same_report("pack=quant,bits=4", "packed   layers ");
    assert_same_report("pack=quant,compress_text=all", "; text of layers ");
    assert_same_report("pack=minicache,start=0", " merged in pairs, error at most ");
    assert_same_report("pack=minicache,start=0,gamma=1",
                       "decided  pack: no pair of layers is smaller merged");
    fleet_stop(&f);
}

Test(fleet, many_workers_and_a_half_precision_cache_change_nothing) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--prefill 2 --decode 2 --kv-dtype bf16 --chunk 7");
    for (int i = 0; i < 6; i++) {
        char args[300];
        snprintf(args, sizeof args,
                 "--kv-dtype bf16 --image " IMAGE " --ignore-eos --max-tokens 8 'number %d'", i);
        assert_same(args);
    }
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(fleet, with_weights_in_int8_it_answers_as_one_process_does) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--prefill 2 --weights int8 --chunk 7");
    assert_same("--weights int8 --image " IMAGE " --ignore-eos --max-tokens 8 hello");
    fleet_stop(&f);
}

Test(fleet, in_bf16_it_answers_as_one_process_does) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "--prefill 2 --compute bf16 --chunk 7");
    assert_same("--compute bf16 --image " IMAGE " --ignore-eos --max-tokens 8 hello");
    assert_same(
        "--compute bf16 --kv-dtype bf16 --policy prune=fastv,layer=1,keep=0.5 --image " IMAGE
        " --ignore-eos --max-tokens 8 hello");
    assert_same("--compute bf16 --policy 'pack=svd,rank_k=4,rank_v=4,gain=1,first=packed;"
                "expand=attention' --image " IMAGE " --ignore-eos --max-tokens 8 hello");
    assert_same("--compute bf16 --policy pack=quant,bits=4 --image " IMAGE
                " --ignore-eos --max-tokens 8 hello");
    assert_same("--compute bf16 --policy pack=minicache,start=0 --image " IMAGE
                " --ignore-eos --max-tokens 8 hello");
    fleet_stop(&f);
}

Test(fleet, trace_keeps_what_a_fleet_sends) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    command_run(&r,
                FOVEA " trace --to %s --image " IMAGE
                      " --ignore-eos --max-tokens 5 --prompt hello --out %s/there && " FOVEA
                      " trace --checkpoint %s/ck --image " IMAGE
                      " --ignore-eos --max-tokens 5 --prompt hello --out %s/here && "
                      "cmp %s/here/tokens.npy %s/there/tokens.npy && "
                      "cmp %s/here/answer.txt %s/there/answer.txt",
                f.address, f.dir, f.dir, f.dir, f.dir, f.dir, f.dir, f.dir);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    fleet_stop(&f);
}

Test(fleet, a_report_names_the_workers_and_the_bytes_that_were_sent) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    command_run(&r, FOVEA " ask --to %s --image " IMAGE " --ignore-eos --max-tokens 5 hello",
                f.address);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, "prefill prefill-0, decode decode-0"), "%s", r.err);
    cr_assert(strstr(r.err, "transport grpc"), "%s", r.err);
    cr_assert(strstr(r.err, "5 out, finish: length"), "%s", r.err);
    fleet_stop(&f);
}

/* ---- invalid requests ------------------------------------------------------------------- */

Test(fleet, bad_requests_end_with_a_code_and_a_sentence) {
    char args[600];
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    command_run(&r, "head -c 300 " IMAGE " > %s/cut.png; : > %s/empty.png", f.dir, f.dir);
    snprintf(args, sizeof args, "--image %s/cut.png hello", f.dir);
    ask_fails(args, 2, "INVALID_ARGUMENT");
    snprintf(args, sizeof args, "--image %s/empty.png hello", f.dir);
    ask_fails(args, 2, "has no bytes");
    ask_fails("--raw 'two of <image> <image>'", 2, "INVALID_ARGUMENT");
    ask_fails("--chat nonesuch hello", 2, "INVALID_ARGUMENT");
    ask_fails("--top-p 0.5 --stop '' hello", 2, "stop string");
    ask_fails("--policy prune=vtw,layer=99 --image " IMAGE " hello", 2, "layer");
    snprintf(args, sizeof args, "--raw \"$(head -c 5000 /dev/zero | tr '\\0' z)\"");
    ask_fails(args, 2, "INVALID_ARGUMENT");
    fleet_wait_idle(&f);
    command_run(&r, "grep -E \"^[^ ]+ (warn|error) \" %s/up.err", f.dir);
    cr_assert_str_empty(r.out, "whose fault is it? %s", r.out);
    assert_same("--image " IMAGE " --max-tokens 4 'and it still answers'");
    fleet_stop(&f);
}

Test(fleet, nobody_there_is_unavailable) {
    snprintf(f.address, sizeof f.address, "127.0.0.1:1");
    ask_fails("hello", 1, "UNAVAILABLE");
    ask_fails("hello", 1, "no fleet at 127.0.0.1:1");
    ask_fails("hello", 1, "start one with `fovea up`");
    ask_fails("--to nowhere hello", 2, "'nowhere' is not a server address: the port is missing");
    ask_fails("--to 127.0.0.1:99999 hello", 2, "the port must be 0..65535");
}

/* <image> in a question is plain text; only the request places images. */
Test(fleet, an_image_tag_in_a_chat_is_text) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    assert_same("--image " IMAGE " --max-tokens 4 'is <image> a tag?'");
    assert_same("--max-tokens 4 'is <image> a tag?'");
    command_run(&r,
                FOVEA " ask --to %s --image " IMAGE " --max-tokens 2 --ignore-eos "
                      "'one <image>' --then 'and <image> again'",
                f.address);
    cr_assert_eq(r.status, 0, "%s", r.err);
    cr_assert(strstr(r.err, "of 1 image") && strstr(r.err, "of 0 images,"), "%s", r.err);
    ask_fails("''", 2, "the question is empty");
    fleet_stop(&f);
}

Test(fleet, a_cached_image_is_reported) {
    fleet_synth(&f, "tiny");
    fleet_start(&f, "");
    for (int i = 0; i < 2; i++) {
        command_run(&r, FOVEA " ask --to %s --image - --max-tokens 2 hello < " IMAGE, f.address);
        cr_assert_eq(r.status, 0, "%s", r.err);
        cr_assert_eq(strstr(r.err, "of 1 image (cached),") != NULL, i == 1, "%s", r.err);
    }
    fleet_stop(&f);
}

Test(fleet, a_missing_checkpoint_ends_up_with_a_message) {
    command_run(&r, FOVEA " up --listen 127.0.0.1:0 --checkpoint %s/nothing", f.dir);
    cr_assert_eq(r.status, 1, "%d: %s", r.status, r.err);
    cr_assert(strstr(r.err, "fovea up: there is no directory '") && strstr(r.err, "nothing'"), "%s",
              r.err);
}

/* ---- aborted requests ------------------------------------------------------------------- */

/* Waits up to ten minutes: a long answer takes some with a sanitizer and other tests running. */
static void await_end(int pid) {
    for (int i = 0; i < 12000 && kill(pid, 0) == 0; i++) usleep(50000);
}

/* Starts a request that takes a few seconds, in the background; returns when the answer has
 * begun. */
static int ask_long(int n_token) {
    int pid = 0;
    command_run(&r,
                FOVEA " ask --to %s --image " IMAGE
                      " --ignore-eos --max-tokens %d hello >%s/long.out 2>%s/long.err & echo $!; "
                      "for i in $(seq 6000); do test -s %s/long.out && break; sleep 0.01; done",
                f.address, n_token, f.dir, f.dir, f.dir);
    cr_assert_eq(sscanf(r.out, "%d", &pid), 1);
    cr_assert_eq(fleet_count(&f).n_running, 1, "it was over too soon to be broken off");
    return pid;
}

Test(fleet, a_client_that_goes_away_leaves_nothing_behind) {
    fleet_synth(&f, "nano");
    fleet_start(&f, "--threads 1");
    int pid = ask_long(3000);
    kill(pid, SIGKILL);
    fleet_wait_idle(&f);
    fleet_stop(&f);
}

Test(fleet, ending_a_fleet_lets_a_running_answer_end) {
    fleet_synth(&f, "nano");
    fleet_start(&f, "--threads 1 --grace-ms 100000");
    int pid = ask_long(1000);
    fleet_stop(&f);
    await_end(pid);
    command_run(&r, "cat %s/long.err", f.dir);
    cr_assert(strstr(r.out, "1000 out, finish: length"), "%s", r.out);
}

Test(fleet, a_router_that_drains_sends_new_requests_away_and_lets_the_running_one_end) {
    fleet_synth(&f, "nano");
    fleet_start(&f, "--threads 1 --grace-ms 100000");
    int pid = ask_long(1000);
    kill(fleet_child(&f, "fovea-router"), SIGTERM);
    for (int i = 0; i < 200; i++) { /* the signal is on its way */
        command_run(&r, FOVEA " ask --to %s --max-tokens 1 hello", f.address);
        if (r.status != 0) break;
    }
    cr_assert(strstr(r.err, "UNAVAILABLE"), "%s", r.err);
    /* Soon after this sentence the port is closed. In between, a call may still be on its way
     * when the router lets its connection go. */
    cr_assert(strstr(r.err, "this router is shutting down") || strstr(r.err, "no fleet at") ||
                  strstr(r.err, "the fleet is shutting down"),
              "%s", r.err);
    await_end(pid);
    command_run(&r, "cat %s/long.err", f.dir);
    cr_assert(strstr(r.out, "1000 out, finish: length"), "%s", r.out);
}

Test(fleet, a_dead_worker_is_started_again_and_takes_up_its_answer) {
    fleet_synth(&f, "nano");
    fleet_start(&f, "--threads 1");
    int pid = ask_long(1500);
    kill(fleet_child(&f, "fovea-decode"), SIGKILL);
    await_end(pid);
    command_run(&r, "cat %s/long.err", f.dir);
    cr_assert(strstr(r.out, "1500 out, finish: length"), "%s", r.out);
    command_run(&r,
                FOVEA " ask --checkpoint %s/ck --image " IMAGE
                      " --ignore-eos --max-tokens 1500 hello >%s/here.out && cmp %s/here.out "
                      "%s/long.out",
                f.dir, f.dir, f.dir, f.dir);
    cr_assert_eq(r.status, 0, "%s%s", r.out, r.err);
    for (int i = 0; i < 2400 && fleet_count(&f).n_decode < 1; i++) usleep(50000);
    fleet_wait_idle(&f);
    assert_same("--image " IMAGE " --max-tokens 4 'again'");
    fleet_stop(&f);
}
