#ifndef FOVEA_COMMON_ARENA_H
#define FOVEA_COMMON_ARENA_H

/* Memory that is freed all at once: one arena per request, or per pass.
 *
 * Blocks come from malloc and are kept by reset, so a steady state allocates nothing. One thread at
 * a time. */
#include <stddef.h>

#include "common/status.h"

typedef struct fv_arena_block fv_arena_block;

typedef struct fv_arena {
    /* private */
    fv_arena_block *first, *current;
    /* Bytes that the system is asked for at a time, at least; an owner of large arrays sets it before the first, so that
     * they share huge pages (common/pages.h). 0: 64 KiB. */
    size_t block_bytes;
} fv_arena; /* {0} is an empty arena */

/* *out gets `bytes` bytes, zeroed, aligned to 64; owned by the arena, valid until
 * reset or fini. FV_ENOMEM when the system has none. bytes = 0 gives a valid pointer. */
fv_status fv_arena_alloc(fv_arena *a, size_t bytes, void **out);

/* Allocates n * size bytes with an overflow check; otherwise like fv_arena_alloc. */
fv_status fv_arena_array(fv_arena *a, size_t n, size_t size, void **out);

/* Copies the `n` bytes of `s` and adds a NUL. */
fv_status fv_arena_strndup(fv_arena *a, const char *s, size_t n, char **out);

void fv_arena_reset(fv_arena *a); /* invalidates all allocations; keeps the blocks */
void fv_arena_fini(fv_arena *a);  /* frees the blocks; the arena is empty again */

/* FV_ARENA_NEW(arena, n, pointer): an array of n elements of *pointer's type. */
#define FV_ARENA_NEW(a, n, p) fv_arena_array((a), (size_t)(n), sizeof *(p), (void **)&(p))

#endif
