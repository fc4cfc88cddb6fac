#ifndef FOVEA_DECODE_WORKER_SCHEDULE_RERUN_H
#define FOVEA_DECODE_WORKER_SCHEDULE_RERUN_H

/* THE LAST ROW AGAIN: the prompt's last row leaves a store that is ready to be decoded from, and
 * runs as the first row of decoding does. So the first token comes from what is held: fewer rows,
 * factors or codes, and not from the prefill, in which everything was still there. This is to
 * selection and eviction what first=packed is to the pack stage.
 *
 *   take out --> rows leave by the evict stage --> the row runs --> put back
 *
 * The row must be text and raw. The thread that owns the store. */
#include "common/arena.h"
#include "model/net/kv.h"

typedef struct fv_rerun {
    int32_t pos;    /* of the row in the prompt */
    uint8_t *times; /* [N, Hkv] how often a head held it: not at all, or twice, where rows were
                     * selected */
    fv_arena arena; /* private */
} fv_rerun;

/* Takes the row at `pos` out of every head. */
fv_status fv_rerun_take_out(fv_rerun *a, fv_kv *kv, int32_t pos);

/* After its run, which wrote it to every head: each holds it as often as before. */
fv_status fv_rerun_put_back(fv_rerun *a, fv_kv *kv);

void fv_rerun_free(fv_rerun *a); /* {0} is fine */

#endif
