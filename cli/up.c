/* fovea up: a fleet on this machine. The router, the workers and the HTTP gateway are child
 * processes; dead ones are restarted, and a signal drains them, gateway and router first, so that
 * requests still find workers.
 *
 *   start router --"listening on"--> start workers --all ready--> watch --signal--> drain
 *        |                               |                          |
 *        '------ a child dies: give up --'                          '--> a worker dies: start it
 *                                                                         again, a while later
 *
 * The command has one thread; signals come through a descriptor. Children have their own process groups, so that
 * Ctrl-C reaches them only through this process; the kernel ends them if it dies. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "auth/role.h"
#include "auth/tenants.h"
#include "cli/client/command.h"
#include "cli/client/remote.h"
#include "cli/memory_file.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/random.h"
#include "options/rows.h"
#include "rpc/listen.h"

enum { SECRET_FD = 3, TENANTS_FD, ERROR_FD, FREE_FD, SECRET_BYTES = 32 };
enum { ARGS_MAX = 512, START_S = 120, POLL_MS = 100, PATH_BYTES = 4096, ERROR_BYTES = 2048 };

/* A dead worker is restarted after AGAIN_S, doubled each time; after STEADY_S of running it starts
 * with AGAIN_S again. */
enum { AGAIN_S = 1, AGAIN_MAX_S = 60, STEADY_S = 60 };

/* A child that has closed its output without an address is gone after this time, or hangs. */
enum { GONE_MS = 5000 };

static const double ECHO_S = 0.1;

typedef struct child {
    const fv_program *program;
    char name[32];
    char *args[ARGS_MAX]; /* owned; NULL-terminated */
    int32_t n_arg;
    bool member;      /* a member of the fleet, which gets the secret */
    pid_t pid;        /* 0: not running */
    int error;        /* what the error comes from that ends it; -1: none */
    double started_s; /* time of the last start */
    double again_s;   /* time of the restart; 0: none planned */
    double wait_s;    /* the last delay before a restart */
} child;

typedef struct fleet {
    const fv_options *o;
    char bin[PATH_BYTES]; /* directory of the programs */
    char address[256];    /* the router's, for clients */
    char fleet[256];      /* and for workers */
    char http[256];       /* the gateway's */
    int secret;           /* memory file with the fleet's secret; -1: not made yet */
    int tenants, key;     /* those of --api-key: hashed for the router, and one for us; -1: none */
    child *children;      /* [n] the router, then n_worker workers, then the gateway, if any */
    int32_t n, n_worker;
    int signals; /* signalfd */
    sigset_t mask_before;
    int32_t asked; /* number of signals received to end the fleet */
    double asked_s;
} fleet;

/* ---- command lines ---------------------------------------------------------------------- */

static fv_status add_arg(child *c, const char *text) {
    if (c->n_arg + 1 >= ARGS_MAX)
        return FV_FAIL(FV_EINVAL, "too many options for %s", c->program->name);
    c->args[c->n_arg] = strdup(text);
    if (!c->args[c->n_arg]) return FV_FAIL(FV_ENOMEM, "out of memory for a command line");
    c->n_arg++;
    return FV_OK;
}

static fv_status add_option(child *c, const char *name, const char *value) {
    char flag[64];
    snprintf(flag, sizeof flag, "--%s", name);
    FV_TRY(add_arg(c, flag));
    return add_arg(c, value);
}

/* Passes an option on under the same name. */
static fv_status pass_option(const fv_options *o, child *c, const fv_option *row) {
    const char *const *items;
    if (row->type == FV_OPTION_FLAG) {
        char flag[64];
        snprintf(flag, sizeof flag, "--%s=%s", row->name,
                 fv_options_flag(o, row->name) ? "yes" : "no");
        return add_arg(c, flag);
    }
    if (row->type != FV_OPTION_LIST)
        return add_option(c, row->name, fv_options_string(o, row->name));
    int n = fv_options_list(o, row->name, &items);
    for (int i = 0; i < n; i++) FV_TRY(add_option(c, row->name, items[i]));
    return FV_OK;
}

/* Adds an option whose value is a file that the child gets as a descriptor. */
static fv_status add_file(child *c, const char *name, int fd) {
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    return add_option(c, name, path);
}

