#ifndef FOVEA_SERVING_WORKER_ROUTERS_H
#define FOVEA_SERVING_WORKER_ROUTERS_H

/* ROUTERS: a worker's memberships in all routers that it finds, so that a router can be added,
 * replaced or lost while the others go on.
 *
 *   --router NAME:PORT,...  --looked up periodically--> addresses --one membership each--> joined
 *
 * A name may resolve to several addresses, as that of a headless service does. An address that is
 * no longer found is left when its router has ended the connection: a router that still finishes
 * requests must not lose its workers. A router that says farewell is kept until it ends, while
 * another one at its address is joined already. While no name can be looked up, nothing changes.
 * Two addresses of the same router are recognized by the id that it sends on joining: the second
 * one waits until the first is lost.
 *
 * Each router has a share of this worker's load and sees all of it in its reports. A router may ask
 * the worker to drain; that applies to all. The worker's own health does not depend on
 * routers. Loop thread. */
#include "serving/worker/member.h"

typedef struct fv_routers_options {
    const char *names;            /* "HOST:PORT[,HOST:PORT...]"; copied */
    fv_membership_options member; /* of each; `router` and `known` are filled in here */
    int32_t look_ms;              /* names are looked up this often; 0: 5 s */
} fv_routers_options;

typedef struct fv_routers fv_routers; /* opaque */

/* FV_EINVAL, and which one, unless each of the names is an address. */
fv_status fv_routers_check(const char *names);

/* Begins to look and to join. FV_EINVAL as above. */
fv_status fv_routers_open(const fv_routers_options *opt, fv_routers **out);

/* Of all memberships, now and later; see serving/worker/member.h. */
void fv_routers_touch(fv_routers *r);
void fv_routers_drain(fv_routers *r);
void fv_routers_set_health(fv_routers *r, bool healthy);

/* Leaves all. `closed` runs later, on the loop thread, and `r` is freed then. NULL is fine:
 * `closed` runs at once. */
void fv_routers_close(fv_routers *r, void (*closed)(void *user), void *user);

#endif
