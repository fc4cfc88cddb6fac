/* router/request.h: the table of a request's states. Every change in it is made by some request, no other is
 * possible, and the pages that show it show the same. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "router/request.h"
#include "tests/support/router_rig.h"

TestSuite(router_states, .timeout = 120);

enum { N_STATE = FV_REQUEST_OVER + 1 };

static router_rig r;
static client k;
static Fovea__Inference__V1__GenerateRequest req;

static fv_request_state state_named(const char *name) {
    int s = 0;
    while (s < N_STATE && strcmp(fv_request_state_name((fv_request_state)s), name) != 0) s++;
    cr_assert_lt(s, N_STATE, "there is no state %s", name);
    return (fv_request_state)s;
}

/* ---- every change is made ---------------------------------------------------------------- */

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
    r.p.role = FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL;
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

static const struct {
    fv_request_state from, to;
    void (*run)(void);
} scenarios[FV_N_REQUEST_CHANGE] = {
    {FV_REQUEST_NEW, FV_REQUEST_QUEUED, answer},
    {FV_REQUEST_NEW, FV_REQUEST_OVER, refuse},
    {FV_REQUEST_QUEUED, FV_REQUEST_RUNNING, answer},
    {FV_REQUEST_QUEUED, FV_REQUEST_OVER, wait_in_vain},
    {FV_REQUEST_RUNNING, FV_REQUEST_QUEUED, replay},
    {FV_REQUEST_RUNNING, FV_REQUEST_OVER, answer},
};

/* Counts the changes from..to in the log since its start. */
static int count_logged(FILE *log, fv_request_state from, fv_request_state to) {
    char line[1024], want[64];
    int n = 0;
    snprintf(want, sizeof want, "event=state from=%s to=%s", fv_request_state_name(from),
             fv_request_state_name(to));
    rewind(log);
    while (fgets(line, sizeof line, log)) n += strstr(line, want) != NULL;
    return n;
}

/* Runs a scenario with the router's debug log in a file. */
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

Test(router_states, every_change_of_the_table_is_made_by_some_request) {
    cr_assert_eq(fv_log_configure("warn,router=debug"), FV_OK);
    for (int i = 0; i < FV_N_REQUEST_CHANGE; i++) {
        const fv_request_change *c = &fv_request_changes[i];
        int s = 0;
        while (s < FV_N_REQUEST_CHANGE &&
               (scenarios[s].from != c->from || scenarios[s].to != c->to))
            s++;
        cr_assert_lt(s, FV_N_REQUEST_CHANGE, "no scenario makes the change %s -> %s",
                     fv_request_state_name(c->from), fv_request_state_name(c->to));
        FILE *log = run_logged(scenarios[s].run);
        cr_assert_geq(count_logged(log, c->from, c->to), 1, "%s -> %s",
                      fv_request_state_name(c->from), fv_request_state_name(c->to));
        fclose(log);
    }
}

/* ---- no other is possible ----------------------------------------------------------------- */

static bool is_in_table(fv_request_state from, fv_request_state to, const char *by) {
    for (int i = 0; i < FV_N_REQUEST_CHANGE; i++) {
        const fv_request_change *c = &fv_request_changes[i];
        if (c->from == from && c->to == to && strcmp(c->by, by) == 0) return true;
    }
    return false;
}

/* Makes a change in a child process; returns how that ends. */
static int change_in_child(fv_request_state from, fv_request_state to, const char *by) {
    fv_relay relay = {0};
    fv_request request = {.relay = &relay, .state = from};
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stderr)) _exit(2);
        fv_request_set_state(&request, to, by);
        _exit(0);
    }
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

Test(router_states, a_change_that_is_not_in_the_table_ends_the_process) {
    for (int from = 0; from < N_STATE; from++)
        for (int to = 0; to < N_STATE; to++)
            for (int i = 0; i <= FV_N_REQUEST_CHANGE; i++) {
                const char *by =
                    i < FV_N_REQUEST_CHANGE ? fv_request_changes[i].by : "another_function";
                if (is_in_table((fv_request_state)from, (fv_request_state)to, by)) continue;
                int status = change_in_child((fv_request_state)from, (fv_request_state)to, by);
                cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: %s -> %s", by,
                          fv_request_state_name((fv_request_state)from),
                          fv_request_state_name((fv_request_state)to));
            }
}

Test(router_states, a_request_runs_only_with_an_attempt) {
    int status = change_in_child(FV_REQUEST_QUEUED, FV_REQUEST_RUNNING, "fv_request_start");
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* ---- the pages ---------------------------------------------------------------------------- */

/* Reads the changes that a page shows, "FROM -> TO ... fv_function ... ", one a line, and compares them with the
 * table. */
static void assert_shows_table(const char *path) {
    char line[4096], from[16], to[16], by[64];
    bool shown[FV_N_REQUEST_CHANGE] = {0};
    int n = 0;
    FILE *page = fopen(path, "r");
    cr_assert(page, "%s", path);
    while (fgets(line, sizeof line, page)) {
        const char *function = strstr(line, "fv_request_");
        if (!function || sscanf(line, "%*[ *|`]%15[A-Z] -> %15[A-Z]", from, to) != 2) continue;
        cr_assert_eq(sscanf(function, "%63[a-z_]", by), 1);
        int i = 0;
        while (i < FV_N_REQUEST_CHANGE && (fv_request_changes[i].from != state_named(from) ||
                                           fv_request_changes[i].to != state_named(to) ||
                                           strcmp(fv_request_changes[i].by, by) != 0))
            i++;
        cr_assert_lt(i, FV_N_REQUEST_CHANGE, "%s: %s -> %s by %s is not in the table", path, from,
                     to, by);
        cr_assert_not(shown[i], "%s: %s -> %s is there twice", path, from, to);
        shown[i] = true;
        n++;
    }
    fclose(page);
    cr_assert_eq(n, FV_N_REQUEST_CHANGE, "%s shows %d changes of %d", path, n, FV_N_REQUEST_CHANGE);
}

Test(router_states, the_header_shows_the_table) {
    assert_shows_table(FOVEA_TEST_DATA "/../router/request.h");
}

Test(router_states, the_page_about_a_request_shows_the_table) {
    assert_shows_table(FOVEA_TEST_DATA "/../docs/REQUEST.md");
}
