#ifndef FOVEA_ROUTER_REGISTRY_INTERNAL_H
#define FOVEA_ROUTER_REGISTRY_INTERNAL_H

/* Shared by the files of the registry only.
 *
 *   join.c       the calls of Fleet.Join: proofs, introductions, admission
 *   registry.c   the list of members
 *   fleet.c      the fleets that they are of */
#include "router/registry.h"
#include "serving/audit.h"

/* a call of Fleet.Join; private to join.c, lives as long as the call */
typedef struct fv_join fv_join;

struct fv_registry {
    fv_registry_options opt;
    fv_key join_key; /* that joins are proved with */
    fv_key call_key; /* and calls of workers */
    fv_fleet *fleets;
    fv_join *unproven; /* joins whose worker has not proved itself yet, the newest first */
    int32_t n_unproven;
    fv_audit audit; /* of those */
    bool stopping;
};

/* ---- join.c ----------------------------------------------------------------------------- */

/* Ends a member's call, with fv_last_error. */
void fv_join_finish(fv_join *j, fv_status st);

/* Ends those that have proved nothing for too long. */
void fv_joins_tick(fv_registry *m, double now_s);

/* ---- registry.c -------------------------------------------------------------------------- */

/* Is the name free? A lost worker that had it is forgotten. */
bool fv_registry_free(fv_registry *m, const char *name);

/* A worker with its introduction, fleet, channel and join comes in; the list owns it from now on. */
void fv_registry_add(fv_registered_worker *w, const Fovea__Fleet__V1__WorkerReport *r);
void fv_registered_worker_free(fv_registered_worker *w); /* one that was not added */

void fv_registered_worker_keep_report(fv_registered_worker *w,
                                      const Fovea__Fleet__V1__WorkerReport *r);

/* Its call is over. Its requests end; it is shown as lost for a while, unless it has left by
 * itself. */
void fv_registry_part(fv_registry *m, fv_registered_worker *w, const char *why);

/* The router stops: the members stay as they are, and their calls are over. */
void fv_registry_freeze(fv_registry *m);

/* ---- fleet.c ----------------------------------------------------------------------------- */

/* The fleet of a worker with this introduction, perhaps a new one. */
fv_status fv_fleet_of(fv_registry *m, const fv_introduction *in, fv_fleet **out);

/* Forgets those without workers and requests. */
void fv_fleets_tick(fv_registry *m);
void fv_fleets_close(fv_registry *m); /* when the workers are freed */

#endif
