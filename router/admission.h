#ifndef FOVEA_ROUTER_ADMISSION_H
#define FOVEA_ROUTER_ADMISSION_H

/* ADMISSION: whether a request is accepted: is it valid for a fleet (router/admit.h), does it fit the workers, is
 * there room in the queue, and would the answer be in time (router/deadline.h)? Refusals are counted in the
 * metrics, and set a retry hint on the call where it makes sense to try again. Loop thread. */
#include "router/queue.h"

/* Checks that the router is not shutting down. FV_EIO. */
fv_status fv_admission_check_open(const fv_relay *relay, fv_rpc_call *c);

/* Makes room in the queue for another request of x, of this many bytes; 0: only checks. FV_EBUSY; FV_ENOMEM: no
 * request may have so many bytes. */
fv_status fv_admission_make_room(fv_relay *relay, fv_rpc_call *c, const fv_account *x,
                                 size_t bytes);

/* Checks that a new request would be answered in time. FV_EBUSY, or FV_ENOMEM if not. Before the message is read,
 * w is {0}: it may be anything. */
fv_status fv_admission_check_time(fv_relay *relay, fv_fleet *f, fv_rpc_call *client,
                                  const fv_account *sharer, const fv_work *w);

/* Checks a request against the model of this fleet and moves it there; also a queued request whose client
 * has no tokens yet. Nothing changes on failure. Not counted in the metrics. */
fv_status fv_request_admit(fv_request *r, fv_fleet *f);

/* Checks a new request's message and chooses its fleet. */
fv_status fv_admission_check(fv_request *r);

/* Counts a refusal of a caller that did not identify itself, or may not do this. Returns st. */
fv_status fv_admission_record_caller(fv_status st);

#endif
