/* Decodes the first page of a TIFF file with libtiff, by its interface that makes RGBA of everything, with Pillow's choices: of 16
 * bits the high byte, but grey saturates; an extra channel of unknown meaning is no alpha. The file is in memory. */
#include "video/helper/still.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <tiffio.h>

typedef struct memory {
    const uint8_t *p;
    uint64_t n, at;
} memory;

static tmsize_t on_read(thandle_t h, void *out, tmsize_t n) {
    memory *m = h;
    if (n < 0 || m->at > m->n) return 0;
    const uint64_t take = m->n - m->at < (uint64_t)n ? m->n - m->at : (uint64_t)n;
    memcpy(out, m->p + m->at, (size_t)take);
    m->at += take;
    return (tmsize_t)take;
}

static tmsize_t on_write(thandle_t h, void *in, tmsize_t n) {
    (void)h, (void)in, (void)n;
    return -1;
}

static toff_t on_seek(thandle_t h, toff_t offset, int whence) {
    memory *m = h;
    m->at = whence == SEEK_CUR ? m->at + offset : whence == SEEK_END ? m->n + offset : offset;
    return m->at;
}

static int on_close(thandle_t h) {
    (void)h;
    return 0;
}

static toff_t on_size(thandle_t h) { return ((const memory *)h)->n; }

static int on_map(thandle_t h, void **base, toff_t *size) {
    memory *m = h;
    *base = (void *)(uintptr_t)m->p;
    *size = m->n;
    return 1;
}

static void on_unmap(thandle_t h, void *base, toff_t size) { (void)h, (void)base, (void)size; }

static fv_status broken(const char *why) {
    return FV_FAIL(FV_EDATA, "the TIFF cannot be decoded: %s", why);
}

static fv_status too_large(void) {
    return FV_FAIL(FV_EINVAL, "the image needs more memory to decode than it may");
}

/* Grey of 16 bits: Pillow reads integers, which saturate. */
static fv_status read_grey16(TIFF *t, fv_pixels *out) {
    const tmsize_t bytes = TIFFScanlineSize(t);
    if (bytes < 2 * (tmsize_t)out->w) return broken("its rows are too short");
    uint16_t *row = malloc((size_t)bytes);
    fv_status st = row ? FV_OK : too_large();
    for (int32_t y = 0; st == FV_OK && y < out->h; y++) {
        if (TIFFReadScanline(t, row, (uint32_t)y, 0) != 1) st = broken("its pixels are damaged");
        uint8_t *to = out->rgba + (size_t)y * (size_t)out->w * 4;
        for (int32_t x = 0; st == FV_OK && x < out->w; x++, to += 4) {
            memset(to, row[x] > 255 ? 255 : row[x], 3);
            to[3] = 255;
        }
    }
    free(row);
    return st;
}

/* libtiff gives premultiplied colours, so white is added and the result is opaque. */
static void unpack(const uint32_t *raster, bool alpha, fv_pixels *out) {
    uint8_t *to = out->rgba;
    for (size_t i = (size_t)out->w * (size_t)out->h; i > 0; i--, raster++, to += 4) {
        const uint32_t c[3] = {TIFFGetR(*raster), TIFFGetG(*raster), TIFFGetB(*raster)};
        const uint32_t white = alpha ? 255 - TIFFGetA(*raster) : 0;
        for (int k = 0; k < 3; k++) to[k] = (uint8_t)(c[k] + white > 255 ? 255 : c[k] + white);
        to[3] = 255;
    }
}

/* Whether the channel beside the colours is alpha. */
static bool has_alpha(TIFF *t, const TIFFRGBAImage *image) {
    uint16_t n = 0, *extra = NULL;
    TIFFGetFieldDefaulted(t, TIFFTAG_EXTRASAMPLES, &n, &extra);
    return image->alpha && n > 0 && extra[0] != EXTRASAMPLE_UNSPECIFIED;
}

static fv_status read_any(TIFF *t, fv_pixels *out) {
    TIFFRGBAImage image;
    char why[1024] = "";
    if (!TIFFRGBAImageOK(t, why) || !TIFFRGBAImageBegin(&image, t, 1, why))
        return FV_FAIL(FV_EUNSUPPORTED, "the TIFF cannot be decoded: %.200s", why);
    image.req_orientation = image.orientation; /* as stored */
    for (uint32_t v = 0; image.Bitdepth16To8 && v < 65536; v++)
        image.Bitdepth16To8[v] = (uint8_t)(v >> 8);
    uint32_t *raster = calloc((size_t)out->w * (size_t)out->h, sizeof *raster);
    fv_status st = raster ? FV_OK : too_large();
    if (raster && !TIFFRGBAImageGet(&image, raster, image.width, image.height))
        st = broken("its pixels are damaged, or end too early");
    if (st == FV_OK) unpack(raster, has_alpha(t, &image), out);
    free(raster);
    TIFFRGBAImageEnd(&image);
    return st;
}

static fv_status read_page(TIFF *t, const fv_video_limits *l, fv_pixels *out) {
    uint32_t w = 0, h = 0;
    uint16_t bits = 1, samples = 1, format = SAMPLEFORMAT_UINT, photo = 0;
    TIFFGetField(t, TIFFTAG_IMAGEWIDTH, &w);
    TIFFGetField(t, TIFFTAG_IMAGELENGTH, &h);
    TIFFGetField(t, TIFFTAG_PHOTOMETRIC, &photo);
    TIFFGetFieldDefaulted(t, TIFFTAG_BITSPERSAMPLE, &bits);
    TIFFGetFieldDefaulted(t, TIFFTAG_SAMPLESPERPIXEL, &samples);
    TIFFGetFieldDefaulted(t, TIFFTAG_SAMPLEFORMAT, &format);
    FV_TRY(fv_pixels_alloc(w, h, l, out));
    if (format != SAMPLEFORMAT_UINT)
        return FV_FAIL(FV_EUNSUPPORTED,
                       "the TIFF has pixels that are not unsigned integers: save it as RGB");
    const bool grey = photo == PHOTOMETRIC_MINISBLACK || photo == PHOTOMETRIC_MINISWHITE;
    if (bits == 16 && samples == 1 && grey && !TIFFIsTiled(t)) return read_grey16(t, out);
    return read_any(t, out);
}

/* Says nothing: the message of a failure is in its sentence. */
static int on_message(TIFF *t, void *user, const char *module, const char *format, va_list ap) {
    (void)t, (void)user, (void)module, (void)format, (void)ap;
    return 1;
}

fv_status fv_still_tiff(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out) {
    memory m = {.p = bytes, .n = n};
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options) return too_large();
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, (tmsize_t)(l->memory_max / 2));
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_message, NULL);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_message, NULL);
    TIFF *t = TIFFClientOpenExt("image", "r", &m, on_read, on_write, on_seek, on_close, on_size,
                                on_map, on_unmap, options);
    TIFFOpenOptionsFree(options);
    if (!t) return broken("its header is damaged");
    fv_status st = read_page(t, l, out);
    TIFFClose(t);
    return st;
}
