/* A fleet whose workers each have a device (the CUDA plugin emulated on the CPU) and transfer keys
 * and values by NCCL (a mock that can be made to fail: tests/support/cuda_host/nccl.cpp). Whatever
 * happens to the link between devices, the answer is that of one process, bit for bit, and nothing
 * is held afterwards. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/command.h"
#include "tests/support/crew.h"
#include "tests/support/fleet_token.h"

#define FOVEA FOVEA_BIN "/fovea"
#define IMAGE FOVEA_TEST_DATA "/golden/demo.png"
#define ON_DEVICE "--device cuda --isa exact --plugin-dir " FOVEA_EMULATED
#define ON_GPU_0 ON_DEVICE " --gpu 0"
#define ON_GPU_1 ON_DEVICE " --gpu 1"
#define ASK "--image " IMAGE " --max-tokens 4 --json \"what is here\""

static crew c;
static command_result r;
static char alone[512]; /* the digests of one process */

static void open_crew(void) {
    if (access(FOVEA_EMULATED "/libfovea_cuda.so", R_OK) != 0)
        cr_skip("the CUDA kernels are not built for the CPU here");
    crew_open(&c, "nccl", "tiny-gqa");
    setenv("FOVEA_EMULATED_GPUS", "2", 1);
    strcpy(c.prefill_args, ON_GPU_0 " --transport nccl");
    strcpy(c.decode_args, ON_GPU_1 " --transport nccl");
}

static void close_crew(void) { crew_close(&c); }

TestSuite(device_nccl, .init = open_crew, .fini = close_crew, .timeout = 600);

static void take_digests(char out[512]) {
    const char *begin = strstr(r.out, "\"digests\""), *end = begin ? strchr(begin, ']') : NULL;
    cr_assert(end != NULL && end - begin < 512, "%s %s", r.out, r.err);
    snprintf(out, 512, "%.*s", (int)(end - begin), begin);
}

/* The value of a key in the last answer's report; -1: absent. */
static long long number(const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(r.out, quoted);
    return at ? atoll(at + strlen(quoted)) : -1;
}

static bool over_nccl(void) {
    return strstr(r.out, "\"transport\": \"nccl\"") || strstr(r.out, "\"transport\":\"nccl\"");
}

/* The answer of one process must equal r. */
static void ask_alone(const char *policy) {
    command_run(&r, FOVEA " ask --checkpoint %s/ck --policy %s " ASK, c.f.dir, policy);
    cr_assert_eq(r.status, 0, "%s", r.err);
    take_digests(alone);
}

/* The fleet's answer must equal r. */
static void ask(const char *policy) {
    char theirs[512];
    command_run(&r, FOVEA " ask --to %s --policy %s " ASK, c.f.address, policy);
    cr_assert_eq(r.status, 0, "%s", r.err);
    take_digests(theirs);
    cr_expect(eq(str, theirs, alone), "%s", policy);
}

static int times_said(const program *p, const char *words) {
    command_run(&r, "grep -c '%s' %s/%s.log", words, p->dir, p->name);
    return atoi(r.out);
}

/* ---- without faults ----------------------------------------------------------------------- */

