/* Two routers, one fleet: how they share memory, and what clients notice when a router ends. The
 * programs are the real ones; the clients only retry UNAVAILABLE at the next address, as a gRPC
 * client with a retry policy does. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "tests/support/caller.h"
#include "tests/support/crew.h"
#include "tests/support/net.h"

static crew c;
static caller_rig rig;

#define UNTIL(condition) CALLER_UNTIL(&rig, condition)

/* ---- the rig ---------------------------------------------------------------------------- */

static void open_all(void) {
    crew_open(&c, "routers", "tiny");
    caller_rig_open(&rig);
}

static void close_all(void) {
    caller_rig_close(&rig);
    crew_close(&c);
}

TestSuite(routers, .init = open_all, .fini = close_all, .timeout = 300);

static void start_two(void) {
    crew_start_second(&c);
    crew_start(&c, 1, 1);
    char words[100];
    snprintf(words, sizeof words, "router=%s event=joined", c.second_fleet);
    program_wait_said(&c.prefill[0], words);
    program_wait_said(&c.decode[0], words);
}

/* ---- two routers ------------------------------------------------------------------------ */

/* The bytes that a request takes, as its first event reports. */
static uint64_t bytes_of(uint32_t max_tokens) {
    static caller k;
    k = (caller){0};
    k.max_tokens = max_tokens;
    k.once = true;
    caller_start(&rig, &k, c.f.address, NULL);
    UNTIL(k.n_done == 1 || k.n_failed);
    caller_stop(&k);
    caller_close(&k);
    return k.bytes_bound;
}

Test(routers, small_requests_of_one_do_not_starve_large_ones_of_the_other) {
    enum { SMALL = 8, LARGE_TOKENS = 300, SMALL_TOKENS = 120, LARGES = 3 };
    static caller small[SMALL], large;
    crew_start(&c, 1, 1);
    uint64_t bytes_large = bytes_of(LARGE_TOKENS), bytes_small = bytes_of(SMALL_TOKENS);
    crew_stop(&c);
    cr_assert_gt(bytes_large, 2 * bytes_small);
    /* Small requests alone never leave this much free. */
    snprintf(c.decode_args, sizeof c.decode_args, "--kv-bytes %" PRIu64,
             bytes_large + bytes_small / 2);
    start_two();
    for (int i = 0; i < SMALL; i++) {
        small[i].max_tokens = SMALL_TOKENS;
        caller_start(&rig, &small[i], c.second_address, NULL);
    }
    UNTIL(small[0].n_done + small[1].n_done + small[2].n_done + small[3].n_done >= 8);
    large.max_tokens = LARGE_TOKENS;
    large.once = false;
    caller_start(&rig, &large, c.f.address, NULL);
    UNTIL(large.n_done >= LARGES || large.n_failed);
    caller_stop(&large);
    for (int i = 0; i < SMALL; i++) {
        int before = small[i].n_done;
        UNTIL(small[i].n_done > before || small[i].n_failed); /* nor the other way round */
        caller_stop(&small[i]);
        cr_assert_eq(small[i].n_retry, 0);
        caller_close(&small[i]);
    }
    cr_assert_eq(large.n_retry, 0);
    caller_close(&large);
    crew_wait_idle(&c, 1, 1);
    cr_assert_not(program_said(&c.router, "event=replay"));
    cr_assert_not(program_said(&c.second, "event=replay"));
    crew_stop(&c);
}

Test(routers, a_kept_conversation_is_found_through_either) {
    static caller first, second;
    start_two();
    first.keep_ms = 60000;
    first.max_tokens = 5;
    first.once = true;
    caller_start(&rig, &first, c.f.address, NULL);
    UNTIL(first.n_done == 1 || first.n_failed);
    caller_stop(&first);
    cr_assert_gt(first.n_kept, 16);
    memcpy(second.conversation, first.kept, first.n_kept);
    second.n_conversation = first.n_kept;
    second.max_tokens = 5;
    second.once = true;
    caller_start(&rig, &second, c.second_address, NULL);
    UNTIL(second.n_done == 1 || second.n_failed);
    caller_stop(&second);
    cr_assert_str_eq(second.decode_worker, first.decode_worker);
    caller_close(&first);
    caller_close(&second);
    crew_stop(&c);
}

Test(routers, one_that_is_found_by_two_addresses_is_joined_once) {
    strcpy(c.fleet, "0.0.0.0:0");
    strcpy(c.router_args, "--insecure");
    crew_start_router(&c);
    const char *port = strrchr(c.fleet, ':');
    char both[64];
    snprintf(both, sizeof both, "127.0.0.1%s,127.0.0.2%s", port, port);
    strcpy(c.fleet, both);
    c.n_decode = 1;
    crew_start_decode(&c, 0);
    program_wait_said(&c.decode[0], "event=joined");
    program_wait_said(&c.decode[0], "joined by another address");
    cr_assert_eq(fleet_count(&c.f).n_decode, 1);
    cr_assert_not(program_said(&c.router, "event=refused"));
    crew_stop(&c);
}

