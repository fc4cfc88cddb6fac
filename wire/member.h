#ifndef FOVEA_WIRE_MEMBER_H
#define FOVEA_WIRE_MEMBER_H

/* MEMBER: a worker's side of Fleet.Join (proto/fleet.proto): it introduces itself to the router,
 * reports how it is, and is told what to do.
 *
 *               connected, introduced              Welcome
 *     WAITING ----------------------> JOINING ------------------> IN
 *        ^                               |                        |
 *        '---- a while later ------------+--- the call ended -----'
 *                                        |
 *                                        '--- the router does not want it ---> REFUSED
 *
 * A router that cannot be reached is tried again for ever, a little less often each time. One that
 * says that this worker does not fit, or that another has its name, is not: whoever runs the
 * worker must mend that. Loop thread. */
#include "fleet.pb-c.h"
#include "wire/rpc_client.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fv_membership_options {
    fv_bridge *bridge;                                  /* borrowed */
    const char *router;                                 /* "HOST:PORT"; borrowed */
    const Fovea__Fleet__V1__Introduction *introduction; /* borrowed */
    /* Says what the worker is doing now; before each report. */
    void (*measure)(void *user, Fovea__Inference__V1__Load *load);
    /* The router asks it to finish what runs within grace_ms, and to leave. May be NULL. */
    void (*drain)(void *user, int32_t grace_ms);
    /* The router does not want it; fv_last_error says why. May be NULL. */
    void (*refused)(void *user, fv_status st);
    void *user;
} fv_membership_options;

typedef struct fv_membership fv_membership; /* opaque */

/* FV_EINVAL: `router` is no address. For programs that join later, and want to say so at once. */
fv_status fv_membership_check(const char *router);

/* Begins to join. FV_EINVAL as above. */
fv_status fv_membership_open(const fv_membership_options *opt, fv_membership **out);

bool fv_membership_joined(const fv_membership *m); /* the router has said welcome */

/* Much has changed: the next report goes soon. */
void fv_membership_touch(fv_membership *m);

/* From now on reports say that the worker takes nothing new; the first of them goes at once. */
void fv_membership_drain(fv_membership *m);

/* Whether requests go through here, as far as the worker knows; true until said otherwise. A change
 * is reported at once. */
void fv_membership_set_health(fv_membership *m, bool healthy);

/* Leaves. No callback but `closed` comes after this; `m` is freed when that runs (later, on the
 * loop thread), and the bridge may be closed then. NULL is fine: `closed` runs at once. */
void fv_membership_close(fv_membership *m, void (*closed)(void *user), void *user);

#ifdef __cplusplus
}
#endif
#endif
