/* image/exif, image/tiff: orientations as cameras and attackers write them. Whole files against Pillow are in
 * unit/prefill-worker/image/test_formats.c. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "image/exif.h"
#include "image/size.h"

static uint8_t data[1 << 16];
static size_t n_data;

static void put(const void *bytes, size_t n) {
    cr_assert_leq(n_data + n, sizeof data);
    memcpy(data + n_data, bytes, n);
    n_data += n;
}

static void put16(uint32_t v) { put((uint8_t[]){(uint8_t)v, (uint8_t)(v >> 8)}, 2); }
static void put32(uint32_t v) {
    put16(v & 0xffff);
    put16(v >> 16);
}

static void begin(uint32_t directory, uint32_t n_entry) {
    n_data = 0;
    put("II*\0", 4);
    put32(directory);
    put16(n_entry);
}

static void entry(uint32_t tag, uint32_t type, uint32_t count, uint32_t value) {
    put16(tag);
    put16(type);
    put32(count);
    put32(value);
}

/* On the heap and of exact size, so that a sanitizer detects reading past the end. */
static int32_t orientation(size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    cr_assert_not_null(copy);
    memcpy(copy, data, n);
    const fv_byte_part whole = {copy, n};
    const int32_t o = fv_exif_orientation(&whole, 1);
    free(copy);
    return o;
}

Test(exif, integers_of_every_type_are_read_and_other_types_count_as_upright) {
    static const int32_t want[] = {0, 1, 1, 6, 6, 1, 6, 1, 6, 6, 1, 1, 1, 6, 0, 0, 1, 0};
    for (uint32_t type = 0; type < sizeof want / sizeof *want; type++) {
        begin(8, 1);
        entry(274, type, 1, 6);
        put32(0);
        if (type == 5 || type == 10 || type == 12 || type == 16) continue; /* 8 bytes, elsewhere */
        cr_assert_eq(orientation(n_data), want[type], "type %u", type);
    }
}

Test(exif, values_that_are_no_orientation_are_upright) {
    static const uint32_t values[] = {0, 1, 9, 65535};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        begin(8, 1);
        entry(274, 3, 1, values[i]);
        cr_assert_eq(orientation(n_data), FV_ORIENTATION_UPRIGHT);
    }
}

Test(exif, the_first_of_two_tags_counts) {
    begin(8, 2);
    entry(274, 3, 1, 6);
    entry(274, 3, 1, 3);
    cr_assert_eq(orientation(n_data), 6);
}

Test(exif, a_value_outside_ends_the_directory) {
    begin(8, 2);
    entry(0x10f, 2, 20, 1000); /* fewer bytes than the data, and not in them */
    entry(274, 3, 1, 6);
    put("0123456789", 10);
    cr_assert_eq(orientation(n_data), FV_ORIENTATION_ABSENT);
    begin(8, 2);
    entry(0x10f, 2, 1 << 30, 0); /* more bytes than the data: skipped */
    entry(274, 3, 1, 6);
    cr_assert_eq(orientation(n_data), 6);
}

Test(exif, a_directory_that_is_cut_or_nowhere_has_no_orientation) {
    begin(8, 3);
    entry(256, 3, 1, 7);
    entry(274, 3, 1, 6);
    const size_t whole = n_data;
    for (size_t n = 0; n < whole; n++)
        cr_assert_eq(orientation(n), FV_ORIENTATION_ABSENT, "%zu", n);
    cr_assert_eq(orientation(whole), 6);
    begin(0xffffffff, 1);
    cr_assert_eq(orientation(n_data), FV_ORIENTATION_ABSENT);
    begin(8, 1);
    data[2] = '+'; /* BigTIFF is none of EXIF's */
    entry(274, 3, 1, 6);
    cr_assert_eq(orientation(n_data), FV_ORIENTATION_ABSENT);
}

