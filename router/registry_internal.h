#ifndef FOVEA_ROUTER_REGISTRY_INTERNAL_H
#define FOVEA_ROUTER_REGISTRY_INTERNAL_H

/* Shared by the files of the registry only.
 *
 *   join.c       the calls of Fleet.Join: proofs, introductions, admission, silence; knows the other two
 *   registry.c   the list of members; knows the fleets
 *   fleet.c      the fleets that the members belong to */
#include "router/registry.h"
#include "serving/audit.h"

/* A call of Fleet.Join; private to join.c, lives as long as the call. */
typedef struct fv_join fv_join;

struct fv_registry {
    fv_registry_options opt;
    fv_key join_key; /* proves joins */
    fv_key call_key; /* authenticates calls to workers */
    fv_fleet *fleets;
    fv_join *unproven; /* joins whose worker has not proved itself yet, the newest first */
    int32_t n_unproven;
    fv_audit audit; /* of refused joins */
    bool stopping;
};

/* ---- registry.c -------------------------------------------------------------------------- */

/* Whether the name is free; forgets a lost worker that had it. */
bool fv_registry_name_is_free(fv_registry *m, const char *name);

/* Adds a worker that has its introduction, fleet, channel and join; takes it. */
void fv_registry_add(fv_registered_worker *w, const Fovea__Fleet__V1__WorkerReport *r);
void fv_registered_worker_free(fv_registered_worker *w); /* one that was not added */

void fv_registered_worker_keep_report(fv_registered_worker *w,
                                      const Fovea__Fleet__V1__WorkerReport *r);

/* Removes a worker whose call is over, with its requests. It is shown as lost for a while, unless it
 * has left by itself. */
void fv_registry_remove(fv_registry *m, fv_registered_worker *w, const char *why);

/* Forgets workers that were lost long ago, and fleets without workers and requests. */
void fv_registry_forget(fv_registry *m, double now_s);

/* Keeps the members as they are when the router stops and their calls are over. */
void fv_registry_freeze(fv_registry *m);

/* ---- fleet.c ----------------------------------------------------------------------------- */

/* Gives the fleet of a worker with this introduction; opens it if there is none. */
fv_status fv_fleet_find_or_open(fv_registry *m, const fv_introduction *in, fv_fleet **out);

/* Lists the workers of a fleet in fv_fleet.at, after its list has changed. */
void fv_fleet_index(fv_fleet *f);

/* Frees fleets without workers and requests. */
void fv_fleets_tick(fv_registry *m);
void fv_fleets_close(fv_registry *m); /* when the workers are freed */

#endif
