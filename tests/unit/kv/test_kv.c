/* kv/rows.c: ragged lengths, pages, slabs, compaction, limits. */
#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/kv.h"

enum { N = 2, HKV = 3, D = 4 };

static fv_kv_pool *open_pool(size_t bytes_max) {
    fv_kv_pool *pool;
    fv_kv_shape shape = {.n_layer = N, .n_kv = HKV, .d_head = D, .dtype = FV_F32};
    cr_assert_eq(fv_kv_pool_open(fv_device_host(), &shape, bytes_max, &pool), FV_OK);
    return pool;
}

static fv_kv *open_kv(fv_kv_pool *pool) {
    fv_kv *kv;
    cr_assert_eq(fv_kv_open(pool, &kv), FV_OK);
    return kv;
}

static float *row(fv_kv *kv, int32_t layer, int32_t head, fv_kv_segment seg, int32_t j,
                  bool value) {
    fv_block_table *run = &fv_kv_runs(kv, layer)[head * FV_N_SEG + seg];
    fv_kv_block *b = &run->block[j / FV_KV_BLOCK];
    return (float *)(value ? b->v : b->k) + (j % FV_KV_BLOCK) * D;
}

/* Appends tokens whose first element tells their head and position. */
static void fill(fv_kv *kv, int32_t layer, fv_kv_segment seg, int32_t from, int32_t n) {
    int32_t pos[512];
    for (int32_t i = 0; i < n; i++) pos[i] = 1000 + from + i;
    cr_assert_eq(fv_kv_append(kv, layer, seg, pos, n), FV_OK);
    for (int32_t g = 0; g < HKV; g++)
        for (int32_t i = 0; i < n; i++)
            for (int value = 0; value < 2; value++)
                row(kv, layer, g, seg, from + i, value)[0] =
                    (float)(10000 * g + 5000 * value + from + i);
}

static void expect(fv_kv *kv, int32_t layer, int32_t g, fv_kv_segment seg, int32_t j, int32_t was) {
    cr_assert_eq(row(kv, layer, g, seg, j, false)[0], (float)(10000 * g + was));
    cr_assert_eq(row(kv, layer, g, seg, j, true)[0], (float)(10000 * g + 5000 + was));
    cr_assert_eq(fv_kv_positions(kv, layer, g, seg)[j], 1000 + was);
}

Test(kv, text_grows_by_pages) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = open_kv(pool);
    size_t page = 2 * FV_KV_BLOCK * D * sizeof(float);
    static const int32_t steps[] = {1, 62, 1, 1, 200};
    int32_t len = 0;
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(fv_kv_reserve(kv, 0, steps[i]), FV_OK);
        fill(kv, 0, FV_SEG_TEXT, len, steps[i]);
        len += steps[i];
        size_t pages = (size_t)(len + FV_KV_BLOCK - 1) / FV_KV_BLOCK;
        cr_assert_eq(fv_kv_pool_used(pool), HKV * pages * page);
    }
    for (int32_t g = 0; g < HKV; g++)
        for (int32_t j = 0; j < len; j++) expect(kv, 0, g, FV_SEG_TEXT, j, j);
    cr_assert_eq(fv_kv_len(kv, 1, 0, FV_SEG_TEXT), 0, "the other layer is untouched");
    fv_kv_close(kv);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    fv_kv_pool_close(pool);
}