/* Passes on the options of this command line that are the child's, too. It inherits the environment. */
static fv_status pass_on(const fv_options *o, child *c) {
    for (int s = 0; s < FV_N_SUBJECT; s++)
        for (int i = 0; i < fv_subjects[s].n; i++) {
            const fv_option_row *row = &fv_subjects[s].rows[i];
            if (fv_row_is_of(row, c->program->bit) && fv_row_is_of(row, FV_PROGRAM_UP) &&
                fv_options_typed(o, row->option.name))
                FV_TRY(pass_option(o, c, &row->option));
        }
    return FV_OK;
}

/* The router gets the given port, the workers the next ones, and so on. */
static fv_status metrics_args(const fleet *f, child *c) {
    const char *at = fv_options_string(f->o, "metrics");
    if (!at) return FV_OK;
    char address[256];
    const char *colon = strrchr(at, ':'), *port = colon ? colon + 1 : at;
    long first = strtol(port, NULL, 10);
    if (strspn(port, "0123456789") != strlen(port) || first < 1 || first + f->n - 1 > 65535)
        return FV_FAIL(FV_EINVAL,
                       "--metrics %s: write HOST:PORT or PORT; the %d processes of this fleet take "
                       "that port and those after it",
                       at, (int)f->n);
    snprintf(address, sizeof address, "%.*s%ld", (int)(port - at), at, first + (c - f->children));
    return add_option(c, "metrics", address);
}

static fv_status begin_args(const fleet *f, child *c, unsigned program) {
    char path[2 * PATH_BYTES];
    c->program = fv_program_of(program);
    c->member = program != FV_PROGRAM_GATEWAY;
    snprintf(path, sizeof path, "%s/%s", f->bin, c->program->name);
    FV_TRY(add_arg(c, path));
    FV_TRY(pass_on(f->o, c));
    FV_TRY(add_option(c, "log", fv_options_string(f->o, "log")));
    char error_fd[16];
    snprintf(error_fd, sizeof error_fd, "%d", ERROR_FD);
    FV_TRY(add_option(c, "error-fd", error_fd));
    FV_TRY(metrics_args(f, c));
    return c->member ? add_file(c, "fleet-token-file", SECRET_FD) : FV_OK;
}

static fv_status router_args(const fleet *f, child *c) {
    snprintf(c->name, sizeof c->name, "router");
    FV_TRY(begin_args(f, c, FV_PROGRAM_ROUTER));
    /* The gateway calls from this machine, and says for which client. */
    if (fv_options_string(f->o, "http"))
        FV_TRY(add_option(c, "trusted-proxies", "127.0.0.0/8,::1"));
    if (f->tenants >= 0) FV_TRY(add_file(c, "tenants", TENANTS_FD));
    FV_TRY(add_option(c, "fleet-listen", "127.0.0.1:0"));
    return add_option(c, "listen", fv_options_string(f->o, "listen"));
}

static fv_status worker_args(const fleet *f, child *c, bool prefill, int32_t index) {
    snprintf(c->name, sizeof c->name, "%s-%d", prefill ? "prefill" : "decode", index);
    FV_TRY(begin_args(f, c, prefill ? FV_PROGRAM_PREFILL : FV_PROGRAM_DECODE));
    FV_TRY(add_option(c, "router", f->fleet));
    FV_TRY(add_option(c, "listen", "127.0.0.1:0"));
    return add_option(c, "name", c->name);
}

static fv_status gateway_args(const fleet *f, child *c) {
    snprintf(c->name, sizeof c->name, "gateway");
    FV_TRY(begin_args(f, c, FV_PROGRAM_GATEWAY));
    FV_TRY(add_option(c, "router", f->address));
    if (fv_options_string(f->o, "tls-ca")) {
        FV_TRY(add_option(c, "router-tls-ca", fv_options_string(f->o, "tls-ca")));
        FV_TRY(add_option(c, "router-tls-name", fv_role_name(FV_MEMBER_ROUTER)));
    }
    return add_option(c, "listen", fv_options_string(f->o, "http")); /* last: start_gateway replaces
                                                                      * it */
}

/* ---- children --------------------------------------------------------------------------- */

/* In the child: undoes the parent's signal handling and executes the program. */
static void exec_child(const fleet *f, const child *c, pid_t parent, int out, int error) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127); /* the parent has died already */
    setpgid(0, 0);
    sigprocmask(SIG_SETMASK, &f->mask_before, NULL);
    dup2(out, STDOUT_FILENO);
    /* Unlike the originals, which are at FREE_FD or above, the copies stay open across exec. */
    if (c->member) dup2(f->secret, SECRET_FD);
    if (c == &f->children[0] && f->tenants >= 0) dup2(f->tenants, TENANTS_FD);
    dup2(error, ERROR_FD);
    execv(c->args[0], c->args);
    _exit(127);
}

