#ifndef FOVEA_SERVING_WORKER_ROUTERS_H
#define FOVEA_SERVING_WORKER_ROUTERS_H

/* ROUTERS: a worker's memberships in all routers that it finds, so that a router can be added,
 * replaced or lost without the others.
 *
 *   --router NAME:PORT,...  --looked up periodically--> addresses --one membership each--> joined
 *
 * A name may resolve to several addresses, as that of a headless service does. An address that is
 * no longer found is left when its router has ended the connection: a router that still finishes
 * requests must not lose its workers. A router that says farewell is kept until it ends, while
 * the next one at its address is joined already. While a name cannot be looked up, nothing changes.
 * Two addresses of the same router are recognized by the id that it sends on joining: the second
 * address waits until the first is lost.
 *
 * Each router causes a part of this worker's load and sees all of it in the reports. A router may ask
 * the worker to drain; that applies to all routers. The worker's own health does not depend on
 * routers. Loop thread. */
#include "serving/worker/member.h"

typedef struct fv_routers_options {
    const char *names;            /* "HOST:PORT[,HOST:PORT...]"; copied */
    fv_membership_options member; /* of each membership; routers.c sets the fields that differ */
    int32_t look_ms;              /* names are looked up this often; 0: 5 s */
} fv_routers_options;

typedef struct fv_routers fv_routers; /* opaque */

/* Checks that each of the names is an address. FV_EINVAL names the first one that is not. */
fv_status fv_routers_check(const char *names);

/* Begins to look up and to join routers. FV_EINVAL as above. */
fv_status fv_routers_open(const fv_routers_options *opt, fv_routers **out);

/* Apply to all memberships; drain and health also to later ones. See serving/worker/member.h. */
void fv_routers_touch(fv_routers *r);
void fv_routers_drain(fv_routers *r);
void fv_routers_set_health(fv_routers *r, bool healthy);

/* Leaves all routers. `closed` runs later, on the loop thread, and `r` is freed then. NULL is fine:
 * `closed` runs at once. */
void fv_routers_close(fv_routers *r, void (*closed)(void *user), void *user);

#endif
