#ifndef FOVEA_SERVING_WORKER_REGISTRATION_H
#define FOVEA_SERVING_WORKER_REGISTRATION_H

/* REGISTRATION: a worker program's membership in its fleet; connects its daemon and its
 * memberships.
 *
 *     first probe succeeded -> joins (introduce)       members can get requests
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

/* Table rows of a program that has one. */
/* clang-format off */
#define FV_REGISTRATION_OPTIONS                                                                    \
    FV_FLEET_SECRET_OPTION,                                                                        \
    {"router", "FOVEA_ROUTER", FV_OPTION_STRING, "HOST:PORT,...", NULL,                            \
     "the fleet to join: the routers' --fleet-listen address; a name is resolved to all its "      \
     "addresses. Without it the worker joins no fleet and serves direct calls", 0, 0},             \
    {"advertise", "FOVEA_ADVERTISE", FV_OPTION_STRING, "HOST:PORT", NULL,                          \
     "address at which the others reach this worker; default: the listen address", 0, 0},          \
    {"name", "FOVEA_NAME", FV_OPTION_STRING, "NAME", NULL,                                         \
     "name, unique in the fleet; default: role and address", 0, 0}
/* clang-format on */

typedef struct fv_registration {
    const fv_options *o; /* borrowed, as all that follows */
    fv_daemon *daemon;
    /* Says who the worker is, reached at `address`; *out lasts until the place is left. */
    fv_status (*introduce)(void *user, const char *address, Fovea__Fleet__V1__Introduction **out);
    void (*measure)(void *user, Fovea__Inference__V1__Load *load);
    void *user;
    fv_pulse *pulse; /* set ahead of the first probe; for the reports */
    /* private */
    fv_key fleet;
    fv_callers *callers;
    fv_routers *routers; /* NULL: not yet, not any more, or none */
    fv_status status;
    char why[512];
} fv_registration; /* the first five set, the rest zero */

/* Reads the fleet's secret. FV_EINVAL when there is none, or when --router or --advertise is no
 * address: to be said at once, not when the worker joins. */
fv_status fv_registration_open(fv_registration *p);
void fv_registration_close(fv_registration *p); /* the services have stopped, and it was left */

/* What the worker's services check their callers with; when it was opened. */
fv_callers *fv_registration_callers(const fv_registration *p);

/* For the daemon's hooks. */
void fv_registration_health(fv_registration *p, bool healthy);
void fv_registration_drain(fv_registration *p);

void fv_registration_touch(fv_registration *p); /* much has changed: the next report goes soon */

/* The program ends for this reason, fv_last_error: the daemon drains at once. */
void fv_registration_give_up(fv_registration *p, fv_status st);

/* The device that the worker computes on is lost: nothing will run in this process again. It gives
 * up, so that who started it starts another one, and its requests go to other workers. Should
 * closing hang on the device, a signal ends the process all the same. */
void fv_registration_device_lost(fv_registration *p, const char *why);

/* Nothing is called any more but `left`, which may run at once. */
void fv_registration_leave(fv_registration *p, void (*left)(void *user));

/* What the program returns when all is closed: why it gave up, or FV_OK. */
fv_status fv_registration_verdict(const fv_registration *p);

#endif
