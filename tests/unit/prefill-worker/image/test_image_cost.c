/* Files that cost more than their pixels and bytes. The parts that must not be read are missing or
 * broken, so that reading them fails; time is not measured. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "prefill-worker/image/image.h"

enum { ROOM = 2 << 20 };

static struct file {
    uint8_t bytes[ROOM];
    size_t n;
} file;

static void put(const void *bytes, size_t n) {
    cr_assert_leq(file.n + n, ROOM);
    memcpy(file.bytes + file.n, bytes, n);
    file.n += n;
}

static void put_byte(int v) { put(&(uint8_t){(uint8_t)v}, 1); }
static void put16(unsigned v) { put(&(uint8_t[2]){(uint8_t)(v >> 8), (uint8_t)v}, 2); }
static void put32(uint32_t v) {
    put16(v >> 16);
    put16(v & 0xffff);
}

static fv_status decode(fv_image *img) {
    *img = (fv_image){0};
    return fv_image_decode(file.bytes, file.n, NULL, img);
}

/* ---- PNG ------------------------------------------------------------------------------------ */

static void put_chunk(const char *kind, const void *data, size_t n) {
    put32((uint32_t)n);
    size_t from = file.n;
    put(kind, 4);
    if (n) put(data, n);
    put32((uint32_t)crc32(0, file.bytes + from, (uInt)(file.n - from)));
}

static void begin_png(uint32_t side, int depth, int type, bool interlaced) {
    uint8_t head[13] = {0, 0, (uint8_t)(side >> 8), (uint8_t)side,
                        0, 0, (uint8_t)(side >> 8), (uint8_t)side};
    head[8] = (uint8_t)depth, head[9] = (uint8_t)type, head[12] = interlaced;
    file.n = 0;
    put("\x89PNG\r\n\x1a\n", 8);
    put_chunk("IHDR", head, sizeof head);
}

