#ifndef FOVEA_PREFILL_WORKER_SERVICE_FAIR_H
#define FOVEA_PREFILL_WORKER_SERVICE_FAIR_H

/* FAIR: whose turn it is on a thread that does one unit of work after another. Tenants share it by
 * weight and by cost, not by the number of their units: start-time fair queuing (Goyal, Vin, Cheng,
 * SIGCOMM 1996), as in the router's queue.
 *
 *     start tag of a tenant    S = max(v, F)
 *     a unit of it begins      v = S,   F = S + cost / weight
 *
 * The tenant with the smallest S is next. So one that comes new waits for the unit that runs, and for
 * no other; and nobody saves up what it does not use. Bookkeeping for one thread. */
#include <stdint.h>

typedef struct fv_fair_flow {
    struct fv_fair_flow *next;
    double weight, finish;
    double plan;                 /* fv_fair_plan */
    int32_t n;                   /* entered */
    int32_t n_placed, n_running; /* the caller's, to count with */
    char *name;                  /* owned; NULL: of `rest` */
} fv_fair_flow;

typedef struct fv_fair {
    fv_fair_flow *first;
    double now;        /* v */
    fv_fair_flow rest; /* of tenants for which there was no memory: as if they were one */
} fv_fair;             /* {0} is empty */

/* Work of a tenant is here; `weight` is that of all its work from now on, and what is not above 0 counts
 * as 1. */
fv_fair_flow *fv_fair_enter(fv_fair *a, const char *name, double weight);
/* That work is over. A flow is freed some time after its last. */
void fv_fair_leave(fv_fair *a, fv_fair_flow *f);
void fv_fair_fini(fv_fair *a);

double fv_fair_start(const fv_fair *a, const fv_fair_flow *f); /* S */

/* A unit of its work begins. */
void fv_fair_charge(fv_fair *a, fv_fair_flow *f, double cost);

/* To see several units ahead: `plan` of all flows becomes S; whoever takes a unit adds to it. */
void fv_fair_plan(fv_fair *a);
void fv_fair_plan_add(fv_fair_flow *f, double cost);

#endif
