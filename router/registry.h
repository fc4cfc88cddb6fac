#ifndef FOVEA_ROUTER_REGISTRY_H
#define FOVEA_ROUTER_REGISTRY_H

/* REGISTRY: the workers that have joined. Each holds a Join call open; the call is its membership.
 *
 *     (joined) ---> READY <-------> UNHEALTHY
 *                    | |              | |
 *                    | '-> DRAINING <-' |      forgotten when its call has ended
 *                    |                  |
 *                    '-----> LOST <-----'      forgotten after FORGET_S
 *
 *     change                 made by                            when
 *     READY -> UNHEALTHY     fv_registered_worker_keep_report   it reports so
 *     READY -> UNHEALTHY     fv_registered_worker_mark_hung     its requests make no progress
 *     UNHEALTHY -> READY     fv_registered_worker_keep_report   it reports so, and makes progress
 *     READY -> DRAINING      fv_registered_worker_keep_report   it reports so
 *     UNHEALTHY -> DRAINING  fv_registered_worker_keep_report   it reports so
 *     READY -> LOST          fv_registry_remove                 its call has ended, or it was silent
 *     UNHEALTHY -> LOST      fv_registry_remove                 its call has ended, or it was silent
 *
 * fv_registered_worker_set_state allows no other change; a test compares these lines with the table
 * fv_worker_changes.
 *
 * A worker proves that it knows the fleet's secret before it joins (auth/join_proof.h); a name that
 * a connected worker has is refused to others.
 *
 * Workers that fit each other are a FLEET: they have the same model name, checkpoint, data types and
 * protocol. A router has any number of fleets: for several models, and for two versions of a model
 * during a rollout. Loop thread. */
#include "auth/call_token.h"
#include "fleet.pb-c.h"
#include "handoff/kv_sections.h"
#include "router/breaker.h"
#include "router/estimate.h"
#include "router/state_change.h"
#include "rpc/client.h"
#include "rpc/server.h"

typedef Fovea__Fleet__V1__Introduction fv_introduction;
typedef Fovea__Inference__V1__Model fv_model_message;

#define FV_WORKER_PREFILL FOVEA__INFERENCE__V1__ROLE__ROLE_PREFILL
#define FV_WORKER_DECODE FOVEA__INFERENCE__V1__ROLE__ROLE_DECODE
#define FV_WORKER_READY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_READY
#define FV_WORKER_UNHEALTHY FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_UNHEALTHY
#define FV_WORKER_DRAINING FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_DRAINING
#define FV_WORKER_LOST FOVEA__INFERENCE__V1__WORKER_STATE__WORKER_STATE_LOST

typedef struct fv_fleet fv_fleet;

typedef struct fv_registered_worker {
    struct fv_registered_worker *next; /* of its fleet */
    fv_fleet *fleet;
    fv_arena arena;               /* owns its introduction */
    const fv_introduction *intro; /* in the arena */
    Fovea__Inference__V1__Role role;
    Fovea__Inference__V1__WorkerState state;
    Fovea__Inference__V1__Load load; /* from its last report */
    double reported_s;               /* time of that report, or of the loss */
    double ahead_ms;                 /* estimate: its clock minus ours (fv_clock_s) */
    fv_rpc_channel *channel;         /* owned; NULL when lost */
    struct fv_join *join;            /* the call; borrowed; NULL when it is over */
    /* Reserved by this router's running requests: router/reservation.c keeps these fields. */
    int32_t n_taken;
    uint64_t bytes_taken, prompt_taken; /* bytes of KV; prompt tokens whose prefill is not over */
    int32_t n_prompt;                   /* requests whose prefill is not over */
    uint64_t pixels_taken;
    /* Progress: router/watch.c. */
    int32_t n_work; /* requests, of all routers, that it works on, from its last report */
    uint64_t work;  /* sum of their counts */
    double moved_s; /* when n_work, work or `reports_unhealthy` last changed */
    bool hung;      /* UNHEALTHY until it makes progress */
    bool reports_unhealthy;
    int32_t n_suspect; /* our requests there that have lost a worker before (router/blame.c) */
    fv_breaker breaker;
    /* Requests of other routers: those in its last report that are not ours */
    int32_t n_foreign;
    fv_pace pace;       /* measured by our requests */
    uint16_t place;     /* in the hints (router/kept.c); 0: none */
    uint8_t distrust;   /* likewise: grows when it lacks what it has reported as kept */
    int32_t n_waiting;  /* requests of ours that wait there for memory (fv_balance_to_wait) */
    bool out_of_memory; /* refused a request for lack of memory, and has not reported since */
} fv_registered_worker;

/* The share of a fleet that a tenant or address (router/accounts.h) has. */
typedef struct fv_fleet_share {
    double finish; /* finish tag of its last request, in virtual time; at first 0 */
    /* Set by each pass over the queue: its requests at decode and at prefill workers, and whether its
     * queued requests have to wait. */
    int32_t n_slot, n_prefill;
    bool blocked;
    /* private */
    bool counted;
    uint64_t number;
} fv_fleet_share;
struct fv_account;

/* A fleet, by model name and compatibility. It exists as long as it has workers (also lost ones) or
 * requests. */