Test(kv, keep_shortens_heads_differently_and_frees_exactly) {
    static const fv_kv_segment segs[] = {FV_SEG_VISUAL, FV_SEG_TEXT};
    for (int s = 0; s < 2; s++) {
        fv_kv_pool *pool = open_pool(0);
        fv_kv *kv = open_kv(pool);
        if (segs[s] == FV_SEG_VISUAL)
            cr_assert_eq(fv_kv_extent(kv, 1, 150), FV_OK);
        else
            cr_assert_eq(fv_kv_reserve(kv, 1, 150), FV_OK);
        fill(kv, 1, segs[s], 0, 150);
        int32_t odd[75], all[150], n[HKV] = {75, 0, 150};
        for (int32_t i = 0; i < 75; i++) odd[i] = 2 * i + 1;
        for (int32_t i = 0; i < 150; i++) all[i] = i;
        const int32_t *idx[HKV] = {odd, NULL, all};
        cr_assert_eq(fv_kv_keep(kv, 1, segs[s], idx, n), FV_OK);
        for (int32_t j = 0; j < 75; j++) expect(kv, 1, 0, segs[s], j, 2 * j + 1);
        for (int32_t j = 0; j < 150; j++) expect(kv, 1, 2, segs[s], j, j);
        cr_assert_eq(fv_kv_len(kv, 1, 1, segs[s]), 0);
        size_t bytes = (75 + 150) * 2 * D * sizeof(float);
        cr_assert_eq(fv_kv_bytes(kv, segs[s]), bytes);
        if (segs[s] == FV_SEG_VISUAL)
            cr_assert_eq(fv_kv_pool_used(pool), bytes);
        else
            cr_assert_eq(fv_kv_pool_used(pool), (2 + 0 + 3) * 2 * FV_KV_BLOCK * D * sizeof(float));
        fv_kv_close(kv);
        cr_assert_eq(fv_kv_pool_used(pool), 0);
        fv_kv_pool_close(pool);
    }
}

Test(kv, text_continues_after_what_was_kept) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = open_kv(pool);
    cr_assert_eq(fv_kv_reserve(kv, 0, 100), FV_OK);
    fill(kv, 0, FV_SEG_TEXT, 0, 100);
    int32_t idx[] = {0, 63, 64, 99}, n[HKV] = {4, 1, 0}, pos = 1100;
    const int32_t *list[HKV] = {idx, idx, idx};
    cr_assert_eq(fv_kv_keep(kv, 0, FV_SEG_TEXT, list, n), FV_OK);
    cr_assert_eq(fv_kv_reserve(kv, 0, 1), FV_OK);
    cr_assert_eq(fv_kv_append(kv, 0, FV_SEG_TEXT, &pos, 1), FV_OK);
    for (int32_t g = 0; g < HKV; g++) {
        cr_assert_eq(fv_kv_len(kv, 0, g, FV_SEG_TEXT), n[g] + 1);
        cr_assert_eq(fv_kv_positions(kv, 0, g, FV_SEG_TEXT)[n[g]], 1100);
    }
    for (int32_t j = 0; j < 4; j++) expect(kv, 0, 0, FV_SEG_TEXT, j, idx[j]);
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

Test(kv, empty_slabs_and_empty_keeps_are_fine) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = open_kv(pool);
    int32_t n[HKV] = {0};
    const int32_t *idx[HKV] = {NULL};
    cr_assert_eq(fv_kv_extent(kv, 0, 0), FV_OK);
    cr_assert_eq(fv_kv_keep(kv, 0, FV_SEG_VISUAL, idx, n), FV_OK);
    cr_assert_eq(fv_kv_keep(kv, 0, FV_SEG_TEXT, idx, n), FV_OK);
    cr_assert_eq(fv_kv_bytes(kv, FV_SEG_VISUAL) + fv_kv_bytes(kv, FV_SEG_TEXT), 0);
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

