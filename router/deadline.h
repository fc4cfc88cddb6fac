#ifndef FOVEA_ROUTER_DEADLINE_H
#define FOVEA_ROUTER_DEADLINE_H

/* DEADLINE: will a request be answered in time? A late answer is worthless to its client and
 * costs as much as one in time, so an overloaded fleet that starts what it cannot finish answers
 * nobody. The estimate is made when a request
 *
 *     arrives       too late: it is refused at once, with a retry hint
 *     waits         too late even if it were next: it is ended, before it costs anything
 *     is next       likewise
 *
 * and never again: an answer that has begun goes on until its deadline. The queue itself stays in
 * the order of arrival. Without hopeless requests in it, serving the most urgent
 * first would not serve more of them, and patient requests could starve.
 *
 * Pure functions of the workers and of measured times (router/estimate.h). */
#include "router/estimate.h"
#include "router/registry.h"

/* Seconds that are to be expected; 0 where nothing is known. */
typedef struct fv_outlook {
    double queue_s; /* until it has its turn */
    double fleet_s; /* from then on, with what workers have to do now */
    double alone_s; /* the same on workers that had nothing else to do */
} fv_outlook;

/* What w has ahead of it at a worker of its role, and its own. */
double fv_deadline_prefill_s(const fv_estimate *e, const fv_registered_worker *p, const fv_work *w);
double fv_deadline_decode_s(const fv_estimate *e, const fv_registered_worker *d, const fv_work *w);

/* After the work `ahead` in the queue, on the fastest of the ready workers. */
fv_outlook fv_deadline_look(const fv_estimate *e, const fv_registered_worker *first,
                            const fv_work *ahead, const fv_work *w);

/* FV_OK; FV_EBUSY, and in how many seconds it would do; FV_ENOMEM when it never would. */
fv_status fv_deadline_admit(const fv_outlook *o, double left_s, double *retry_s);

/* FV_EDEADLINE when what takes `seconds` is hopeless now. */
fv_status fv_deadline_start(double seconds, double left_s, double waited_s);

#endif
