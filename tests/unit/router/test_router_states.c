/* router/request.h, router/registry.h: the tables of the states of requests and workers. Every change in a table is
 * made by some scenario, no other is possible, and the pages that show a table show the same. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "router/request.h"
#include "tests/support/router_rig.h"

TestSuite(router_states, .timeout = 240);

#define UNHEALTHY FV_WORKER_UNHEALTHY

/* A table with the names of its states and their setter. */
typedef struct machine {
    const fv_state_change *table;
    int n, first, last; /* rows; states */
    const char *(*name)(int state);
    void (*set)(int from, int to, const char *by); /* changes the state of a new object */
} machine;

static const char *request_name(int s) { return fv_request_state_name((fv_request_state)s); }

static const char *worker_name(int s) {
    return fv_worker_state_name((Fovea__Inference__V1__WorkerState)s);
}

static void set_request(int from, int to, const char *by) {
    fv_relay relay = {0};
    fv_request request = {.relay = &relay, .state = (fv_request_state)from};
    fv_request_set_state(&request, (fv_request_state)to, by);
}

static void set_worker(int from, int to, const char *by) {
    fv_introduction intro = FOVEA__FLEET__V1__INTRODUCTION__INIT;
    fv_registered_worker worker = {.intro = &intro,
                                   .state = (Fovea__Inference__V1__WorkerState)from};
    fv_registered_worker_set_state(&worker, (Fovea__Inference__V1__WorkerState)to, by);
}

static const machine requests = {fv_request_changes, FV_N_REQUEST_CHANGE, FV_REQUEST_NEW,
                                 FV_REQUEST_OVER,    request_name,        set_request};
static const machine workers = {fv_worker_changes, FV_N_WORKER_CHANGE, FV_WORKER_READY,
                                FV_WORKER_LOST,    worker_name,        set_worker};

/* ---- scenarios ---------------------------------------------------------------------------- */

static router_rig r;
static client k;
static Fovea__Inference__V1__GenerateRequest req;

static void ask_and_expect(fv_status st) {
    client_request(&req, 4);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, st, "%s", k.why);
}

static void answer(void) {
    router_rig_with_workers(&r, NULL);
    ask_and_expect(FV_OK);
}

static void refuse(void) {
    router_rig_with_workers(&r, NULL);
    client_request(&req, 4);
    req.model = (char *)"another";
    client_ask(&r, &k, &req, 20000);
    router_rig_wait(&r, &k.over);
    cr_assert_eq(k.end.status, FV_ENOTFOUND, "%s", k.why);
}

static void wait_in_vain(void) {
    router_rig_open(&r, NULL);
    r.p.name = "p0";
    r.p.role = FV_WORKER_PREFILL;
    router_rig_join(&r, &r.p);
    ask_and_expect(FV_EIO); /* there is no decode worker */
}

static void replay(void) {
    router_rig_with_workers(&r, NULL);
    r.p.step = FAKE_NOTHING;
    r.p.fail = FV_EIO;
    r.p.n_times = 1;
    ask_and_expect(FV_OK);
    cr_assert_eq(k.n_replays, 1);
}

/* Waits until the router shows the prefill worker, the first that has joined, in this state. */
static void wait_for_state(Fovea__Inference__V1__WorkerState state, bool report) {
    fleet_seen f = {0};
    for (int i = 0; i < 2000 && (f.n_worker == 0 || f.state[0] != state); i++) {
        if (report) fake_report(&r.p);
        router_rig_sleep(&r, 5);
        router_rig_fleet(&r, &f);
    }
    cr_assert_eq(f.state[0], state);
}

static void report_unhealthy(void) {
    router_rig_with_workers(&r, NULL);
    r.p.unhealthy = true;
    wait_for_state(UNHEALTHY, true);
}

static void recover(void) {
    report_unhealthy();
    r.p.unhealthy = false;
    wait_for_state(FV_WORKER_READY, true);
}

