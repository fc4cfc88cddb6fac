#ifndef FOVEA_ROUTER_FAILURE_H
#define FOVEA_ROUTER_FAILURE_H

/* FAILURE: why an attempt at a request failed, and what follows. Most failures of workers are not the
 * request's fault: another pair continues after the tokens that the client has received. Pure functions. */
#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "handoff/refusal.h"

typedef struct fv_failure {
    fv_status status; /* its sentence is in fv_last_error */
    fv_origin origin;
    const char *p, *d;         /* names of the attempt's workers; "": none. Borrowed */
    bool avoid_p, avoid_d;     /* the next attempt avoids this worker */
    bool worked_p, worked_d;   /* were at work on the request, not on others */
    fv_refusal refusal;        /* why a decode worker refused the hand-off, if it did */
    uint64_t refuser_capacity; /* FV_REFUSED_TOO_LARGE: that worker's bytes of KV */
} fv_failure;

typedef enum fv_remedy {
    FV_TELL = 1, /* tell the client: the request would fail the same way elsewhere */
    FV_WAIT,     /* back into the queue; that is no failure */
    FV_REPLAY,   /* back into the queue, up to a limit; the failed workers are avoided */
    FV_COUNTED,  /* the same, and it counts against the worker (router/breaker.h) */
} fv_remedy;

/* Returns what a failure calls for; st is not FV_OK. */
fv_remedy fv_failure_remedy(fv_status st, fv_origin origin);

#endif