Test(kv, a_full_pool_says_so_and_recovers) {
    size_t page = 2 * FV_KV_BLOCK * D * sizeof(float);
    fv_kv_pool *pool = open_pool(4 * page);
    fv_kv *kv = open_kv(pool), *other = open_kv(pool);
    cr_assert_eq(fv_kv_reserve(kv, 0, 64), FV_OK);
    cr_assert_eq(fv_kv_reserve(other, 0, 1), FV_EBUSY);
    cr_assert(strstr(fv_last_error(), "KV pool is full"), "%s", fv_last_error());
    cr_assert_eq(fv_kv_extent(other, 1, 1000), FV_EBUSY);
    fv_kv_close(other);
    fv_kv_close(kv);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    kv = open_kv(pool);
    cr_assert_eq(fv_kv_reserve(kv, 0, 64), FV_OK);
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

Test(kv, a_ragged_slab_holds_each_heads_tokens_and_no_more) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = open_kv(pool);
    int32_t rows[HKV] = {70, 0, 3}, pos[70];
    for (int32_t i = 0; i < 70; i++) pos[i] = 1000 + i;
    cr_assert_eq(fv_kv_extent_ragged(kv, 0, rows), FV_OK);
    cr_assert_eq(fv_kv_pool_used(pool), 73 * 2 * D * sizeof(float));
    for (int32_t g = 0; g < HKV; g++) {
        cr_assert_eq(fv_kv_append_head(kv, 0, g, FV_SEG_VISUAL, pos, rows[g]), FV_OK);
        cr_assert_eq(fv_kv_len(kv, 0, g, FV_SEG_VISUAL), rows[g]);
        for (int32_t i = 0; i < rows[g]; i++)
            for (int value = 0; value < 2; value++)
                row(kv, 0, g, FV_SEG_VISUAL, i, value)[0] = (float)(10000 * g + 5000 * value + i);
    }
    for (int32_t g = 0; g < HKV; g++)
        for (int32_t i = 0; i < rows[g]; i++) expect(kv, 0, g, FV_SEG_VISUAL, i, i);
    fv_kv_close(kv);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    fv_kv_pool_close(pool);
}

Test(kv, a_contiguous_span_is_a_whole_slab_or_the_rest_of_a_page) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = open_kv(pool);
    void *at = NULL;
    cr_assert_eq(fv_kv_extent(kv, 0, 200), FV_OK);
    cr_assert_eq(fv_kv_reserve(kv, 0, 200), FV_OK);
    fill(kv, 0, FV_SEG_VISUAL, 0, 200);
    fill(kv, 0, FV_SEG_TEXT, 0, 200);
    for (int value = 0; value < 2; value++) {
        cr_assert_eq(fv_kv_contiguous(kv, 0, 1, FV_SEG_VISUAL, value, 0, 200, &at), 200);
        cr_assert_eq(at, row(kv, 0, 1, FV_SEG_VISUAL, 0, value));
        cr_assert_eq(fv_kv_contiguous(kv, 0, 1, FV_SEG_VISUAL, value, 77, 150, &at), 73);
        cr_assert_eq(at, row(kv, 0, 1, FV_SEG_VISUAL, 77, value));
        cr_assert_eq(fv_kv_contiguous(kv, 0, 1, FV_SEG_TEXT, value, 70, 200, &at), 58);
        cr_assert_eq(at, row(kv, 0, 1, FV_SEG_TEXT, 70, value));
        cr_assert_eq(fv_kv_contiguous(kv, 0, 1, FV_SEG_TEXT, value, 199, 200, &at), 1);
    }
    cr_assert_eq(fv_kv_contiguous(kv, 0, 1, FV_SEG_TEXT, false, 5, 5, &at), 0);
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

Test(kv, reserved_bytes_cover_slabs_and_are_released) {
    size_t row_pair = 2 * D * sizeof(float), page = FV_KV_BLOCK * row_pair;
    fv_kv_pool *pool = open_pool(20 * page);
    fv_kv *kv = open_kv(pool), *other = open_kv(pool);
    fv_kv_shape shape = {.n_layer = N, .n_kv = HKV, .d_head = D, .dtype = FV_F32};
    cr_assert_eq(fv_kv_text_bytes(&shape, 65, 0), N * HKV * 2 * page);
    cr_assert_eq(fv_kv_reserve_bytes(kv, 6 * page), FV_OK);
    cr_assert_eq(fv_kv_reserve_bytes(other, 15 * page), FV_EBUSY);
    cr_assert_eq(fv_kv_pool_used(pool), 6 * page);
    cr_assert_eq(fv_kv_extent(kv, 0, 64), FV_OK);
    cr_assert_eq(fv_kv_pool_used(pool), 6 * page, "charged from what was set aside");
    cr_assert_eq(fv_kv_extent(kv, 1, 128), FV_OK);
    cr_assert_eq(fv_kv_pool_used(pool), 9 * page, "and the rest from the pool");
    cr_assert_eq(fv_kv_reserve(kv, 0, 129), FV_OK);
    fill(kv, 0, FV_SEG_TEXT, 0, 10);
    cr_assert_eq(fv_kv_release_unused(kv, 55), HKV * page, "65 rows are two pages of three");
    cr_assert_eq(fv_kv_pool_used(pool), 15 * page);
    cr_assert_eq(fv_kv_reserve_bytes(other, 5 * page), FV_OK);
    fv_kv_close(other);
    fv_kv_close(kv);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    fv_kv_pool_close(pool);
}

