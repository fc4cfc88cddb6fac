/* The workers' health service reports when they are unhealthy and when they have recovered: weights
 * that turn to NaN in a running worker, a computing thread that hangs. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "grpc/health/v1/health.pb-c.h"
#include "tests/support/fleet.h"
#include "tests/support/fleet_token.h"
#include "tests/support/net.h"
#include "tests/support/program.h"

enum { SERVING = 1, NOT_SERVING = 2 };

static fleet f; /* the folder and the checkpoint */
static program p;
static net r;

static void set_up(void) {
    fleet_open(&f, "health");
    fleet_synth(&f, "tiny");
    net_open(&r);
}

static void tear_down(void) {
    program_kill(&p, SIGKILL);
    net_close(&r, 1000);
    fleet_close(&f);
}

TestSuite(health, .init = set_up, .fini = tear_down, .timeout = 300);

static void start(const char *binary, const char *args) {
    program_start(&p, f.dir, "worker", binary, FLEET_TOKEN_FILE "--checkpoint %s/ck --log debug %s",
                  f.dir, args);
}

/* ---- a watcher --------------------------------------------------------------------------- */

typedef struct watch {
    fv_rpc_channel *channel;
    fv_rpc_call *call;
    int32_t n, state[64]; /* states it was sent */
    bool over;
} watch;

static fv_status on_state(fv_rpc_call *c, grpc_byte_buffer *message) {
    watch *w = fv_rpc_call_user(c);
    ProtobufCMessage *m;
    FV_TRY(
        fv_rpc_call_unpack(c, &grpc__health__v1__health_check_response__descriptor, message, &m));
    cr_assert_lt(w->n, 64);
    w->state[w->n++] = (int32_t)((Grpc__Health__V1__HealthCheckResponse *)m)->status;
    return FV_OK;
}

static void on_over(fv_rpc_call *c, const fv_rpc_end *end) {
    (void)end;
    ((watch *)fv_rpc_call_user(c))->over = true;
}

static void watch_open(watch *w, const char *service) {
    static const fv_rpc_events events = {.on_message = on_state, .on_end = on_over};
    Grpc__Health__V1__HealthCheckRequest m = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    fv_rpc_call_options opt = {.path = "/grpc.health.v1.Health/Watch",
                               .events = &events,
                               .user = w,
                               .deadline_ms = 600000,
                               .request = &m.base,
                               .half_close = true};
    m.service = (char *)(uintptr_t)service;
    *w = (watch){0};
    cr_assert_eq(fv_rpc_channel_open(r.bridge, p.address, NULL, &w->channel), FV_OK);
    cr_assert_eq(fv_rpc_call_open(w->channel, &opt, &w->call), FV_OK);
}

static void watch_close(watch *w) {
    if (!w->over) fv_rpc_call_cancel(w->call);
    net_wait(&r, &w->over);
    fv_rpc_channel_close(w->channel);
}

/* Waits until the last state is `state`. */
static void wait_state(const watch *w, int32_t state) {
    for (int i = 0; i < 6000; i++) {
        if (w->n > 0 && w->state[w->n - 1] == state) return;
        net_sleep(&r, 10);
    }
    cr_assert(0, "it does not become %d: %d words, the last is %d", state, w->n,
              w->n ? w->state[w->n - 1] : 0);
}

/* ---- weights that are NaN ----------------------------------------------------------------- */

/* All weights in the file become NaN, or what they were. The program has mapped the file, so it
 * sees the change. (F32 values whose exponent is all ones; the header is left alone.) */
static void spoil(bool bad) {
    static char good[4 << 20];
    static size_t n;
    char path[500];
    snprintf(path, sizeof path, "%s/ck/model.safetensors", f.dir);
    int fd = open(path, O_RDWR);
    cr_assert_geq(fd, 0, "%s: %s", path, strerror(errno));
    if (n == 0) n = (size_t)read(fd, good, sizeof good);
    cr_assert(n > 1000 && n < sizeof good);
    uint64_t head;
    memcpy(&head, good, sizeof head);
    size_t at = 8 + (size_t)head;
    char *nan = malloc(n);
    memset(nan, 0xff, n);
    cr_assert_eq(pwrite(fd, bad ? nan : good + at, n - at, (off_t)at), (ssize_t)(n - at));
    free(nan);
    close(fd);
}

