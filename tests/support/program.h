#ifndef FOVEA_TESTS_SUPPORT_PROGRAM_H
#define FOVEA_TESTS_SUPPORT_PROGRAM_H

/* A server program of ours as a child of the test, which may stop, kill and restart it. The program dies
 * with the test. Any error aborts with its reason. */
#include <stdbool.h>
#include <sys/types.h>

typedef struct program {
    char name[32];    /* of its log, DIR/NAME.log */
    char dir[400];    /* where its output goes */
    char address[64]; /* where it listens */
    char fleet[64];   /* a router: where workers join */
    char metrics[64]; /* with --metrics: where they are */
    pid_t pid;        /* 0: it does not run */
} program;

/* Starts FOVEA_BIN/<binary>, or the program at an absolute path, with these arguments, and waits until
 * it listens. */
void program_start(program *p, const char *dir, const char *name, const char *binary,
                   const char *fmt, ...) __attribute__((format(printf, 5, 6)));

void program_kill(program *p, int signal); /* sends it; with SIGKILL also waits for the end */
/* Waits until it has ended by itself, or after SIGTERM; its exit status, or 128 + the signal's. */
int program_wait(program *p);
bool program_runs(program *p);

/* Waits until the log contains this. */
bool program_said(const program *p, const char *words);
void program_wait_said(const program *p, const char *words);
long program_rss_kib(const program *p); /* resident memory */

#endif