/* ---- rank order ------------------------------------------------------------------------- */

/* Layer 1 with 150 tokens of three heads, ordered by 7 j modulo 150; head 1 has the reverse
 * order. */
static fv_kv *open_ranked(fv_kv_pool *pool) {
    static int32_t there[150], back[150];
    const int32_t *order[HKV] = {there, back, there};
    fv_kv *kv = open_kv(pool);
    cr_assert_eq(fv_kv_extent(kv, 1, 150), FV_OK);
    fill(kv, 1, FV_SEG_VISUAL, 0, 150);
    for (int32_t j = 0; j < 150; j++) there[j] = 7 * j % 150;
    for (int32_t j = 0; j < 150; j++) back[149 - j] = there[j];
    cr_assert_eq(fv_kv_ranked(kv, 1, 0), 0);
    cr_assert_eq(fv_kv_rank(kv, 1, order), FV_OK, "%s", fv_last_error());
    return kv;
}

Test(kv, ranked_tokens_are_in_order_with_their_positions) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = open_ranked(pool);
    for (int32_t g = 0; g < HKV; g++) {
        cr_assert_eq(fv_kv_ranked(kv, 1, g), 150);
        cr_assert_eq(fv_kv_ranked(kv, 0, g), 0);
        for (int32_t j = 0; j < 150; j++)
            expect(kv, 1, g, FV_SEG_VISUAL, j, 7 * (g == 1 ? 149 - j : j) % 150);
    }
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

Test(kv, tokens_are_evicted_from_the_end_and_their_memory_is_freed) {
    size_t pair = 2 * D * sizeof(float);
    fv_kv_pool *pool = open_pool(HKV * 150 * pair); /* the slab is full */
    fv_kv *kv = open_ranked(pool);
    for (int32_t left = 150; left >= 0; left -= 3) {
        int32_t n[HKV] = {left, left / 2, 200};
        if (left == 0) n[2] = 0;
        cr_assert_eq(fv_kv_truncate(kv, 1, n), FV_OK, "%s", fv_last_error());
        n[2] = left ? 150 : 0;
        size_t rows = 0;
        for (int32_t g = 0; g < HKV; g++) {
            cr_assert_eq(fv_kv_len(kv, 1, g, FV_SEG_VISUAL), n[g]);
            cr_assert_eq(fv_kv_ranked(kv, 1, g), 150, "what it was is known");
            for (int32_t j = 0; j < n[g]; j++)
                expect(kv, 1, g, FV_SEG_VISUAL, j, 7 * (g == 1 ? 149 - j : j) % 150);
            rows += (size_t)n[g];
        }
        cr_assert_eq(fv_kv_pool_used(pool), fv_kv_bytes(kv, FV_SEG_VISUAL));
        cr_assert_geq(fv_kv_bytes(kv, FV_SEG_VISUAL), rows * pair);
        cr_assert_leq(3 * fv_kv_bytes(kv, FV_SEG_VISUAL), 4 * rows * pair);
    }
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

/* ---- reused memory ----------------------------------------------------------------------- */

static fv_kv *hold(fv_kv_pool *pool, int32_t rows) {
    fv_kv *kv = open_kv(pool);
    for (int32_t l = 0; l < N; l++) cr_assert_eq(fv_kv_extent(kv, l, rows), FV_OK);
    return kv;
}

Test(kv, a_slab_of_the_same_size_is_reused) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = hold(pool, 100);
    size_t memory = fv_kv_pool_memory(pool);
    cr_assert_eq(memory, fv_kv_pool_used(pool));
    for (int i = 0; i < 5; i++) {
        fv_kv_close(kv);
        cr_assert_eq(fv_kv_pool_used(pool), 0);
        kv = hold(pool, 100);
        cr_assert_eq(fv_kv_pool_memory(pool), memory);
    }
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

Test(kv, free_slabs_are_given_up_for_others) {
    size_t most = 0;
    fv_kv_pool *pool = open_pool(0);
    for (int32_t rows = 1; rows <= 60; rows++) { /* every size is another */
        fv_kv *kv = hold(pool, rows);
        if (fv_kv_pool_used(pool) > most) most = fv_kv_pool_used(pool);
        cr_assert_leq(fv_kv_pool_memory(pool), most);
        fv_kv_close(kv);
    }
    fv_kv_pool_close(pool);
}

Test(kv, a_pool_with_a_limit_counts_its_free_slabs) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = hold(pool, 50);
    size_t limit = fv_kv_pool_used(pool);
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
    pool = open_pool(limit);
    for (int32_t rows = 50; rows > 0; rows -= 7) {
        kv = hold(pool, rows);
        cr_assert_leq(fv_kv_pool_memory(pool), limit);
        fv_kv_close(kv);
    }
    fv_kv_pool_close(pool);
}

