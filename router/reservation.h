#ifndef FOVEA_ROUTER_RESERVATION_H
#define FOVEA_ROUTER_RESERVATION_H

/* RESERVATION: what an attempt reserves at a worker, and how the worker did in the end. Loop thread. */
#include "auth/fleet_name.h"
#include "router/registry.h"

/* The resources that a request needs at a worker. */
typedef struct fv_worker_need {
    uint64_t bytes;  /* of KV */
    uint64_t pixels; /* of images that the worker has yet to decode */
    bool suspect;    /* the request may be why workers are lost (router/blame.c) */
} fv_worker_need;

typedef struct fv_reservation {
    fv_registered_worker *worker; /* borrowed; NULL: released, or the worker is gone */
    fv_worker_need need;
    uint64_t prompt; /* prompt tokens that the worker has yet to prefill for us */
    int32_t
        n_ahead; /* at the start: our requests there whose prefill is not over, and others; this one, too */
    uint64_t prompt_ahead; /* likewise: our prompt tokens, and those of requests before us */
    uint64_t pixels_ahead; /* likewise; 0: without images, it does not wait for others' images */
    double taken_s;
    /* From the worker's reports (router/watch.c): whether it works on this request, or on others while
     * this one waits; the count of its progress, and when that last changed. */
    bool is_working, works_on_others;
    uint64_t work;
    double moved_s;
    bool trial;                        /* this call is the trial of the worker's breaker */
    bool waits;                        /* the worker has not enough memory yet, as far as we know */
    char name[FV_WORKER_NAME_MAX + 1]; /* the worker's; stays after the release. "": never taken */
} fv_reservation;

typedef enum fv_outcome {
    FV_OUTCOME_UNKNOWN = 0, /* the router gave it up */
    FV_OUTCOME_WORKED,
    FV_OUTCOME_FAILED,
} fv_outcome;

void fv_reservation_take(fv_reservation *x, fv_registered_worker *w, const fv_worker_need *need,
                         double now_s);
/* The worker has no free memory for it yet; ends with resize. */
void fv_reservation_mark_waiting(fv_reservation *x);
/* The worker has refused for lack of memory: it gets no request until it reports. */
void fv_reservation_mark_full(fv_reservation *x);
void fv_reservation_resize(fv_reservation *x, uint64_t bytes); /* when the exact number is known */
/* queue: this many prompt tokens are to be prefilled there. done: they were, or will not be. */
void fv_reservation_queue_prompt(fv_reservation *x, uint64_t prompt);
void fv_reservation_prompt_done(fv_reservation *x);
void fv_reservation_images_decoded(fv_reservation *x); /* repeating it is fine */
/* Releases the reservation; fine if it was released before, or never taken. */
void fv_reservation_give(fv_reservation *x, fv_outcome outcome, double now_s);

#endif
