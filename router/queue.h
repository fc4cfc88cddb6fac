#ifndef FOVEA_ROUTER_QUEUE_H
#define FOVEA_ROUTER_QUEUE_H

/* QUEUE: the order of waiting requests, and each sharer's part of the queue.
 *
 * Requests of a tenant are served in order of arrival: the first one waits for memory, at a decode
 * worker that knows its age, and none overtakes it; a replayed request is older than those after it
 * and so the next. A request that waits for a slot of a decode worker (router/balancer.h) is
 * overtaken by tenants that have fewer slots than their share.
 *
 * Tenants, or client addresses if there are no tenants (router/accounts.h), share by their weights:
 * start-time fair queuing (Goyal, Vin, Cheng, SIGCOMM 1996, eq. 4-5). A new request gets a start tag S
 * and a finish tag F, and the smallest S is next:
 *
 *     S = max(v, F of the tenant's request before it),   F = S + work / weight
 *
 * where v, the virtual time, is the S of the request that started last, and the work is its expected
 * tokens. Each fleet (router/registry.h) has a queue of its own: a full fleet delays no other.
 * Requests that continue a conversation wait for its worker only, and delay no others.
 *
 * If the queue is full, the tenant that has most of it gives way to a new request of one that has
 * less. Loop thread. */
#include "router/life.h"

/* Sets a request's tags, by its sharer's weight and its expected work, and puts it in order. */
void fv_queue_insert(fv_request *r);

/* The queued work that would be served before a new request of x. */
fv_work fv_queue_ahead(const fv_relay *relay, fv_fleet *f, const fv_account *x);

/* Prepares a pass over the queue: counts the fields of fv_fleet and fv_fleet_share. */
void fv_queue_begin_pass(fv_relay *relay);
/* Whether another slot would not exceed its sharer's share, by weight among sharers with requests; a share is
 * at least one slot. */
bool fv_queue_below_share(const fv_request *r);

/* In a full queue, the sharer that has most gives way to one that has less. admits: whether a request of x may
 * come. make_room: makes room for a request of this many bytes, by ending the last requests of the sharer that
 * has most. False: x would have as much. */
bool fv_queue_admits(const fv_relay *relay, const fv_account *x);
bool fv_queue_make_room(fv_relay *relay, const fv_account *x, size_t bytes);

#endif