/* zlib data of n bytes: `first` and zeros. */
static size_t deflated(const uint8_t *first, size_t n_first, size_t n, uint8_t *out, size_t room) {
    static const uint8_t zeros[1 << 16];
    z_stream z = {.next_out = out, .avail_out = (uInt)room};
    cr_assert_eq(deflateInit(&z, 9), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)first;
    z.avail_in = (uInt)n_first;
    cr_assert_eq(deflate(&z, Z_NO_FLUSH), Z_OK);
    for (size_t left = n - n_first; left > 0; left -= z.avail_in) {
        z.next_in = (Bytef *)(uintptr_t)zeros;
        z.avail_in = left < sizeof zeros ? (uInt)left : sizeof zeros;
        left -= z.avail_in;
        cr_assert_eq(deflate(&z, Z_NO_FLUSH), Z_OK);
        cr_assert_eq(z.avail_in, 0);
    }
    cr_assert_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static uint8_t packed[ROOM];

/* 16 x 16 pixels of `value`, followed by 40 MB of zeros whose end is missing. */
static void bomb(int depth, int type, bool interlaced, size_t bytes_pixel, uint8_t value) {
    uint8_t rows[2048] = {0};
    size_t row = 1 + 16 * bytes_pixel * (size_t)depth / 8, n_rows = 16 * row;
    for (size_t i = 0; i < n_rows; i++) rows[i] = !interlaced && i % row ? value : 0;
    size_t n = deflated(rows, n_rows, (size_t)40 << 20, packed, sizeof packed);
    begin_png(16, depth, type, interlaced);
    put_chunk("IDAT", packed, n / 2);
    put_chunk("IDAT", packed + n / 2, n - n / 2);
    file.n -= 1000;
}

static void pixels_are(uint8_t value) {
    fv_image img;
    cr_assert_eq(decode(&img), FV_OK, "%s", fv_last_error());
    cr_assert(img.w == 16 && img.h == 16);
    for (int i = 0; i < 3 * 16 * 16; i++) cr_assert_eq(img.rgb[i], value, "%d", i);
    fv_image_free(&img);
}

Test(image_cost, a_png_is_inflated_no_further_than_its_last_row) {
    bomb(8, 2, false, 3, 90);
    pixels_are(90);
    bomb(16, 0, false, 1, 0);
    pixels_are(0);
    bomb(8, 6, false, 4, 255);
    pixels_are(255);
    bomb(8, 0, true, 1, 0);
    pixels_are(0);
    bomb(8, 2, true, 3, 0);
    pixels_are(0);
}

Test(image_cost, a_pngs_data_may_not_be_much_longer_than_its_pixels) {
    static const uint8_t nothing[] = {0, 0, 0, 0xff, 0xff}; /* an empty block */
    uint8_t rows[16 * 49] = {0};
    size_t n_empty = 100000, n = 2;
    memcpy(packed, "\x78\x01", n);
    for (size_t i = 0; i < n_empty; i++, n += sizeof nothing) memcpy(packed + n, nothing, 5);
    begin_png(16, 8, 2, false);
    put_chunk("IDAT", packed, n);
    fv_image img;
    cr_assert_eq(decode(&img), FV_EDATA);
    cr_assert(strstr(fv_last_error(), "far longer than the image"), "%s", fv_last_error());
    for (size_t i = 0; i < sizeof rows; i++) rows[i] = i % 49 ? 90 : 0;
    n = 2 + 10000 * sizeof nothing;
    uint8_t *stored = packed + n; /* the rows as they are: an encoder that does not compress */
    memcpy(stored, (uint8_t[]){1, 0x10, 0x03, 0xef, 0xfc}, 5);
    cr_assert_eq(sizeof rows, 0x310);
    memcpy(stored + 5, rows, sizeof rows);
    begin_png(16, 8, 2, false);
    put_chunk("IDAT", packed, n + 5 + sizeof rows);
    pixels_are(90);
}

static void a_png_with(const char *kind, const void *data, size_t n) {
    static uint8_t rows[16 * 49];
    static uint8_t image[1024];
    memset(rows, 90, sizeof rows);
    for (int y = 0; y < 16; y++) rows[49 * y] = 0;
    size_t n_image = deflated(rows, sizeof rows, sizeof rows, image, sizeof image);
    begin_png(16, 8, 2, false);
    if (kind) put_chunk(kind, data, n);
    put_chunk("IDAT", image, n_image);
}

Test(image_cost, compressed_text_and_profiles_are_passed_over) {
    size_t n = deflated(NULL, 0, (size_t)100 << 20, packed + 64, sizeof packed - 64);
    memcpy(packed + 64 - 3, "t\0", 3);
    a_png_with("zTXt", packed + 64 - 3, n + 3);
    pixels_are(90);
    a_png_with("iCCP", packed + 64 - 3, n + 3);
    pixels_are(90);
    memcpy(packed + 64 - 6, "t\0\1\0\0", 6);
    a_png_with("iTXt", packed + 64 - 6, n + 6);
    pixels_are(90);
    memset(packed, 0xee, sizeof packed);
    a_png_with("eXIf", packed, 1 << 20);
    pixels_are(90);
}

Test(image_cost, what_stands_behind_a_pngs_pixels_does_not_matter) {
    a_png_with(NULL, NULL, 0);
    pixels_are(90);
    put_chunk("IEND", NULL, 0);
    pixels_are(90);
    put("and a few words more", 20);
    pixels_are(90);
    a_png_with(NULL, NULL, 0);
    put_chunk("IDAT", "no zlib data", 12);
    put_chunk("IHDR", "no header", 9);
    pixels_are(90);
}

/* ---- JPEG ----------------------------------------------------------------------------------- */

/* Writes a Huffman table in which `symbol` has the code 0. */
static void put_table(int kind, int symbol) {
    put("\xff\xc4", 2);
    put16(2 + 1 + 16 + 1);
    put_byte(kind);
    put("\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    put_byte(symbol);
}

/* Begins a grey progressive JPEG with its first scan. */
static void begin_jpeg(unsigned side) {
    size_t n_block = (size_t)(side / 8) * (side / 8);
    file.n = 0;
    put("\xff\xd8\xff\xdb", 4);
    put16(2 + 65);
    put_byte(0);
    for (int i = 0; i < 64; i++) put_byte(1);
    put("\xff\xc2", 2);
    put16(11);
    put_byte(8);
    put16(side);
    put16(side);
    put("\1\1\x11\0", 4);
    put_table(0x00, 0);
    put_table(0x10, 0xe0);
    put("\xff\xda\0\x08\1\1\0\0\0\0", 10);
    for (size_t i = 0; i < n_block / 8; i++) put_byte(0);
}

/* Writes a scan of all other coefficients as zeros, in runs of 2^14 + 2^14 - 1 blocks. */
static void put_scan(unsigned side, int ah_al) {
    size_t n_block = (size_t)(side / 8) * (side / 8);
    uint32_t bits = 0;
    int n_bit = 0;
    put("\xff\xda\0\x08\1\1\0\1\x3f", 9);
    put_byte(ah_al);
    for (size_t left = n_block; left > 0;) {
        size_t run = left < 32000 ? left : 32000;
        cr_assert_geq(run, 16384);
        left -= left > 32000 &&left < 32000 + 16384 ? run = 16384 : run;
        bits = bits << 15 | (uint32_t)(run - 16384);
        for (n_bit += 15; n_bit >= 8; n_bit -= 8) {
            uint8_t byte = (uint8_t)(bits >> (n_bit - 8));
            put_byte(byte);
            if (byte == 0xff) put_byte(0);
        }
    }
    put_byte((int)(bits << (8 - n_bit) | (0xffu >> n_bit)) & 0xff);
}

static void jpeg_of(unsigned side, int scans) {
    begin_jpeg(side);
    for (int i = 1; i < scans; i++) put_scan(side, i == 1 ? 1 : 0x10);
    put("\xff\xd9", 2);
}

static void expect(fv_status want) {
    fv_image img;
    fv_status st = decode(&img);
    cr_expect_eq(st, want, "%s: %s", fv_status_name(st), fv_last_error());
    fv_image_free(&img);
}

/* Breaks the first scan: a decoder that reads it fails. */
static void expect_uncounted(fv_status want) {
    size_t at = (size_t)((uint8_t *)memmem(file.bytes, file.n, "\xff\xda", 2) - file.bytes);
    file.bytes[at + 8] = 77; /* the last coefficient of its band */
    expect(want);
}

Test(image_cost, scans_are_counted_before_any_is_decoded) {
    jpeg_of(1024, 10);
    expect(FV_OK);
    jpeg_of(1024, 100);
    expect(FV_OK);
    expect_uncounted(FV_EDATA);
    jpeg_of(1024, 101);
    expect_uncounted(FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "more than 100 scans"), "%s", fv_last_error());
    jpeg_of(1024, 400);
    expect_uncounted(FV_EINVAL);
}

Test(image_cost, a_large_jpeg_may_have_fewer_scans_than_a_small_one) {
    jpeg_of(8192, 17);
    expect_uncounted(FV_EINVAL);
    cr_assert(strstr(fv_last_error(), "too many for so many scans"), "%s", fv_last_error());
    jpeg_of(8192, 16);
    expect_uncounted(FV_EDATA);
}

Test(image_cost, a_scan_in_a_comment_is_none) {
    begin_jpeg(1024);
    for (int i = 0; i < 120; i++) {
        put("\xff\xfe\0\x0c\xff\xda\0\x08\1\1\0\0\x3f\0", 14);
    }
    put_scan(1024, 1);
    put("\xff\xd9", 2);
    expect(FV_OK);
}
