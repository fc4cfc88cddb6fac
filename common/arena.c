/* Bump allocation in a list of malloc'ed blocks. One thread at a time. */
#include "common/arena.h"

#include <stdlib.h>
#include <string.h>

#include "common/pages.h"

enum { ALIGN = 64, BLOCK_MIN = 64 << 10 };

struct fv_arena_block {
    fv_arena_block *next;
    unsigned char *data; /* ALIGN-aligned, `cap` bytes */
    size_t used, cap;
};

static fv_arena_block *block_new(size_t cap) {
    fv_arena_block *b = malloc(sizeof *b);
    if (!b) return NULL;
    *b = (fv_arena_block){.data = fv_pages_alloc(ALIGN, cap), .cap = cap};
    if (!b->data) {
        free(b);
        return NULL;
    }
    return b;
}

fv_status fv_arena_alloc(fv_arena *a, size_t bytes, void **out) {
    if (bytes > SIZE_MAX - BLOCK_MIN - ALIGN)
        return FV_FAIL(FV_ENOMEM, "an allocation of %zu bytes is too large", bytes);
    size_t need = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (need == 0) need = ALIGN;
    /* Blocks after `current` are empty, left from a reset: use the first that is large enough. */
    fv_arena_block *b = a->current;
    while (b && b->cap - b->used < need) b = b->next;
    if (!b) {
        const size_t least = a->block_bytes > BLOCK_MIN ? a->block_bytes : BLOCK_MIN;
        b = block_new(need > least ? need : least);
        if (!b) return FV_FAIL(FV_ENOMEM, "out of memory: %zu bytes for scratch", bytes);
        if (a->current) {
            b->next = a->current->next;
            a->current->next = b;
        } else {
            a->first = b;
        }
    }
    a->current = b;
    *out = b->data + b->used;
    memset(*out, 0, need);
    b->used += need;
    return FV_OK;
}

fv_status fv_arena_array(fv_arena *a, size_t n, size_t size, void **out) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return FV_FAIL(FV_ENOMEM, "an array of %zu x %zu bytes", n, size);
    return fv_arena_alloc(a, bytes, out);
}

fv_status fv_arena_strndup(fv_arena *a, const char *s, size_t n, char **out) {
    void *p;
    FV_TRY(fv_arena_alloc(a, n + 1, &p));
    memcpy(p, s, n);
    *out = p;
    return FV_OK;
}

void fv_arena_reset(fv_arena *a) {
    for (fv_arena_block *b = a->first; b; b = b->next) b->used = 0;
    a->current = a->first;
}

void fv_arena_fini(fv_arena *a) {
    for (fv_arena_block *b = a->first; b;) {
        fv_arena_block *next = b->next;
        free(b->data);
        free(b);
        b = next;
    }
    *a = (fv_arena){0};
}