/* ---- memory that is not needed ------------------------------------------------------------ */

static size_t trimmed(fv_kv_pool *pool, double now_s) {
    size_t freed;
    (void)fv_kv_pool_trim(pool, now_s, &freed);
    return freed;
}

Test(kv, what_nobody_needed_for_a_while_goes_back) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *images = hold(pool, 100), *text = open_kv(pool);
    cr_assert_eq(fv_kv_reserve(text, 0, 512 * FV_KV_BLOCK), FV_OK);
    for (int i = 0; i < 64; i++) fill(text, 0, FV_SEG_TEXT, 8 * i * FV_KV_BLOCK, 8 * FV_KV_BLOCK);
    size_t memory = fv_kv_pool_memory(pool), freed;
    cr_assert(isinf(fv_kv_pool_trim(pool, 10, &freed)), "all is in use");
    fv_kv_close(images);
    fv_kv_close(text);
    cr_assert_eq(trimmed(pool, 10.5), 0, "it may be needed at once");
    cr_assert_eq(fv_kv_pool_trim(pool, 12, &freed), 2, "it was in use after the last look");
    cr_assert_eq(freed, 0);
    cr_assert_eq(fv_kv_pool_memory(pool), memory);
    cr_assert(isinf(fv_kv_pool_trim(pool, 14, &freed)));
    cr_assert_eq(freed, memory);
    cr_assert_eq(fv_kv_pool_memory(pool), 0);
    text = open_kv(pool); /* and it works as before */
    cr_assert_eq(fv_kv_reserve(text, 0, 100), FV_OK);
    fill(text, 0, FV_SEG_TEXT, 0, 100);
    for (int32_t j = 0; j < 100; j++) expect(text, 0, 0, FV_SEG_TEXT, j, j);
    fv_kv_close(text);
    fv_kv_pool_close(pool);
}

Test(kv, a_steady_load_keeps_its_memory) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = hold(pool, 100);
    size_t memory = fv_kv_pool_memory(pool);
    fv_kv_close(kv);
    for (int i = 0; i < 20; i++) {
        cr_assert_eq(trimmed(pool, 10 + 2 * i), 0);
        kv = hold(pool, 100);
        cr_assert_eq(fv_kv_pool_memory(pool), memory);
        fv_kv_close(kv);
    }
    fv_kv_pool_close(pool);
}