Test(exif, entries_are_bounded) {
    begin(8, 65535);
    for (uint32_t i = 0; i < 5000; i++) entry(i == 4095 ? 274 : 1000, 3, 1, 6);
    cr_assert_eq(orientation(n_data), 6);
    begin(8, 65535);
    for (uint32_t i = 0; i < 5000; i++) entry(i == 4096 ? 274 : 1000, 3, 1, 6);
    cr_assert_eq(orientation(n_data), FV_ORIENTATION_ABSENT);
}

Test(exif, parts_are_one_after_another) {
    begin(8, 1);
    entry(274, 3, 1, 6);
    for (size_t first = 0; first <= n_data; first++) {
        const fv_byte_part parts[] = {
            {data, first}, {data + n_data, 0}, {data + first, n_data - first}};
        cr_assert_eq(fv_exif_orientation(parts, 3), 6, "%zu", first);
    }
}

Test(exif, xmp_has_one_pattern) {
    static const struct {
        const char *text;
        int32_t want;
    } cases[] = {
        {"tiff:Orientation=\"6\"", 6},
        {"<tiff:Orientation>8</", 8},
        {"tiff:Orientation='6'", 0},
        {"tiff:Orientation=\"9\"", 1},
        {"tiff:Orientation", 0},
        {"tiff:Orientation=\"", 0},
        {"tiff:Orientation x tiff:Orientation>3", 3},
        {"", 0},
        {"tiff:Orientation>", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = strlen(cases[i].text);
        uint8_t *copy = malloc(n + 1);
        cr_assert_not_null(copy);
        uint8_t *exact = n ? realloc(copy, n) : copy;
        memcpy(exact, cases[i].text, n);
        cr_assert_eq(fv_xmp_orientation(exact, n), cases[i].want, "%s", cases[i].text);
        free(exact);
    }
}

Test(exif, a_raw_profile_ends_where_its_digits_do) {
    static const char good[] = "\nexif\n 26\n49492a00 08000000 0100\n1201 0300 01000000 06000000";
    static const char bad[] = "\nexif\n 26\n49492a00 08000000 0100\n1201 03zz";
    cr_assert_eq(fv_raw_profile_orientation((const uint8_t *)good, sizeof good - 1), 6);
    cr_assert_eq(fv_raw_profile_orientation((const uint8_t *)bad, sizeof bad - 1), 0);
    cr_assert_eq(fv_raw_profile_orientation((const uint8_t *)"\n\n", 2), 0);
}

static void put_chunk(const char *name, const void *bytes, size_t n) {
    put((uint8_t[]){(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n}, 4);
    put(name, 4);
    put(bytes, n);
    put32(0);
}

/* A text of 64 MiB in 64 KiB, as an attacker sends it. */
Test(exif, a_deflated_text_is_inflated_no_further_than_its_bound) {
    static uint8_t text[1 << 16], zeros[1 << 20];
    static const char key[] = "XML:com.adobe.xmp\0\1\0\0";
    memcpy(text, key, sizeof key);
    z_stream z = {.next_out = text + sizeof key, .avail_out = sizeof text - 1024};
    cr_assert_eq(deflateInit(&z, 9), Z_OK);
    static const char found[] = "tiff:Orientation=\"6\"";
    z.next_in = (Bytef *)(uintptr_t)found;
    z.avail_in = sizeof found - 1;
    deflate(&z, Z_NO_FLUSH);
    for (int i = 0; i < 40; i++) {
        z.next_in = zeros;
        z.avail_in = sizeof zeros;
        cr_assert_eq(deflate(&z, Z_NO_FLUSH), Z_OK);
    }
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    fv_image_size size;
    n_data = 0;
    put("\x89PNG\r\n\x1a\n", 8);
    put_chunk("IHDR", "\0\0\0\3\0\0\0\2\10\2\0\0\0", 13);
    put_chunk("iTXt", text, sizeof key + z.total_out);
    deflateEnd(&z);
    cr_assert_eq(fv_image_size_read(data, n_data, &size), FV_OK);
    cr_assert(size.w == 3 && size.h == 2 && size.orientation == 1);
}
