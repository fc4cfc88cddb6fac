/* prefill-worker/image_cache.c: what is found again, and what leaves when there is no room. */
#include <criterion/criterion.h>
#include <string.h>

#include "prefill-worker/image_cache.h"

enum { ROWS = 64 }; /* bytes of a picture's rows here */

static fv_image_cache *c;

static void put(const char *image, uint8_t value) {
    fv_buf rows;
    cr_assert_eq(fv_buf_alloc(fv_device_host(), ROWS, FV_BUF_DEVICE, &rows), FV_OK);
    memset(rows.data, value, ROWS);
    fv_image_cache_put(c, image, strlen(image), &rows);
    cr_assert_null(rows.data, "the buffer was taken");
}

/* The value that was put with the picture; -1: it is not there. */
static int get(const char *image) {
    const fv_buf *rows = fv_image_cache_get(c, image, strlen(image));
    return rows ? *(const uint8_t *)rows->data : -1;
}

static void open_for(size_t bytes) { cr_assert_eq(fv_image_cache_open(bytes, &c), FV_OK); }

static void close_cache(void) { fv_image_cache_close(c); }

TestSuite(image_cache, .fini = close_cache);

Test(image_cache, a_picture_is_found_by_its_bytes) {
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

Test(image_cache, an_empty_picture_is_like_any_other) {
    open_for(1000);
    put("", 1);
    cr_assert_eq(get(""), 1);
}