/* Slabs that have a page in use stay, and the pages of others are not touched. */
Test(kv, slabs_that_are_in_use_stay) {
    fv_kv_pool *pool = open_pool(0);
    fv_kv *long_one = open_kv(pool), *kv[8];
    for (int i = 0; i < 8; i++) {
        kv[i] = open_kv(pool);
        cr_assert_eq(fv_kv_reserve(kv[i], 0, 80), FV_OK);
        fill(kv[i], 0, FV_SEG_TEXT, 0, 80);
        cr_assert_eq(fv_kv_reserve(long_one, 0, 64 * FV_KV_BLOCK), FV_OK);
        for (int j = 0; j < 8; j++)
            fill(long_one, 0, FV_SEG_TEXT, (64 * i + 8 * j) * FV_KV_BLOCK, 8 * FV_KV_BLOCK);
    }
    size_t memory = fv_kv_pool_memory(pool);
    fv_kv_close(long_one);
    for (int i = 0; i < 4; i++) (void)trimmed(pool, 10 + 2 * i);
    cr_assert_lt(fv_kv_pool_memory(pool), memory, "one of the slabs had no other pages");
    for (int i = 0; i < 8; i++) {
        for (int32_t j = 0; j < 80; j++) expect(kv[i], 0, 1, FV_SEG_TEXT, j, j);
        cr_assert_eq(fv_kv_reserve(kv[i], 0, 80), FV_OK);
        fill(kv[i], 0, FV_SEG_TEXT, 80, 80);
    }
    for (int i = 0; i < 8; i++) {
        for (int32_t j = 0; j < 160; j++) expect(kv[i], 0, 0, FV_SEG_TEXT, j, j);
        fv_kv_close(kv[i]);
    }
    for (int i = 0; i < 4; i++) (void)trimmed(pool, 30 + 2 * i);
    cr_assert_eq(fv_kv_pool_memory(pool), 0);
    fv_kv_pool_close(pool);
}

/* ---- shared keys ------------------------------------------------------------------------- */

/* The values of a lazy layer are its own; its keys are the source layer's. */
static void fill_values(fv_kv *kv, int32_t layer, fv_kv_segment seg, int32_t from, int32_t n) {
    int32_t pos[512];
    for (int32_t i = 0; i < n; i++) pos[i] = 1000 + from + i;
    cr_assert_eq(fv_kv_append(kv, layer, seg, pos, n), FV_OK);
    for (int32_t g = 0; g < HKV; g++)
        for (int32_t i = from; i < from + n; i++)
            row(kv, layer, g, seg, i, true)[0] = (float)(10000 * g + 5000 + i);
}

Test(kv, shared_image_keys_are_held_and_counted_once) {
    size_t bytes = D * sizeof(float), page = FV_KV_BLOCK * bytes;
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = open_kv(pool);
    void *mine, *source_layers;
    fv_kv_borrow(kv, 1, 0, false);
    cr_assert_eq(fv_kv_source_layer(kv, 1), 0);
    cr_assert(fv_kv_borrows(kv, 1, FV_SEG_VISUAL) && !fv_kv_borrows(kv, 1, FV_SEG_TEXT));
    cr_assert_eq(fv_kv_extent(kv, 0, 150), FV_OK);
    cr_assert_eq(fv_kv_extent(kv, 1, 150), FV_OK);
    cr_assert_eq(fv_kv_pool_used(pool), HKV * 150 * 3 * bytes);
    fill(kv, 0, FV_SEG_VISUAL, 0, 150);
    fill_values(kv, 1, FV_SEG_VISUAL, 0, 150);
    for (int32_t g = 0; g < HKV; g++) {
        for (int32_t j = 0; j < 150; j++) expect(kv, 1, g, FV_SEG_VISUAL, j, j);
        cr_assert_eq(fv_kv_contiguous(kv, 1, g, FV_SEG_VISUAL, false, 3, 150, &mine), 147);
        fv_kv_contiguous(kv, 0, g, FV_SEG_VISUAL, false, 3, 150, &source_layers);
        cr_assert_eq(mine, source_layers);
    }
    cr_assert_eq(fv_kv_reserve(kv, 1, 70), FV_OK);
    cr_assert_eq(fv_kv_bytes_held(kv), HKV * (150 * 3 * bytes + 2 * 2 * page), "its own text");
    cr_assert_eq(fv_kv_bytes(kv, FV_SEG_VISUAL), HKV * 150 * 3 * bytes);
    fv_kv_close(kv);
    cr_assert_eq(fv_kv_pool_used(pool), 0);
    fv_kv_pool_close(pool);
}

