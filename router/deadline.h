#ifndef FOVEA_ROUTER_DEADLINE_H
#define FOVEA_ROUTER_DEADLINE_H

/* DEADLINE: will a request be answered in time? A late answer is worthless to its client and
 * costs as much as one in time, so an overloaded fleet that starts what it cannot finish answers
 * nobody. The estimate is made when a request
 *
 *     arrives       if it would be too late, it is refused at once, with a retry hint
 *     waits         if it would be too late even as the next one, it is ended before it costs anything
 *     is next       likewise
 *
 * and never again: an answer that has begun continues until its deadline. Deadlines do not change the
 * order of the queue. Without hopeless requests in it, serving the most urgent
 * first would not serve more requests, and patient ones could starve.
 *
 * Pure functions of the workers and of measured times (router/estimate.h). */
#include "router/estimate.h"
#include "router/registry.h"

/* Expected seconds; 0 if nothing is known. */
typedef struct fv_outlook {
    double queue_s; /* until the request's turn */
    double fleet_s; /* from then on, with the workers' present load */
    double alone_s; /* from then on, on idle workers */
} fv_outlook;

/* Seconds for the prefill or the answer of w at this worker, including the work that is ahead of it there. */
double fv_deadline_prefill_s(const fv_estimate *e, const fv_registered_worker *p, const fv_work *w);
double fv_deadline_decode_s(const fv_estimate *e, const fv_registered_worker *d, const fv_work *w);

/* Estimates w after the work `ahead` in the queue, on the fastest ready workers of the list. */
fv_outlook fv_deadline_look(const fv_estimate *e, const fv_registered_worker *first,
                            const fv_work *ahead, const fv_work *w);

/* Checks a new request. FV_EBUSY: too late now; *retry_s: when to try again. FV_ENOMEM: too late even on an
 * idle fleet. */
fv_status fv_deadline_admit(const fv_outlook *o, double left_s, double *retry_s);

/* Checks a queued request that needs `seconds`. FV_EDEADLINE: it would be too late. */
fv_status fv_deadline_start(double seconds, double left_s, double waited_s);

#endif
