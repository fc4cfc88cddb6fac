/* image/size: headers of image files, as cameras and attackers write them. fuzz_image_size
 * tests that it agrees with the decoders. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/file.h"
#include "image/size.h"

#define GOLDEN FOVEA_TEST_DATA "/golden/"

/* On the heap and of exact size, so that a sanitizer detects reading past the end. */
static fv_status read_copy(const void *bytes, size_t n, fv_image_size *out) {
    void *copy = malloc(n ? n : 1);
    cr_assert_not_null(copy);
    if (n) memcpy(copy, bytes, n);
    fv_status st = fv_image_size_read(copy, n, out);
    free(copy);
    return st;
}

static char *load(const char *folder, const char *name, size_t *n) {
    char path[512], *data = NULL;
    snprintf(path, sizeof path, GOLDEN "%s/%s", folder, name);
    cr_assert_eq(fv_file_read(path, 1 << 20, &data, n), FV_OK, "%s", fv_last_error());
    return data;
}

/* Reads every beginning of a file. One has the whole file's size, or none; before the orientation was read it may have
 * the sides exchanged. */
static void check_beginnings(const char *folder, const char *name, int32_t w, int32_t h) {
    size_t n, n_known = 0;
    fv_image_size s = {0};
    char *bytes = load(folder, name, &n);
    for (size_t i = 0; i <= n; i++) {
        if (read_copy(bytes, i, &s) != FV_OK) {
            cr_assert_eq(n_known, 0, "%s: %s", name, fv_last_error());
            continue;
        }
        cr_assert((s.w == w && s.h == h) || (s.w == h && s.h == w), "%s is %" PRId32 " x %" PRId32,
                  name, s.w, s.h);
        n_known++;
    }
    cr_assert(n_known > 0 && s.w == w && s.h == h, "%s", name);
    free(bytes);
}

/* golden.txt has Pillow's result: "decode NAME W H CRC", or "near NAME W H". */
static void check_folder(const char *folder, int32_t least) {
    char path[512], line[512], name[64];
    int32_t w, h, n_file = 0;
    snprintf(path, sizeof path, GOLDEN "%s/golden.txt", folder);
    FILE *f = fopen(path, "r");
    cr_assert_not_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "decode %63s %" SCNd32 " %" SCNd32, name, &w, &h) != 3 &&
            sscanf(line, "near %63s %" SCNd32 " %" SCNd32, name, &w, &h) != 3)
            continue;
        check_beginnings(folder, name, w, h);
        n_file++;
    }
    fclose(f);
    cr_assert_gt(n_file, least);
}

Test(image_size, every_kind_of_file_has_the_size_that_pillow_gives) { check_folder("image", 50); }

Test(image_size, every_format_and_orientation_has_the_size_that_pillow_gives) {
    check_folder("formats", 100);
}

/* ---- JPEG: what may precede the frame header ---------------------------------------------- */

static uint8_t jpeg[1 << 20];
static size_t n_jpeg;

static void put(const void *bytes, size_t n) {
    cr_assert_leq(n_jpeg + n, sizeof jpeg);
    memcpy(jpeg + n_jpeg, bytes, n);
    n_jpeg += n;
}

static void begin(void) {
    n_jpeg = 0;
    put("\xff\xd8\xff\xe0\x00\x04xx", 8);
}

/* 0x1234 x 0x0567 */
static void frame(uint8_t marker) {
    uint8_t head[] = {0xff, marker, 0, 17, 8, 0x05, 0x67, 0x12, 0x34, 3};
    put(head, sizeof head);
    put("\x01\x11\x00\x02\x11\x00\x03\x11\x00", 9);
}

static void is(fv_status want) {
    fv_image_size s = {0};
    fv_status st = read_copy(jpeg, n_jpeg, &s);
    cr_assert_eq(st, want, "%s %s", fv_status_name(st), fv_last_error());
    if (st == FV_OK) cr_assert(s.w == 0x1234 && s.h == 0x567 && s.kind == FV_IMAGE_JPEG);
}

Test(image_size, a_jpeg_has_one_frame_header_of_any_process) {
    for (int marker = 0xc0; marker <= 0xcf; marker++) {
        bool none = marker == 0xc4 || marker == 0xc8 || marker == 0xcc; /* DHT, JPG, DAC */
        begin();
        frame((uint8_t)marker);
        if (none) put("\xff\xd9", 2);
        is(none ? FV_EDATA : FV_OK);
    }
}

