#ifndef FOVEA_DECODE_WORKER_SCHEDULE_RERUN_H
#define FOVEA_DECODE_WORKER_SCHEDULE_RERUN_H

/* RUNS THE PROMPT'S LAST ROW AGAIN: takes it out of a store that is ready for decoding, and runs it as
 * the first row of decoding. The first token is then computed from the KV as it was selected, evicted
 * and compressed, and not from the prefill, which still had all of it. This is to selection and
 * eviction what first=packed is to the pack stage.
 *
 *   take out --> the evict stage evicts --> the row runs --> put back
 *
 * The row must be text and raw. For the thread that owns the store. */
#include "common/arena.h"
#include "kv/kv.h"

typedef struct fv_rerun {
    int32_t pos;    /* the row's position in the prompt */
    uint8_t *times; /* [N, Hkv] how often a head held it: 0 or 2 are possible where rows were
                     * selected */
    fv_arena arena; /* private */
} fv_rerun;

/* Takes the row at `pos` out of every head. */
fv_status fv_rerun_take_out(fv_rerun *a, fv_kv *kv, int32_t pos);

/* Call after the run, which wrote the row to every head: makes each head hold it as often as before. */
fv_status fv_rerun_put_back(fv_rerun *a, fv_kv *kv);

void fv_rerun_free(fv_rerun *a); /* {0} is fine */

#endif
