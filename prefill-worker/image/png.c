/* Decodes PNG to RGB with libpng and Pillow's rules for each colour type:
 *   palette, grey of 1, 2, 4, 8 bits, RGB      as expected
 *   16-bit RGB, RGBA and grey with alpha       the high byte
 *   16-bit grey                                min(value, 255): Pillow reads such values as
 *                                              integers, not as fractions of white
 *   alpha, tRNS of a palette                   put on white
 *   tRNS of one colour                         white; compared by its low byte with the pixels of the
 *                                              result, grey of 2 and 4 bits included
 * Colour spaces (gAMA, iCCP, ...) are ignored, as in Pillow; so are all other chunks that do
 * not change pixels: they are skipped without being decompressed.
 *
 * The file is read up to its last row. libpng would go on and inflate whatever follows in the IDAT
 * chunks, which may be a thousand times as long as the file; on_read ends that. Data after the
 * pixels are neither needed nor checked, so a file without its end is accepted. A wrong checksum ahead of them is an
 * error in every chunk, as in Pillow: libpng would drop a damaged tRNS and give other pixels.
 *
 * libpng reports errors by a callback that must not return; it jumps back to read_rows, which
 * keeps no state of its own. For any thread. */
#include "prefill-worker/image/internal.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>

/* Bytes that may be read after the last row: the checksums of the data and of its chunk. */
enum { TAIL_MAX = 64 };

struct reader {
    png_structp png;
    png_infop info;
    const uint8_t *at; /* borrowed: the bytes not read yet */
    size_t left, tail;
    size_t data_left;   /* bytes that may still be read for the rows; no encoder needs as many */
    uint32_t rows_left; /* rows of all passes that are not inflated yet */
    int type, depth;
    bool grey16, alpha, keyed;
    jmp_buf on_error;
    fv_status status;
    fv_image img; /* owned until the image is complete */
};

static _Noreturn void on_error(png_structp png, png_const_charp why) {
    struct reader *r = png_get_error_ptr(png);
    r->status = FV_FAIL(FV_EDATA, "the PNG cannot be decoded: %s", why);
    longjmp(r->on_error, 1);
}

static void on_warning(png_structp png, png_const_charp why) { /* nothing is printed */
    (void)png, (void)why;
}

static void on_read(png_structp png, png_bytep dst, size_t n) {
    struct reader *r = png_get_io_ptr(png);
    if (r->rows_left == 0 && (n > r->left || n > r->tail)) {
        r->status = FV_OK;
        longjmp(r->on_error, 1);
    }
    if (n > r->left) png_error(png, "the file ends too early");
    if (n > r->data_left)
        png_error(png, "the compressed data are far longer than the image can need");
    r->data_left -= n;
    if (r->rows_left == 0) r->tail -= n;
    memcpy(dst, r->at, n);
    r->at += n;
    r->left -= n;
}

/* Counts rows; set as a transformation that changes nothing, because libpng calls it after inflating a
 * row, and reads nothing more before that row is in the image. */
static void on_row(png_structp png, png_row_infop info, png_bytep row) {
    struct reader *r = png_get_user_transform_ptr(png);
    (void)info, (void)row;
    r->rows_left--;
}

/* Returns the number of rows that the file has data for. */
static uint32_t count_rows(int32_t w, int32_t h, int passes) {
    uint32_t n = 0;
    if (passes == 1) return (uint32_t)h;
    for (int pass = 0; pass < passes; pass++)
        if (PNG_PASS_COLS((uint32_t)w, pass)) n += (uint32_t)PNG_PASS_ROWS((uint32_t)h, pass);
    return n;
}

/* Converts w big-endian 16-bit values to w RGB pixels in place, from right to left, so that nothing is
 * overwritten before it is read. */
static void grey16_row_to_rgb(uint8_t *row, int32_t w) {
    for (size_t x = (size_t)w; x-- > 0;) {
        uint8_t v = row[2 * x] ? 255 : row[2 * x + 1];
        memset(row + 3 * x, v, 3);
    }
}

