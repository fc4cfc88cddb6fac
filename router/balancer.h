#ifndef FOVEA_ROUTER_BALANCER_H
#define FOVEA_ROUTER_BALANCER_H

/* CHOOSE: which worker gets a request. Two are drawn at random and the better one is taken: almost
 * as even as taking the best of all, and reports that are a little old do not send everybody to
 * the same one (Mitzenmacher, "The Power of Two Choices", 2001).
 *
 *   decode worker    better: the smaller part of its KV would be taken; then fewer requests
 *   prefill worker   better: the first token is expected in less than half the time; then fewer
 *                    requests
 *
 * Other routers use the same workers, so what is known of their room is a guess: the worker's last
 * report, and what was sent to it from here. The worker decides. One that refuses for want of room
 * is left alone until it reports again.
 *
 * No state; what is drawn comes from the system, so that nobody learns of one choice what the next
 * will be. */
#include "router/deadline.h"
#include "router/registry.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FV_PREFILL_MAX = 16 }; /* requests that are handed to one prefill worker at a time */

typedef struct fv_constraints {
    Fovea__Inference__V1__Role role;
    uint64_t bytes;        /* of a decode worker's KV, at most */
    uint64_t bytes_least;  /* and at least */
    uint64_t pixels;       /* of images that a prefill worker would decode */
    bool suspect;          /* rather not where another one is */
    bool alone;            /* and by no means */
    const char *exclude;   /* a worker that has just failed; "": none */
    bool exclude_strictly; /* not even when there is no other */
    /* When nobody else can: the one whose rest (router/breaker.h) ends first, before it has. */
    bool wake;
    double now_s;
    /* Prefill: what there is to do, for workers that are not alike. NULL: it does not matter. */
    const fv_estimate *estimate;
    const fv_work *work;
} fv_constraints;

/* Has it room for what is wished for? Bytes are a bound, and may be above all that there is: then
 * the least that they can be counts; and pixels may be, where none wait. Whether it can be done is
 * the worker's own word, which knows the exact number. */
bool fv_registered_worker_has_room(const fv_registered_worker *w,
                                   const fv_constraints *constraints);

/* A worker that is ready and has room; NULL when there is none now. */
fv_registered_worker *fv_balance(const fv_registry *m, const fv_constraints *constraints);

/* Where the first request of the queue waits for room when no decode worker has any, so that the
 * worker knows how old it is: requests of other routers do not overtake it there
 * (decode-worker/schedule/opens.h). The one that is least full, and where none of ours waits yet;
 * NULL when there is none such. */
fv_registered_worker *fv_balance_to_wait(const fv_registry *m, const fv_constraints *constraints);

/* The largest KV that a worker of this role says it has; 0: there is none, or one does not say. */
uint64_t fv_choose_largest(const fv_registry *m, Fovea__Inference__V1__Role role);

/* Is there anybody at all? Room does not matter here. */
typedef enum fv_availability {
    FV_AVAILABILITY_NONE = 0, /* no worker of this role is ready */
    FV_AVAILABILITY_RESTING,  /* all that are have failed lately */
    FV_AVAILABILITY_SOME,
} fv_availability;
fv_availability fv_balance_availability(const fv_registry *m, Fovea__Inference__V1__Role role,
                                        double now_s);

#ifdef __cplusplus
}
#endif
#endif
