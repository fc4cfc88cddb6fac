#ifndef FOVEA_MODEL_NET_KV_INTERNAL_H
#define FOVEA_MODEL_NET_KV_INTERNAL_H

/* What kv.c (rows) lends to kv_packed.c (factors), and nobody else. */
#include "model/net/kv_packed.h"

/* Memory of the pool for a part, paid from what was set aside first; errors as fv_kv_extent. */
fv_status fv_kv_memory_take(fv_kv *kv, size_t bytes, fv_buf *out);
void fv_kv_memory_give(fv_kv *kv, fv_buf *buf); /* empties it */

/* A layer is without raw visual rows from now on. */
void fv_kv_drop_visual(fv_kv *kv, int32_t layer);

fv_kv_packed **fv_kv_packed_slot(const fv_kv *kv, int32_t layer);

/* At the end of a store. */
void fv_kv_packed_drop(fv_kv *kv, int32_t layer);

#endif
