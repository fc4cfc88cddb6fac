#ifndef FOVEA_SERVING_WORKER_FAIR_H
#define FOVEA_SERVING_WORKER_FAIR_H

/* FAIR: decides whose turn it is on a thread that does one unit of work after another. Tenants share it by
 * weight and by cost, not by the number of their units: start-time fair queuing (Goyal, Vin, Cheng,
 * SIGCOMM 1996), as in the router's queue.
 *
 *     start tag of a tenant    S = max(v, F)
 *     a unit of it begins      v = S,   F = S + cost / weight
 *
 * The tenant with the smallest S is next. A new tenant therefore waits only for the unit that runs, and
 * no tenant saves up time that it does not use. Bookkeeping for one thread. */
#include <stdint.h>

typedef struct fv_fair_flow {
    struct fv_fair_flow *next;
    double weight, finish;
    double plan;                 /* of fv_fair_plan */
    int32_t n;                   /* pieces of work that have entered */
    int32_t n_placed, n_running; /* counts of the caller */
    char *name;                  /* owned; NULL: this is `rest` */
} fv_fair_flow;

typedef struct fv_fair {
    fv_fair_flow *first;
    double now;        /* v */
    fv_fair_flow rest; /* tenants for which there was no memory, counted as one */
} fv_fair;             /* {0} is empty */

/* Enters a piece of a tenant's work. `weight` is the tenant's from now on; 0 or less counts as 1. */
fv_fair_flow *fv_fair_enter(fv_fair *a, const char *name, double weight);
/* Ends that work. A flow is freed some time after its last piece. */
void fv_fair_leave(fv_fair *a, fv_fair_flow *f);
void fv_fair_fini(fv_fair *a);

double fv_fair_start(const fv_fair *a, const fv_fair_flow *f); /* S */

/* Charges a unit of the flow's work, which begins. */
void fv_fair_charge(fv_fair *a, fv_fair_flow *f, double cost);

/* Plan several units ahead: the first sets `plan` of all flows to S, the second adds a planned unit. */
void fv_fair_plan(fv_fair *a);
void fv_fair_plan_add(fv_fair_flow *f, double cost);

#endif
