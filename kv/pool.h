#ifndef FOVEA_KV_POOL_H
#define FOVEA_KV_POOL_H

/* THE POOL: the memory of all stores on a device, with one limit. It hands out two kinds of memory:
 *
 *   pages     FV_KV_BLOCK keys, or values, of one KV head: text grows by them
 *   buffers   of any size: the visual rows of a layer, or a packed part
 *
 * A pool belongs to the thread that computes. */
#include "common/buf.h"
#include "common/status.h"
#include "kernels/tensor.h"

typedef struct fv_kv_shape {
    int32_t n_layer, n_kv, d_head;
    fv_dtype dtype;
    /* Directions of pack=latent, [n_layer], borrowed, and their checksum (packed/latent.h); NULL,
     * 0: the checkpoint has none. */
    const struct fv_latent_layer *latent;
    uint64_t latent_sum;
    size_t state_bytes; /* of a sequence's recurrent state in one layer; 0: the model has none */
} fv_kv_shape;

typedef struct fv_kv_pool fv_kv_pool; /* opaque */

/* A pool on `dev` that never holds more than bytes_max (0: no limit) in pages, buffers and tables of
 * packed layers together. Device memory is allocated on demand, kept on free lists, and freed
 * on close, when it is needed for a buffer of another size, and by fv_kv_pool_trim. */
fv_status fv_kv_pool_open(fv_device *dev, const fv_kv_shape *shape, size_t bytes_max,
                          fv_kv_pool **out);
/* Closes a pool whose stores are all closed. NULL is fine. */
void fv_kv_pool_close(fv_kv_pool *pool);
size_t fv_kv_pool_used(const fv_kv_pool *pool); /* bytes held by stores now */
/* Bytes held by this owner's stores; what is idle is nobody's. */
size_t fv_kv_pool_owned(const fv_kv_pool *pool, const char *owner);
size_t fv_kv_pool_idle(const fv_kv_pool *pool);   /* bytes that no store uses: kept prefixes */
size_t fv_kv_pool_memory(const fv_kv_pool *pool); /* bytes allocated, free lists included */
const fv_kv_shape *fv_kv_pool_shape(const fv_kv_pool *pool);

/* Sets who gives up idle bytes (kv/share.h) when the limit leaves too little for a store: `reclaim` frees at least
 * `bytes`, which are idle. It may close shares, and must not open or fill stores. NULL: nobody. */
void fv_kv_pool_on_full(fv_kv_pool *pool, void (*reclaim)(void *user, size_t bytes), void *user);

/* Frees memory that was on the free lists for FV_KV_TRIM_MS to twice that; *freed: bytes. Returns in how
 * many seconds to call it again; HUGE_VAL: the lists are empty. now_s: seconds of any monotonic clock. */
enum { FV_KV_TRIM_MS = 2000 };
double fv_kv_pool_trim(fv_kv_pool *pool, double now_s, size_t *freed);

#endif
