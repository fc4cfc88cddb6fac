/* common/heap.c: freed memory is returned to the system, but not at the first check. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/heap.h"
#include "tests/support/sanitized.h"

enum { BLOCK = 64 << 10, BLOCKS = 2000, BYTES = BLOCK * BLOCKS };

static char *blocks[BLOCKS];

/* Allocates in the heap, as our programs do, with a small block after each, which keeps the heap
 * from shrinking by itself. */
static void take(void) {
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BLOCK);
        memset(blocks[i], 1, BLOCK);
        cr_assert_not_null(strdup("a small block"));
    }
}

static void give(void) {
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static void skip_if_sanitized(void) {
    if (SANITIZED) cr_skip("a sanitizer has its own allocator");
}

Test(heap, where_nothing_was_freed_nothing_goes_back) {
    fv_heap_watch w = {0};
    for (int i = 0; i < 2 * FV_HEAP_LOOKS; i++) cr_assert_eq(fv_heap_check(&w), 0);
}

Test(heap, memory_that_stays_free_goes_back_at_the_third_look) {
    fv_heap_watch w = {0};
    skip_if_sanitized();
    take();
    give();
    cr_assert_eq(fv_heap_check(&w), 0);
    cr_assert_eq(fv_heap_check(&w), 0);
    cr_assert_gt(fv_heap_check(&w), BYTES / 2);
    for (int i = 0; i < 2 * FV_HEAP_LOOKS; i++)
        cr_assert_eq(fv_heap_check(&w), 0, "it is back already");
}

Test(heap, memory_that_is_used_in_between_stays) {
    fv_heap_watch w = {0};
    skip_if_sanitized();
    take();
    for (int i = 0; i < 4 * FV_HEAP_LOOKS; i++) {
        if (i % FV_HEAP_LOOKS == 1) give(); /* free at two checks of three */
        cr_assert_eq(fv_heap_check(&w), 0);
        if (i % FV_HEAP_LOOKS == 2) take();
    }
    give();
}

Test(heap, what_comes_and_goes_again_goes_back_again) {
    fv_heap_watch w = {0};
    skip_if_sanitized();
    for (int round = 0; round < 3; round++) {
        size_t back = 0;
        take();
        fv_heap_check(&w);
        give();
        for (int i = 0; i < 2 * FV_HEAP_LOOKS; i++) back += fv_heap_check(&w);
        cr_assert_gt(back, BYTES / 2, "round %d: %zu", round, back);
    }
}
