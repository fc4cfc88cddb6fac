/* common/arena: alignment, zeroing, stable addresses, reset, overflow. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "common/arena.h"

static unsigned char *take(fv_arena *a, size_t bytes) {
    void *p = NULL;
    cr_assert_eq(fv_arena_alloc(a, bytes, &p), FV_OK);
    cr_assert_not_null(p);
    cr_assert_eq((uintptr_t)p % 64, 0);
    return p;
}

static void expect_bytes(const unsigned char *p, size_t n, int value) {
    for (size_t i = 0; i < n; i++) cr_assert_eq(p[i], value, "byte %zu of %zu", i, n);
}

Test(arena, sizes_of_all_kinds_are_aligned_and_zeroed) {
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 65535, 65536, 65537, 1 << 20};
    fv_arena a = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        expect_bytes(take(&a, sizes[i]), sizes[i], 0);
    fv_arena_fini(&a);
}

Test(arena, pieces_do_not_overlap_and_stay_where_they_are) {
    enum { N = 500 };
    unsigned char *p[N];
    fv_arena a = {0};
    for (int i = 0; i < N; i++) { /* 500 x ~1 KiB: crosses several blocks */
        size_t n = (size_t)(i * 7 % 2048);
        p[i] = take(&a, n);
        memset(p[i], i & 0xff, n);
    }
    for (int i = 0; i < N; i++) expect_bytes(p[i], (size_t)(i * 7 % 2048), i & 0xff);
    fv_arena_fini(&a);
}

Test(arena, reset_keeps_blocks_and_hands_out_zeroes_again) {
    fv_arena a = {0};
    unsigned char *first = take(&a, 1000);
    memset(first, 0xff, 1000);
    unsigned char *large = take(&a, 300000);
    memset(large, 0xff, 300000);
    fv_arena_reset(&a);
    unsigned char *again = take(&a, 1000);
    cr_assert_eq(again, first);
    expect_bytes(again, 1000, 0);
    unsigned char *large_again = take(&a, 300000);
    cr_assert_eq(large_again, large);
    expect_bytes(large_again, 300000, 0);
    fv_arena_fini(&a);
}

Test(arena, a_steady_state_reuses_the_same_memory) {
    fv_arena a = {0};
    unsigned char *p[3], *q[3];
    static const size_t sizes[3] = {40000, 40000, 200000};
    for (int i = 0; i < 3; i++) p[i] = take(&a, sizes[i]);
    for (int round = 0; round < 10; round++) {
        fv_arena_reset(&a);
        for (int i = 0; i < 3; i++) q[i] = take(&a, sizes[i]);
        for (int i = 0; i < 3; i++) cr_assert_eq(p[i], q[i]);
    }
    fv_arena_fini(&a);
}

Test(arena, a_large_piece_between_small_ones_disturbs_neither) {
    fv_arena a = {0};
    take(&a, 60000);
    take(&a, 60000);
    fv_arena_reset(&a);
    unsigned char *small = take(&a, 100);
    memset(small, 1, 100);
    unsigned char *large = take(&a, 1 << 20);
    memset(large, 2, 1 << 20);
    unsigned char *after = take(&a, 60000);
    memset(after, 3, 60000);
    expect_bytes(small, 100, 1);
    expect_bytes(large, 1 << 20, 2);
    fv_arena_fini(&a);
}

Test(arena, an_empty_arena_may_be_reset_and_closed_twice) {
    fv_arena a = {0};
    fv_arena_reset(&a);
    fv_arena_fini(&a);
    fv_arena_fini(&a);
    take(&a, 10);
    fv_arena_fini(&a);
    cr_assert_null(a.first);
}

Test(arena, a_size_that_no_machine_has_is_enomem_and_leaves_the_result_alone) {
    fv_arena a = {0};
    void *p = &a;
    cr_assert_eq(fv_arena_alloc(&a, SIZE_MAX, &p), FV_ENOMEM);
    cr_assert_eq(fv_arena_alloc(&a, SIZE_MAX - 63, &p), FV_ENOMEM);
    cr_assert_eq(fv_arena_array(&a, SIZE_MAX / 8 + 1, 8, &p), FV_ENOMEM);
    cr_assert_eq(fv_arena_array(&a, SIZE_MAX, SIZE_MAX, &p), FV_ENOMEM);
    cr_assert_eq(p, &a);
    take(&a, 10);
    fv_arena_fini(&a);
}

Test(arena, an_array_has_room_for_each_element) {
    fv_arena a = {0};
    double *x = NULL;
    cr_assert_eq(FV_ARENA_NEW(&a, 1000, x), FV_OK);
    for (int i = 0; i < 1000; i++) x[i] = i;
    double *none = NULL;
    cr_assert_eq(FV_ARENA_NEW(&a, 0, none), FV_OK);
    cr_assert_not_null(none);
    cr_assert_eq(x[999], 999);
    fv_arena_fini(&a);
}

Test(arena, a_copied_string_is_cut_at_n_and_terminated) {
    fv_arena a = {0};
    char *s = NULL, *empty = NULL;
    cr_assert_eq(fv_arena_strndup(&a, "abcdef", 3, &s), FV_OK);
    cr_assert_eq(fv_arena_strndup(&a, "abcdef", 0, &empty), FV_OK);
    cr_assert_str_eq(s, "abc");
    cr_assert_str_eq(empty, "");
    fv_arena_fini(&a);
}
