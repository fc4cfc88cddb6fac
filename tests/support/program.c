/* A child process: fork, exec through the shell (which splits the arguments), log files. */
#include "tests/support/program.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_STEPS = 12000, STEP_US = 10000 }; /* two minutes: the machine may be busy */

__attribute__((format(printf, 2, 3), noreturn)) static void give_up(const program *p,
                                                                    const char *fmt, ...) {
    char path[500], line[1000];
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "%s: ", p->name);
    vfprintf(stderr, fmt, args);
    va_end(args);
    snprintf(path, sizeof path, "%s/%s.log", p->dir, p->name);
    FILE *f = fopen(path, "r");
    fputs("; its log:\n", stderr);
    while (f && fgets(line, sizeof line, f)) fputs(line, stderr);
    abort();
}

static bool in_file(const char *path, const char *words, char *line, size_t cap) {
    FILE *f = fopen(path, "r");
    bool found = false;
    while (f && !found && fgets(line, (int)cap, f)) found = strstr(line, words) != NULL;
    if (f) fclose(f);
    return found;
}

bool program_runs(program *p) {
    int status;
    if (p->pid && waitpid(p->pid, &status, WNOHANG) == p->pid) p->pid = 0;
    return p->pid != 0;
}

static void wait_listening(program *p) {
    char path[500], line[300];
    snprintf(path, sizeof path, "%s/%s.out", p->dir, p->name);
    for (int i = 0; i < WAIT_STEPS; i++) {
        if (in_file(path, "listening on ", line, sizeof line) && strchr(line, '\n')) {
            sscanf(line, "listening on %63s", p->address);
            if (in_file(path, "workers join on ", line, sizeof line))
                sscanf(line, "workers join on %63s", p->fleet);
            if (in_file(path, "metrics on ", line, sizeof line))
                sscanf(line, "metrics on %63s", p->metrics);
            return;
        }
        if (!program_runs(p)) give_up(p, "it has ended");
        usleep(STEP_US);
    }
    give_up(p, "it does not listen");
}

void program_start(program *p, const char *dir, const char *name, const char *binary,
                   const char *fmt, ...) {
    char args[2000], line[4000];
    va_list list;
    va_start(list, fmt);
    vsnprintf(args, sizeof args, fmt, list);
    va_end(list);
    *p = (program){0};
    snprintf(p->name, sizeof p->name, "%s", name);
    snprintf(p->dir, sizeof p->dir, "%s", dir);
    /* The log of an earlier program of this name must not count. */
    snprintf(line, sizeof line, "%s/%s.out", dir, name);
    unlink(line);
    snprintf(line, sizeof line, "%s/%s.log", dir, name);
    unlink(line);
    snprintf(line, sizeof line, "exec %s%s %s >%s/%s.out 2>>%s/%s.log </dev/null",
             binary[0] == '/' ? "" : FOVEA_BIN "/", binary, args, dir, name, dir, name);
    p->pid = fork();
    if (p->pid < 0) give_up(p, "fork: %s", strerror(errno));
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setpgid(0, 0);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    wait_listening(p);
}

void program_kill(program *p, int signal) {
    if (!p->pid) return;
    kill(p->pid, signal);
    if (signal == SIGKILL) program_wait(p);
}

int program_wait(program *p) {
    int status;
    for (int i = 0; i < WAIT_STEPS; i++) {
        pid_t pid = waitpid(p->pid, &status, WNOHANG);
        if (pid != 0) {
            p->pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        usleep(STEP_US);
    }
    give_up(p, "it does not end");
}

bool program_said(const program *p, const char *words) {
    char path[500], line[2000];
    snprintf(path, sizeof path, "%s/%s.log", p->dir, p->name);
    return in_file(path, words, line, sizeof line);
}

void program_wait_said(const program *p, const char *words) {
    for (int i = 0; i < WAIT_STEPS; i++) {
        if (program_said(p, words)) return;
        usleep(STEP_US);
    }
    give_up(p, "it does not say '%s'", words);
}

long program_rss_kib(const program *p) {
    char path[64], line[200];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)p->pid);
    if (!in_file(path, "VmRSS:", line, sizeof line) || sscanf(line, "VmRSS: %ld", &kib) != 1)
        give_up(p, "its memory is not known");
    return kib;
}
