#ifndef FOVEA_ROUTER_BALANCER_H
#define FOVEA_ROUTER_BALANCER_H

/* BALANCER: which worker gets a request. Two are drawn at random and the better one is taken:
 * almost as even as taking the best of all, and slightly outdated reports do not send all requests
 * to the same worker (Mitzenmacher, "The Power of Two Choices", 2001).
 *
 *   decode worker    better: a smaller share of its KV would be used; then fewer requests
 *   prefill worker   better: the first token is expected in less than half the time; then fewer
 *                    requests
 *
 * A decode worker is given what it can start soon: as many answers, of all routers, as its batch has slots, and
 * a few that are prefilled meanwhile. Other requests wait here, where their tenants share (router/queue.h).
 * Answers whose clients do not read have given their slot away and do not count, up to FV_UNREAD_SLOTS times the
 * slots. A worker that does not report its slots gets any number.
 *
 * ZONES. Workers of the zone that the constraints name come first. A worker elsewhere gets the request if none of the zone
 * has room, or if it would begin sooner: a decode worker now instead of after another answer, a prefill worker
 * with fewer requests in less than half the time. A router asks for a decode worker of its own zone, and then for a prefill worker of that
 * one's zone, because keys and values are most of what a request moves.
 *
 * WHAT IS KEPT. A worker that is thought to keep a beginning of the prompt is taken instead of the better one of two if it
 * is about as early: a prefill worker by the predicted time to the first token, which is that of the work ahead of it and of
 * what is left to compute, and may be half as long again as the other one's, for which the time counts that computing has
 * taken before; a decode worker, which saves the transfer, if it can begin at once and has not many more answers than twice
 * the other one's. So what is kept draws requests, and a worker with many of them passes the next one on to another, which then keeps it, too. Of the workers
 * of the constraints' zone only.
 *
 * Other routers use the same workers, so a worker's free memory is estimated from its last report
 * and from what this router has sent it. The worker decides. A worker that refuses for lack of
 * memory gets nothing until it reports again.
 *
 * No state; random numbers come from the system, so that choices cannot be predicted. */
#include "router/deadline.h"
#include "router/registry.h"

/* A worker that is thought to keep a beginning of the request's prompt (router/kept.h). */
enum { FV_KEPT_MAX = 16 };
typedef struct fv_kept {
    fv_registered_worker *worker;
    uint32_t tokens; /* of the prompt */
    double seconds;  /* that computing them took; 0: not known */
    bool guess;      /* the worker has not reported it */
    int32_t end;     /* which of the request's beginnings it is, from 0 */
    fv_work left;    /* the request's work besides */
} fv_kept;

enum {
    /* Requests that are handed to one prefill worker at a time; twice as many if the tenant has none at any. */
    FV_PREFILL_MAX = 16,
    /* A request is small if it has at most 1/16 of the pixels that may wait at a prefill worker; 1/8 of those are
     * reserved for small requests. */
    FV_PIXELS_SMALL_PART = 16,
    FV_PIXELS_SMALL_ROOM = 8,
    /* Answers beyond a decode worker's slots; or a quarter of its slots, if that is more. */
    FV_SPARE_SLOTS = 8,
    FV_UNREAD_SLOTS = 1, /* limited because unread answers hold memory */
};

typedef struct fv_constraints {
    Fovea__Inference__V1__Role role;
    uint64_t bytes;        /* of KV at a decode worker, at most */
    uint64_t bytes_least;  /* and at least */
    uint64_t bytes_prompt; /* the prompt's part of bytes_least */
    uint64_t bytes_token;  /* of a token of the answer */
    uint32_t tokens;       /* tokens that the answer may still have */
    bool reserve_all;      /* the worker reserves KV for all of them at once */
    uint64_t pixels;       /* of images that a prefill worker would decode */
    bool suspect;          /* preferably not on a worker that has another suspect */
    bool no_other_suspect; /* never on a worker that has another suspect */
    const char *exclude;   /* a worker that has just failed; "": none */
    bool exclude_strictly; /* not even if there is no other */
    /* If no other worker can: take the one whose backoff (router/breaker.h) ends first, before it ends. */
    bool ignore_backoff;
    /* Also a worker that has as many requests as it can start soon. */
    bool ignore_slots;
    const char *zone; /* whose workers come first; NULL or "": none do */
    double now_s;
    /* Prefill: the work, to compare workers of different speed. NULL: do not compare. */
    const fv_estimate *estimate;
    const fv_work *work;
    const fv_kept *kept; /* [n_kept] of this role; borrowed */
    int32_t n_kept;
    /* private: workers of the zone only, or of others only */
    enum { FV_EVERYWHERE = 0, FV_INSIDE_ZONE, FV_OUTSIDE_ZONE } where;
} fv_constraints;

/* Bytes that the worker would reserve for the request at first, at most. */
uint64_t fv_balance_bytes(const fv_registered_worker *w, const fv_constraints *constraints);

/* Whether the worker has enough memory and slots for the constraints. `bytes` is a bound: if it exceeds the
 * worker's capacity, bytes_least counts. `pixels` may exceed the capacity if none wait. The worker itself
 * decides, because it knows the exact numbers. */
bool fv_registered_worker_has_room(const fv_registered_worker *w,
                                   const fv_constraints *constraints);

/* Chooses a worker that is ready and has room; NULL: there is none now. */
fv_registered_worker *fv_balance(const fv_fleet *f, const fv_constraints *constraints);

/* Chooses where the first request of the queue waits for memory if no decode worker has enough, so that
 * the worker knows its age: requests of other routers do not overtake it there
 * (decode-worker/schedule/opens.h). Takes the least full worker where none of ours waits yet;
 * NULL: none. */
fv_registered_worker *fv_balance_to_wait(const fv_fleet *f, const fv_constraints *constraints);

/* The largest KV capacity of a worker of this role; 0: there is no worker, or one does not report it. */
uint64_t fv_balance_largest_capacity(const fv_fleet *f, Fovea__Inference__V1__Role role);

/* Whether there is any worker, regardless of its memory. */
typedef enum fv_availability {
    FV_AVAILABILITY_NONE = 0, /* no worker of this role is ready */
    FV_AVAILABILITY_RESTING,  /* all ready workers have failed lately and rest (router/breaker.h) */
    FV_AVAILABILITY_SOME,
} fv_availability;
fv_availability fv_balance_availability(const fv_fleet *f, Fovea__Inference__V1__Role role,
                                        double now_s);

#endif
