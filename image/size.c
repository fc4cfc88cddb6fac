/* Chooses the reader by the first bytes of a file, and checks sizes against limits. A router runs this on its
 * loop for untrusted files, so every reader is bounded.
 *
 * Pure functions; any thread. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "image/internal.h"

const char *fv_image_kind_name(fv_image_kind kind) {
    static const char *const names[FV_N_IMAGE_KIND] = {
        "JPEG", "PNG", "WebP", "animated WebP", "GIF", "BMP", "TIFF", "AVIF", "HEIC"};
    return (unsigned)kind < FV_N_IMAGE_KIND ? names[kind] : "image";
}

fv_image_limits fv_image_limits_default(void) {
    return (fv_image_limits){
        .bytes_max = (size_t)32 << 20, .side_max = 16384, .pixels_max = (int64_t)64 << 20};
}

fv_status fv_image_take_size(fv_image_kind kind, uint64_t w, uint64_t h, fv_image_size *out) {
    if (w < 1 || h < 1 || w > INT32_MAX || h > INT32_MAX)
        return FV_FAIL(w < 1 || h < 1 ? FV_EDATA : FV_EINVAL,
                       "the %s header says %" PRIu64 " x %" PRIu64 " pixels",
                       fv_image_kind_name(kind), w, h);
    *out = (fv_image_size){kind, (int32_t)w, (int32_t)h, 1};
    return FV_OK;
}

void fv_image_take_orientation(int32_t orientation, fv_image_size *size) {
    if (orientation < 2 || orientation > 8) return;
    size->orientation = orientation;
    if (!fv_image_is_on_side(orientation)) return;
    const int32_t w = size->w;
    size->w = size->h;
    size->h = w;
}

fv_status fv_image_cut_off(fv_image_kind kind) {
    return FV_FAIL(FV_EDATA, "the %s cannot be decoded: the file ends in its header",
                   fv_image_kind_name(kind));
}

/* ---- formats ---------------------------------------------------------------------------- */

static const struct {
    const char *magic;
    size_t n, at;
    fv_status (*read)(const uint8_t *p, size_t n, fv_image_size *out);
} formats[] = {
    {"\xff\xd8\xff", 3, 0, fv_image_read_jpeg}, {"\x89PNG\r\n\x1a\n", 8, 0, fv_image_read_png},
    {"WEBP", 4, 8, fv_image_read_webp},         {"GIF87a", 6, 0, fv_image_read_gif},
    {"GIF89a", 6, 0, fv_image_read_gif},        {"BM", 2, 0, fv_image_read_bmp},
    {"II*\0", 4, 0, fv_image_read_tiff},        {"MM\0*", 4, 0, fv_image_read_tiff},
    {"II+\0", 4, 0, fv_image_read_tiff},        {"MM\0+", 4, 0, fv_image_read_tiff},
    {"ftyp", 4, 4, fv_image_read_heif},
};

fv_status fv_image_size_read(const void *bytes, size_t n, fv_image_size *out) {
    const uint8_t *p = bytes;
    if (n < FV_IMAGE_SIGNATURE) return FV_FAIL(FV_EDATA, "%zu bytes are too few to be an image", n);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (memcmp(p + formats[i].at, formats[i].magic, formats[i].n) == 0)
            return formats[i].read(p, n, out);
    return FV_FAIL(
        FV_EUNSUPPORTED,
        "the image starts with bytes %02x %02x %02x %02x: it is not JPEG, PNG, WebP, GIF, BMP, "
        "TIFF, AVIF or HEIC",
        p[0], p[1], p[2], p[3]);
}

/* ---- limits ----------------------------------------------------------------------------- */

fv_status fv_image_size_fits(const char *what, int64_t w, int64_t h, const fv_image_limits *lim) {
    if (lim->side_max && (w > lim->side_max || h > lim->side_max))
        return FV_FAIL(FV_EINVAL, "%s is %" PRId64 " x %" PRId64 " pixels; sides go up to %" PRId32,
                       what, w, h, lim->side_max);
    if (lim->pixels_max && w > lim->pixels_max / h)
        return FV_FAIL(FV_EINVAL,
                       "%s has %" PRId64 " x %" PRId64 " pixels; at most %" PRId64 " are decoded",
                       what, w, h, lim->pixels_max);
    return FV_OK;
}

fv_status fv_image_size_check(const void *bytes, size_t n, const fv_image_limits *lim,
                              fv_image_size *out) {
    const fv_image_limits normal = fv_image_limits_default();
    char what[24];
    fv_image_size size;
    if (!lim) lim = &normal;
    if (lim->bytes_max && n > lim->bytes_max)
        return FV_FAIL(FV_EINVAL, "the image file has %zu bytes; at most %zu are accepted", n,
                       lim->bytes_max);
    FV_TRY(fv_image_size_read(bytes, n, &size));
    snprintf(what, sizeof what, "the %s", fv_image_kind_name(size.kind));
    FV_TRY(fv_image_size_fits(what, size.w, size.h, lim));
    *out = size;
    return FV_OK;
}
