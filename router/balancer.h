#ifndef FOVEA_ROUTER_BALANCER_H
#define FOVEA_ROUTER_BALANCER_H

/* BALANCER: which worker gets a request. Two are drawn at random and the better one is taken:
 * almost as even as taking the best of all, and slightly outdated reports do not send all requests
 * to the same one (Mitzenmacher, "The Power of Two Choices", 2001).
 *
 *   decode worker    better: a smaller share of its KV would be used; then fewer requests
 *   prefill worker   better: the first token is expected in less than half the time; then fewer
 *                    requests
 *
 * A decode worker is given what it can start soon: as many answers as its batch has slots, and a few that are
 * prefilled meanwhile, of all routers. The others wait here, where their tenants share (router/relay.h). Answers
 * that nobody reads have given their slot away and do not count, up to FV_UNREAD_SLOTS times the
 * slots. A worker that does not say how many slots it has gets any number.
 *
 * Other routers use the same workers, so their free memory is estimated: from the worker's last
 * report, and what was sent to it from here. The worker decides. One that refuses for lack of
 * memory is left alone until it reports again.
 *
 * No state; random numbers come from the system, so that choices cannot be predicted. */
#include "router/deadline.h"
#include "router/registry.h"

enum {
    /* Requests that are handed to one prefill worker at a time; and as many again of those who have none there. */
    FV_PREFILL_MAX = 16,
    /* Of the pixels that may wait at a prefill worker, a small request's are at most a 16th, and an eighth is for
     * small requests alone. */
    FV_PIXELS_SMALL_PART = 16,
    FV_PIXELS_SMALL_ROOM = 8,
    FV_SPARE_SLOTS =
        8, /* answers beyond a decode worker's slots; a quarter of them, where that is more */
    FV_UNREAD_SLOTS = 1, /* they hold memory */
};

typedef struct fv_constraints {
    Fovea__Inference__V1__Role role;
    uint64_t bytes;        /* of a decode worker's KV, at most */
    uint64_t bytes_least;  /* and at least */
    uint64_t pixels;       /* of images that a prefill worker would decode */
    bool suspect;          /* rather not where another one is */
    bool alone;            /* and by no means */
    const char *exclude;   /* a worker that has just failed; "": none */
    bool exclude_strictly; /* not even when there is no other */
    /* If no other can: the one whose backoff (router/breaker.h) ends first, before it has. */
    bool wake;
    /* Also where as many requests are as it can start soon. */
    bool over_slots;
    double now_s;
    /* Prefill: what there is to do, for workers that are not alike. NULL: it does not matter. */
    const fv_estimate *estimate;
    const fv_work *work;
} fv_constraints;

/* Has it enough memory, and slots, for the constraints? Bytes are a bound, and may be above its capacity: then
 * their minimum counts; and pixels may be, if none wait. The worker itself decides, because it
 * knows the exact number. */
bool fv_registered_worker_has_room(const fv_registered_worker *w,
                                   const fv_constraints *constraints);

/* A worker that is ready and has enough memory; NULL when there is none now. */
fv_registered_worker *fv_balance(const fv_fleet *f, const fv_constraints *constraints);

/* Where the first request of the queue waits for memory when no decode worker has enough, so that
 * the worker knows its age: requests of other routers do not overtake it there
 * (decode-worker/schedule/opens.h). The one that is least full, and where none of ours waits yet;
 * NULL when there is none. */
fv_registered_worker *fv_balance_to_wait(const fv_fleet *f, const fv_constraints *constraints);

/* The largest KV that a worker of this role says it has; 0: there is none, or one does not say. */
uint64_t fv_choose_largest(const fv_fleet *f, Fovea__Inference__V1__Role role);

/* Is there any worker at all? Memory does not matter here. */
typedef enum fv_availability {
    FV_AVAILABILITY_NONE = 0, /* no worker of this role is ready */
    FV_AVAILABILITY_RESTING,  /* all that are have failed lately */
    FV_AVAILABILITY_SOME,
} fv_availability;
fv_availability fv_balance_availability(const fv_fleet *f, Fovea__Inference__V1__Role role,
                                        double now_s);

#endif
