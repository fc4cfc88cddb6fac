#ifndef FOVEA_SERVING_WORKER_MEMBER_H
#define FOVEA_SERVING_WORKER_MEMBER_H

/* MEMBER: a worker's side of Fleet.Join (proto/fovea/fleet/v1/fleet.proto): it authenticates the
 * router, introduces itself, reports its state, and receives orders.
 *
 *                Hello              Challenge: Introduction            Welcome
 *     WAITING ----------> GREETING -------------------------> JOINING ---------> IN
 *        ^                   |  no proof                         |  refused       |
 *        '--- a while later -+-----------------------------------+--- call ended -'
 *
 * A router that cannot be reached, or that refuses this worker, is retried forever, with growing
 * delays: the other worker of this name may go, the secret may be corrected. The log has each
 * reason once. Loop thread. */
#include "auth/join_proof.h"
#include "common/pulse.h"
#include "fleet.pb-c.h"
#include "kv/cache/kept_log.h"
#include "rpc/client.h"
#include "serving/caller.h"

typedef struct fv_membership fv_membership; /* opaque */

typedef struct fv_membership_options {
    fv_bridge *bridge;         /* borrowed */
    const char *router;        /* "HOST:PORT"; borrowed */
    fv_tls *tls;               /* borrowed; NULL: plain text */
    const fv_key *fleet;       /* the fleet's key; copied */
    const fv_callers *callers; /* borrowed; whose incarnation and clock are reported */
    const Fovea__Fleet__V1__Introduction
        *introduction; /* borrowed; without incarnation and proof */
    /* Fills in the worker's current load, for each report. */
    void (*measure)(void *user, Fovea__Inference__V1__Load *load);
    /* The router asks the worker to finish running requests within grace_ms and to leave. May be NULL. */
    void (*drain)(void *user, int32_t grace_ms);
    /* Whether the router with this id is already joined by another address; then this membership waits
     * and retries. NULL: it never is. */
    bool (*known)(void *user, const fv_membership *m, const char *router_id);
    /* Asks for another membership at this address to take over, because the router ends when it has
     * finished its requests, or because this connection is old enough. This membership lasts until its
     * call ends, and does not join again. May be NULL. */
    void (*replace)(void *user, const char *why);
    /* The router at this address has said farewell, so that no answer is expected for a while. */
    bool farewell;
    void *user;
    fv_pulse *pulse;   /* progress of single requests, for the reports; borrowed. NULL: none */
    fv_kept_log *kept; /* prompts that the worker keeps, likewise */
} fv_membership_options;

/* Begins to join. FV_EINVAL: `router` is not an address. */
fv_status fv_membership_open(const fv_membership_options *opt, fv_membership **out);

bool fv_membership_joined(const fv_membership *m); /* the router has sent Welcome */

/* The router's id while it is joined, or being joined; else "". */
const char *fv_membership_router_id(const fv_membership *m);

/* Sends the next report soon, because much has changed. */
void fv_membership_touch(fv_membership *m);

/* Reports at once, and from now on, that the worker takes no new requests. */
void fv_membership_drain(fv_membership *m);

/* Sets whether the worker is healthy; true at first. A change is reported at once. */
void fv_membership_set_health(fv_membership *m, bool healthy);

/* Leaves the router. Only `closed` is called after this; `m` is freed when that runs (later, on the
 * loop thread), and the bridge may be closed then. NULL is fine: `closed` runs at once. */
void fv_membership_close(fv_membership *m, void (*closed)(void *user), void *user);

#endif
