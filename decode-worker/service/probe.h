#ifndef FOVEA_DECODE_WORKER_SERVICE_PROBE_H
#define FOVEA_DECODE_WORKER_SERVICE_PROBE_H

/* PROBE: a request of the worker's own, one token long, on the path of every request: batch, network and
 * sampling. For common/liveness.h. On the computing thread. */
#include "decode-worker/schedule/batch.h"
#include "model/engine.h"

/* Runs one step of one row. The batch must be empty, and is empty again afterwards. `pool` is not the
 * requests' pool: that may be full without a fault, and the probe's bytes must not count there. Fails
 * as a step does, and with FV_EDATA if a logit is not finite. */
fv_status fv_probe(const fv_engine *e, fv_kv_pool *pool, fv_batch *batch);

#endif
