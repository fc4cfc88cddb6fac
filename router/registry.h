#ifndef FOVEA_ROUTER_REGISTRY_H
#define FOVEA_ROUTER_REGISTRY_H

/* REGISTRY: the workers that have joined. Each holds a Join call open; the call is its membership.
 *
 *                 joined                    its report
 *     (none) ----------------> READY <--------------------> UNHEALTHY
 *                                |  \----------> DRAINING <---'
 *                                |                  |
 *                                |  the call ended, |  the call ended: it has left
 *                                |  or silence      |
 *                                v                  v
 *                               LOST -FORGET_S-> (none)
 *
 * A worker that joins has proved that it knows the fleet's secret (auth/join_proof.h); the name of
 * a connected worker is refused to others.
 *
 * Workers that fit each other are a FLEET: the same model's name, checkpoint, data types and
 * protocol. A router has as many as there are: of several models, and of two versions of one while
 * it is replaced. Loop thread. */
#include "auth/call_token.h"
#include "fleet.pb-c.h"
#include "handoff/kv_sections.h"
#include "router/breaker.h"
#include "router/estimate.h"
#include "rpc/client.h"
#include "rpc/server.h"

typedef Fovea__Fleet__V1__Introduction fv_introduction;
typedef Fovea__Inference__V1__Model fv_model_message;

typedef struct fv_fleet fv_fleet;

typedef struct fv_registered_worker {
    struct fv_registered_worker *next; /* of its fleet */
    fv_fleet *fleet;
    fv_arena arena;               /* owns what it said of itself */
    const fv_introduction *intro; /* in the arena */
    Fovea__Inference__V1__Role role;
    Fovea__Inference__V1__WorkerState state;
    Fovea__Inference__V1__Load load; /* as it last reported */
    double reported_s;               /* when that was */
    double ahead_ms;                 /* of our clock (fv_clock_s) is its own, as far as we know */
    fv_rpc_channel *channel;         /* owned; NULL when lost */
    struct fv_join *join;            /* the call; borrowed; NULL when it is over */
    /* What the requests that run now have taken of it, and how its calls go: theirs to keep
     * (router/reservation.h). */
    int32_t n_taken;
    uint64_t bytes_taken, prompt_taken; /* bytes of KV; prompt tokens whose prefill is not over */
    uint64_t pixels_taken;
    /* Whether it gets on: router/watch.c. */
    int32_t n_work;    /* requests, of all routers, that it works on, as it last said */
    uint64_t work;     /* sum of their counts */
    double moved_s;    /* when that last changed */
    bool hung, unwell; /* found to hang: UNHEALTHY until it moves; its own word */
    int32_t n_suspect; /* of those requests, that have lost a worker before (router/blame.c) */
    fv_breaker breaker;
    /* Requests that it had besides ours when it last reported: other routers' */
    int32_t n_foreign;
    fv_pace pace;      /* as our requests measured it */
    int32_t n_waiting; /* requests of ours that wait there for memory (fv_balance_to_wait) */
    bool full;         /* it refused one for lack of memory, and has not reported since */
} fv_registered_worker;

/* What one of those who share (router/sharers.h) has of a fleet. */
typedef struct fv_fleet_part {
    double finish; /* when its last request is served, in virtual time; at first 0 */
    /* While the queue is looked through: its requests at decode workers, and whether its next one has to wait,
     * with those after it. */
    int32_t n_slot, n_prefill; /* and at prefill workers */
    bool blocked;
    /* private */
    bool counted;
    uint64_t number;
} fv_fleet_part;
struct fv_sharer;

/* Of a model's name and compatibility; it is there while it has workers, lost ones among them, or
 * requests. */
struct fv_fleet {
    fv_fleet *next;
    char *model, *fingerprint;   /* owned */
    fv_compat compat;            /* the same for all of its workers */
    fv_registered_worker *first; /* in the order in which they joined */
    /* The requests for it: theirs to keep (router/relay.c). */
    int32_t n_request, n_queued, n_running;
    fv_estimate estimate;
    fv_work queued;      /* of those in the queue, kept conversations aside: they wait elsewhere */
    double virtual_time; /* router/relay.h */
    double blocked_s;    /* since then the first one waits, or the next one; 0: none does */
    /* While the queue is looked through. full: the first one has to wait for memory, and so those after it have, too.
     * waits: somebody's next one has to wait, for memory or for a slot. */
    bool full, waits;
    /* Who waits for a place at a prefill worker is overtaken by requests that begin before this: until it would
     * itself have been served. */
    double pass_until;
    double weight_all; /* of those who have a request here */
    int32_t slots_all; /* of its decode workers; 0: one does not say how many it has */
    /* private */
    fv_fleet_part *part; /* [n_part] owned */
    size_t n_part, cap_part;
};

