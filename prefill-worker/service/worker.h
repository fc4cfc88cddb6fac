#ifndef FOVEA_PREFILL_WORKER_SERVICE_WORKER_H
#define FOVEA_PREFILL_WORKER_SERVICE_WORKER_H

/* PREFILL WORKER: the service fovea.handoff.v1.Prefill over the jobs of prefill-worker/job/job.h.
 *
 *   [loop thread]  worker.c            call -> task; events of the task -> the call
 *        |  a task is one request       ^
 *        v                              | Begun, FirstToken, HandedOff, or the failure
 *   [computing thread]  run.c, batch.c   prepare -> (grant) -> encode -> prefill -> sample -> export
 *        |                                           ^                          '--> export, by group
 *        v                                           |
 *   [reading lines]     reading.c, task_images.c images, one at a time on each line: decode, preprocess
 *
 * A request is prefilled when the decode worker has granted memory, together with the others that
 * have theirs by then. Nothing is decoded or computed for a refused request, except images
 * whose number of tokens determines the memory (the condense stage). A decoded image is reduced to
 * its pixel values before its line decodes the next one, of any request: images take the memory of
 * one large and one small decoded image, and of the pixel values of requests about to be prefilled.
 *
 * Tenants share each thread by weight and cost (fair.h), in units of an image or a batch, so a tenant that
 * sends much does not keep another waiting for more than the unit that runs. Layers are sent when
 * they are final, while later ones are computed; the last ones after the first token. When a call
 * ends early, for any reason, everything that it holds is freed, and its grant too.
 *
 * For the loop thread. */
#include "common/liveness.h"
#include "common/pulse.h"
#include "inference.pb-c.h"
#include "kv/cache/kept_log.h"
#include "kv/tier/tier.h"
#include "model/engine.h"
#include "rpc/server.h"
#include "serving/caller.h"
#include "transport/peer_out.h"

enum { FV_PREFILL_BATCH_MAX = 64, FV_PREFILL_TIERS_MAX = 2 };

typedef struct fv_prefill_worker_options {
    fv_bridge *bridge;       /* borrowed */
    const fv_engine *engine; /* borrowed, for the computing thread until `closed` */
    fv_callers *callers;     /* checks who may call; borrowed */
    fv_tls *tls;             /* for calls to decode workers; borrowed; NULL: plain text */
    const char *name;        /* in reports; borrowed */
    fv_dtype kv_dtype;
    size_t kv_bytes;     /* limit of the KV pool; 0: none */
    size_t cache_bytes;  /* limit of the cache of encoded images; 0: no cache */
    size_t prefix_bytes; /* limit of the KV that is kept of prompts; 0: none is */
    /* Keep it longer, in the order in which they are asked; for all threads until `closed`; borrowed. */
    fv_kv_tier *tier[FV_PREFILL_TIERS_MAX];
    int32_t n_tier;
    int64_t pixels; /* limit of pixels that wait to be decoded; more are FV_EBUSY; 0: no limit */
    int64_t pixels_request; /* limit of pixels per request; more are FV_EINVAL; 0: no limit */
    int32_t queue;          /* limit of requests, running ones included; more are FV_EBUSY */
    int32_t batch;          /* requests prefilled together, 1..FV_PREFILL_BATCH_MAX */
    int32_t chunk;          /* rows per pass; 0: all at once */
    int32_t export_layers;  /* layers sent together, while later ones are computed; 0: an eighth */
    fv_peers_options pairs; /* bridge and device are filled in; no ops: no pairs */
    double probe_s; /* seconds without a request before the worker probes itself; 0: never */
    /* Called when requests have come or gone. May be NULL. */
    void (*on_change)(void *user);
    void *user;
} fv_prefill_worker_options;

typedef struct fv_prefill_worker fv_prefill_worker; /* opaque */

/* Opens a worker and starts its threads. */
fv_status fv_prefill_worker_open(const fv_prefill_worker_options *opt, fv_prefill_worker **out);

/* Closes the worker, whose server must have stopped: no call runs. Waits for tasks of cancelled calls,
 * frees `w`, and then runs `closed` on the loop thread. NULL is fine: `closed` runs at once. */
void fv_prefill_worker_close(fv_prefill_worker *w, void (*closed)(void *user), void *user);

fv_rpc_service fv_prefill_worker_service(fv_prefill_worker *w);

/* Fills in the worker's load now. */
void fv_prefill_worker_load(const fv_prefill_worker *w, Fovea__Inference__V1__Load *load);

/* Returns what the worker keeps of prompts, for its routers; valid until `closed`. */
fv_kept_log *fv_prefill_worker_kept(const fv_prefill_worker *w);

/* Returns the list of requests that are being prepared, read or prefilled; valid until `closed`. */
fv_pulse *fv_prefill_worker_pulse(const fv_prefill_worker *w);

/* Returns counts of batches that produced tokens, of failed ones, and of layers. */
fv_vital_signs fv_prefill_worker_signs(const fv_prefill_worker *w);

#endif
