/* `fovea up` in the background. */
#include "tests/support/fleet.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOVEA FOVEA_BIN "/fovea"

command_result fleet_said;

__attribute__((format(printf, 1, 2), noreturn)) static void give_up(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

void fleet_open(fleet *f, const char *name) {
    *f = (fleet){0};
    snprintf(f->dir, sizeof f->dir, "%s/%s-XXXXXX", FOVEA_TEST_TMP, name);
    if (!mkdtemp(f->dir)) give_up("cannot make %s", f->dir);
}

void fleet_close(fleet *f) {
    if (f->pid) kill(f->pid, SIGKILL); /* its children end with it */
    f->pid = 0;
    command_run(&fleet_said, "rm -rf '%s'", f->dir);
}

void fleet_synth(fleet *f, const char *shape) {
    command_run(&fleet_said, FOVEA " synth --shape %s --dtype f32 --seed 5 --out %s/ck", shape,
                f->dir);
    if (fleet_said.status != 0) give_up("%s", fleet_said.err);
}

void fleet_start(fleet *f, const char *args) {
    const char *d = f->dir;
    command_run(
        &fleet_said,
        "rm -f %s/up.out; " FOVEA /* else the grep reads what an earlier fleet has written */
        " up --checkpoint %s/ck --listen 127.0.0.1:0 %s >%s/up.out 2>%s/up.err </dev/null "
        "& echo $!; for i in $(seq 600); do grep -q ready %s/up.out && break; "
        "kill -0 $! || break; sleep 0.1; done; cat %s/up.err >&2; "
        "sed -n 's/^ready on \\([^ ]*\\): .*/\\1/p' %s/up.out",
        d, d, args, d, d, d, d, d);
    if (sscanf(fleet_said.out, "%d %63s", &f->pid, f->address) != 2)
        give_up("the fleet is not ready: %s%s", fleet_said.out, fleet_said.err);
}

void fleet_stop(fleet *f) {
    kill(f->pid, SIGINT);
    for (int i = 0; i < 2400 && kill(f->pid, 0) == 0; i++) usleep(50000);
    if (kill(f->pid, 0) == 0) give_up("the fleet still runs");
    f->pid = 0;
    command_run(&fleet_said, "cat %s/up.err", f->dir);
    if (strstr(fleet_said.out, "event=killed")) give_up("%s", fleet_said.out);
}

void fleet_gateway(const fleet *f, char address[64]) {
    command_run(&fleet_said, "sed -nE 's|^https?://(.*)/v1 .*|\\1|p' %s/up.out", f->dir);
    if (sscanf(fleet_said.out, "%63s", address) != 1)
        give_up("it does not say where its gateway is");
}

int fleet_child(const fleet *f, const char *program) {
    int pid = 0;
    command_run(&fleet_said, "pgrep -P %d -f %s", f->pid, program);
    if (sscanf(fleet_said.out, "%d", &pid) != 1) give_up("no %s runs", program);
    return pid;
}

void fleet_connect(const fleet *f, fv_remote **out) {
    fv_remote_options to = {
        .target = f->address, .tls = {.ca = f->tls_ca}, .name = f->tls_ca ? "fovea-router" : NULL};
    if (fv_remote_open(&to, out) != FV_OK) give_up("%s", fv_last_error());
}

fv_fleet_count fleet_count(const fleet *f) {
    fv_remote *remote;
    fv_fleet_count count;
    fleet_connect(f, &remote);
    if (fv_remote_fleet(remote, &count) != FV_OK) give_up("%s", fv_last_error());
    fv_remote_close(remote);
    return count;
}

void fleet_wait_idle(const fleet *f) {
    fv_fleet_count c = {0};
    for (int i = 0; i < 300; i++) {
        c = fleet_count(f);
        if (c.n_queued + c.n_running == 0 && c.bytes_used == 0) return;
        usleep(100000);
    }
    give_up("%d wait, %d run, %llu bytes are held", c.n_queued, c.n_running,
            (unsigned long long)c.bytes_used);
}