struct fv_fleet {
    fv_fleet *next;
    char *model, *fingerprint;   /* owned */
    fv_compat compat;            /* the same for all of its workers */
    fv_registered_worker *first; /* in the order in which they joined */
    /* Its requests, counted by router/request.c. */
    int32_t n_request, n_queued, n_running;
    fv_estimate estimate;
    fv_work queued;      /* work in the queue, without kept conversations, which wait elsewhere */
    double virtual_time; /* router/queue.h */
    double waiting_since_s; /* since requests wait, or the last one started; 0: none waits */
    /* Set by each pass over the queue. waits_for_memory: a request does, and with it all requests after it.
     * has_waiting: some request has to wait, for memory, a slot or a place. */
    bool waits_for_memory, has_waiting;
    /* The smallest finish tag of requests that wait for a place at a prefill worker: only requests with a start tag
     * below it may overtake them. */
    double overtake_before;
    double weight_all; /* of tenants or addresses that have a request here */
    int32_t slots_all; /* of ready decode workers; 0: at least one does not report its slots */
    /* The workers of the list, to draw from; n_at 0: there was no memory for it. */
    fv_registered_worker **at; /* [n_at] owned */
    int32_t n_at;
    /* private */
    fv_fleet_share *share; /* [n_share] owned */
    size_t n_share, cap_share;
};

enum { FV_N_WORKER_CHANGE = 7 };
extern const fv_state_change fv_worker_changes[FV_N_WORKER_CHANGE];

const char *fv_worker_state_name(Fovea__Inference__V1__WorkerState s); /* "READY" */

/* Changes the state, unless it is `to`. by: the function that makes the change, __func__. */
void fv_registered_worker_set_state(fv_registered_worker *w, Fovea__Inference__V1__WorkerState to,
                                    const char *by);
/* None of its requests makes progress: UNHEALTHY until there is progress, unless it is DRAINING. */
void fv_registered_worker_mark_hung(fv_registered_worker *w);

typedef struct fv_registry fv_registry; /* opaque */

typedef struct fv_registry_options {
    fv_bridge *bridge;     /* borrowed */
    fv_key fleet;          /* derived from the fleet's secret */
    fv_tls *tls;           /* NULL: tokens identify the router. Borrowed, as is `spiffe` */
    const char *spiffe;    /* --tls-spiffe */
    const char *router_id; /* unique among routers; borrowed */
    uint32_t renew_ms;     /* workers join again after this time; 0: never */
    uint32_t report_ms;    /* interval of worker reports */
    uint32_t silence_ms;   /* a worker is lost after this long without a report */
    /* A worker joined or reported: there may be free memory now. */
    void (*on_change)(void *user);
    /* A worker is gone: keep no reference to it. If it is LOST, everything on it is lost; a DRAINING worker
     * has left by itself, and its calls end with their own status. */
    void (*on_gone)(void *user, fv_registered_worker *member);
    /* A worker's report, before its state is updated from it. May be NULL. */
    void (*on_report)(void *user, fv_registered_worker *w, const Fovea__Fleet__V1__WorkerReport *r);
    void *user;
} fv_registry_options;

fv_status fv_registry_open(const fv_registry_options *opt, fv_registry **out);
void fv_registry_close(fv_registry *m); /* the server has stopped; NULL is fine */

/* Fleet.Join, for a listener that clients do not reach. From the service's on_stop on, the members
 * stay as they are. */
fv_rpc_service fv_registry_service(fv_registry *m);

/* Tells all workers that this router ends when its requests are done: they stay until then, and
 * join the next router at its address. */
void fv_registry_farewell(fv_registry *m);

/* Loses workers that have been silent for too long, forgets those that were lost long ago, and ends
 * joins that have not proved themselves in time. */
void fv_registry_tick(fv_registry *m, double now_s);

fv_fleet *fv_registry_fleets(const fv_registry *m); /* ... ->next */

/* All workers, also lost ones, fleet by fleet. */
fv_registered_worker *fv_registry_first(const fv_registry *m);
fv_registered_worker *fv_registry_next(const fv_registered_worker *w);

/* Gives the fleet of a model, by name or fingerprint; "": of the only model. If several fleets serve the
 * name, as during a rollout, one is drawn at random, weighted by its pairs of ready workers.
 * FV_ENOTFOUND: no such model; FV_EINVAL: there are several models, and no name; FV_EIO: no prefill
 * worker yet. */
fv_status fv_registry_choose_fleet(const fv_registry *m, const char *model, fv_fleet **out);
/* The same, for a request with TokenRules if `rules` is set: only among workers that know them. FV_EUNSUPPORTED: all workers
 * of the model are of an older version, which would ignore the rules. */
fv_status fv_registry_choose_fleet_for(const fv_registry *m, const char *model, bool rules,
                                       fv_fleet **out);

/* FV_EUNSUPPORTED: the fleet's workers do not know TokenRules. */
fv_status fv_fleet_check_rules(const fv_fleet *f);

int32_t fv_fleet_ready(const fv_fleet *f, Fovea__Inference__V1__Role role); /* ready workers */
int32_t fv_fleet_pairs(const fv_fleet *f); /* ready workers of the role that has fewer */

/* Finds a worker by name, also a lost one; NULL: none. */
fv_registered_worker *fv_registry_find(const fv_registry *m, const char *name);

/* Writes a token for one call to this worker (auth/call_token.h), valid for valid_ms, for this request
 * and this address ("": none). Writes "" if certificates identify the router. */
fv_status fv_registry_token(const fv_registry *m, const fv_registered_worker *w, const char *method,
                            const char *request_id, const char *address, uint32_t valid_ms,
                            char out[FV_CALL_TOKEN_MAX]);

/* How long conversations may be kept: the minimum over the decode workers. 0: not at all; UINT32_MAX:
 * no decode worker is known. */
uint32_t fv_fleet_keep_ms_max(const fv_fleet *f);

/* The model, as described by a connected prefill worker, or else by one that was lost recently; NULL:
 * neither. */
const fv_model_message *fv_fleet_model(const fv_fleet *f);

/* The share of the fleet that `x` has; valid until the next call. NULL: no memory. */
fv_fleet_share *fv_fleet_share_of(fv_fleet *f, const struct fv_account *x);

#endif