static void hang(void) {
    fv_router_options opt = router_rig_options();
    opt.stall_ms = 200;
    opt.wait_ms = 60000;
    router_rig_with_workers(&r, &opt);
    r.p.step = FAKE_NOTHING;
    r.p.works = true;
    client_request(&req, 4);
    client_ask(&r, &k, &req, 20000);
    router_rig_wait_for(&r, &r.p.calls, 1);
    wait_for_state(UNHEALTHY, true);
    fv_rpc_call_cancel(k.call);
    router_rig_wait(&r, &k.over);
}

static void drain(void) {
    router_rig_with_workers(&r, NULL);
    r.p.draining = true;
    wait_for_state(FV_WORKER_DRAINING, true);
}

static void drain_unhealthy(void) {
    report_unhealthy();
    r.p.draining = true;
    wait_for_state(FV_WORKER_DRAINING, true);
}

static void lose(void) {
    router_rig_with_workers(&r, NULL);
    fake_die(&r.p);
    wait_for_state(FV_WORKER_LOST, false);
}

static void lose_unhealthy(void) {
    report_unhealthy();
    fake_die(&r.p);
    wait_for_state(FV_WORKER_LOST, false);
}

static const struct {
    const machine *m;
    int from, to;
    const char *by; /* NULL: the only one */
    void (*run)(void);
} scenarios[] = {
    {&requests, FV_REQUEST_NEW, FV_REQUEST_QUEUED, NULL, answer},
    {&requests, FV_REQUEST_NEW, FV_REQUEST_OVER, NULL, refuse},
    {&requests, FV_REQUEST_QUEUED, FV_REQUEST_RUNNING, NULL, answer},
    {&requests, FV_REQUEST_QUEUED, FV_REQUEST_OVER, NULL, wait_in_vain},
    {&requests, FV_REQUEST_RUNNING, FV_REQUEST_QUEUED, NULL, replay},
    {&requests, FV_REQUEST_RUNNING, FV_REQUEST_OVER, NULL, answer},
    {&workers, FV_WORKER_READY, UNHEALTHY, "fv_registered_worker_keep_report", report_unhealthy},
    {&workers, FV_WORKER_READY, UNHEALTHY, "fv_registered_worker_mark_hung", hang},
    {&workers, UNHEALTHY, FV_WORKER_READY, NULL, recover},
    {&workers, FV_WORKER_READY, FV_WORKER_DRAINING, NULL, drain},
    {&workers, UNHEALTHY, FV_WORKER_DRAINING, NULL, drain_unhealthy},
    {&workers, FV_WORKER_READY, FV_WORKER_LOST, NULL, lose},
    {&workers, UNHEALTHY, FV_WORKER_LOST, NULL, lose_unhealthy},
};
enum { N_SCENARIO = sizeof scenarios / sizeof *scenarios };

/* ---- every change is made ---------------------------------------------------------------- */

/* Runs a scenario with the router's debug log in a file, and returns that. */
static FILE *run_logged(void (*run)(void)) {
    FILE *log = tmpfile();
    cr_assert(log);
    int err = dup(STDERR_FILENO);
    fflush(stderr);
    cr_assert_eq(dup2(fileno(log), STDERR_FILENO), STDERR_FILENO);
    r = (router_rig){0};
    run();
    router_rig_close(&r);
    dup2(err, STDERR_FILENO);
    close(err);
    return log;
}

static bool is_logged(FILE *log, const machine *m, const fv_state_change *c) {
    char line[1024], want[128];
    bool found = false;
    snprintf(want, sizeof want, "event=state from=%s to=%s by=%s", m->name(c->from), m->name(c->to),
             c->by);
    rewind(log);
    while (fgets(line, sizeof line, log)) found |= strstr(line, want) != NULL;
    return found;
}

