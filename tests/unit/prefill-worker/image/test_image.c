/* prefill-worker/image: Pillow's pixels, transformers' pixel_values, and hostile files. The
 * expectations are in golden/image/golden.txt (parity/image_golden.py wrote them). */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zlib.h>

#include "common/file.h"
#include "prefill-worker/image/image.h"
#include "tests/support/layout_line.h"

#define GOLDEN FOVEA_TEST_DATA "/golden/image/"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

struct file {
    uint8_t *bytes;
    size_t n;
};

static struct file load(const char *name) {
    char path[512], *data = NULL;
    struct file f = {0};
    snprintf(path, sizeof path, GOLDEN "%s", name);
    cr_assert_eq(fv_file_read(path, 1 << 20, &data, &f.n), FV_OK, "%s", fv_last_error());
    f.bytes = (uint8_t *)data;
    return f;
}

/* Calls use(line) for each line of the file that starts with `kind`; there must be some. */
static void for_each_in(const char *path, const char *kind, void (*use)(const char *line)) {
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f);
    char line[1024];
    int n = 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, kind, strlen(kind)) == 0) use(line), n++;
    fclose(f);
    cr_assert_gt(n, 10, "%s has %d lines '%s'", path, n, kind);
}

static void for_each(const char *kind, void (*use)(const char *line)) {
    for_each_in(GOLDEN "golden.txt", kind, use);
}

static uint32_t crc(const void *bytes, size_t n) { return (uint32_t)crc32(0, bytes, (uInt)n); }

static size_t bytes_of(const fv_image *img) { return (size_t)img->w * (size_t)img->h * 3; }

/* pattern() of image_golden.py. */
static fv_image pattern(uint32_t seed, int32_t w, int32_t h) {
    fv_image img = {.rgb = malloc((size_t)w * (size_t)h * 3), .w = w, .h = h};
    cr_assert_not_null(img.rgb);
    uint8_t *p = img.rgb;
    for (uint32_t y = 0; y < (uint32_t)h; y++)
        for (uint32_t x = 0; x < (uint32_t)w; x++)
            for (uint32_t c = 0; c < 3; c++) {
                uint32_t v = x * 73856093u ^ y * 19349663u ^ (c + 1) * 83492791u;
                v ^= seed * 2654435761u;
                v = (v ^ v >> 13) * 0x5bd1e995u;
                v = (v ^ v >> 15) * 0x5bd1e995u;
                v ^= v >> 16;
                if (seed % 3 == 1) v = x * 2 + y * 3 + c * 85 + (v & 15);
                if (seed % 3 == 2) v = (x >> 2 ^ y >> 1 ^ (v >> 7 & 1)) & 1 ? 255 : 0;
                *p++ = (uint8_t)v;
            }
    return img;
}

/* ---- against Pillow and transformers ----------------------------------------------------- */

static void check_decode(const char *line) {
    char name[64];
    int32_t w, h;
    uint32_t want;
    cr_assert_eq(sscanf(line, "decode %63s %" SCNd32 " %" SCNd32 " %" SCNx32, name, &w, &h, &want),
                 4);
    struct file f = load(name);
    fv_image img = {0};
    cr_expect_eq(fv_image_decode(f.bytes, f.n, NULL, &img), FV_OK, "%s: %s", name, fv_last_error());
    cr_expect(img.w == w && img.h == h, "%s is %" PRId32 " x %" PRId32, name, img.w, img.h);
    cr_expect_eq(crc(img.rgb, bytes_of(&img)), want, "the pixels of %s differ", name);
    fv_image_free(&img);
    free(f.bytes);
}

Test(image, every_kind_of_file_decodes_to_the_bytes_that_pillow_gives) {
    for_each("decode", check_decode);
}

static void check_resize(const char *line) {
    uint32_t seed, want;
    int32_t a[5];
    cr_assert_eq(sscanf(line,
                        "resize %" SCNu32 " %" SCNd32 " %" SCNd32 " %" SCNd32 " %" SCNd32
                        " %" SCNd32 " %" SCNx32,
                        &seed, &a[0], &a[1], &a[2], &a[3], &a[4], &want),
                 7);
    fv_image in = pattern(seed, a[0], a[1]), out = {0};
    cr_expect_eq(fv_image_resize(&in, a[2], a[3], a[4], &out), FV_OK);
    cr_expect(out.w == a[2] && out.h == a[3]);
    cr_expect_eq(crc(out.rgb, bytes_of(&out)), want, "%s", line);
    fv_image_free(&in);
    fv_image_free(&out);
}

