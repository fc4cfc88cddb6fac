#ifndef FOVEA_PREFILL_WORKER_SELECT_STORE_ROWS_H
#define FOVEA_PREFILL_WORKER_SELECT_STORE_ROWS_H

/* STORE ROWS: reads and writes keys and values of a store, for methods that need the numbers themselves.
 * For the thread that owns the store. */
#include "kv/kv.h"

/* Reads all rows of a head's segment as F32 into out [len, D] on the host, whatever the store's type. */
fv_status fv_read_rows(fv_backend *be, const fv_kv *kv, int32_t layer, int32_t head,
                       fv_kv_segment seg, bool value, float *out);

/* Replaces keys and values of rows at[n] of a head's segment by k and v [n, D], narrowed to the store's
 * type. Not for a layer that borrows keys. */
fv_status fv_write_rows(fv_backend *be, fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg,
                        const int32_t *at, int32_t n, const float *k, const float *v);

#endif
