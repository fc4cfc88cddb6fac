#ifndef FOVEA_DECODE_WORKER_SERVICE_PROBE_H
#define FOVEA_DECODE_WORKER_SERVICE_PROBE_H

/* PROBE: a request of the worker's own, one token long, by the way that everybody's tokens go: the
 * network, the batch, the choice of a token. For common/liveness.h. The computing thread. */
#include "decode-worker/schedule/batch.h"
#include "model/engine.h"

/* One step of one row. The batch must be empty, and is so again. `pool` is not the one of the
 * requests: a pool that is full of them is no sign of illness, and their bytes are counted. Fails
 * as a step does, and with FV_EDATA when a logit is not finite. */
fv_status fv_probe(const fv_engine *e, fv_kv_pool *pool, fv_batch *batch);

#endif