Test(image, resize_gives_pillows_bytes_for_every_filter) { for_each("resize", check_resize); }

static void check_pixels(const char *line) {
    fv_layout_config layout = {.family = FV_LAYOUT_LLAVA, .merge = 1};
    fv_image_config c = {.do_convert_rgb = true};
    fv_layout l;
    uint32_t seed, want;
    int32_t w, h;
    int flags;
    cr_assert_eq(sscanf(line,
                        "pixels %" SCNu32 " %" SCNd32 " %" SCNd32 " %d %" SCNd32 " %" SCNd32
                        " %" SCNd32 " %" SCNd32 " %" SCNd32 " %la %a %a %a %a %a %a %" SCNx32,
                        &seed, &w, &h, &flags, &layout.shortest_edge, &layout.resize.w,
                        &layout.resize.h, &layout.tile, &c.resample, &c.rescale_factor, &c.mean[0],
                        &c.mean[1], &c.mean[2], &c.std[0], &c.std[1], &c.std[2], &want),
                 17);
    layout.patch = layout.tile;
    layout.pad_square = flags & 16;
    if (!(flags & 1)) layout.shortest_edge = layout.resize.w = layout.resize.h = 0;
    c.do_rescale = flags & 4;
    c.do_normalize = flags & 8;
    fv_image in = pattern(seed, w, h);
    cr_assert_eq(fv_layout_check(&layout), FV_OK, "%s: %s", line, fv_last_error());
    cr_assert_eq(fv_layout_image(&layout, w, h, 1, &l), FV_OK);
    const size_t n = fv_image_pixels_count(&l);
    float *out = malloc(n * sizeof *out);
    cr_assert_not_null(out);
    cr_expect_eq(fv_image_preprocess(&in, &l, &c, out), FV_OK, "%s: %s", line, fv_last_error());
    cr_expect_eq(crc(out, n * sizeof *out), want, "%s", line);
    free(out);
    fv_image_free(&in);
}

Test(image, preprocess_gives_the_float_bits_of_clip_image_processor) {
    for_each("pixels", check_pixels);
}

/* Lines of golden/layout/golden.txt that have a checksum of pixels. */
static void check_tiles(const char *line) {
    fv_layout_config layout;
    fv_image_config c = {.do_rescale = true, .do_normalize = true, .rescale_factor = 1.0 / 255};
    fv_layout l;
    int32_t n_image, w, h;
    uint32_t want;
    const char *rest = layout_config_read(line, &layout);
    cr_assert(rest &&
              sscanf(rest, "%" SCNd32 " %" SCNd32 " %" SCNd32 " %*d %*d %*x %*x %" SCNd32 " %f %f",
                     &n_image, &w, &h, &c.resample, &c.mean[0], &c.std[0]) == 6);
    if (sscanf(strrchr(line, ' '), "%" SCNx32, &want) != 1) return;
    for (int i = 1; i < 3; i++) c.mean[i] = c.mean[0], c.std[i] = c.std[0];
    cr_assert_eq(fv_layout_image(&layout, w, h, n_image, &l), FV_OK, "%s", fv_last_error());
    fv_image in = pattern(0, w, h);
    const size_t n = fv_image_pixels_count(&l);
    float *out = malloc(n * sizeof *out);
    cr_assert_not_null(out);
    cr_expect_eq(fv_image_preprocess(&in, &l, &c, out), FV_OK, "%s: %s", line, fv_last_error());
    cr_expect_eq(crc(out, n * sizeof *out), want, "%s", line);
    free(out);
    fv_image_free(&in);
}

Test(image, tiles_have_the_float_bits_of_each_familys_image_processor) {
    static const char *const families[] = {"1 ", "2 ", "3 ", "4 "};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        for_each_in(FOVEA_TEST_DATA "/golden/layout/golden.txt", families[i], check_tiles);
}

/* ---- resize and preprocess by themselves ---- */

static const fv_image_config halves = {.do_rescale = true,
                                       .do_normalize = true,
                                       .resample = 3,
                                       .rescale_factor = 1.0 / 255,
                                       .mean = {0.5f, 0.5f, 0.5f},
                                       .std = {0.5f, 0.5f, 0.5f}};

