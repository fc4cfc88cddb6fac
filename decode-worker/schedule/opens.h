#ifndef FOVEA_DECODE_WORKER_SCHEDULE_OPENS_H
#define FOVEA_DECODE_WORKER_SCHEDULE_OPENS_H

/* OPENS: the order in which requests get KV memory when there is not enough for all. An Open that
 * finds too little waits here. The oldest request is served first: a younger one that would fit does
 * not overtake it, so small requests cannot starve a large one, whichever routers they come from.
 *
 *   ask --memory, and no older one waits--> resolved: granted
 *    |
 *    '--> WAITING --memory, and it is the oldest--> resolved: granted
 *            |--until_s has passed-------------> resolved: NO_ROOM
 *            '--drop, refuse-------------------> resolved: CLOSED, NO_ROOM
 *
 * Memory is reserved for as many tokens as the answer is expected to have (lengths.h); memory.h says what happens
 * when it has more.
 *
 * A request whose prompt is on its way here with another one is not served before that has come, because then it need not be
 * sent again (fv_receiver_brings): it is BEHIND, for behind_s at most, and holds up nobody meanwhile.
 *
 * A request's age is counted from its arrival at its router; the routers send how long ago that
 * was, so no clocks are compared. A request that would not fit an empty pool is refused at once,
 * and so is one whose tenant has reached its limit: others must not wait for that tenant's
 * answers. The number of waiting requests and the time that each waits are bounded.
 *
 * For the computing thread. */
#include "decode-worker/receive/receive.h"
#include "decode-worker/schedule/lengths.h"

typedef struct fv_open fv_open;
struct fv_open {
    /* Set by the caller, who owns it all until `resolved` is called. */
    fv_hello hello;       /* its strings are borrowed until then */
    double age_s;         /* time since the request reached its router */
    uint64_t owner_bytes; /* bytes of the pool that hello.owner may have; 0: no limit */
    bool reserve_all;     /* reserves memory for all tokens at once */
    bool open_ended;      /* where hello.max_tokens tokens never fit, the answer may have fewer */
    int32_t n_replay;     /* tokens of the answer that are part of the prompt */
    uint64_t
        bytes_replay; /* the prefill worker's pool, which has to hold a preempted answer; 0: no limit */
    double wait_s; /* maximum time to wait for memory; 0: not at all */
    /* Called once, with FV_OK and a grant, or with a failure that fv_last_error explains. `o` may be
     * gone afterwards. */
    void (*resolved)(fv_open *o, fv_status st, const fv_grant *grant);
    /* private */
    fv_open *next;
    fv_decode_plan plan;
    double arrived_s, until_s; /* by fv_clock_s */
    uint64_t bytes;            /* that are reserved; also for the caller when it is resolved */
    bool waiting;
    double behind_until_s; /* it is BEHIND, until then at most; 0: it is not */
};

typedef struct fv_opens {
    fv_receiver *receiver; /* borrowed */
    fv_kv_pool *pool;      /* borrowed; the receiver's */
    uint64_t bytes_max;    /* limit of the pool; 0: none */
    int32_t most;          /* maximum number of waiting requests */
    double wait_s_max;
    const fv_lengths *lengths; /* borrowed; how much to reserve at first; NULL: for all tokens */
    double behind_s;           /* longest time BEHIND another request; 0: none is */
    bool shut;                 /* nobody gets memory: answers need it (fv_scheduler_is_short) */
    /* private */
    fv_open *behind; /* in the order in which they came */
    int32_t n_behind;
    fv_open *first; /* the oldest request */
    int32_t n;
    uint64_t bytes; /* sum of what waiting requests ask for */
    size_t
        used_then; /* bytes of the pool that requests held when `first` last found too little memory */
    int32_t live_then; /* and live hand-offs then */
    bool tried;        /* `first` has found too little: the two fields above are valid */
    bool refusing;     /* the worker is shutting down: nobody waits */
    bool ended;        /* nobody gets memory */
} fv_opens;            /* the caller sets the public fields, the rest are zero */

/* Asks for memory; may call `resolved` before it returns. */
void fv_opens_ask(fv_opens *a, fv_open *o);

/* Cancels a waiting Open; does nothing if it is resolved. */
void fv_opens_drop(fv_opens *a, fv_open *o);

/* Serves waiting requests as far as memory allows; refuses those whose time is over. Cheap while
 * no memory was freed. */
void fv_opens_look(fv_opens *a);
/* Seconds until the next request's time is over; HUGE_VAL: none waits. */
double fv_opens_next_s(const fv_opens *a);

/* Refuses all waiting requests, and from now on those that would wait: the worker is shutting down. */
void fv_opens_refuse(fv_opens *a);
/* Refuses everything from now on: the worker has nothing in hand and is about to stop. */
void fv_opens_end(fv_opens *a);

#endif
