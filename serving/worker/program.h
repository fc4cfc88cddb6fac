#ifndef FOVEA_SERVING_WORKER_PROGRAM_H
#define FOVEA_SERVING_WORKER_PROGRAM_H

/* WORKER PROGRAM: the common part of fovea-prefill and fovea-decode: the daemon, the engine, the
 * registration in the fleet, and the order of shutdown.
 *
 *     fv_daemon_open -> kind->open -> listen -> first probe: join the routers
 *     SIGTERM or a router's order: kind->drain -> (kind->idle) -> leave the routers -> kind->close
 *
 * Loop thread. */
#include "model/engine.h"
#include "serving/worker/registration.h"
#include "transport/peer_option.h"

typedef struct fv_worker_program fv_worker_program;

enum { FV_WORKER_SERVICES_MAX = 2 };

/* The functions of a kind of worker; `worker` is p->worker, which `open` has set. */
typedef struct fv_worker_kind {
    const char *role; /* in its default name */
    Fovea__Inference__V1__Role fleet_role;
    bool vision;      /* the engine needs the vision tower */
    unsigned metrics; /* FV_DAEMON_PREFILL or FV_DAEMON_DECODE */
    /* Opens the worker into p->worker; the daemon, the engine and `pairs` are open. */
    fv_status (*open)(fv_worker_program *p);
    int32_t (*services)(void *worker, fv_rpc_service out[FV_WORKER_SERVICES_MAX]);
    fv_pulse *(*pulse)(void *worker);
    fv_kept_log *(*kept)(void *worker);
    fv_vital_signs (*signs)(void *worker);
    void (*load)(void *worker, Fovea__Inference__V1__Load *load); /* fills an empty one */
    void (*record)(void *worker); /* sets metrics beyond the load; NULL: there are none */
    /* Sets the worker's own limits, in addition to the checkpoint's. */
    void (*limits)(const fv_options *o, Fovea__Inference__V1__Limits *limits);
    void (*drain)(void *worker); /* NULL: only the routers need to be told */
    bool (*idle)(void *worker);  /* NULL: idle when no call runs */
    void (*close)(void *worker, void (*closed)(void *user), void *user);
} fv_worker_kind;

struct fv_worker_program {
    const fv_worker_kind *kind;
    const fv_options *o;
    fv_registration place;
    fv_daemon *daemon;
    fv_engine engine;
    fv_peer_settings pairs;
    char name[FV_WORKER_NAME_MAX + 1];
    void *worker;   /* NULL: not open */
    fv_arena arena; /* owns the introduction */
};

/* Sends the next report soon: for on_change in a worker's options, with the program as `user`. */
void fv_worker_program_touch(void *program);

/* Runs a worker until its shutdown is complete: for fv_daemon_program.run. */
fv_status fv_worker_run(const fv_options *o, const fv_worker_kind *kind);

#endif
