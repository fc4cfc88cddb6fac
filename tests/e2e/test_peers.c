/* A fleet with peers that are silent, incompatible, full, or speak no gRPC: each gets a message
 * that says what is wrong, nobody else is affected, and nothing is held afterwards. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "tests/support/abuser.h"
#include "tests/support/answer.h"
#include "tests/support/crew.h"
#include "tests/support/fleet_token.h"
#include "tests/support/sanitized.h"

#define FOVEA FOVEA_BIN "/fovea"
#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"
#define ASK "--image " IMAGE " --ignore-eos --max-tokens 12 'what is it?'"

static crew c;
static command_result r;

static void open_crew(void) { crew_open(&c, "peers", "tiny"); }
static void close_crew(void) { crew_close(&c); }

TestSuite(peers, .init = open_crew, .fini = close_crew, .timeout = 300);

/* Asserts that the fleet answers as before and holds nothing. */
static void assert_well(int n_prefill, int n_decode) {
    answer_assert_one_process(c.f.dir, c.f.address, ASK);
    crew_wait_idle(&c, n_prefill, n_decode);
}

static void fails(int status, const char *words) {
    cr_assert_eq(r.status, status, "gave %d: %s", r.status, r.err);
    cr_assert(strstr(r.err, words), "said: %s", r.err);
}

/* ---- incompatible programs ----------------------------------------------------------- */

Test(peers, a_second_server_on_a_port_says_that_it_is_taken) {
    static const char *const binaries[] = {"fovea-router", "fovea-prefill", "fovea-decode"};
    crew_start(&c, 1, 1);
    for (int i = 0; i < 3; i++) {
        char checkpoint[500] = "";
        if (i > 0) snprintf(checkpoint, sizeof checkpoint, "--checkpoint %s/ck", c.f.dir);
        command_run(&r, "timeout 60 " FOVEA_BIN "/%s" FLEET_TOKEN_FILE "--listen %s %s",
                    binaries[i], c.f.address, checkpoint);
        fails(1, c.f.address);
    }
    assert_well(1, 1);
    crew_stop(&c);
}

/* Started by hand with these arguments beside the fleet: the router says what differs. */
static void differs(const char *name, const char *binary, const char *args, const char *words) {
    static program foreign;
    char line[200];
    program_start(
        &foreign, c.f.dir, name, binary,
        "--router %s --fleet-token-file %s/fleet.token --name %s --served-model-name ck %s",
        c.fleet, c.f.dir, name, args);
    snprintf(line, sizeof line, "worker=%s event=another-fleet model=ck other_model=ck reason=\"%s",
             name, words);
    program_wait_said(&c.router, line);
    command_run(&r, FOVEA " ask --to %s --max-tokens 3 hello", c.f.address);
    cr_assert_eq(r.status, 0, "it works with none of the others: %s", r.err);
    program_kill(&foreign, SIGTERM);
    cr_assert_eq(program_wait(&foreign), 0);
}

Test(peers, a_worker_that_differs_works_with_none_of_the_others_and_the_router_says_why) {
    char args[500];
    crew_start(&c, 1, 1);
    snprintf(args, sizeof args, "--checkpoint %s/ck --kv-dtype bf16", c.f.dir);
    differs("d-dtype", "fovea-decode", args, "dtype is bf16, and must be f32");
    differs("p-dtype", "fovea-prefill", args, "dtype is bf16, and must be f32");
    command_run(&r, FOVEA " synth --shape tiny --dtype f32 --seed 6 --out %s/other", c.f.dir);
    snprintf(args, sizeof args, "--checkpoint %s/other", c.f.dir);
    differs("d-model", "fovea-decode", args, "model is ");
    assert_well(1, 1);
    crew_stop(&c);
}

Test(peers, a_name_that_a_worker_has_is_refused_until_that_one_is_gone) {
    static program second;
    crew_start(&c, 1, 1);
    program_start(&second, c.f.dir, "second", "fovea-decode",
                  "--checkpoint %s/ck --router %s --fleet-token-file %s/fleet.token "
                  "--name decode-0 --threads 1",
                  c.f.dir, c.fleet, c.f.dir);
    program_wait_said(&second, "a worker with the name decode-0 is connected");
    assert_well(1, 1);
    cr_assert(program_runs(&c.decode[0]));
    program_kill(&c.decode[0], SIGKILL);
    program_wait_said(&second, "event=joined");
    assert_well(1, 1);
    program_kill(&second, SIGTERM);
    cr_assert_eq(program_wait(&second), 0);
    crew_stop(&c);
}