static void assert_made(const machine *m) {
    cr_assert_eq(fv_log_configure("warn,router=debug"), FV_OK);
    for (int i = 0; i < m->n; i++) {
        const fv_state_change *c = &m->table[i];
        int s = 0;
        while (s < N_SCENARIO &&
               (scenarios[s].m != m || scenarios[s].from != c->from || scenarios[s].to != c->to ||
                (scenarios[s].by && strcmp(scenarios[s].by, c->by) != 0)))
            s++;
        cr_assert_lt(s, N_SCENARIO, "no scenario makes the change %s -> %s by %s", m->name(c->from),
                     m->name(c->to), c->by);
        FILE *log = run_logged(scenarios[s].run);
        cr_assert(is_logged(log, m, c), "%s -> %s by %s", m->name(c->from), m->name(c->to), c->by);
        fclose(log);
    }
}

Test(router_states, some_request_makes_each_change_of_the_table) { assert_made(&requests); }

Test(router_states, some_worker_makes_each_change_of_the_table) { assert_made(&workers); }

/* ---- no other is possible ----------------------------------------------------------------- */

/* Whether a change ends the process that makes it. */
static bool aborts(const machine *m, int from, int to, const char *by) {
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        m->set(from, to, by);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* Tries all pairs of states with all functions. A worker may keep its state. */
static void assert_no_other(const machine *m) {
    for (int from = m->first; from <= m->last; from++)
        for (int to = m->first; to <= m->last; to++)
            for (int i = 0; i <= m->n; i++) {
                const char *by = i < m->n ? m->table[i].by : "another_function";
                if (fv_state_change_is_in(m->table, m->n, from, to, by)) continue;
                bool stays = from == to && m == &workers;
                cr_assert_neq(aborts(m, from, to, by), stays, "%s -> %s by %s", m->name(from),
                              m->name(to), by);
            }
}

Test(router_states, a_change_of_a_request_that_is_not_in_the_table_ends_the_process) {
    assert_no_other(&requests);
}

Test(router_states, a_change_of_a_worker_that_is_not_in_the_table_ends_the_process) {
    assert_no_other(&workers);
}

Test(router_states, a_request_does_not_run_without_an_attempt) {
    cr_assert(aborts(&requests, FV_REQUEST_QUEUED, FV_REQUEST_RUNNING, "fv_request_start"));
}

/* ---- the pages ---------------------------------------------------------------------------- */

/* Reads the changes that a page shows, "FROM -> TO ... fv_function ... ", one a line, and compares them with the
 * table. */
static void assert_shows(const machine *m, const char *path) {
    char line[4096], from[16], to[16], by[64];
    bool shown[16] = {0};
    int n = 0;
    FILE *page = fopen(path, "r");
    cr_assert(page && m->n <= 16, "%s", path);
    while (fgets(line, sizeof line, page)) {
        const char *function = strstr(line, "fv_");
        if (!function || sscanf(line, "%*[ *|`]%15[A-Z] -> %15[A-Z]", from, to) != 2) continue;
        cr_assert_eq(sscanf(function, "%63[a-z_]", by), 1);
        int i = 0;
        while (i < m->n &&
               (strcmp(m->name(m->table[i].from), from) != 0 ||
                strcmp(m->name(m->table[i].to), to) != 0 || strcmp(m->table[i].by, by) != 0))
            i++;
        cr_assert_lt(i, m->n, "%s: %s -> %s by %s is not in the table", path, from, to, by);
        cr_assert_not(shown[i], "%s: %s -> %s by %s is there twice", path, from, to, by);
        shown[i] = true;
        n++;
    }
    fclose(page);
    cr_assert_eq(n, m->n, "%s shows %d changes of %d", path, n, m->n);
}

Test(router_states, pages_show_the_tables) {
    assert_shows(&requests, FOVEA_TEST_DATA "/../router/request.h");
    assert_shows(&requests, FOVEA_TEST_DATA "/../docs/REQUEST.md");
    assert_shows(&workers, FOVEA_TEST_DATA "/../router/registry.h");
}
