/* prefill-worker/image/cache.c: which images are found again, and which are dropped when memory is
 * short. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "prefill-worker/image/cache.h"

enum { ROWS = 64 }; /* bytes of an image's tokens here */

static fv_image_cache *c;

static void put_condensed(const char *image, const char *condense, uint8_t value, int32_t *source) {
    fv_image_rows rows = {.n = 1, .source = source};
    fv_image_key key = {image, strlen(image), condense};
    cr_assert_eq(fv_buf_alloc(fv_device_host(), ROWS, FV_BUF_DEVICE, &rows.rows), FV_OK);
    memset(rows.rows.data, value, ROWS);
    fv_image_cache_put(c, &key, &rows);
    cr_assert_null(rows.rows.data, "the buffer was taken");
    cr_assert_null(rows.source);
}

static void put(const char *image, uint8_t value) { put_condensed(image, "", value, NULL); }

/* The value that was stored with the image; -1: not found. */
static int get_condensed(const char *image, const char *condense) {
    fv_image_key key = {image, strlen(image), condense};
    const fv_image_rows *rows = fv_image_cache_get(c, &key);
    return rows ? *(const uint8_t *)rows->rows.data : -1;
}

static int get(const char *image) { return get_condensed(image, ""); }

static void open_for(size_t bytes) { cr_assert_eq(fv_image_cache_open(bytes, &c), FV_OK); }

static void close_cache(void) { fv_image_cache_close(c); }

TestSuite(image_cache, .fini = close_cache);

Test(image_cache, a_image_is_found_by_its_bytes) {
    open_for(1000);
    put("one", 1);
    put("two", 2);
    cr_assert_eq(get("one"), 1);
    cr_assert_eq(get("two"), 2);
    cr_assert_eq(get("on"), -1);
    cr_assert_eq(get("three"), -1);
    cr_assert_eq(fv_image_cache_count(c).hits, 2);
    cr_assert_eq(fv_image_cache_count(c).misses, 2);
}

Test(image_cache, the_one_used_longest_ago_leaves_first) {
    open_for(2 * (ROWS + 1));
    put("a", 1);
    put("b", 2);
    cr_assert_eq(get("a"), 1);
    put("c", 3);
    cr_assert_eq(get("b"), -1);
    cr_assert_eq(get("a"), 1);
    cr_assert_eq(get("c"), 3);
}

Test(image_cache, several_leave_for_a_large_one) {
    open_for(2 * (ROWS + 1) + 5);
    put("a", 1);
    put("b", 2);
    static const char large[] =
        "larger than both others, and just small enough for the cache ......";
    put(large, 3);
    cr_assert_eq(get("a"), -1);
    cr_assert_eq(get("b"), -1);
    cr_assert_eq(fv_image_cache_count(c).bytes, ROWS + strlen(large));
    cr_assert_eq(get(large), 3);
}

Test(image_cache, what_is_larger_than_the_cache_is_not_kept) {
    open_for(ROWS + 1);
    put("a", 1);
    put("ab", 2);
    cr_assert_eq(get("ab"), -1);
    cr_assert_eq(get("a"), 1, "and nobody has left for it");
}

Test(image_cache, putting_it_again_replaces_it) {
    open_for(1000);
    put("a", 1);
    put("a", 2);
    cr_assert_eq(get("a"), 2);
    cr_assert_eq(fv_image_cache_count(c).bytes, ROWS + 1);
}

Test(image_cache, a_cache_of_nothing_keeps_nothing) {
    open_for(0);
    put("a", 1);
    cr_assert_eq(get("a"), -1);
    cr_assert_eq(fv_image_cache_count(c).bytes, 0);
}

Test(image_cache, an_empty_image_is_like_any_other) {
    open_for(1000);
    put("", 1);
    cr_assert_eq(get(""), 1);
}

Test(image_cache, condensed_tokens_are_cached_under_their_settings) {
    int32_t *source = malloc(sizeof *source);
    open_for(1000);
    *source = 7;
    put("a", 1);
    put_condensed("a", "condense=hired,keep=0.5", 2, source);
    cr_assert_eq(get("a"), 1);
    cr_assert_eq(get_condensed("a", "condense=hired,keep=0.5"), 2);
    cr_assert_eq(get_condensed("a", "condense=hired,keep=0.4"), -1);
    fv_image_key key = {"a", 1, "condense=hired,keep=0.5"};
    cr_assert_eq(fv_image_cache_get(c, &key)->source[0], 7);
    size_t one = 1 + ROWS, other = 1 + strlen(key.condense) + ROWS + sizeof *source;
    cr_assert_eq(fv_image_cache_count(c).bytes, one + other);
}