/* Opens the pipe for the error that ends a child, above the descriptors of children. */
static fv_status open_error(child *c, int *write_end) {
    int ends[2];
    if (c->error >= 0) close(c->error);
    c->error = -1;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return FV_FAIL(FV_EIO, "no pipe: %s", strerror(errno));
    *write_end = fcntl(ends[1], F_DUPFD_CLOEXEC, FREE_FD);
    close(ends[1]);
    c->error = ends[0];
    return *write_end >= 0 ? FV_OK : FV_FAIL(FV_EIO, "no pipe: %s", strerror(errno));
}

/* Starts a child; `out` becomes its standard output. */
static fv_status start(const fleet *f, child *c, int out) {
    if (access(c->args[0], X_OK) != 0)
        return FV_FAIL(FV_ENOTFOUND, "%s is not there; it must be in the same directory as fovea",
                       c->args[0]);
    int write_end;
    FV_TRY(open_error(c, &write_end));
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) exec_child(f, c, parent, out, write_end);
    close(write_end);
    if (pid < 0) return FV_FAIL(FV_EIO, "cannot start %s: %s", c->name, strerror(errno));
    c->pid = pid;
    c->started_s = fv_clock_s();
    c->again_s = 0;
    FV_LOG(INFO, GENERAL, "child=%s event=started pid=%d", c->name, (int)pid);
    return FV_OK;
}

static fv_status start_quietly(const fleet *f, child *c) {
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (null < 0) return FV_FAIL(FV_EIO, "cannot open /dev/null: %s", strerror(errno));
    fv_status st = start(f, c, null);
    close(null);
    return st;
}

/* How a child ended: in its own words, if it has left some. */
static void end_text(const child *c, int status, char *out, size_t cap) {
    char said[ERROR_BYTES - sizeof c->name - 2];
    ssize_t n = c->error < 0 ? 0 : read(c->error, said, sizeof said - 1);
    said[n > 0 ? n : 0] = '\0';
    said[strcspn(said, "\n")] = '\0';
    if (*said)
        snprintf(out, cap, "%s: %s", c->name, said);
    else if (WIFSIGNALED(status))
        snprintf(out, cap, "%s was ended by signal %d", c->name, WTERMSIG(status));
    else
        snprintf(out, cap, "%s ended with status %d", c->name, WEXITSTATUS(status));
}

/* A child that has ended, or NULL. */
static child *reap(fleet *f, int *status) {
    for (int32_t i = 0; i < f->n; i++) {
        child *c = &f->children[i];
        if (c->pid == 0 || waitpid(c->pid, status, WNOHANG) != c->pid) continue;
        c->pid = 0;
        return c;
    }
    return NULL;
}

/* Returns whether a signal is a duplicate: a supervisor may send a signal both to this process and
 * to its group. The terminal sends each Ctrl-C once. */
static bool is_duplicate_signal(const fleet *f, const struct signalfd_siginfo *info) {
    return info->ssi_code == SI_USER && f->asked > 0 && fv_clock_s() - f->asked_s < ECHO_S;
}

/* Waits for a signal; true: the fleet must end. */
static bool wait_signal(fleet *f, int ms) {
    struct pollfd p = {.fd = f->signals, .events = POLLIN};
    struct signalfd_siginfo info;
    if (poll(&p, 1, ms) == 1 && read(f->signals, &info, sizeof info) == sizeof info &&
        info.ssi_signo != SIGCHLD && !is_duplicate_signal(f, &info)) {
        f->asked++;
        f->asked_s = fv_clock_s();
    }
    return f->asked > 0;
}

/* ---- starting --------------------------------------------------------------------------- */

static fv_status find_programs(fleet *f) {
    ssize_t n = readlink("/proc/self/exe", f->bin, sizeof f->bin - 1);
    char *slash;
    if (n <= 0)
        return FV_FAIL(FV_EIO, "cannot find the directory of the fovea program: %s",
                       strerror(errno));
    f->bin[n] = '\0';
    if ((slash = strrchr(f->bin, '/'))) *slash = '\0';
    return FV_OK;
}

