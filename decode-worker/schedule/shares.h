#ifndef FOVEA_DECODE_WORKER_SCHEDULE_SHARES_H
#define FOVEA_DECODE_WORKER_SCHEDULE_SHARES_H

/* SHARES: whose answer gets a slot of the batch, and whose loses one. Tenants share the slots by
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
 * So tenants that were served alike hold slots in proportion to their weights, and where there are
 * more tenants than slots, they take turns of about 2 Q rows. Q is what keeps slots from changing
 * hands at every token: after a change the one who lost the slot is behind by less than the rule asks
 * for until about Q rows have run.
 *
 * Nobody saves up. A tenant none of whose answers waits has all that it wants, so it is lifted to Q
 * rows before the least served waiting tenant, and one that comes, or comes back, begins with that one.
 * Pure bookkeeping; one thread. */
#include "common/status.h"

enum { FV_SHARE_QUANTUM = 8 }; /* Q, rows */

typedef struct fv_share {
    struct fv_share *next;
    double weight, served;
    int32_t n_answer;             /* of the tenant, here; it is forgotten with the last one */
    int32_t n_running, n_waiting; /* those in a slot; those that could use one */
    char name[];
} fv_share;

/* {0} begins. */
typedef struct fv_shares {
    fv_share *first; /* in the order in which they came */
    double now;      /* where one that comes begins */
} fv_shares;

/* An answer of this tenant comes; `weight` is that of all its answers from now on, and at most 0 is taken for
 * 1. FV_ENOMEM. */
fv_status fv_shares_enter(fv_shares *a, const char *name, double weight, fv_share **out);
/* One is over: neither running nor waiting. */
void fv_shares_leave(fv_shares *a, fv_share *s);

void fv_share_charge(fv_share *s, int32_t rows);

/* After a step: lifts those that have all they want. */
void fv_shares_settle(fv_shares *a);

/* Who gets a free slot; NULL: none waits. */
fv_share *fv_shares_next(const fv_shares *a);

/* Does a slot change hands now? */
bool fv_shares_swap(const fv_shares *a, fv_share **from, fv_share **to);

int32_t fv_shares_waiting(const fv_shares *a); /* answers of all tenants */

#endif