/* ---- requests ------------------------------------------------------------------------ */

static fv_status end_status;
static char end_text[600];

static void on_over(void *user, fv_status st, const fv_rpc_end *end) {
    (void)end;
    end_status = st;
    snprintf(end_text, sizeof end_text, "%s", fv_last_error());
    *(bool *)user = true;
}

static fv_status on_tokens(void *user, const Fovea__Inference__V1__Tokens *t) {
    (void)user, (void)t;
    return FV_OK;
}

static fv_status on_finished(void *user, const Fovea__Inference__V1__Finished *f) {
    (void)user, (void)f;
    return FV_OK;
}

Test(peers, a_model_that_is_not_served_is_not_found) {
    static const fv_remote_events events = {
        .tokens = on_tokens, .finished = on_finished, .over = on_over};
    Fovea__Inference__V1__GenerateRequest m = FOVEA__INFERENCE__V1__GENERATE_REQUEST__INIT;
    Fovea__Inference__V1__Prompt prompt = FOVEA__INFERENCE__V1__PROMPT__INIT;
    fv_remote *remote;
    bool over = false;
    crew_start(&c, 1, 1);
    prompt.form_case = FOVEA__INFERENCE__V1__PROMPT__FORM_TEXT;
    prompt.text = (char *)"hello";
    m.prompt = &prompt;
    m.model = (char *)"llava-1000";
    cr_assert_eq(fv_remote_open(&(fv_remote_options){.target = c.f.address}, &remote), FV_OK);
    cr_assert_eq(fv_remote_begin(remote, &m, 60000, &events, &over), FV_OK);
    while (!over) uv_run(fv_remote_loop(remote), UV_RUN_ONCE);
    fv_remote_close(remote);
    cr_assert_eq(end_status, FV_ENOTFOUND);
    cr_assert(strstr(end_text, "llava-1000"), "%s", end_text);
    assert_well(1, 1);
    crew_stop(&c);
}

Test(peers, a_prompt_too_long_for_any_worker_is_the_clients_mistake) {
    crew_start(&c, 1, 1);
    command_run(&r, FOVEA " ask --to %s --raw \"$(head -c 20000 /dev/zero | tr '\\0' z)\"",
                c.f.address);
    fails(2, "INVALID_ARGUMENT");
    assert_well(1, 1);
    crew_stop(&c);
}

Test(peers, in_a_full_pool_requests_wait_or_are_asked_to_come_back_and_none_is_left_half_way) {
    abuse sum = {0};
    /* Memory for two or three requests at a time. */
    strcpy(c.decode_args, "--kv-bytes 400000 --lease-ms 2000 --attach-ms 2000");
    strcpy(c.router_args, "--queue 4");
    crew_start(&c, 1, 1);
    abuse_run(c.f.address, IMAGE, 7, SANITIZED ? 100 : 600, 24, &sum);
    cr_assert_eq(sum.other, 0);
    cr_assert_gt(sum.busy, 0, "the pool was never full");
    cr_assert_gt(sum.done + sum.cancelled, 0);
    crew_wait_idle(&c, 1, 1);
    assert_well(1, 1);
    crew_stop(&c);
}

/* ---- silent workers ------------------------------------------------------------------ */

static void ask_in_background(const char *where) {
    command_run(&r,
                "rm -f %s/answer.rc; (" FOVEA
                " ask --json --to %s %s >%s/answer.json 2>%s/answer.err; echo $? >%s/rc; "
                "mv %s/rc %s/answer.rc) </dev/null >/dev/null 2>&1 &",
                c.f.dir, where, ASK, c.f.dir, c.f.dir, c.f.dir, c.f.dir, c.f.dir);
}

static int wait_answer(void) {
    command_run(&r,
                "for i in $(seq 1200); do test -f %s/answer.rc && break; sleep 0.1; done; "
                "cat %s/answer.err >&2; exit $(cat %s/answer.rc)",
                c.f.dir, c.f.dir, c.f.dir);
    return r.status;
}