/* Reads a child's output up to the line "listening on HOST:PORT". */
static void read_output(int in, char *text, size_t cap) {
    size_t n = 0;
    double until = fv_clock_s() + START_S;
    const char *last;
    text[0] = '\0';
    while (n + 1 < cap && fv_clock_s() < until) {
        if ((last = strstr(text, "listening on ")) && strchr(last, '\n')) break;
        struct pollfd p = {.fd = in, .events = POLLIN};
        if (poll(&p, 1, POLL_MS) == 0) continue;
        ssize_t got = read(in, text + n, cap - 1 - n);
        if (got <= 0) break;
        n += (size_t)got;
        text[n] = '\0';
    }
}

/* Finds the address in "WORDS HOST:PORT". */
static bool find_address(const char *text, const char *words, char out[256]) {
    const char *at = strstr(text, words);
    return at && sscanf(at + strlen(words), " %255s", out) == 1;
}

/* Starts a child and reads its output with its addresses. */
static fv_status start_and_read(const fleet *f, child *c, char *said, size_t cap) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return FV_FAIL(FV_EIO, "no pipe: %s", strerror(errno));
    fv_status st = start(f, c, ends[1]);
    close(ends[1]);
    if (st == FV_OK) read_output(ends[0], said, cap);
    close(ends[0]);
    return st;
}

/* Makes a secret for this run, which only children inherit. */
static fv_status make_secret(fleet *f) {
    uint8_t random[SECRET_BYTES];
    char text[2 * SECRET_BYTES + 1];
    FV_TRY(fv_random_bytes(random, sizeof random));
    for (int i = 0; i < SECRET_BYTES; i++) snprintf(&text[2 * i], 3, "%02x", random[i]);
    return fv_memory_file("fovea-fleet-token", text, FREE_FD, &f->secret);
}

/* Makes one tenant of all keys of --api-key: the router, which knows tenants, gets their hashes, and
 * this process the first key, to ask whether the fleet is ready. Children do not see the keys. */
static fv_status take_keys(fleet *f) {
    const char *const *keys;
    char *text;
    int n = fv_options_list(f->o, "api-key", &keys);
    if (n == 0) return FV_OK;
    FV_TRY(fv_tenants_print("api-key", keys, n, &text));
    fv_status st = fv_memory_file("fovea-tenants", text, FREE_FD, &f->tenants);
    if (st == FV_OK) st = fv_memory_file("fovea-api-key", keys[0], FREE_FD, &f->key);
    free(text);
    fv_options_wipe(f->o, "api-key");
    return st;
}

/* Says how a child ended. Status 2: it refuses an option that was given here. */
static fv_status ended(const child *c, int status) {
    char why[ERROR_BYTES];
    end_text(c, status, why, sizeof why);
    bool usage = WIFEXITED(status) && WEXITSTATUS(status) == 2;
    return FV_FAIL(usage ? FV_EINVAL : FV_EIO, "%s", why);
}

/* For a child that has closed its output, or is late, without an address to listen on. */
static fv_status not_started(child *c) {
    int status;
    for (int ms = 0; ms < GONE_MS; ms += POLL_MS) {
        if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
            c->pid = 0;
            return ended(c, status);
        }
        usleep(1000 * POLL_MS);
    }
    return FV_FAIL(FV_EIO, "%s did not listen within %d s", c->name, START_S);
}

static fv_status start_router(fleet *f) {
    char said[600];
    FV_TRY(router_args(f, &f->children[0]));
    FV_TRY(start_and_read(f, &f->children[0], said, sizeof said));
    if (find_address(said, "workers join on", f->fleet) &&
        find_address(said, "listening on", f->address))
        return FV_OK;
    return not_started(&f->children[0]);
}

/* When restarted, the gateway listens on the port that it got at first. */
static fv_status start_gateway(fleet *f) {
    char said[600];
    if (f->n == 1 + f->n_worker) return FV_OK;
    child *c = &f->children[f->n - 1];
    FV_TRY(gateway_args(f, c));
    FV_TRY(start_and_read(f, c, said, sizeof said));
    if (!find_address(said, "listening on", f->http)) return not_started(c);
    char *address = strdup(f->http);
    if (!address) return FV_FAIL(FV_ENOMEM, "out of memory for a command line");
    free(c->args[c->n_arg - 1]);
    c->args[c->n_arg - 1] = address;
    return FV_OK;
}

static fv_status start_workers(fleet *f, int32_t n_prefill) {
    for (int32_t i = 1; i <= f->n_worker; i++) {
        bool prefill = i <= n_prefill;
        FV_TRY(worker_args(f, &f->children[i], prefill, prefill ? i - 1 : i - 1 - n_prefill));
        FV_TRY(start_quietly(f, &f->children[i]));
    }
    return FV_OK;
}

