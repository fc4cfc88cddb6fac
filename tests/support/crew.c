/* Starting and stopping the programs of a fleet. */
#include "tests/support/crew.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAIT_STEPS = 1200, STEP_US = 100000 }; /* two minutes: the machine may be busy */

void crew_open(crew *c, const char *name, const char *shape) {
    *c = (crew){0};
    fleet_open(&c->f, name);
    fleet_synth(&c->f, shape);
    command_run(&fleet_said, "umask 077; head -c 32 /dev/urandom | base64 >%s/fleet.token",
                c->f.dir);
}

/* Starts a router at these addresses; fills in those that are empty. */
static void start_router(crew *c, program *p, const char *name, char address[64],
                         char join_at[64]) {
    const char *listen = address[0] ? address : "127.0.0.1:0";
    const char *join = join_at[0] ? join_at : "127.0.0.1:0";
    program_start(p, c->f.dir, name, "fovea-router",
                  "--listen %s --fleet-listen %s --fleet-token-file %s/fleet.token --log debug %s",
                  listen, join, c->f.dir, c->router_args);
    snprintf(address, 64, "%s", p->address);
    snprintf(join_at, 64, "%s", p->fleet);
}

void crew_start_router(crew *c) { start_router(c, &c->router, "router", c->f.address, c->fleet); }

void crew_start_second(crew *c) {
    start_router(c, &c->second, "second", c->second_address, c->second_fleet);
}

static void start_worker(crew *c, program *p, const char *kind, int i, const char *args) {
    char name[32], binary[32], routers[160];
    snprintf(routers, sizeof routers, "%s", c->fleet);
    if (c->second_fleet[0])
        snprintf(routers, sizeof routers, "%s,localhost%s", c->fleet,
                 strrchr(c->second_fleet, ':'));
    snprintf(name, sizeof name, "%s-%d", kind, i);
    snprintf(binary, sizeof binary, "fovea-%s", kind);
    program_start(p, c->f.dir, name, binary,
                  "--checkpoint %s/ck --router %s --fleet-token-file %s/fleet.token --name %s "
                  "--threads 1 --log debug %s",
                  c->f.dir, routers, c->f.dir, name, args);
}

void crew_start_prefill(crew *c, int i) {
    start_worker(c, &c->prefill[i], "prefill", i, c->prefill_args);
}

void crew_start_decode(crew *c, int i) {
    start_worker(c, &c->decode[i], "decode", i, c->decode_args);
}

void crew_start(crew *c, int n_prefill, int n_decode) {
    c->n_prefill = n_prefill;
    c->n_decode = n_decode;
    crew_start_router(c);
    for (int i = 0; i < n_prefill; i++) crew_start_prefill(c, i);
    for (int i = 0; i < n_decode; i++) crew_start_decode(c, i);
    for (int i = 0; i < n_prefill; i++) program_wait_said(&c->prefill[i], "event=joined");
    for (int i = 0; i < n_decode; i++) program_wait_said(&c->decode[i], "event=joined");
}

/* Returns the i-th program; NULL after the last. */
static program *nth(crew *c, int i) {
    if (i == 0) return &c->router;
    if (i == 1) return &c->second;
    i -= 2;
    if (i < c->n_prefill) return &c->prefill[i];
    i -= c->n_prefill;
    return i < c->n_decode ? &c->decode[i] : NULL;
}

void crew_stop(crew *c) {
    program *p;
    for (int i = 0; (p = nth(c, i)); i++) {
        if (!p->pid) continue;
        program_kill(p, SIGTERM);
        int status = program_wait(p);
        if (status == 0) continue;
        fprintf(stderr, "%s ended with %d\n", p->name, status);
        abort();
    }
}

void crew_close(crew *c) {
    program *p;
    for (int i = 0; (p = nth(c, i)); i++) program_kill(p, SIGKILL);
    fleet_close(&c->f);
}

void crew_wait_idle(const crew *c, int n_prefill, int n_decode) {
    fv_fleet_count n = {0};
    for (int i = 0; i < WAIT_STEPS; i++) {
        n = fleet_count(&c->f);
        if (n.n_prefill == n_prefill && n.n_decode == n_decode && n.n_queued + n.n_running == 0 &&
            n.bytes_used == 0)
            return;
        usleep(STEP_US);
    }
    fprintf(stderr, "%d+%d workers are ready, %d requests wait, %d run, %llu bytes are held\n",
            n.n_prefill, n.n_decode, n.n_queued, n.n_running, (unsigned long long)n.bytes_used);
    abort();
}
