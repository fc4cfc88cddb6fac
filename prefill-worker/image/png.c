/* PNG to RGB through libpng, with Pillow's rules for each colour type:
 *   palette, grey of 1, 2, 4, 8 bits, RGB      as expected
 *   16-bit RGB, RGBA and grey with alpha       the high byte
 *   16-bit grey                                min(value, 255): Pillow takes such files for
 *                                              integers, not for fractions of white
 *   alpha, tRNS of a palette                   put on white
 *   tRNS of one colour                         white; compared by its low byte with the pixels of the
 *                                              result, grey of 2 and 4 bits included
 * Colour spaces (gAMA, iCCP, ...) are ignored, as Pillow does; so are all other chunks that do
 * not change pixels, which also keeps their decompressors out of reach.
 *
 * libpng reports errors by a callback that must not return; it jumps back to read_image, which
 * keeps no state of its own. Any thread. */
#include "prefill-worker/image/internal.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>

struct reader {
    png_structp png;
    png_infop info;
    const uint8_t *at; /* borrowed: what is not read yet */
    size_t left;
    jmp_buf on_error;
    fv_status status;
    fv_image img; /* owned until the image is whole */
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
    if (n > r->left) png_error(png, "the file ends too early");
    memcpy(dst, r->at, n);
    r->at += n;
    r->left -= n;
}

/* In place: w big-endian 16-bit values become w RGB pixels. From right to left, so that
 * nothing is overwritten before it is read. */
static void grey16_row_to_rgb(uint8_t *row, int32_t w) {
    for (size_t x = (size_t)w; x-- > 0;) {
        uint8_t v = row[2 * x] ? 255 : row[2 * x + 1];
        memset(row + 3 * x, v, 3);
    }
}

/* Pixels of the file's one transparent colour become white. */
static void key_to_white(struct reader *r, int type, int depth) {
    png_color_16p c;
    if (!png_get_tRNS(r->png, r->info, NULL, NULL, &c)) return;
    uint8_t key[3] = {(uint8_t)c->red, (uint8_t)c->green, (uint8_t)c->blue};
    if (type == PNG_COLOR_TYPE_GRAY)
        memset(key, depth > 1 ? (uint8_t)c->gray : c->gray ? 255 : 0, sizeof key);
    uint8_t *p = r->img.rgb, *end = p + (size_t)r->img.w * (size_t)r->img.h * 3;
    for (; p < end; p += 3)
        if (!memcmp(p, key, 3)) memset(p, 255, 3);
}

static fv_status read_image(struct reader *r, const uint8_t *bytes, size_t n,
                            const fv_image_size *said) {
    if (setjmp(r->on_error)) return r->status;

    r->png = png_create_read_struct(PNG_LIBPNG_VER_STRING, r, on_error, on_warning);
    if (r->png) r->info = png_create_info_struct(r->png);
    if (!r->info) return FV_FAIL(FV_ENOMEM, "no memory to decode a PNG");
    r->at = bytes;
    r->left = n;
    png_set_read_fn(r->png, r, on_read);
    png_set_user_limits(r->png, (png_uint_32)said->w, (png_uint_32)said->h);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_read_info(r->png, r->info);

    const int type = png_get_color_type(r->png, r->info);
    const int depth = png_get_bit_depth(r->png, r->info);
    const bool grey16 = depth == 16 && type == PNG_COLOR_TYPE_GRAY;
    const bool palette = type == PNG_COLOR_TYPE_PALETTE;
    const bool keyed = png_get_valid(r->png, r->info, PNG_INFO_tRNS);
    const bool alpha = type & PNG_COLOR_MASK_ALPHA || (palette && keyed);
    if (!grey16) {
        if (palette) png_set_palette_to_rgb(r->png);
        if (palette && keyed) png_set_tRNS_to_alpha(r->png);
        if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(r->png);
        if (!(type & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(r->png);
        if (depth == 16) png_set_strip_16(r->png);
    }
    const int passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);

    const int32_t w = (int32_t)png_get_image_width(r->png, r->info);
    const int32_t h = (int32_t)png_get_image_height(r->png, r->info);
    const size_t stride = (size_t)w * (alpha ? 4 : 3);
    FV_TRY(fv_image_size_agrees(said, w, h));
    if (png_get_rowbytes(r->png, r->info) > stride) png_error(r->png, "rows of an unknown layout");
    FV_TRY(fv_image_alloc(w, h, alpha, &r->img));
    for (int pass = 0; pass < passes; pass++)
        for (int32_t y = 0; y < h; y++) png_read_row(r->png, r->img.rgb + (size_t)y * stride, NULL);
    if (grey16)
        for (int32_t y = 0; y < h; y++) grey16_row_to_rgb(r->img.rgb + (size_t)y * stride, w);
    png_read_end(r->png, NULL);
    if (alpha)
        fv_image_on_white(&r->img);
    else if (keyed)
        key_to_white(r, type, depth);
    return FV_OK;
}

fv_status fv_image_decode_png(const uint8_t *bytes, size_t n, const fv_image_size *said,
                              fv_image *out) {
    struct reader r = {0};
    fv_status st = read_image(&r, bytes, n, said);
    png_destroy_read_struct(&r.png, &r.info, NULL);
    if (st != FV_OK) {
        fv_image_free(&r.img);
        return st;
    }
    *out = r.img;
    return FV_OK;
}
