#ifndef FOVEA_TESTS_SUPPORT_CREW_H
#define FOVEA_TESTS_SUPPORT_CREW_H

/* A router and workers as single children of the test, which may stop, kill and restart each: for
 * faults. (tests/support/fleet.h starts what a user starts.) Any error aborts with its reason. */
#include "tests/support/fleet.h"
#include "tests/support/program.h"

enum { CREW_MAX = 4 }; /* workers of each kind */

typedef struct crew {
    fleet f;        /* the folder, the checkpoint, and the router's address; no `fovea up` */
    char fleet[64]; /* where workers join the router */
    program router, prefill[CREW_MAX], decode[CREW_MAX];
    program second; /* another router, if it was started before the workers */
    char second_address[64], second_fleet[64];
    int n_prefill, n_decode;
    char router_args[2500], prefill_args[2500], decode_args[2500];
} crew;

/* Makes the folder and the checkpoint. The argument strings may be changed afterwards. */
void crew_open(crew *c, const char *name, const char *shape);
/* Starts all, and waits until the router has every worker. */
void crew_start(crew *c, int n_prefill, int n_decode);
/* Starts a second router, under another name of this machine, which the workers join too. To be
 * called before crew_start. */
void crew_start_second(crew *c);
/* Start single programs, or restart them: under their old names, the router at its old address. */
void crew_start_router(crew *c);
void crew_start_prefill(crew *c, int i);
void crew_start_decode(crew *c, int i);
/* Ends all with SIGTERM, and expects success. Skips those that do not run. */
void crew_stop(crew *c);
void crew_close(crew *c); /* kills what runs, removes the folder */

/* Waits until this many workers are ready, nothing is queued or running, and no bytes are held or
 * reserved. */
void crew_wait_idle(const crew *c, int n_prefill, int n_decode);

#endif
