#ifndef FOVEA_DECODE_WORKER_SCHEDULE_OPENS_H
#define FOVEA_DECODE_WORKER_SCHEDULE_OPENS_H

/* OPENS: the order in which requests get memory when there is not enough for all. An Open that
 * finds none waits here, and the oldest request is served first: a younger one that would fit does
 * not overtake it, so small requests cannot starve a large one, whichever routers they come from.
 *
 *   ask --memory, and no older one waits--> resolved: granted
 *    |
 *    '--> WAITING --memory, and it is the oldest--> resolved: granted
 *            |--until_s has passed-------------> resolved: NO_ROOM
 *            '--drop, refuse-------------------> resolved: CLOSED, NO_ROOM
 *
 * A request's age is counted from its arrival at its router; the routers send how long ago that
 * was, so no clocks are compared. A request that would not fit an empty pool is refused at once,
 * and so is one whose tenant has as much as it may: others must not wait for that tenant's
 * answers. Those that wait are bounded in number and in time.
 *
 * The computing thread. */
#include "decode-worker/receive/receive.h"

typedef struct fv_open fv_open;
struct fv_open {
    /* Set by the caller, and the caller's until `resolved` was called. */
    fv_hello hello;       /* its texts likewise */
    double age_s;         /* of the request */
    uint64_t owner_bytes; /* of the pool, that hello.owner may have; 0: no limit */
    double wait_s;        /* maximum time to wait for memory; 0: not at all */
    /* Once: `st` is FV_OK and `grant` is there, or fv_last_error says why not. `o` may be gone
     * after this. */
    void (*resolved)(fv_open *o, fv_status st, const fv_grant *grant);
    /* private */
    fv_open *next;
    fv_decode_plan plan;
    double arrived_s, until_s; /* of this machine's clock */
    uint64_t bytes;
    bool waiting;
};

typedef struct fv_opens {
    fv_receiver *receiver; /* borrowed */
    fv_kv_pool *pool;      /* borrowed; the receiver's */
    uint64_t bytes_max;    /* of the pool; 0: no limit */
    int32_t most;          /* that wait at a time */
    double wait_s_max;
    /* private */
    fv_open *first; /* the oldest request */
    int32_t n;
    uint64_t bytes;    /* that those who wait ask for */
    size_t used_then;  /* of the pool, when the first one last found too little memory */
    int32_t live_then; /* and hand-offs */
    bool tried;        /* it has */
    bool refusing;     /* the worker ends */
} fv_opens;            /* the first five set, the rest zero */

void fv_opens_ask(fv_opens *a, fv_open *o);

/* Cancels it. One that is resolved is fine. */
void fv_opens_drop(fv_opens *a, fv_open *o);

/* Serves waiting requests as far as memory allows; ends those whose time is over. Cheap while
 * no memory was freed. */
void fv_opens_look(fv_opens *a);
double fv_opens_next_s(const fv_opens *a); /* until the next time is over; HUGE_VAL: none waits */

/* Shutdown: refuses all that wait, now and later. */
void fv_opens_refuse(fv_opens *a);

#endif
