#ifndef FOVEA_DECODE_WORKER_SCHEDULE_SHARES_H
#define FOVEA_DECODE_WORKER_SCHEDULE_SHARES_H

/* SHARES: decides whose answer gets a slot of the batch, and whose loses one. Tenants share the slots by
 * weight, at every token boundary: weighted fair queuing, with service counted in rows, which is what a
 * step costs (a token is a row, and so is each token of a continued conversation's prompt).
 *
 *     served      rows that ran for the tenant / its weight
 *     due(n)      served + n Q / weight: what it will have been served after Q more rows of each of
 *                 n slots
 *
 *     a free slot goes to the waiting tenant with the smallest due(slots + 1)
 *     a slot changes hands when     due(slots - 1) of a tenant  >=  due(slots + 1) of a waiting one
 *
 * So tenants that were served alike hold slots in proportion to their weights, and if there are
 * more tenants than slots, they take turns of about 2 Q rows. Q keeps slots from changing hands at
 * every token: after a change, the tenant that lost the slot is behind by less than the rule asks for
 * until about Q rows have run.
 *
 * Service that a tenant does not use is not saved up. A tenant with no waiting answer has all that it
 * wants, so it is lifted to Q rows less than the least served waiting tenant has, and a new tenant
 * begins level with that one. Pure bookkeeping; one thread. */
#include "common/status.h"

enum { FV_SHARE_QUANTUM = 8 }; /* Q, rows */

typedef struct fv_share {
    struct fv_share *next;
    double weight, served;
    int32_t n_answer;             /* the tenant's answers; it is forgotten with the last one */
    int32_t n_running, n_waiting; /* answers in a slot; answers that could use one */
    double held;                  /* bytes of its answers, while memory.c compares */
    char name[];
} fv_share;

/* Starts as {0}. */
typedef struct fv_shares {
    fv_share *first; /* in the order in which they came */
    double now;      /* `served` of a tenant that comes */
} fv_shares;

/* Counts a new answer of the tenant `name`. `weight` is the tenant's from now on; 0 or less means 1.
 * FV_ENOMEM. */
fv_status fv_shares_enter(fv_shares *a, const char *name, double weight, fv_share **out);
/* Counts an answer as over; it neither runs nor waits. */
void fv_shares_leave(fv_shares *a, fv_share *s);

void fv_share_charge(fv_share *s, int32_t rows); /* `rows` have run for the tenant */

/* Lifts tenants that have all they want. Call after a step. */
void fv_shares_settle(fv_shares *a);

/* Returns the tenant that gets a free slot; NULL: none waits. */
fv_share *fv_shares_next(const fv_shares *a);

/* Whether a slot changes hands now: sets from which tenant to which. */
bool fv_shares_swap(const fv_shares *a, fv_share **from, fv_share **to);

int32_t fv_shares_waiting(const fv_shares *a); /* answers of all tenants */

#endif
