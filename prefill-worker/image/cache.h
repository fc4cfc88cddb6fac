#ifndef FOVEA_PREFILL_WORKER_IMAGE_CACHE_H
#define FOVEA_PREFILL_WORKER_IMAGE_CACHE_H

/* IMAGE CACHE: maps an image's encoded bytes to its visual embeddings, so that a repeated image
 * does not run through the vision tower again. One cache belongs to one checkpoint and
 * its preprocessing, which do not change while it lives. Condensed embeddings are cached
 * separately, under the parameters of the condense stage.
 *
 * A hit is never a hash collision: the cache keeps the image's bytes and compares them.
 * The least recently used images are dropped first. For the computing thread. */
#include "common/buf.h"

typedef struct fv_image_key {
    const void *image; /* [n] */
    size_t n;
    const char *condense; /* what else the embeddings depend on: owner, layout, condense stage */
} fv_image_key;

/* An image's embeddings. Reference-counted. */
typedef struct fv_image_rows {
    fv_buf rows; /* [n, width of embeddings] */
    int32_t n;
    int32_t *source; /* [n] each row's index before condensing, -1: made of several; malloc'ed;
                      * NULL: not condensed */
} fv_image_rows;

void fv_image_rows_free(fv_image_rows *r);

typedef struct fv_image_cache fv_image_cache; /* opaque */

/* Opens a cache of at most bytes_max for images and rows together; 0: it keeps nothing. */
fv_status fv_image_cache_open(size_t bytes_max, fv_image_cache **out);
void fv_image_cache_close(fv_image_cache *c); /* NULL is fine */

/* Returns the rows of this image, borrowed until the next fv_image_cache_put, or NULL. */
const fv_image_rows *fv_image_cache_get(fv_image_cache *c, const fv_image_key *key);

/* Adds the rows of an image. Copies the key, takes the rows and empties *rows. Keeps nothing that does
 * not fit. */
void fv_image_cache_put(fv_image_cache *c, const fv_image_key *key, fv_image_rows *rows);

typedef struct fv_image_cache_counters {
    uint64_t hits, misses;
    size_t bytes; /* held now */
} fv_image_cache_counters;
fv_image_cache_counters fv_image_cache_count(const fv_image_cache *c);

#endif