typedef struct fv_registry fv_registry; /* opaque */

typedef struct fv_registry_options {
    fv_bridge *bridge;     /* borrowed */
    fv_key fleet;          /* of the fleet's secret */
    fv_tls *tls;           /* NULL: tokens identify the router. Borrowed, as is `spiffe` */
    const char *spiffe;    /* --tls-spiffe */
    const char *router_id; /* unlike any other router's; borrowed */
    uint32_t renew_ms;     /* workers join again after this time; 0: never */
    uint32_t report_ms;    /* workers report this often */
    uint32_t silence_ms;   /* and are lost after so long without */
    /* A worker joined or reported: there may be free memory now. */
    void (*on_change)(void *user);
    /* It is not there any more: forget it, its memory goes after this. Everything on it is lost if
     * it is LOST; one that is DRAINING has left by itself, and says elsewhere how its calls end. */
    void (*on_gone)(void *user, fv_registered_worker *member);
    /* What it has just reported; ahead of its state. May be NULL. */
    void (*on_report)(void *user, fv_registered_worker *w, const Fovea__Fleet__V1__WorkerReport *r);
    void *user;
} fv_registry_options;

fv_status fv_registry_open(const fv_registry_options *opt, fv_registry **out);
void fv_registry_close(fv_registry *m); /* the server has stopped; NULL is fine */

/* Fleet.Join, for a listener that clients do not reach. From its on_stop on the members stay as
 * they are. */
fv_rpc_service fv_registry_service(fv_registry *m);

/* Tells all workers that this router ends when its requests are done: they stay until then, and
 * join another one at its address. */
void fv_registry_farewell(fv_registry *m);

/* Finds those that are silent for too long, forgets those that were lost long ago, and ends joins
 * that have proved nothing for too long. */
void fv_registry_tick(fv_registry *m, double now_s);

fv_fleet *fv_registry_fleets(const fv_registry *m); /* ... ->next */

/* All workers, lost ones among them: one fleet's after the other's. */
fv_registered_worker *fv_registry_first(const fv_registry *m);
fv_registered_worker *fv_registry_next(const fv_registered_worker *w);

/* The fleet of a model, by name or fingerprint; "": of the only one. While several serve the name,
 * as when it is replaced, one is drawn: each as often as it has pairs of ready workers.
 * FV_ENOTFOUND: no such model; FV_EINVAL: there are several models, and no name; FV_EIO: no prefill
 * worker yet. */
fv_status fv_registry_choose_fleet(const fv_registry *m, const char *model, fv_fleet **out);

int32_t fv_fleet_ready(const fv_fleet *f, Fovea__Inference__V1__Role role); /* how many are? */
int32_t fv_fleet_pairs(const fv_fleet *f); /* ready ones of both kinds: the smaller number */

/* By its name; NULL when there is none, not even a lost one. */
fv_registered_worker *fv_registry_find(const fv_registry *m, const char *name);

/* A token for one call of this worker (auth/call_token.h), good for valid_ms, about this request
 * and this address ("": none). "" where certificates identify the router. */
fv_status fv_registry_token(const fv_registry *m, const fv_registered_worker *w, const char *method,
                            const char *request_id, const char *address, uint32_t valid_ms,
                            char out[FV_CALL_TOKEN_MAX]);

/* How long conversations may be kept: what the most careful of the decode workers says. 0: not at
 * all; UINT32_MAX: none has joined yet. */
uint32_t fv_fleet_keep_ms_max(const fv_fleet *f);

/* What it serves, as a prefill worker says, or as the last one said that was lost not long ago;
 * NULL when there is none. */
const fv_model_message *fv_fleet_model(const fv_fleet *f);

/* What `x` has of the fleet; good until the next call. NULL: no memory. */
fv_fleet_part *fv_fleet_part_of(fv_fleet *f, const struct fv_sharer *x);

#endif