Test(device_nccl, one_peer_link_serves_many_requests_and_is_reported) {
    static const char *const policies[] = {"preset=exact", "preset=paper-attentionpack",
                                           "preset=aggressive"};
    crew_start(&c, 1, 1);
    for (int i = 0; i < 3; i++) {
        ask_alone(policies[i]);
        ask(policies[i]);
        cr_expect(over_nccl(), "%s: %s", policies[i], r.out);
        cr_expect(number("bytes_pair") > 0 && number("bytes_pair") < number("bytes_sent"));
        cr_expect(number("fallbacks") == 0);
    }
    cr_expect(eq(int, times_said(&c.prefill[0], "event=pair-joined"), 1));
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

/* The decode worker's KV may be on a device of another kind: gRPC is used then. */
Test(device_nccl, auto_takes_grpc_where_one_side_has_no_device) {
    strcpy(c.prefill_args, ON_GPU_0 " --transport auto");
    strcpy(c.decode_args, "--device cpu --transport auto");
    ask_alone("preset=exact");
    crew_start(&c, 1, 1);
    ask("preset=exact");
    cr_expect(number("bytes_pair") == 0 && number("fallbacks") == 0 && !over_nccl(), "%s", r.out);
    cr_expect(times_said(&c.prefill[0], "event=pair-refused") == 1);
    crew_stop(&c);
}

/* NCCL refuses two ranks on one GPU, and only after a while: it is not tried. */
Test(device_nccl, two_workers_on_one_gpu_use_grpc_from_the_first_request_on) {
    strcpy(c.decode_args, ON_GPU_0 " --transport nccl");
    ask_alone("preset=exact");
    crew_start(&c, 1, 1);
    for (int i = 0; i < 2; i++) {
        ask("preset=exact");
        cr_expect(number("bytes_pair") == 0 && number("fallbacks") == 0 && !over_nccl(), "%s",
                  r.out);
    }
    cr_expect(eq(int, times_said(&c.prefill[0], "event=pair-refused.*the same GPU"), 1));
    cr_expect(eq(int, times_said(&c.prefill[0], "event=pair-failed"), 0));
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

Test(device_nccl, nccl_without_a_device_does_not_start) {
    command_run(&r,
                FOVEA_BIN "/fovea-decode" FLEET_TOKEN_FILE
                          "--checkpoint %s/ck --device cpu --transport nccl",
                c.f.dir);
    cr_expect(r.status != 0 && strstr(r.err, "this worker computes on cpu"), "%s", r.err);
    command_run(&r,
                FOVEA_BIN "/fovea-prefill" FLEET_TOKEN_FILE
                          "--checkpoint %s/ck --device cpu --transport mail",
                c.f.dir);
    cr_expect(r.status != 0 && strstr(r.err, "choose auto, grpc or nccl"), "%s", r.err);
}

/* Two decode workers alternate, with one link at a time. */
Test(device_nccl, an_idle_peer_link_is_closed_for_another) {
    strcat(c.prefill_args, " --pairs 1");
    ask_alone("preset=exact");
    crew_start(&c, 1, 2);
    for (int i = 0; i < 6; i++) ask("preset=exact");
    crew_wait_idle(&c, 1, 2);
    cr_expect(times_said(&c.prefill[0], "event=pair-joined") >= 1);
    cr_expect(times_said(&c.prefill[0], "event=pair-failed") == 0);
    crew_stop(&c);
}

/* ---- failures ----------------------------------------------------------------------------- */

/* Rank 0 is the prefill worker. Its fault applies to every link that it makes. */
static void start_with_fault(int rank, const char *fault, const char *options) {
    char name[32];
    snprintf(name, sizeof name, "FOVEA_NCCL_FAULT_%d", rank);
    setenv(name, fault, 1);
    strcat(c.prefill_args, options);
    crew_start(&c, 1, 1);
    unsetenv(name);
}

/* The first answer meets the fault; the second uses the transport that works. */
static void answers_all_the_same(int rank, const char *fault, bool in_transfer) {
    ask_alone("preset=exact");
    start_with_fault(rank, fault, in_transfer ? " --pair-ms 300" : " --pair-join-ms 300");
    ask("preset=exact");
    cr_expect(in_transfer ? number("fallbacks") > 0 : number("fallbacks") == 0, "%s", r.out);
    ask("preset=exact");
    cr_expect(times_said(&c.prefill[0], "event=pair-failed") >= 1);
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

Test(device_nccl, without_a_peer_link_grpc_is_used) { answers_all_the_same(0, "init", false); }

Test(device_nccl, a_send_that_fails_goes_over_grpc) { answers_all_the_same(0, "error:2", true); }

Test(device_nccl, a_receive_that_fails_goes_over_grpc) { answers_all_the_same(1, "error:3", true); }

Test(device_nccl, a_send_that_never_ends_goes_over_grpc) {
    answers_all_the_same(0, "late:0", true);
}

Test(device_nccl, a_receive_that_never_ends_goes_over_grpc) {
    answers_all_the_same(1, "late:1", true);
}

/* The worker dies in the middle of a transfer, with its stream of frames. */
Test(device_nccl, a_decode_worker_that_dies_takes_nothing_along) {
    ask_alone("preset=exact");
    start_with_fault(1, "die:2", "");
    command_run(&r, FOVEA " ask --to %s --policy preset=exact " ASK, c.f.address);
    cr_expect(r.status != 0);
    cr_expect(eq(int, program_wait(&c.decode[0]), 9));
    crew_start_decode(&c, 0);
    program_wait_said(&c.decode[0], "event=joined");
    crew_wait_idle(&c, 1, 1);
    ask("preset=exact");
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

/* While NCCL is stuck, the memory is released and other requests continue. */
Test(device_nccl, a_client_that_leaves_in_the_middle_frees_everything) {
    ask_alone("preset=exact");
    start_with_fault(1, "late:2", " --pair-ms 4000");
    command_run(&r, "timeout -s INT 1 " FOVEA " ask --to %s --policy preset=exact " ASK,
                c.f.address);
    cr_expect(r.status != 0);
    crew_wait_idle(&c, 1, 1);
    ask("preset=exact");
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}
