#ifndef FOVEA_PREFILL_WORKER_IMAGE_CACHE_H
#define FOVEA_PREFILL_WORKER_IMAGE_CACHE_H

/* IMAGE CACHE: encoded bytes of an image -> its visual embeddings, so that a repeated image
 * does not run through the vision tower again. One cache belongs to one checkpoint and
 * its preprocessing, which do not change while it lives. Condensed embeddings are cached
 * separately, under the parameters of the condense stage.
 *
 * A hit is certain: the cache keeps the image's bytes and compares them.
 * The least recently used images are dropped first. The thread that computes. */
#include "common/buf.h"

typedef struct fv_image_key {
    const void *image; /* [n] */
    size_t n;
    const char *condense; /* the stage's text form, "" without one */
} fv_image_key;

/* An image's embeddings. Reference-counted. */
typedef struct fv_image_rows {
    fv_buf rows; /* [n, width of embeddings] */
    int32_t n;
    int32_t *source; /* [n] which of the image's rows each was, -1: made of several; malloc'ed;
                      * NULL: each is its own */
} fv_image_rows;

void fv_image_rows_free(fv_image_rows *r);

typedef struct fv_image_cache fv_image_cache; /* opaque */

/* Holds at most bytes_max of images and rows together; 0: nothing. */
fv_status fv_image_cache_open(size_t bytes_max, fv_image_cache **out);
void fv_image_cache_close(fv_image_cache *c); /* NULL is fine */

/* The rows of this image, or NULL; borrowed until the next call of fv_image_cache_put. */
const fv_image_rows *fv_image_cache_get(fv_image_cache *c, const fv_image_key *key);

/* Keeps the rows of an image; the key is copied. Takes the rows, which are emptied; what does not
 * fit is not kept. */
void fv_image_cache_put(fv_image_cache *c, const fv_image_key *key, fv_image_rows *rows);

typedef struct fv_image_cache_counters {
    uint64_t hits, misses;
    size_t bytes; /* held now */
} fv_image_cache_counters;
fv_image_cache_counters fv_image_cache_count(const fv_image_cache *c);

#endif
