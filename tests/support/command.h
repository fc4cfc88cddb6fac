#ifndef FOVEA_TESTS_SUPPORT_COMMAND_H
#define FOVEA_TESTS_SUPPORT_COMMAND_H

/* Runs a program as a user would and keeps its output. */
#include <stddef.h>

typedef struct command_result {
    int status;                      /* exit status; 128 + signal when it was killed */
    char out[1 << 18], err[1 << 14]; /* NUL-terminated, cut when longer */
} command_result;

/* Runs a shell command line with an empty standard input. Aborts when it cannot be started. */
void command_run(command_result *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
