#ifndef FOVEA_COMMON_ARENA_H
#define FOVEA_COMMON_ARENA_H

/* Memory that is freed all at once: one arena per request, or per pass.
 *
 * Blocks come from malloc and are kept by reset, so that a steady state allocates
 * nothing. One thread at a time. */
#include <stddef.h>

#include "common/status.h"

typedef struct fv_arena_block fv_arena_block;

typedef struct fv_arena {
    /* private */
    fv_arena_block *first, *current;
} fv_arena; /* {0} is an empty arena */

/* *out gets `bytes` bytes, zeroed, aligned to 64; owned by the arena, valid until
 * reset or fini. FV_ENOMEM when the system has none. bytes = 0 gives a valid pointer. */
fv_status fv_arena_alloc(fv_arena *a, size_t bytes, void **out);

/* n * size with the overflow check; otherwise as fv_arena_alloc. */
fv_status fv_arena_array(fv_arena *a, size_t n, size_t size, void **out);

/* A copy of the `n` bytes of `s`, with a NUL added. */
fv_status fv_arena_strndup(fv_arena *a, const char *s, size_t n, char **out);

void fv_arena_reset(fv_arena *a); /* everything handed out is gone; blocks are kept */
void fv_arena_fini(fv_arena *a);  /* blocks are freed; the arena is empty again */

/* FV_ARENA_NEW(arena, n, pointer): an array of n elements of *pointer's type. */
#define FV_ARENA_NEW(a, n, p) fv_arena_array((a), (size_t)(n), sizeof *(p), (void **)&(p))

#endif
