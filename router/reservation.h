#ifndef FOVEA_ROUTER_RESERVATION_H
#define FOVEA_ROUTER_RESERVATION_H

/* PLACE: what one attempt holds of one worker, and its word on how the worker did. Loop thread. */
#include "auth/fleet_name.h"
#include "router/registry.h"

/* What a request takes of a worker. */
typedef struct fv_portion {
    uint64_t bytes;  /* of its KV */
    uint64_t pixels; /* of images that it has yet to decode */
    bool suspect;    /* of being why workers are lost */
} fv_portion;

typedef struct fv_reservation {
    fv_registered_worker *worker; /* borrowed; NULL: released, or the worker is gone */
    fv_portion of;
    uint64_t prompt;       /* tokens that it is to prefill for us yet */
    uint64_t ahead;        /* when it was taken: these, and those of requests before us */
    uint64_t pixels_ahead; /* likewise; 0: it brings no images, and does not wait for others' */
    double taken_s;
    /* As the worker reports (router/watch.c): is it working on the request, or on others while this
     * one waits; how far it is, and since when. */
    bool works, others;
    uint64_t work;
    double moved_s;
    bool trial;                        /* of its breaker */
    bool waits;                        /* it has not enough memory yet, as far as is known here */
    char name[FV_WORKER_NAME_MAX + 1]; /* stays when the reservation is released; "" never made */
} fv_reservation;

typedef enum fv_outcome {
    FV_OUTCOME_UNKNOWN = 0, /* it was broken off from here */
    FV_OUTCOME_WORKED,
    FV_OUTCOME_FAILED,
} fv_outcome;

void fv_reservation_take(fv_reservation *x, fv_registered_worker *w, const fv_portion *of,
                         double now_s);
void fv_reservation_wait(fv_reservation *x); /* made without free memory; until it is resized */
void fv_reservation_full(
    fv_reservation *x); /* the worker lacks memory: it is left alone until it reports */
void fv_reservation_resize(fv_reservation *x, uint64_t bytes); /* now the exact number is known */
/* A prompt of so many tokens is to be prefilled there; and it was, or will not be. */
void fv_reservation_queue(fv_reservation *x, uint64_t prompt);
void fv_reservation_prefilled(fv_reservation *x);
void fv_reservation_decoded(fv_reservation *x); /* its images are; again is fine */
/* Again, or never taken, is fine. */
void fv_reservation_give(fv_reservation *x, fv_outcome outcome, double now_s);

#endif