static fv_status wait_ready(fleet *f, int32_t n_prefill, int32_t n_decode) {
    fv_remote *r;
    fv_status st;
    double until = fv_clock_s() + START_S;
    char key[32];
    snprintf(key, sizeof key, "/dev/fd/%d", f->key);
    fv_remote_options to = {.target = f->address,
                            .tls = {.ca = fv_options_string(f->o, "tls-ca")},
                            .name = fv_role_name(FV_MEMBER_ROUTER),
                            .key = f->key >= 0 ? key : fv_options_string(f->o, "api-key-file")};
    FV_TRY(fv_remote_open(&to, &r));
    for (;;) {
        fv_fleet_count count;
        int status;
        const child *dead = reap(f, &status);
        if (dead) {
            st = ended(dead, status);
            break;
        }
        FV_TRY_GOTO(fv_remote_fleet(r, &count), st, out);
        if (count.n_prefill >= n_prefill && count.n_decode >= n_decode) break;
        if (fv_clock_s() > until) {
            st = FV_FAIL(FV_EIO, "the workers were not ready within %d s", START_S);
            break;
        }
        if (wait_signal(f, POLL_MS)) break;
    }
out:
    fv_remote_close(r);
    return st;
}

/* ---- running and ending ----------------------------------------------------------------- */

static void plan_restart(child *c, const char *why) {
    double now = fv_clock_s();
    bool steady = now - c->started_s >= STEADY_S;
    c->wait_s = c->wait_s == 0 || steady ? AGAIN_S : 2 * c->wait_s;
    if (c->wait_s > AGAIN_MAX_S) c->wait_s = AGAIN_MAX_S;
    c->again_s = now + c->wait_s;
    FV_LOG(ERROR, GENERAL, "child=%s event=ended reason=\"%s\" action=start-again in_s=%.0f",
           c->name, why, c->wait_s);
}

/* Runs until a signal comes. FV_EIO: the router is gone. */
static fv_status watch(fleet *f) {
    int status;
    char why[ERROR_BYTES];
    child *c;
    while (!wait_signal(f, POLL_MS)) {
        while ((c = reap(f, &status))) {
            end_text(c, status, why, sizeof why);
            if (c == &f->children[0]) return FV_FAIL(FV_EIO, "%s", why);
            plan_restart(c, why);
        }
        for (int32_t i = 1; i < f->n; i++)
            if (f->children[i].again_s > 0 && fv_clock_s() > f->children[i].again_s)
                FV_TRY(start_quietly(f, &f->children[i]));
    }
    return FV_OK;
}

/* Ends children from..to-1; kills those that are not done in time, or all after repeated
 * signals. */
static void end_children(fleet *f, int32_t from, int32_t to, double seconds, int32_t hurry) {
    double began = fv_clock_s();
    int status;
    for (int32_t i = from; i < to; i++)
        if (f->children[i].pid) kill(f->children[i].pid, SIGTERM);
    for (;;) {
        int32_t left = 0;
        while (reap(f, &status)) {
        }
        for (int32_t i = from; i < to; i++) left += f->children[i].pid != 0;
        if (left == 0) return;
        if (f->asked >= hurry || fv_clock_s() - began > seconds) break;
        wait_signal(f, POLL_MS);
    }
    for (int32_t i = from; i < to; i++) {
        if (f->children[i].pid == 0) continue;
        FV_LOG(WARN, GENERAL, "child=%s event=killed", f->children[i].name);
        kill(f->children[i].pid, SIGKILL);
        waitpid(f->children[i].pid, &status, 0);
        f->children[i].pid = 0;
    }
}

static void drain(fleet *f) {
    double seconds = 1e-3 * (double)fv_options_int(f->o, "grace-ms") + 5;
    int32_t hurry = f->asked + 1; /* another signal from now on */
    end_children(f, 1 + f->n_worker, f->n, seconds, hurry);
    end_children(f, 0, 1, seconds, hurry);
    end_children(f, 1, 1 + f->n_worker, seconds, hurry);
}

static fv_status take_signals(fleet *f) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, &f->mask_before);
    f->signals = signalfd(-1, &set, SFD_CLOEXEC);
    return f->signals >= 0 ? FV_OK : FV_FAIL(FV_EIO, "no signals: %s", strerror(errno));
}

