#ifndef FOVEA_PREFILL_WORKER_PREFILL_H
#define FOVEA_PREFILL_WORKER_PREFILL_H

/* PREFILL: prompts in, filled KV stores and the logits behind each last row out.
 *
 * A ragged batch of prompts runs as one list of rows. The depth is cut into phases at the layers
 * where some plan lets rows leave; inside a phase the list is carried through in chunks of any
 * size. Neither the chunk size nor the other prompts of the batch change a bit of any result. */
#include "model/net/decoder.h"
#include "policy/plan.h"

typedef struct fv_prefill_request {
    int32_t n;           /* prompt rows, images expanded */
    const int32_t *ids;  /* [n]; ignored at visual rows */
    const uint8_t *seg;  /* [n] fv_kv_segment */
    fv_tensor embeds;    /* [visual rows, d] F32 on the device, in prompt order */
    const fv_plan *plan; /* made for this prompt */
    fv_kv *kv;           /* open and empty; filled */
} fv_prefill_request;

/* Runs n requests; logits [n, vocab] on the host. chunk: rows per pass, 0 = all at once. Errors
 * lose the whole batch: close its stores. Logits may be anything the network makes, NaN too:
 * whoever chooses a token looks. */
fv_status fv_prefill_run(fv_decoder *dec, const fv_prefill_request *req, int32_t n, int32_t chunk,
                         float *logits);

#endif
