#ifndef FOVEA_SERVING_DAEMON_H
#define FOVEA_SERVING_DAEMON_H

/* DAEMON: the common part of the server programs: a loop, a bridge, listeners, health, reflection,
 * signals, and shutdown in the right order.
 *
 *   fv_daemon_open                    loop, bridge, signals
 *   (open what needs the bridge)
 *   fv_daemon_serve                   services + health (+ reflection); prints addresses on stdout
 *        hooks.on_health              when the first probe has succeeded; see hooks.signs
 *   fv_daemon_run                     until SIGTERM, SIGINT or fv_daemon_drain; then
 *        health: NOT_SERVING                        nothing else for hooks.linger_ms, so that
 *                                                   load balancers send new calls elsewhere
 *        hooks.drain, for hooks.refuse_ms           refuses new work, notifies its senders
 *        listeners that `leave_early` stop          callers are told to go (GOAWAY), the address is
 *        hooks.left                                 free for another program
 *        until hooks.idle, at most grace_ms         running work continues, with the calls it needs
 *        servers stop                               one after the other; then calls are cancelled
 *        hooks.stopped                              closes what needs the bridge,
 *        fv_daemon_end                              and says that this is done
 *        bridge closes, the loop ends, fv_daemon_run returns
 *   fv_daemon_close
 *
 * While the daemon runs, unused memory returns to the system (common/heap.h), with --metrics metrics are
 * served (telemetry/scrape/scrape.h), and with --otlp spans are sent (telemetry/otlp/spans.h).
 *
 * When the daemon listens, it prints a line per address on stdout, for the program that started it; the
 * last one is "listening on HOST:PORT". Everything else goes to the log. Loop thread. */
#include "auth/fleet_name.h"
#include "common/liveness.h"
#include "options/programs.h"
#include "rpc/server.h"
#include "serving/peer.h"

typedef struct fv_daemon_hooks {
    void *user;
    bool guest;        /* not a member of a fleet: has the plain options, and no gRPC services */
    int32_t linger_ms; /* before draining, reports not ready but still takes requests */
    /* The linger time begins: report not ready. gRPC health does so by itself. May be NULL. */
    void (*linger)(void *user);
    /* Shutdown begins: refuse new work and tell its senders. NULL: nothing to do. */
    void (*drain)(void *user);
    /* Listeners that leave early (below) keep listening for this time and return UNAVAILABLE. A
     * call that arrives at the moment of leaving ends with CANCELLED, which gRPC decides and
     * clients do not retry: after this time there should be no such calls. */
    int32_t refuse_ms;
    void (*left)(void *user); /* those listeners are closed. May be NULL */
    /* Polled while draining: whether the running work is over. NULL: the daemon waits for calls
     * only. */
    bool (*idle)(void *user);
    /* No call runs any more. Close channels, the computing thread and handles on the loop; then call
     * fv_daemon_end. NULL: there is nothing to close, and the daemon ends by itself. */
    void (*stopped)(void *user);
    /* Returns the computing thread's counters, from which common/liveness.h judges its health: all
     * services are SERVING while it is healthy. NULL: they are SERVING from the start, until the program
     * says otherwise. A program with `signs` has the options of a worker. */
    fv_vital_signs (*signs)(void *user);
    /* The health has changed; the first time, the program can take requests. Not called while
     * draining. May be NULL. */
    void (*on_health)(void *user, bool healthy);
    unsigned metrics; /* FV_DAEMON_ROUTER ...: the set of metrics (telemetry/metrics.h) */
    double sample;    /* share of requests without a trace that get one */
    /* Sets metrics that are computed from the program's state; called a few times a second with
     * --metrics. */
    void (*measure)(void *user);
    /* signs.lost: the process can do no more work and must end. Called once; NULL: ignored. */
    void (*on_lost)(void *user, const char *why);
} fv_daemon_hooks;

typedef struct fv_daemon fv_daemon; /* opaque */

/* Reads "log" from the options and opens loop and bridge. `o` is borrowed. */
fv_status fv_daemon_open(const fv_options *o, const fv_daemon_hooks *hooks, fv_daemon **out);

fv_bridge *fv_daemon_bridge(const fv_daemon *d);
/* The TLS for fleet members; a guest's is for its clients. NULL: no TLS. */
fv_tls *fv_daemon_tls(const fv_daemon *d);

/* An address to serve on, for callers of one kind. Each has a gRPC server of its own: limits such
 * as a memory quota belong to a server, and those of one listener must not end another's
 * connections. */
typedef struct fv_daemon_listener {
    const char *option;             /* the option with the address, such as "listen" */
    const char *offers;             /* the option with the standard services, such as "services" */
    const char *words;              /* on stdout before the address, such as "listening on" */
    const fv_rpc_service *services; /* [n_service]; copied, their tables are borrowed */
    int32_t n_service;
    bool clients;         /* for clients, not for members of the fleet (serving/peer.h) */
    bool leave_early;     /* running work needs no new calls here: closes once the program drains,
                           * while its calls continue */
    fv_rpc_limits limits; /* of its peers; {0}: suitable for members of a fleet */
} fv_daemon_listener;

/* The first listener's option is --listen. */
enum { FV_DAEMON_LISTENERS_MAX = 2 };

/* Opens the listeners, and one for health checks only at --health-listen. Servers stop in the order of the list,
 * and open in the opposite order. If it fails, shutdown has begun: fv_daemon_run closes everything through the
 * hooks, and returns. */
fv_status fv_daemon_serve(fv_daemon *d, const fv_daemon_listener *listeners, int32_t n);

/* Serves metrics and sends spans according to the options; fv_daemon_serve calls it for a member of a fleet.
 * `instance` names the process in spans. */
fv_status fv_daemon_observe(fv_daemon *d, const char *instance);

/* "HOST:PORT" of the first listener, with the port that was bound; after serve. */
const char *fv_daemon_address(const fv_daemon *d);

/* Sets the health of a service ("fovea.inference.v1.Inference") or of the whole program (""), without
 * hooks.signs. After serve, which sets all to SERVING; once draining, all stay NOT_SERVING. */
fv_status fv_daemon_set_health(fv_daemon *d, const char *service, bool serving);

/* Runs until the shutdown is complete. */
void fv_daemon_run(fv_daemon *d);

/* Begins the shutdown, as SIGTERM does; grace_ms below 0: the option's. Calling it again is fine. */
void fv_daemon_drain(fv_daemon *d, int32_t grace_ms);

void fv_daemon_end(fv_daemon *d); /* see hooks.stopped */

/* Closes the daemon, after or instead of fv_daemon_run; everything that needs the bridge is closed. NULL is fine. */
void fv_daemon_close(fv_daemon *d);

/* Gives a worker's name in its fleet: --name, or `role` and the address that it serves on. FV_EINVAL: not a
 * valid name (auth/fleet_name.h). After serve. */
fv_status fv_daemon_name(const fv_daemon *d, const char *role, char out[FV_WORKER_NAME_MAX + 1]);

/* The main function of a server program (FV_PROGRAM_ROUTER ...): reads the command line and calls `run`, or prints
 * help or version; returns the exit code. A failure prints "<name>: <fv_last_error>" on stderr and is 1, or 2 for
 * FV_EINVAL, such as a wrong command line. */
int fv_daemon_main(unsigned bit, fv_status (*run)(const fv_options *o), int argc, char **argv);

#endif