static fv_status run_fleet(fleet *f) {
    int32_t n_prefill = (int32_t)fv_options_int(f->o, "prefill");
    int32_t n_decode = (int32_t)fv_options_int(f->o, "decode");
    int32_t n = 1 + n_prefill + n_decode + (fv_options_string(f->o, "http") != NULL);
    f->children = calloc((size_t)n, sizeof *f->children);
    if (!f->children) return FV_FAIL(FV_ENOMEM, "out of memory for %d processes", n);
    f->n = n;
    for (int32_t i = 0; i < n; i++) f->children[i].error = -1;
    f->n_worker = n_prefill + n_decode;
    FV_TRY(find_programs(f));
    FV_TRY(take_signals(f));
    FV_TRY(make_secret(f));
    FV_TRY(take_keys(f));
    FV_TRY(start_router(f));
    FV_TRY(start_workers(f, n_prefill));
    FV_TRY(wait_ready(f, n_prefill, n_decode));
    if (f->asked > 0) return FV_OK;
    FV_TRY(start_gateway(f));
    const char *scheme = fv_options_string(f->o, "tls-cert") ? "https" : "http";
    if (*f->http)
        printf("%s://%s/v1 serves OpenAI's API\n%s://%s/ is a page to ask on\n", scheme, f->http,
               scheme, f->http);
    printf("ready on %s: %d prefill, %d decode; Ctrl-C ends it\n", f->address, n_prefill, n_decode);
    fflush(stdout);
    return watch(f);
}

/* Without --http there is no gateway. Variables may be meant for others. */
static fv_status check_gateway(const fv_options *o) {
    fv_option table[FV_ROWS_MAX];
    unsigned others = FV_PROGRAM_UP | (FV_PROGRAM_CHILDREN & ~FV_PROGRAM_GATEWAY);
    int n = fv_options_string(o, "http") ? 0 : fv_rows_of(FV_PROGRAM_GATEWAY, table);
    for (int i = 0; i < n; i++) {
        const char *name = table[i].name;
        if (fv_row_find(FV_PROGRAM_UP, name) && !fv_row_find(others, name) &&
            fv_options_typed(o, name))
            return FV_FAIL(FV_EINVAL,
                           "--%s is an option of fovea-gateway: give --http HOST:PORT, the address "
                           "on which it serves",
                           name);
    }
    return FV_OK;
}

static fv_status up(const fv_options *o) {
    fleet f = {.o = o, .signals = -1, .secret = -1, .tenants = -1, .key = -1};
    FV_TRY(fv_log_configure(fv_options_string(o, "log")));
    FV_TRY(fv_log_format(fv_options_string(o, "log-format")));
    if (!fv_options_string(o, "checkpoint"))
        return FV_FAIL(
            FV_EINVAL,
            "name a model: fovea up MODEL, a Hugging Face checkpoint directory, or "
            "ORG/NAME after `hf download ORG/NAME` (`fovea synth` makes one to try with)");
    if (fv_options_string(o, "tenants") && !fv_options_string(o, "api-key-file"))
        return FV_FAIL(FV_EINVAL,
                       "--tenants needs --api-key-file FILE: a key of one of them, to ask "
                       "whether the fleet is ready");
    FV_TRY(check_gateway(o));
    if (fv_options_string(o, "tenants") && fv_options_given(o, "api-key"))
        return FV_FAIL(FV_EINVAL, "--api-key is for fleets without --tenants: give one of the two");
    FV_TRY(fv_rpc_listen_check(fv_options_string(o, "listen")));
    if (fv_options_string(o, "http")) FV_TRY(fv_rpc_listen_check(fv_options_string(o, "http")));
    fv_status st = run_fleet(&f);
    char why[ERROR_BYTES];
    snprintf(why, sizeof why, "%s", fv_last_error());
    drain(&f);
    if (st != FV_OK) st = FV_FAIL(st, "%s", why);
    for (int32_t i = 0; i < f.n; i++) {
        for (int32_t j = 0; j < f.children[i].n_arg; j++) free(f.children[i].args[j]);
        if (f.children[i].error >= 0) close(f.children[i].error);
    }
    free(f.children);
    if (f.signals >= 0) close(f.signals);
    if (f.secret >= 0) close(f.secret);
    if (f.tenants >= 0) close(f.tenants);
    if (f.key >= 0) close(f.key);
    return st;
}

static int run(const fv_options *o) { return fv_cli_end(&fv_cli_up, up(o)); }

const fv_command fv_cli_up = {.program = FV_PROGRAM_UP, .run = run, .takes_checkpoint = true};