/* The middle square of an image of w x h, at `side` pixels; all of it, where it is padded. */
static fv_layout square_of(int32_t side, bool pad, int32_t w, int32_t h) {
    const fv_layout_config c = {.family = FV_LAYOUT_LLAVA,
                                .tile = side,
                                .patch = side,
                                .merge = 1,
                                .pad_square = pad,
                                .shortest_edge = side};
    fv_layout l;
    cr_assert_eq(fv_layout_image(&c, w, h, 1, &l), FV_OK, "%s", fv_last_error());
    return l;
}

static fv_image plain(int32_t w, int32_t h, int value) {
    fv_image img = {.rgb = malloc((size_t)w * (size_t)h * 3), .w = w, .h = h};
    cr_assert_not_null(img.rgb);
    memset(img.rgb, value, bytes_of(&img));
    return img;
}

Test(image, resize_refuses_an_unknown_filter_and_empty_sizes) {
    fv_image in = plain(4, 4, 9), out = {0};
    cr_assert_eq(fv_image_resize(&in, 2, 2, 4, &out), FV_EINVAL);
    cr_assert_eq(fv_image_resize(&in, 2, 2, -1, &out), FV_EINVAL);
    cr_assert_eq(fv_image_resize(&in, 0, 2, 3, &out), FV_EINVAL);
    cr_assert_eq(fv_image_resize(&in, 2, -1, 0, &out), FV_EINVAL);
    fv_image_free(&in);
    cr_assert_eq(fv_image_resize(&in, 2, 2, 3, &out), FV_EINVAL, "an empty image has no pixels");
    cr_assert_null(out.rgb);
}

Test(image, preprocess_refuses_numbers_that_cannot_work) {
    fv_image img = plain(5, 4, 1);
    float out[3 * 8 * 8];
    const fv_layout crop = square_of(8, false, 5, 4), pad = square_of(8, true, 5, 4);
    fv_image_config c = halves;
    c.std[1] = 0;
    cr_assert_eq(fv_image_preprocess(&img, &crop, &c, out), FV_EINVAL);
    c = halves;
    c.resample = 5;
    cr_assert_eq(fv_image_preprocess(&img, &crop, &c, out), FV_EINVAL);
    c = halves;
    c.mean[2] = 103.9f; /* no colour */
    cr_assert_eq(fv_image_preprocess(&img, &crop, &c, out), FV_OK);
    cr_assert_eq(fv_image_preprocess(&img, &pad, &c, out), FV_EINVAL);
    const fv_layout other = square_of(8, false, 4, 5);
    cr_assert_eq(fv_image_preprocess(&img, &other, &halves, out), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "4 x 5"), "%s", fv_last_error());
    fv_image_free(&img);
    cr_assert_eq(fv_image_preprocess(&img, &crop, &halves, out), FV_EINVAL,
                 "an empty image has no pixels");
}

Test(image, tiles_are_cut_from_the_canvas_in_raster_order_and_padding_is_black) {
    fv_image img = plain(3, 2, 0);
    for (int i = 0; i < 6; i++) memset(img.rgb + 3 * i, 51 * (i % 3 + 1), 3);
    const fv_layout l = {
        .image_w = 3,
        .image_h = 2,
        .frames = 1,
        .n_tile = 5,
        .tile = {2, 2},
        .n_view = 2,
        .view = {
            {.x = 1, .y = 1, .w = 4, .h = 4, .cols = 2, .rows = 2},
            {.n_resize = 2, .resize = {{1, 5}, {2, 2}}, .w = 2, .h = 2, .cols = 1, .rows = 1}}};
    const fv_image_config c = {.do_rescale = true, .rescale_factor = 1.0 / 51};
    static const float want[5][4] = {
        {0, 0, 0, 1}, {0, 0, 2, 3}, {0, 1, 0, 0}, {2, 3, 0, 0}, {2, 2, 2, 2}};
    float out[5][3][4];
    cr_assert_eq(fv_image_pixels_count(&l), sizeof out / sizeof(float));
    cr_assert_eq(fv_image_preprocess(&img, &l, &c, out[0][0]), FV_OK, "%s", fv_last_error());
    for (int t = 0; t < 5; t++)
        for (int k = 0; k < 3; k++)
            for (int i = 0; i < 4; i++)
                cr_assert_float_eq(out[t][k][i], want[t][i], 1e-6, "%d %d %d", t, k, i);
    fv_image_free(&img);
}

