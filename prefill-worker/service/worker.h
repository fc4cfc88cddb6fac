#ifndef FOVEA_PREFILL_WORKER_SERVICE_WORKER_H
#define FOVEA_PREFILL_WORKER_SERVICE_WORKER_H

/* THE PREFILL WORKER as a service: fovea.handoff.v1.Prefill around the jobs of
 * prefill-worker/job/job.h.
 *
 *   [loop thread]  worker.c            call -> task; events of the task -> the call
 *        |  a task is one request       ^
 *        v                              | Begun, FirstToken, HandedOff, or the failure
 *   [computing thread]  run.c, batch.c   prepare -> (grant) -> encode -> prefill -> sample -> export
 *        |                                           ^                          '--> export, by group
 *        v                                           |
 *   [reading lines]     reading.c, images.c   images, one at a time on each line: decode, preprocess
 *
 * A request is prefilled when the decode worker has granted memory, together with the others that
 * have theirs by then. Nothing is decoded or computed for one that is refused, except for images
 * whose number of tokens determines the memory (the condense stage). A decoded image is reduced to
 * its pixel values before the line decodes the next one, of whatever request: images take the memory of
 * a large and a small one that are decoded, and the pixel values of requests about to be prefilled.
 *
 * Tenants share each thread by weight and cost (fair.h), in units of an image or a batch, so one that
 * sends much does not keep another waiting for more than the unit that runs. Layers are sent when
 * they are final, while later ones are computed; the last ones after the first token. When a call
 * ends early, for whatever reason, everything of it is freed, the grant too.
 *
 * Loop thread. */
#include "common/liveness.h"
#include "common/pulse.h"
#include "inference.pb-c.h"
#include "model/engine.h"
#include "rpc/server.h"
#include "serving/caller.h"
#include "transport/peer_out.h"

enum { FV_PREFILL_BATCH_MAX = 64 };

typedef struct fv_prefill_worker_options {
    fv_bridge *bridge;       /* borrowed */
    const fv_engine *engine; /* borrowed, for the computing thread until `closed` */
    fv_callers *callers;     /* who may call; borrowed */
    fv_tls *tls;             /* of calls to decode workers; borrowed; NULL: plain text */
    const char *name;        /* in reports; borrowed */
    fv_dtype kv_dtype;
    size_t kv_bytes;    /* limit of the KV pool; 0: none */
    size_t cache_bytes; /* limit of the cache of encoded images; 0: there is none */
    int64_t pixels;     /* of images that wait here to be decoded; more are FV_EBUSY; 0: no limit */
    int64_t pixels_request; /* of all images of a request; more are FV_EINVAL; 0: no limit */
    int32_t queue;         /* requests here at a time, those that run included; more are FV_EBUSY */
    int32_t batch;         /* requests prefilled together, 1..FV_PREFILL_BATCH_MAX */
    int32_t chunk;         /* rows per pass; 0: all at once */
    int32_t export_layers; /* that leave together, while later ones are computed; 0: an eighth */
    fv_peers_options pairs; /* bridge and device are filled in; without ops there are none */
    double probe_s;         /* without a request for so long, it runs a tiny one itself; 0: never */
    /* Requests have come or gone. May be NULL. */
    void (*on_change)(void *user);
    void *user;
} fv_prefill_worker_options;

typedef struct fv_prefill_worker fv_prefill_worker; /* opaque */

/* Starts the computing thread. */
fv_status fv_prefill_worker_open(const fv_prefill_worker_options *opt, fv_prefill_worker **out);

/* No call runs any more (its server has stopped). Ends what may still be computed for calls that
 * were cancelled; `closed` runs on the loop thread when all is over, and `w` is freed then. NULL is
 * fine: `closed` runs at once. */
void fv_prefill_worker_close(fv_prefill_worker *w, void (*closed)(void *user), void *user);

fv_rpc_service fv_prefill_worker_service(fv_prefill_worker *w);

/* What it is doing now. */
void fv_prefill_worker_load(const fv_prefill_worker *w, Fovea__Inference__V1__Load *load);

/* The requests that it works on now: prepares, reads images of, prefills. Until `closed`. */
fv_pulse *fv_prefill_worker_pulse(const fv_prefill_worker *w);

/* Batches that made tokens, those that failed, and layers. */
fv_vital_signs fv_prefill_worker_signs(const fv_prefill_worker *w);

#endif
