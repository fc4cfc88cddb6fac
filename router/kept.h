#ifndef FOVEA_ROUTER_KEPT_H
#define FOVEA_ROUTER_KEPT_H

/* KEPT: which workers are thought to keep a beginning of a request's prompt (router/hints.h).
 *
 *   name       [libuv's threads] names the beginnings of its prompt (router/parts.h); it starts after that
 *   find       before the workers are chosen (router/balancer.h)
 *   expect     when it is sent to workers: they will keep its prompt, so what comes next follows it there
 *   correct    when its prefill worker says that it had nothing, or keeps nothing: the hint was wrong
 *   report     what workers say that they keep
 *
 * Requests that neither use nor leave anything (`cache_off`, prompt_logprobs, kept conversations) have no names and are
 * routed as without hints; so are all where there is nothing to choose, or hints are off. Loop thread. */
#include "router/balancer.h"
#include "router/request.h"

/* Begins to name the beginnings of the request's prompt, if that may change its way. It is `naming` until then. */
void fv_kept_name(fv_request *r);

/* Finds the workers of this role that are thought to keep a beginning; each with its longest one. Returns their number. */
int32_t fv_kept_find(const fv_request *r, Fovea__Inference__V1__Role role,
                     fv_kept out[FV_KEPT_MAX]);

/* The beginning that w is thought to keep; .worker is NULL if nothing, and .left all of its work. */
fv_kept fv_kept_at(const fv_request *r, fv_registered_worker *w);

/* The request is being sent to w. The other one counts how its prefill worker was chosen, of which `kept` was thought. */
void fv_kept_expect(const fv_request *r, fv_registered_worker *w);
void fv_kept_count(const fv_request *r, const fv_kept *kept);

/* The prefill worker had n_cached tokens of the prompt, where `hoped` was thought; caches: it looks, and will keep it.
 * Nothing is thought for a while of a worker that lacks most of what it has reported again and again. */
void fv_kept_correct(const fv_request *r, fv_registered_worker *w, bool caches, uint32_t n_cached,
                     const fv_kept *hoped);

/* Takes a worker's report, and forgets a worker that is gone. */
void fv_kept_report(fv_relay *relay, fv_registered_worker *w,
                    const Fovea__Fleet__V1__WorkerReport *report);
void fv_kept_gone(fv_relay *relay, fv_registered_worker *w);

#endif