/* Limits the memory of this process, except with sanitizers, which reserve too much. */
static void limit_memory(void) {
#ifndef SANITIZED
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    cr_assert(f && fscanf(f, "%zu", &pages) == 1);
    fclose(f);
    const rlim_t room = (rlim_t)pages * 4096 + ((rlim_t)48 << 20);
    cr_assert_eq(setrlimit(RLIMIT_AS, &(struct rlimit){room, room}), 0);
#endif
}

Test(image, a_strip_is_not_resized_beyond_what_the_crop_keeps) {
    fv_image tall = plain(1, 16384, 255); /* its short side at 336 would make 5.5 gigabytes */
    const fv_layout l = square_of(336, false, 1, 16384);
    const size_t n = fv_image_pixels_count(&l);
    cr_assert_eq(n, 3u * 336 * 336);
    float *out = malloc(n * sizeof *out);
    cr_assert_not_null(out);
    limit_memory();
    cr_assert_eq(fv_image_preprocess(&tall, &l, &halves, out), FV_OK, "%s", fv_last_error());
    for (size_t i = 0; i < n; i++) cr_assert_eq(out[i], 1.0f);
    free(out);
    fv_image_free(&tall);
}

Test(image, a_square_that_padding_would_make_too_large_is_refused) {
    fv_image wide = plain(8193, 1, 0);
    const fv_layout l = square_of(8, true, 8193, 1);
    float out[3 * 8 * 8];
    limit_memory();
    cr_assert_eq(fv_image_preprocess(&wide, &l, &halves, out), FV_EINVAL, "%s", fv_last_error());
    fv_image_free(&wide);
}

/* ---- files from outside ---- */

static fv_status decode(const void *bytes, size_t n) {
    fv_image img = {0};
    fv_status st = fv_image_decode(bytes, n, NULL, &img);
    cr_assert((st == FV_OK) == (img.rgb != NULL), "an output must come with success only");
    fv_image_free(&img);
    return st;
}

/* A copy that ends where the heap block ends, for AddressSanitizer to guard. */
static uint8_t *copy_of(const uint8_t *bytes, size_t n) {
    uint8_t *copy = malloc(n + !n);
    cr_assert_not_null(copy);
    memcpy(copy, bytes, n);
    return copy;
}

static fv_status decode_copy(const uint8_t *bytes, size_t n) {
    uint8_t *copy = copy_of(bytes, n);
    fv_status st = decode(copy, n);
    free(copy);
    return st;
}

Test(image, nothing_at_all_is_not_an_image) {
    cr_assert_eq(decode(NULL, 0), FV_EDATA);
    cr_assert_eq(decode("\xff\xd8\xff", 3), FV_EDATA);
}

Test(image, an_unknown_format_is_named_by_its_first_bytes) {
    cr_assert_eq(decode("%PDF-1.4 no image", 17), FV_EUNSUPPORTED);
    cr_assert_not_null(strstr(fv_last_error(), "25 50 44 46"), "%s", fv_last_error());
}

/* A PNG is read up to its last row: a cut after that leaves all pixels. */
static void check_truncated(const char *line) {
    char name[64];
    uint32_t want;
    cr_assert_eq(sscanf(line, "decode %63s %*d %*d %" SCNx32, name, &want), 2);
    struct file f = load(name);
    const bool png = f.bytes[1] == 'P';
    const size_t step = 1 + f.n / 50;
    for (size_t n = 0; n < f.n; n += n + 24 < f.n ? step : 1) {
        uint8_t *copy = copy_of(f.bytes, n);
        fv_image img = {0};
        fv_status st = fv_image_decode(copy, n, NULL, &img);
        if (st == FV_OK && png)
            cr_expect_eq(crc(img.rgb, bytes_of(&img)), want, "%s cut to %zu of %zu", name, n, f.n);
        else
            cr_expect_eq(st, FV_EDATA, "%s cut to %zu of %zu bytes: %s", name, n, f.n,
                         fv_last_error());
        fv_image_free(&img);
        free(copy);
    }
    free(f.bytes);
}

Test(image, a_file_that_was_cut_anywhere_is_refused_unless_all_its_pixels_are_there) {
    for_each("decode", check_truncated);
}

