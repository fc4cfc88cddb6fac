#ifndef FOVEA_SERVING_WORKER_REGISTRATION_H
#define FOVEA_SERVING_WORKER_REGISTRATION_H

/* REGISTRATION: a worker program's membership in its fleet; connects its daemon and its
 * memberships.
 *
 *     first probe succeeded -> joins (introduce)       only members get requests
 *     health changes --------> the routers are notified
 *     a router orders drain -> the daemon drains
 *
 * A worker joins every router that it finds (serving/worker/routers.h), and is healthy as long as
 * it makes progress, with or without routers. A router that refuses is retried
 * (serving/worker/member.h). Without --router the worker is not registered, and serves callers that
 * prove the fleet's secret. Loop thread.
 */
#include "auth/fleet_secret.h"
#include "serving/caller.h"
#include "serving/daemon.h"
#include "serving/worker/routers.h"

typedef struct fv_registration {
    const fv_options *o; /* borrowed, as are all other public pointers */
    fv_daemon *daemon;
    /* Makes the worker's introduction for this address; *out lasts until the registration is left. */
    fv_status (*introduce)(void *user, const char *address, Fovea__Fleet__V1__Introduction **out);
    void (*measure)(void *user, Fovea__Inference__V1__Load *load);
    void *user;
    fv_pulse *pulse;   /* for the reports; set before the first probe */
    fv_kept_log *kept; /* likewise; NULL: none */
    /* private */
    fv_key fleet;
    fv_callers *callers;
    fv_routers *routers; /* NULL: not joined yet, left, or without --router */
    fv_status status;
    char why[512];
} fv_registration; /* set the first five fields, zero the rest */

/* Reads the fleet's secret. FV_EINVAL if there is none, or if --router or --advertise is not an
 * address, which is reported now rather than when the worker joins. */
fv_status fv_registration_open(fv_registration *p);
void fv_registration_close(fv_registration *p); /* when services have stopped, after leave */

/* The checks of callers for the worker's services; after open. Borrowed. */
fv_callers *fv_registration_callers(const fv_registration *p);

/* For the daemon's hooks. */
void fv_registration_health(fv_registration *p, bool healthy);
void fv_registration_drain(fv_registration *p);

void fv_registration_touch(fv_registration *p); /* sends the next report soon */

/* Ends the program because of fv_last_error: the daemon drains without a grace period. */
void fv_registration_give_up(fv_registration *p, fv_status st);

/* Gives up because the worker's GPU is lost: nothing will run in this process again, its supervisor can start
 * another one, and its requests go to other workers. If closing hangs on the device, SIGALRM ends the process. */
void fv_registration_device_lost(fv_registration *p, const char *why);

/* Leaves the routers. Afterwards only `left` is called, which may run at once. */
void fv_registration_leave(fv_registration *p, void (*left)(void *user));

/* The program's result when everything is closed: why it gave up, or FV_OK. */
fv_status fv_registration_verdict(const fv_registration *p);

#endif
