#ifndef FOVEA_PREFILL_WORKER_READ_ROWS_H
#define FOVEA_PREFILL_WORKER_READ_ROWS_H

/* READ ROWS: keys or values of a store for methods that look at the numbers themselves. The thread
 * that owns the store. */
#include "model/net/kv.h"

/* All rows of a head's segment as F32 on the host, out [len, D], whatever the store holds. */
fv_status fv_read_rows(fv_backend *be, const fv_kv *kv, int32_t layer, int32_t head,
                       fv_kv_segment seg, bool value, float *out);

#endif