static void sick_and_well_again(const char *binary, const char *service) {
    watch all, one;
    start(binary, "--probe-ms 50 --unhealthy-ms 500");
    watch_open(&all, "");
    watch_open(&one, service);
    wait_state(&all, SERVING);
    wait_state(&one, SERVING);
    spoil(true);
    wait_state(&all, NOT_SERVING);
    wait_state(&one, NOT_SERVING);
    cr_assert(program_said(&p, "event=probe-failed"));
    cr_assert(program_said(&p, "event=unhealthy"));
    cr_assert(program_runs(&p), "it is ill, not dead");
    spoil(false);
    wait_state(&all, SERVING);
    wait_state(&one, SERVING);
    watch_close(&all);
    watch_close(&one);
    program_kill(&p, SIGTERM);
    cr_assert_eq(program_wait(&p), 0);
}

Test(health, a_prefill_worker_whose_logits_are_no_numbers_is_not_serving_until_they_are) {
    sick_and_well_again("fovea-prefill", "fovea.handoff.v1.Prefill");
}

Test(health, a_decode_worker_whose_logits_are_no_numbers_is_not_serving_until_they_are) {
    sick_and_well_again("fovea-decode", "fovea.handoff.v1.Decode");
}

Test(health, a_worker_that_never_was_healthy_never_serves_or_joins) {
    static program router;
    watch w;
    program_start(&router, f.dir, "router", "fovea-router", FLEET_TOKEN_FILE "--log info");
    spoil(false); /* keeps the original bytes */
    spoil(true);
    char args[200];
    snprintf(args, sizeof args, "--probe-ms 20 --router %s", router.fleet);
    start("fovea-decode", args);
    program_wait_said(&p, "event=probe-failed");
    watch_open(&w, "");
    wait_state(&w, NOT_SERVING);
    net_sleep(&r, 300);
    cr_assert_eq(w.n, 1);
    cr_assert_not(program_said(&router, "event=joined"));
    spoil(false);
    wait_state(&w, SERVING);
    program_wait_said(&router, "event=joined");
    watch_close(&w);
    program_kill(&router, SIGKILL);
}

/* ---- a computing thread that hangs --------------------------------------------------- */

static pid_t thread_named(const char *name) {
    char path[300], comm[64] = "";
    snprintf(path, sizeof path, "/proc/%d/task", (int)p.pid);
    DIR *dir = opendir(path);
    pid_t found = 0;
    for (struct dirent *e; dir && !found && (e = readdir(dir));) {
        snprintf(path, sizeof path, "/proc/%d/task/%s/comm", (int)p.pid, e->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fscanf(file, "%63s", comm) == 1 && strcmp(comm, name) == 0) found = atoi(e->d_name);
        fclose(file);
    }
    if (dir) closedir(dir);
    return found;
}

static void hang_and_wake(const char *binary) {
    watch w;
    start(binary, "--probe-ms 50 --unhealthy-ms 500");
    watch_open(&w, "");
    wait_state(&w, SERVING);
    pid_t tid = thread_named("fovea-compute");
    cr_assert_neq(tid, 0, "no thread computes");
    /* Only this thread stops; the loop keeps running and must notice. */
    if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0)
        cr_skip("threads of a child may not be stopped here: %s", strerror(errno));
    cr_assert_eq(ptrace(PTRACE_INTERRUPT, tid, NULL, NULL), 0);
    wait_state(&w, NOT_SERVING);
    int status;
    cr_assert_eq(waitpid(tid, &status, __WALL), tid);
    cr_assert_eq(ptrace(PTRACE_DETACH, tid, NULL, NULL), 0);
    wait_state(&w, SERVING);
    watch_close(&w);
    program_kill(&p, SIGTERM);
    cr_assert_eq(program_wait(&p), 0);
}

Test(health, a_prefill_worker_whose_computing_thread_hangs_is_not_serving) {
    hang_and_wake("fovea-prefill");
}

Test(health, a_decode_worker_whose_computing_thread_hangs_is_not_serving) {
    hang_and_wake("fovea-decode");
}

Test(health, an_idle_worker_stays_healthy_by_probes_that_it_does_not_log) {
    watch w;
    start("fovea-decode", "--probe-ms 20 --unhealthy-ms 1500 --log info");
    watch_open(&w, "");
    wait_state(&w, SERVING);
    int32_t before = w.n;
    net_sleep(&r, 2000);
    cr_assert_eq(w.n, before);
    cr_assert_not(program_said(&p, "event=probe"));
    watch_close(&w);
}

Test(health, draining_is_the_end_of_serving) {
    watch w;
    start("fovea-prefill", "--probe-ms 20");
    watch_open(&w, "");
    wait_state(&w, SERVING);
    program_kill(&p, SIGTERM);
    wait_state(&w, NOT_SERVING);
    cr_assert_eq(program_wait(&p), 0);
    net_wait(&r, &w.over);
    watch_close(&w);
}