Test(image_size, segments_padding_and_some_stray_bytes_are_passed_over) {
    begin();
    put("\xff\xd0\xff\x01", 4);                                          /* without a length */
    put("\xff\xe1\x00\x0c\xff\xc0\x00\x11\x08\x00\x01\x00\x01\x03", 14); /* a thumbnail's header */
    put("\xff\xff\xff\xff\xfe\x00\x02", 7);                              /* padding */
    put("stray\xff\x00stray", 12);
    frame(0xc2);
    is(FV_OK);
}

Test(image_size, a_jpeg_without_a_frame_header_ends_somewhere) {
    begin();
    is(FV_EDATA);
    put("\xff\xda\x00\x02", 4);
    frame(0xc0); /* after the first scan */
    is(FV_EDATA);
    begin();
    put("\xff\xe1\xff\xff", 4); /* longer than the file */
    is(FV_EDATA);
}

Test(image_size, the_bytes_read_are_bounded) {
    uint8_t zeros[5000] = {0};
    begin();
    put(zeros, 4000);
    frame(0xc0);
    is(FV_OK);
    begin();
    put(zeros, 5000);
    frame(0xc0);
    is(FV_EDATA);
    begin();
    for (int i = 0; i < 1000; i++) put("\xff\xe1\x00\x04xx", 6);
    frame(0xc0);
    is(FV_OK);
    begin();
    for (int i = 0; i < 1100; i++) put("\xff\xe1\x00\x04xx", 6);
    frame(0xc0);
    is(FV_EDATA);
}

/* ---- HEIF: boxes within boxes ------------------------------------------------------------- */

Test(image_size, a_list_of_items_that_is_too_long_is_refused_at_once) {
    static uint8_t file[3 << 20] = "\0\0\0\x18"
                                   "ftypheic\0\0\0\0mif1heic\0\x20\0\0meta";
    fv_image_size s = {0};
    cr_assert_eq(read_copy(file, sizeof file, &s), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "1 MiB"), "%s", fv_last_error());
}

Test(image_size, a_video_is_named_as_one) {
    static const uint8_t file[] = "\0\0\0\x14"
                                  "ftypisom\0\0\0\0mp42\0\0\0\x08moov";
    fv_image_size s = {0};
    cr_assert_eq(read_copy(file, sizeof file - 1, &s), FV_EUNSUPPORTED);
    cr_assert(strstr(fv_last_error(), "MP4"), "%s", fv_last_error());
}

/* ---- limits ------------------------------------------------------------------------------- */

Test(image_size, limits_of_zero_do_not_limit) {
    fv_image_limits none = {0}, lim = {.side_max = 0x1233};
    fv_image_size s = {0};
    begin();
    frame(0xc0);
    cr_assert_eq(fv_image_size_check(jpeg, n_jpeg, &none, &s), FV_OK);
    cr_assert_eq(fv_image_size_pixels(&s), 0x1234 * 0x567);
    cr_assert_eq(fv_image_size_check(jpeg, n_jpeg, &lim, &s), FV_EINVAL);
    cr_assert_str_eq(fv_last_error(), "the JPEG is 4660 x 1383 pixels; sides go up to 4659");
    lim = (fv_image_limits){.pixels_max = 0x1234 * 0x567 - 1};
    cr_assert_eq(fv_image_size_check(jpeg, n_jpeg, &lim, &s), FV_EINVAL);
    lim = (fv_image_limits){.bytes_max = n_jpeg - 1};
    cr_assert_eq(fv_image_size_check(jpeg, n_jpeg, &lim, &s), FV_EINVAL);
}

Test(image_size, sides_beyond_any_image_are_refused) {
    uint8_t png[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xff\xff\xff\0\0\0\x0a";
    fv_image_size s = {0};
    cr_assert_eq(read_copy(png, 24, &s), FV_EINVAL, "%s", fv_last_error());
    memset(png + 16, 0, 4);
    cr_assert_eq(read_copy(png, 24, &s), FV_EDATA, "%s", fv_last_error());
}
