/* The prefill worker and many large images: the memory they take, how many may wait, and which
 * requests wait for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/e2e/prefill_rig.h"
#include "tests/support/sanitized.h"

enum { N_LARGE = 6, SIDE = 3000, ROOM = 1 << 20 };
#define PIXELS ((int64_t)SIDE * SIDE)

static uint8_t *large[N_LARGE]; /* [n_large] each: grey PNGs that differ in a comment */
static size_t n_large[N_LARGE];
static heard p, q;
static asking a, b;
static Fovea__Inference__V1__Image image[N_LARGE], *images[N_LARGE];

static void put_chunk(uint8_t *png, size_t *n, const char *kind, const void *data, size_t n_data) {
    uint8_t *at = png + *n;
    uint32_t crc;
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(n_data >> (24 - 8 * i));
    memcpy(at + 4, kind, 4);
    if (n_data) memcpy(at + 8, data, n_data);
    crc = (uint32_t)crc32(0, at + 4, (uInt)(n_data + 4));
    for (int i = 0; i < 4; i++) at[8 + n_data + i] = (uint8_t)(crc >> (24 - 8 * i));
    *n += 12 + n_data;
}

static void make_large(int i, const uint8_t *rows, size_t n_rows) {
    uint8_t head[] = {0, 0, SIDE >> 8, SIDE & 255, 0, 0, SIDE >> 8, SIDE & 255, 8, 0, 0, 0, 0};
    char comment[] = {'a', 0, (char)('0' + i)};
    large[i] = malloc(ROOM);
    cr_assert_not_null(large[i]);
    memcpy(large[i], "\x89PNG\r\n\x1a\n", n_large[i] = 8);
    put_chunk(large[i], &n_large[i], "IHDR", head, sizeof head);
    put_chunk(large[i], &n_large[i], "tEXt", comment, sizeof comment);
    put_chunk(large[i], &n_large[i], "IDAT", rows, n_rows);
    put_chunk(large[i], &n_large[i], "IEND", NULL, 0);
}

static void setup(void) {
    static uint8_t packed[ROOM / 2];
    uLongf n_packed = sizeof packed;
    uLong n = (uLong)SIDE * (SIDE + 1);
    uint8_t *rows = calloc(1, n);
    cr_assert_not_null(rows);
    cr_assert_eq(compress2(packed, &n_packed, rows, n, 1), Z_OK);
    for (int i = 0; i < N_LARGE; i++) make_large(i, packed, n_packed);
    free(rows);
    make_checkpoint();
}

static void drop(void) {
    drop_checkpoint();
    for (int i = 0; i < N_LARGE; i++) free(large[i]);
}

TestSuite(prefill_images, .init = setup, .fini = drop, .timeout = 240);

/* A request about the first n of them. */
static void ask_about_large(asking *x, int n) {
    static char text[256] = "USER: ";
    ask_about_image(x, workers.target);
    strcpy(text, "USER: ");
    for (int i = 0; i < n; i++) {
        strcat(text, "<image>");
        fovea__inference__v1__image__init(&image[i]);
        image[i].data = (ProtobufCBinaryData){n_large[i], large[i]};
        images[i] = &image[i];
    }
    strcat(text, "what is it? ASSISTANT:");
    x->prompt.text = text;
    x->g.images = images;
    x->g.n_images = (size_t)n;
}

static void ask_in_words(asking *x) {
    ask_about_image(x, workers.target);
    x->prompt.text = (char *)"what is it?";
    x->g.n_images = 0;
}

static size_t status_kib(const char *name) {
    char line[256];
    size_t kib = 0, n = strlen(name);
    FILE *f = fopen("/proc/self/status", "r");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, name, n) == 0) kib = strtoul(line + n + 1, NULL, 10);
    fclose(f);
    cr_assert_gt(kib, 0);
    return kib;
}

/* Resets the high-water mark. */
static void forget_peak(void) {
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f || fputs("5", f) < 0 || fclose(f) != 0) cr_skip("this kernel does not forget a peak");
}

Test(prefill_images, many_take_the_memory_of_one) {
    if (SANITIZED) cr_skip("a sanitizer keeps what was freed");
    open_workers();
    ask_about_large(&a, N_LARGE);
    forget_peak();
    size_t before = status_kib("VmRSS:");
    run_well(&p, &a);
    size_t more = status_kib("VmHWM:") - before, one = (size_t)(3 * PIXELS / 1024);
    cr_assert_geq(more, one, "%zu KiB: they were not decoded", more);
    cr_assert_lt(more, 2 * one, "%zu KiB for pictures of %zu KiB each", more, one);
    cr_assert_str_eq(p.order, "BFH");
    close_workers();
}

Test(prefill_images, requests_without_images_do_not_wait_for_them) {
    open_workers();
    ask_about_large(&a, N_LARGE);
    ask_in_words(&b);
    begin(&p, &a);
    while (prefill_load().n_running == 0) net_sleep(&workers.net, 1);
    run_well(&q, &b);
    cr_assert_null(p.first, "the pictures came first");
    net_wait(&workers.net, &p.over);
    cr_assert_eq(p.end.status, FV_OK, "%s", p.why);
    close_workers();
}