/* Makes pixels of the file's one transparent colour white. */
static void key_to_white(struct reader *r) {
    png_color_16p c;
    if (!png_get_tRNS(r->png, r->info, NULL, NULL, &c)) return;
    uint8_t key[3] = {(uint8_t)c->red, (uint8_t)c->green, (uint8_t)c->blue};
    if (r->type == PNG_COLOR_TYPE_GRAY)
        memset(key, r->depth > 1 ? (uint8_t)c->gray : c->gray ? 255 : 0, sizeof key);
    uint8_t *p = r->img.rgb, *end = p + (size_t)r->img.w * (size_t)r->img.h * 3;
    for (; p < end; p += 3)
        if (!memcmp(p, key, 3)) memset(p, 255, 3);
}

static void transform(struct reader *r) {
    const bool palette = r->type == PNG_COLOR_TYPE_PALETTE;
    if (!r->grey16) {
        if (palette) png_set_palette_to_rgb(r->png);
        if (palette && r->keyed) png_set_tRNS_to_alpha(r->png);
        if (r->type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(r->png);
        if (!(r->type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(r->png);
        if (r->depth == 16) png_set_strip_16(r->png);
    }
    png_set_read_user_transform_fn(r->png, on_row);
    png_set_user_transform_info(r->png, r, 0, 0);
}

/* Bounds the bytes that are read for the rows: twice their size, because deflate makes rows at most a
 * little longer but may have empty blocks, and room for chunk headers in a small image. */
static size_t data_max(const struct reader *r) {
    return 2 * (size_t)png_get_image_height(r->png, r->info) *
               (png_get_rowbytes(r->png, r->info) + 1) +
           (1 << 16);
}

static void read_header(struct reader *r, const fv_image_size *said) {
    png_set_read_fn(r->png, r, on_read);
    const png_uint_32 side = (png_uint_32)(said->w > said->h ? said->w : said->h);
    png_set_user_limits(r->png, side, side);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_crc_action(r->png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_read_info(r->png, r->info);
    r->data_left = data_max(r);
    r->type = png_get_color_type(r->png, r->info);
    r->depth = png_get_bit_depth(r->png, r->info);
    r->grey16 = r->depth == 16 && r->type == PNG_COLOR_TYPE_GRAY;
    r->keyed = png_get_valid(r->png, r->info, PNG_INFO_tRNS);
    r->alpha = r->type & PNG_COLOR_MASK_ALPHA || (r->type == PNG_COLOR_TYPE_PALETTE && r->keyed);
}

static size_t stride_of(const struct reader *r) { return (size_t)r->img.w * (r->alpha ? 4 : 3); }

/* Reads all rows into the image as libpng returns them. */
static fv_status read_rows(struct reader *r, const fv_image_size *said) {
    if (setjmp(r->on_error)) return r->status;

    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
    if (r->png) r->info = png_create_info_struct(r->png);
    if (!r->info) return FV_FAIL(FV_ENOMEM, "no memory to decode a PNG");
    read_header(r, said);
    transform(r);
    const int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);

    const int32_t w = (int32_t)png_get_image_width(r->png, r->info);
    const int32_t h = (int32_t)png_get_image_height(r->png, r->info);
    FV_TRY(fv_image_size_agrees(said, w, h));
    FV_TRY(fv_image_alloc(w, h, r->alpha, &r->img));
    if (png_get_rowbytes(r->png, r->info) > stride_of(r))
        png_error(r->png, "rows of an unknown layout");
    r->rows_left = count_rows(w, h, passes);
    for (int pass = 0; pass < passes; pass++)
        for (int32_t y = 0; y < h; y++)
            png_read_row(r->png, r->img.rgb + (size_t)y * stride_of(r), NULL);
    return FV_OK;
}

static void finish(struct reader *r) {
    for (int32_t y = 0; r->grey16 && y < r->img.h; y++)
        grey16_row_to_rgb(r->img.rgb + (size_t)y * stride_of(r), r->img.w);
    if (r->alpha)
        fv_image_on_white(&r->img);
    else if (r->keyed)
        key_to_white(r);
}

fv_status fv_image_decode_png(const uint8_t *bytes, size_t n, const fv_image_size *said,
                              fv_image *out) {
    struct reader r = {
        .at = bytes, .left = n, .tail = TAIL_MAX, .data_left = SIZE_MAX, .rows_left = UINT32_MAX};
    fv_status st = read_rows(&r, said);
    if (st == FV_OK) finish(&r);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    if (st != FV_OK) {
        fv_image_free(&r.img);
        return st;
    }
    *out = r.img;
    return FV_OK;
}