/* Stops a worker, with its connections open, while it has a request; nothing tells the router. */
static void goes_mute(program *worker, const char *failpoint, void (*start)(crew *c, int i)) {
    char path[500], words[100];
    json_error_t err;
    crew_start(&c, 1, 1);
    c.prefill_args[0] = '\0';
    strcpy(c.decode_args, "--lease-ms 2000 --attach-ms 2000");
    ask_in_background(c.f.address);
    snprintf(words, sizeof words, "event=failpoint name=%s", failpoint);
    program_wait_said(worker, words);
    program_kill(worker, SIGSTOP);
    *(worker == c.prefill ? &c.n_prefill : &c.n_decode) = 2;
    start(&c, 1);
    cr_assert_eq(wait_answer(), 0, "%s", r.err);
    snprintf(path, sizeof path, "%s/answer.json", c.f.dir);
    json_t *there = json_load_file(path, 0, &err);
    cr_assert_not_null(there, "%s", err.text);
    snprintf(path, sizeof path, "--checkpoint %s/ck", c.f.dir);
    answer_assert_same(answer_ask(path, ASK), there, false, "mute");
    cr_assert(program_said(&c.router, "event=lost"));
    crew_wait_idle(&c, 1, 1);
    program_kill(worker, SIGKILL);
    assert_well(1, 1);
    crew_stop(&c);
}

Test(peers, a_prefill_worker_that_goes_mute_is_lost_and_another_takes_over) {
    strcpy(c.router_args, "--silence-ms 1500");
    strcpy(c.decode_args, "--lease-ms 2000 --attach-ms 2000");
    strcpy(c.prefill_args, "--hang-at prefill-computing");
    goes_mute(&c.prefill[0], "prefill-computing", crew_start_prefill);
}

Test(peers, a_decode_worker_that_goes_mute_is_lost_and_another_takes_over) {
    strcpy(c.router_args, "--silence-ms 1500");
    strcpy(c.decode_args, "--hang-at decode-running");
    goes_mute(&c.decode[0], "decode-running", crew_start_decode);
}

Test(peers, a_worker_that_was_only_asleep_comes_back_by_itself) {
    strcpy(c.router_args, "--silence-ms 1000");
    crew_start(&c, 1, 1);
    program_kill(&c.decode[0], SIGSTOP);
    program_wait_said(&c.router, "event=lost");
    program_kill(&c.decode[0], SIGCONT);
    crew_wait_idle(&c, 1, 1);
    assert_well(1, 1);
    crew_stop(&c);
}

/* ---- garbage ------------------------------------------------------------------------- */

static void send_to(const char *address, const void *bytes, size_t n) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    struct timeval patience = {.tv_usec = 200000};
    char reply[4096];
    at.sin_port = htons((uint16_t)atoi(strrchr(address, ':') + 1));
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    int s = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_geq(s, 0);
    cr_assert_eq(connect(s, (struct sockaddr *)&at, sizeof at), 0, "nobody listens at %s", address);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    (void)send(s, bytes, n, MSG_NOSIGNAL);
    (void)recv(s, reply, sizeof reply, 0);
    close(s);
}

static void send_rubbish(const char *address) {
    static const char http1[] = "GET / HTTP/1.1\r\nHost: fovea\r\n\r\n";
    static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"; /* a TLS
                                                                                 * handshake */
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    uint8_t noise[5000];
    unsigned seed = 1;
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)rand_r(&seed);
    send_to(address, http1, sizeof http1 - 1);
    send_to(address, hello, sizeof hello - 1);
    send_to(address, noise, sizeof noise);
    memcpy(noise, preface, sizeof preface - 1); /* and random bytes instead of frames */
    send_to(address, noise, sizeof noise);
    memset(noise + sizeof preface - 1, 0, 9); /* an empty SETTINGS, then random bytes */
    noise[sizeof preface - 1 + 3] = 4;
    send_to(address, noise, sizeof noise);
    send_to(address, "", 0);
}

Test(peers, garbage_at_every_port_affects_nobody_else) {
    crew_start(&c, 1, 1);
    for (int i = 0; i < 10; i++) {
        send_rubbish(c.router.address);
        send_rubbish(c.prefill[0].address);
        send_rubbish(c.decode[0].address);
    }
    cr_assert(program_runs(&c.router) && program_runs(&c.prefill[0]) && program_runs(&c.decode[0]));
    assert_well(1, 1);
    crew_stop(&c);
}