Test(kv, a_lazy_layer_is_shortened_with_its_source_layer) {
    static const fv_kv_segment segs[] = {FV_SEG_VISUAL, FV_SEG_TEXT};
    size_t bytes = D * sizeof(float), page = FV_KV_BLOCK * bytes;
    for (int s = 0; s < 2; s++) {
        fv_kv_pool *pool = open_pool(0);
        fv_kv *kv = open_kv(pool);
        fv_kv_borrow(kv, 1, 0, true);
        for (int32_t l = 0; l < 2; l++)
            cr_assert_eq(segs[s] == FV_SEG_VISUAL ? fv_kv_extent(kv, l, 150)
                                                  : fv_kv_reserve(kv, l, 150),
                         FV_OK);
        fill(kv, 0, segs[s], 0, 150);
        fill_values(kv, 1, segs[s], 0, 150);
        int32_t odd[75], all[150], n[HKV] = {75, 0, 150};
        for (int32_t i = 0; i < 75; i++) odd[i] = 2 * i + 1;
        for (int32_t i = 0; i < 150; i++) all[i] = i;
        const int32_t *idx[HKV] = {odd, NULL, all};
        cr_assert_eq(fv_kv_keep(kv, 0, segs[s], idx, n), FV_OK);
        for (int32_t l = 0; l < 2; l++) {
            for (int32_t j = 0; j < 75; j++) expect(kv, l, 0, segs[s], j, 2 * j + 1);
            for (int32_t j = 0; j < 150; j++) expect(kv, l, 2, segs[s], j, j);
            cr_assert_eq(fv_kv_len(kv, l, 1, segs[s]), 0);
        }
        cr_assert_eq(fv_kv_bytes(kv, segs[s]), (75 + 150) * 3 * bytes);
        cr_assert_eq(fv_kv_pool_used(pool),
                     segs[s] == FV_SEG_VISUAL ? (75 + 150) * 3 * bytes : (2 + 3) * 3 * page);
        fv_kv_close(kv);
        cr_assert_eq(fv_kv_pool_used(pool), 0);
        fv_kv_pool_close(pool);
    }
}

Test(kv, a_lazy_layers_text_takes_half_the_pages) {
    size_t page = FV_KV_BLOCK * D * sizeof(float);
    fv_kv_shape shape = {.n_layer = N, .n_kv = HKV, .d_head = D, .dtype = FV_F32};
    fv_kv_pool *pool = open_pool(0);
    fv_kv *kv = open_kv(pool);
    fv_kv_borrow(kv, 1, 0, true);
    for (int32_t len = 0; len < 200; len += 50) {
        for (int32_t l = 0; l < 2; l++) cr_assert_eq(fv_kv_reserve(kv, l, 50), FV_OK);
        fill(kv, 0, FV_SEG_TEXT, len, 50);
        fill_values(kv, 1, FV_SEG_TEXT, len, 50);
        cr_assert_eq(fv_kv_bytes_held(kv), fv_kv_text_bytes(&shape, len + 50, 1));
    }
    for (int32_t g = 0; g < HKV; g++)
        for (int32_t j = 0; j < 200; j++) expect(kv, 1, g, FV_SEG_TEXT, j, j);
    cr_assert_eq(fv_kv_reserve(kv, 0, 100), FV_OK);
    cr_assert_eq(fv_kv_reserve(kv, 1, 100), FV_OK);
    cr_assert_eq(fv_kv_release_unused(kv, 0), HKV * 3 * page, "300 rows are a block more than 200");
    fv_kv_close(kv);
    fv_kv_pool_close(pool);
}

Test(kv, inconsistent_kv_is_detected) {
    for (int wrong = 0; wrong < 2; wrong++) {
        pid_t child = fork();
        if (child == 0) {
            fv_kv *kv = open_kv(open_pool(0));
            if (!freopen("/dev/null", "w", stderr)) _exit(1);
            cr_assert_eq(fv_kv_reserve(kv, 0, 10), FV_OK);
            fill(kv, 0, FV_SEG_TEXT, 0, 10);
            if (wrong) fv_kv_runs(kv, 0)[FV_SEG_TEXT].len = 65; /* there is a block of 64 */
            fv_kv_check(kv, -1);
            _exit(0);
        }
        int status;
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert_eq(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, wrong == 1);
    }
}