/* Large images of one tenant are under way; another tenant's small image waits for none of these
 * requests. */
Test(prefill_images, a_tenants_large_images_do_not_keep_another_tenants_small_one_waiting) {
    enum { MANY = 2 };
    static heard many[MANY];
    workers.p.pixels = workers.p.pixels_request = 0;
    open_workers();
    ask_about_large(&a, N_LARGE);
    a.m.tenant = (char *)"a";
    for (int i = 0; i < MANY; i++) begin(&many[i], &a);
    while (prefill_load().n_running < MANY) net_sleep(&workers.net, 1);
    ask_about_image(&b, workers.target);
    b.m.tenant = (char *)"b";
    run_well(&q, &b);
    for (int i = 0; i < MANY; i++)
        cr_assert_null(many[i].first, "request %d of the other came first", i);
    for (int i = 0; i < MANY; i++) net_wait(&workers.net, &many[i].over);
    for (int i = 0; i < MANY; i++) cr_assert_eq(many[i].end.status, FV_OK, "%s", many[i].why);
    close_workers();
}

Test(prefill_images, those_that_wait_are_bounded_and_more_go_elsewhere) {
    workers.p.pixels = (N_LARGE + 1) * PIXELS;
    workers.p.pixels_request = N_LARGE * PIXELS;
    open_workers();
    ask_about_large(&a, N_LARGE);
    begin(&p, &a);
    while (prefill_load().pixels_held == 0) net_sleep(&workers.net, 1);
    cr_assert_eq(prefill_load().pixels_held, (uint64_t)(N_LARGE * PIXELS));
    cr_assert_eq(prefill_load().pixels_capacity, (uint64_t)workers.p.pixels);
    b = a;
    b.m.request = &b.g;
    b.g.n_images = 2;
    run(&q, &b);
    cr_assert_eq(q.end.status, FV_EBUSY, "%s", q.why);
    cr_assert_geq(q.end.retry_ms, 0);
    cr_assert(strstr(q.why, "another worker"), "%s", q.why);
    net_wait(&workers.net, &p.over);
    cr_assert_eq(p.end.status, FV_OK, "%s", p.why);
    cr_assert_eq(prefill_load().pixels_held, 0);
    close_workers();
}

Test(prefill_images, more_than_a_request_may_bring_are_refused_for_good) {
    workers.p.pixels_request = PIXELS;
    open_workers();
    ask_about_large(&a, 2);
    run(&p, &a);
    cr_assert_eq(p.end.status, FV_EINVAL, "%s", p.why);
    cr_assert(strstr(p.why, "in total"), "%s", p.why);
    cr_assert_eq(prefill_load().pixels_held, 0);
    close_workers();
}

Test(prefill_images, a_broken_one_among_them_is_named_and_the_rest_is_given_back) {
    open_workers();
    ask_about_large(&a, 3);
    image[1].data.len /= 2;
    run(&p, &a);
    cr_assert_eq(p.end.status, FV_EINVAL, "%s", p.why);
    cr_assert(strstr(p.why, "image 1"), "%s", p.why);
    cr_assert_null(p.begun);
    wait_for_nothing_held();
    cr_assert_eq(prefill_load().pixels_held, 0);
    close_workers();
}

Test(prefill_images, a_client_that_goes_while_they_are_read_leaves_nothing) {
    open_workers();
    ask_about_large(&a, N_LARGE);
    begin(&p, &a);
    while (prefill_load().n_running == 0) net_sleep(&workers.net, 1);
    fv_rpc_call_cancel(p.call);
    net_wait(&workers.net, &p.over);
    wait_for_nothing_held();
    cr_assert_eq(prefill_load().pixels_held, 0);
    close_workers();
}

/* Both images have the same pixels but are different files. A cache with space for only one drops
 * an image that a later request counts on. */
static void same_rows_with_cache(size_t bytes) {
    static const int second[] = {0, 1, 1, 0};
    uint64_t digest = 0;
    workers.p.cache_bytes = bytes;
    open_workers();
    for (int i = 0; i < 4; i++) {
        fv_arena_fini(&p.arena);
        p = (heard){0};
        ask_about_large(&a, 2);
        images[1] = &image[second[i]];
        run_well(&p, &a);
        if (i > 0) cr_assert_eq(first_digest(&p), digest);
        digest = first_digest(&p);
    }
    close_workers();
}

Test(prefill_images, tokens_are_the_same_without_a_cache) { same_rows_with_cache(0); }
Test(prefill_images, tokens_are_the_same_with_a_cache_for_one) {
    same_rows_with_cache(n_large[0] + 4096);
}
Test(prefill_images, tokens_are_the_same_with_a_large_cache) { same_rows_with_cache(1 << 20); }