Test(image, a_jpeg_that_was_cut_between_its_pixels_and_its_end_marker_is_refused) {
    struct file f = load("420.jpg");
    static const uint8_t comment[] = {0xff, 0xfe, 0, 102};
    uint8_t *longer = calloc(1, f.n + 104);
    cr_assert_not_null(longer);
    memcpy(longer, f.bytes, f.n - 2);
    memcpy(longer + f.n - 2, comment, sizeof comment);
    memcpy(longer + f.n + 102, "\xff\xd9", 2);
    cr_expect_eq(decode_copy(longer, f.n + 104), FV_OK, "%s", fv_last_error());
    cr_expect_eq(decode_copy(longer, f.n + 102), FV_EDATA);
    cr_expect_eq(decode_copy(longer, f.n + 50), FV_EDATA);
    free(longer);
    free(f.bytes);
}

static void check_damaged(const char *line) {
    char name[64];
    cr_assert_eq(sscanf(line, "decode %63s", name), 1);
    struct file f = load(name);
    uint32_t random = (uint32_t)f.n;
    for (int i = 0; i < 60; i++) {
        random = random * 1664525u + 1013904223u;
        uint8_t *at = &f.bytes[(random >> 8) % f.n];
        const uint8_t was = *at;
        *at ^= (uint8_t)(1u << (random & 7));
        fv_status st = decode_copy(f.bytes, f.n);
        cr_expect(st == FV_OK || st == FV_EDATA || st == FV_EINVAL || st == FV_EUNSUPPORTED,
                  "%s: %s %s", name, fv_status_name(st), fv_last_error());
        if (i % 4) *at = was; /* some damage stays and adds up */
    }
    free(f.bytes);
}

Test(image, damage_ends_in_an_image_or_in_an_error) { for_each("decode", check_damaged); }

static void put32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (24 - 8 * i));
}

/* rgb_8.png with other sides, its checksum corrected. */
static struct file png_of(uint32_t w, uint32_t h) {
    struct file f = load("rgb_8.png");
    put32(f.bytes + 16, w);
    put32(f.bytes + 20, h);
    put32(f.bytes + 29, crc(f.bytes + 12, 17));
    return f;
}

static size_t find(struct file f, const char *what, size_t n) {
    uint8_t *p = memmem(f.bytes, f.n, what, n);
    cr_assert_not_null(p);
    return (size_t)(p - f.bytes);
}

/* 420.jpg with other sides: length and precision stand between the marker and the height. */
static struct file jpeg_of(unsigned w, unsigned h) {
    struct file f = load("420.jpg");
    uint8_t *p = f.bytes + find(f, "\xff\xc0", 2) + 5;
    p[0] = (uint8_t)(h >> 8), p[1] = (uint8_t)h, p[2] = (uint8_t)(w >> 8), p[3] = (uint8_t)w;
    return f;
}

/* lossy.webp, whose frame header has sides of 14 bits. */
static struct file webp_of(unsigned w, unsigned h) {
    struct file f = load("lossy.webp");
    uint8_t *p = f.bytes + find(f, "\x9d\x01\x2a", 3) + 3;
    p[0] = (uint8_t)w, p[1] = (uint8_t)(w >> 8), p[2] = (uint8_t)h, p[3] = (uint8_t)(h >> 8);
    return f;
}

static void expect_and_free(struct file f, fv_status want) {
    fv_status st = decode(f.bytes, f.n);
    cr_expect_eq(st, want, "%s: %s", fv_status_name(st), fv_last_error());
    free(f.bytes);
}

Test(image, a_header_that_claims_too_many_pixels_takes_no_memory) {
    limit_memory();
    expect_and_free(png_of(100000, 100000), FV_EINVAL);
    expect_and_free(png_of(0x7fffffff, 0x7fffffff), FV_EINVAL);
    expect_and_free(png_of(0xffffffff, 0xffffffff), FV_EINVAL);
    expect_and_free(png_of(16385, 1), FV_EINVAL);
    expect_and_free(png_of(16384, 4097), FV_EINVAL);
    expect_and_free(jpeg_of(65500, 65500), FV_EINVAL);
    expect_and_free(jpeg_of(65535, 65535), FV_EINVAL);
    expect_and_free(jpeg_of(1, 16385), FV_EINVAL);
    expect_and_free(webp_of(16383, 16383), FV_EINVAL);
}

