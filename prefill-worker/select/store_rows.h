#ifndef FOVEA_PREFILL_WORKER_SELECT_STORE_ROWS_H
#define FOVEA_PREFILL_WORKER_SELECT_STORE_ROWS_H

/* STORE ROWS: keys and values of a store for methods that look at the numbers themselves, or change
 * them. The thread that owns the store. */
#include "model/net/kv.h"

/* All rows of a head's segment as F32 on the host, out [len, D], whatever the store holds. */
fv_status fv_read_rows(fv_backend *be, const fv_kv *kv, int32_t layer, int32_t head,
                       fv_kv_segment seg, bool value, float *out);

/* Other keys and values [n, D] for rows at[n] of a head's segment, narrowed to what it holds. Not
 * where keys are borrowed. */
fv_status fv_write_rows(fv_backend *be, fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                        const int32_t *at, int32_t n, const float *k, const float *v);

#endif