/* ---- routers that end ------------------------------------------------------------------- */

enum { LOAD = 6 };
static caller load[LOAD];

static void start_load(const char *a, const char *b) {
    for (int i = 0; i < LOAD; i++) {
        load[i].max_tokens = 4 + 8 * (uint32_t)i;
        caller_start(&rig, &load[i], i % 2 && b ? b : a, i % 2 && b ? a : b);
    }
}

static int load_done(void) {
    int n = 0;
    for (int i = 0; i < LOAD; i++) {
        cr_assert_eq(load[i].n_failed, 0, "%s", load[i].why);
        n += load[i].n_done;
    }
    return n;
}

static void more_load(int n) {
    int until = load_done() + n;
    UNTIL(load_done() >= until);
}

static void stop_load(void) {
    for (int i = 0; i < LOAD; i++) caller_stop(&load[i]);
    for (int i = 0; i < LOAD; i++) caller_close(&load[i]);
}

/* Waits for a program's end while the clients continue. */
static void wait_end(program *p) {
    siginfo_t info = {0};
    for (double until_s = fv_clock_s() + 60; fv_clock_s() < until_s && info.si_pid == 0;) {
        caller_rig_run(&rig, 20);
        cr_assert_eq(waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    cr_assert_eq(program_wait(p), 0);
}

static void end_router(program *p) {
    program_kill(p, SIGTERM);
    wait_end(p);
}

Test(routers, both_are_replaced_under_load_and_nobody_is_refused) {
    start_two();
    start_load(c.f.address, c.second_address);
    more_load(20);
    end_router(&c.router);
    more_load(20); /* all answered by the other router */
    crew_start_router(&c);
    program_wait_said(&c.router, "worker=decode-0 event=joined");
    program_wait_said(&c.router, "worker=prefill-0 event=joined");
    end_router(&c.second);
    more_load(20);
    crew_start_second(&c);
    program_wait_said(&c.second, "worker=prefill-0 event=joined");
    more_load(20);
    stop_load();
    /* A client moves on to the next address and stays there. */
    for (int i = 0; i < LOAD; i++)
        cr_assert_leq(load[i].n_row_most, 2, "%d in a row", load[i].n_row_most);
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

Test(routers, the_next_one_takes_the_address_while_the_last_one_finishes_what_it_has) {
    static caller slow, next;
    strcpy(c.decode_args, "--hang-at decode-running");
    crew_start(&c, 1, 1);
    slow.max_tokens = 5;
    slow.once = true;
    caller_start(&rig, &slow, c.f.address, NULL);
    UNTIL(slow.n_token > 0);
    program old = c.router;
    program_kill(&old, SIGTERM);
    while (!program_said(&old, "event=leave")) caller_rig_run(&rig, 10);
    caller_rig_run(&rig, 200);
    crew_start_router(&c); /* aborts when it cannot listen */
    cr_assert(program_runs(&old), "it has a request yet");
    next.max_tokens = 1;
    next.once = true;
    caller_start(&rig, &next, c.f.address, NULL);
    UNTIL(next.n_done == 1 || next.n_failed);
    caller_stop(&next);
    cr_assert_not(slow.finished);
    program_kill(&c.decode[0], SIGKILL);
    c.decode_args[0] = '\0';
    crew_start_decode(&c, 0); /* joins only the next router: the last one no longer listens */
    UNTIL(slow.n_done == 1 || slow.n_failed);
    caller_stop(&slow); /* the prefill worker could finish what was left */
    wait_end(&old);
    caller_close(&slow);
    caller_close(&next);
    crew_stop(&c);
}

Test(routers, one_alone_is_replaced_under_load_and_clients_wait_for_no_more_than_its_start) {
    strcpy(c.router_args, "--grace-ms 20000");
    crew_start(&c, 1, 1);
    start_load(c.f.address, NULL);
    more_load(20);
    program old = c.router;
    program_kill(&old, SIGTERM);
    while (!program_said(&old, "event=leave")) caller_rig_run(&rig, 10);
    caller_rig_run(&rig, 200);
    crew_start_router(&c);
    more_load(20);
    wait_end(&old);
    stop_load();
    crew_wait_idle(&c, 1, 1);
    crew_stop(&c);
}

Test(routers, one_that_lingers_is_not_ready_and_still_answers) {
    strcpy(c.router_args, "--linger-ms 6000");
    crew_start(&c, 1, 1);
    start_load(c.f.address, NULL);
    more_load(10);
    program old = c.router;
    program_kill(&old, SIGTERM);
    program_wait_said(&old, "event=linger");
    more_load(5);
    cr_assert_not(program_said(&old, "event=drain"));
    for (int i = 0; i < LOAD; i++) cr_assert_eq(load[i].n_retry, 0, "it still answers");
    while (!program_said(&old, "event=leave")) caller_rig_run(&rig, 10);
    caller_rig_run(&rig, 200);
    crew_start_router(&c);
    more_load(5);
    wait_end(&old);
    stop_load();
    crew_stop(&c);
}
