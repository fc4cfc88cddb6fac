/* Runs a shell command with stdout and stderr in temporary files. */
#include "tests/support/command.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void read_back(FILE *f, char *buf, size_t cap) {
    rewind(f);
    buf[fread(buf, 1, cap - 1, f)] = '\0';
    fclose(f);
}

void command_run(command_result *r, const char *fmt, ...) {
    char line[8192];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    FILE *out = tmpfile(), *err = tmpfile();
    if (n < 0 || (size_t)n >= sizeof line || !out || !err) abort();
    pid_t pid = fork();
    if (pid < 0) abort();
    if (pid == 0) {
        if (!freopen("/dev/null", "r", stdin)) _exit(127);
        dup2(fileno(out), STDOUT_FILENO);
        dup2(fileno(err), STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    int status;
    if (waitpid(pid, &status, 0) != pid) abort();
    r->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    read_back(out, r->out, sizeof r->out);
    read_back(err, r->err, sizeof r->err);
}