Test(image, an_image_without_width_or_height_is_corrupt) {
    expect_and_free(png_of(0, 17), FV_EDATA);
    expect_and_free(png_of(23, 0), FV_EDATA);
    expect_and_free(jpeg_of(0, 37), FV_EDATA);
    expect_and_free(jpeg_of(53, 0), FV_EDATA);
    expect_and_free(webp_of(0, 37), FV_EDATA);
}

Test(image, each_limit_lets_its_own_value_through_and_nothing_above) {
    static const char *const names[] = {"420.jpg", "444_progressive.jpg", "lossy.webp",
                                        "lossless.webp", "larger.jpg"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct file f = load(names[i]);
        fv_image img = {0};
        cr_assert_eq(fv_image_decode(f.bytes, f.n, NULL, &img), FV_OK);
        const fv_image_limits exact = {f.n, img.w > img.h ? img.w : img.h, (int64_t)img.w * img.h};
        fv_image_free(&img);
        cr_expect_eq(fv_image_decode(f.bytes, f.n, &exact, &img), FV_OK);
        fv_image_free(&img);
        fv_image_limits lim = exact;
        lim.bytes_max--;
        cr_expect_eq(fv_image_decode(f.bytes, f.n, &lim, &img), FV_EINVAL);
        lim = exact;
        lim.side_max--;
        cr_expect_eq(fv_image_decode(f.bytes, f.n, &lim, &img), FV_EINVAL);
        lim = exact;
        lim.pixels_max--;
        cr_expect_eq(fv_image_decode(f.bytes, f.n, &lim, &img), FV_EINVAL);
        cr_expect_null(img.rgb);
        free(f.bytes);
    }
}

/* grey_progressive.jpg with its first scan written `times` times. */
static struct file repeated_scan(int times) {
    struct file f = load("grey_progressive.jpg"), out = {0};
    const size_t from = find(f, "\xff\xda", 2);
    size_t to = from + 2;
    while (f.bytes[to] != 0xff || f.bytes[to + 1] == 0) to++; /* the next marker */
    out.bytes = malloc(f.n + (to - from) * (size_t)times);
    cr_assert_not_null(out.bytes);
    memcpy(out.bytes, f.bytes, to);
    out.n = to;
    for (int i = 1; i < times; i++, out.n += to - from)
        memcpy(out.bytes + out.n, f.bytes + from, to - from);
    memcpy(out.bytes + out.n, f.bytes + to, f.n - to);
    out.n += f.n - to;
    free(f.bytes);
    return out;
}

Test(image, a_jpeg_with_hundreds_of_scans_is_refused) {
    expect_and_free(repeated_scan(50), FV_OK);
    expect_and_free(repeated_scan(150), FV_EINVAL);
    cr_assert_not_null(strstr(fv_last_error(), "scans"), "%s", fv_last_error());
}

Test(image, jpegs_of_another_process_are_unsupported_not_corrupt) {
    struct file f = load("420.jpg"); /* 12 bits per sample */
    f.bytes[find(f, "\xff\xc0", 2) + 4] = 12;
    expect_and_free(f, FV_EUNSUPPORTED);
    f = load("420.jpg"); /* lossless */
    f.bytes[find(f, "\xff\xc0", 2) + 1] = 0xc3;
    expect_and_free(f, FV_EUNSUPPORTED);
}

static void cut(struct file *f, size_t at, size_t n) {
    memmove(f->bytes + at, f->bytes + at + n, f->n - at - n);
    f->n -= n;
}

Test(image, a_jpeg_of_two_components_is_unsupported) {
    struct file f = load("444.jpg");
    const size_t sof = find(f, "\xff\xc0", 2);
    f.bytes[sof + 3] -= 3; /* length */
    f.bytes[sof + 9] = 2;
    cut(&f, sof + 16, 3);
    const size_t sos = find(f, "\xff\xda", 2);
    f.bytes[sos + 3] -= 2;
    f.bytes[sos + 4] = 2;
    cut(&f, sos + 9, 2);
    expect_and_free(f, FV_EUNSUPPORTED);
    cr_assert_not_null(strstr(fv_last_error(), "2 colour components"), "%s", fv_last_error());
}

Test(image, freeing_an_empty_image_does_nothing) {
    fv_image img = {0};
    fv_image_free(&img);
    cr_assert_null(img.rgb);
}
