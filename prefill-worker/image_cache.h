#ifndef FOVEA_PREFILL_WORKER_IMAGE_CACHE_H
#define FOVEA_PREFILL_WORKER_IMAGE_CACHE_H

/* IMAGE CACHE: encoded bytes of a picture -> its rows of the text model, so that a picture that
 * comes again does not run through the vision tower again. One cache belongs to one checkpoint and
 * its preprocessing, which do not change while it lives.
 *
 * A hit is never a guess: the cache keeps the picture's bytes beside its rows and compares them.
 * The pictures used longest ago leave first. The thread that computes. */
#include "common/buf.h"

typedef struct fv_image_cache fv_image_cache; /* opaque */

/* Holds at most bytes_max of pictures and rows together; 0: nothing. */
fv_status fv_image_cache_open(size_t bytes_max, fv_image_cache **out);
void fv_image_cache_close(fv_image_cache *c); /* NULL is fine */

/* The rows of this picture, or NULL; borrowed until the next call of fv_image_cache_put. */
const fv_buf *fv_image_cache_get(fv_image_cache *c, const void *image, size_t n);

/* Keeps the rows of a picture, whose bytes are copied. Takes the buffer, which is emptied; what
 * does not fit is not kept. */
void fv_image_cache_put(fv_image_cache *c, const void *image, size_t n, fv_buf *rows);

typedef struct fv_image_cache_counters {
    uint64_t hits, misses;
    size_t bytes; /* held now */
} fv_image_cache_counters;
fv_image_cache_counters fv_image_cache_count(const fv_image_cache *c);

#endif
