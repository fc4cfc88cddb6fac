#ifndef FOVEA_TESTS_SUPPORT_FLEET_H
#define FOVEA_TESTS_SUPPORT_FLEET_H

/* A fleet of the built programs, as `fovea up` starts it. Any error aborts with its reason. The
 * functions share one command_result, fleet_said, which keeps the last command's output. */
#include "cli/client/remote.h"
#include "tests/support/command.h"

typedef struct fleet {
    char dir[400];    /* its folder; the checkpoint is in dir/ck */
    char address[64]; /* of the router */
    int pid;          /* of `fovea up`; 0: it does not run */
    /* The authority of its certificates; NULL: plain text. The test client shows none. */
    const char *tls_ca;
} fleet;

extern command_result fleet_said;

/* Skips the test when the last command ended with 77. Calls END first, because Criterion calls no
 * .fini after cr_skip, and the test's processes would go on. */
#define FLEET_MAY_SKIP(END, ...)                                                                   \
    do {                                                                                           \
        if (fleet_said.status == 77) {                                                             \
            char why[1024];                                                                        \
            snprintf(why, sizeof why, __VA_ARGS__);                                                \
            END();                                                                                 \
            cr_skip("%s", why);                                                                    \
        }                                                                                          \
    } while (0)

void fleet_open(fleet *f, const char *name); /* makes the folder */
void fleet_close(fleet *f);                  /* kills what runs, removes the folder */

void fleet_synth(fleet *f, const char *shape);
/* Starts it with these further arguments and waits until it is ready. */
void fleet_start(fleet *f, const char *args);
/* Ends it as Ctrl-C does, and expects success. */
void fleet_stop(fleet *f);

/* HOST:PORT of its gateway, with --http. */
void fleet_gateway(const fleet *f, char address[64]);

/* The fleet's process that runs this program ("fovea-decode"); the first, if there are several. */
int fleet_child(const fleet *f, const char *program);

void fleet_connect(const fleet *f, fv_remote **out); /* fv_remote_close it */
fv_fleet_count fleet_count(const fleet *f);
/* Waits until nothing runs and no KV is held. */
void fleet_wait_idle(const fleet *f);

#endif
