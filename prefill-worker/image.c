/* Image bytes in, RGB out: tells the format from its first bytes and hands over to its decoder.
 *
 * Sizes are checked here, in one place, with 64-bit arithmetic: each decoder reads only its
 * header, calls fv_image_size_check, and takes memory for pixels afterwards. A file of a hundred
 * bytes can claim ten gigapixels. Any thread. */
#include "prefill-worker/image_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

fv_image_limits fv_image_limits_default(void) {
    return (fv_image_limits){
        .bytes_max = (size_t)32 << 20, .side_max = 16384, .pixels_max = (int64_t)64 << 20};
}

fv_status fv_image_size_check(const char *kind, int64_t w, int64_t h, const fv_image_limits *lim) {
    if (w < 1 || h < 1)
        return FV_FAIL(FV_EDATA, "the %s says it is %" PRId64 " x %" PRId64 " pixels", kind, w, h);
    if (w > lim->side_max || h > lim->side_max)
        return FV_FAIL(FV_EINVAL,
                       "the %s is %" PRId64 " x %" PRId64 " pixels; sides go up to %" PRId32, kind,
                       w, h, lim->side_max);
    if (w > lim->pixels_max / h)
        return FV_FAIL(FV_EINVAL,
                       "the %s has %" PRId64 " x %" PRId64 " pixels; at most %" PRId64
                       " are decoded",
                       kind, w, h, lim->pixels_max);
    return FV_OK;
}

fv_status fv_image_alloc(int32_t w, int32_t h, fv_image *out) {
    uint8_t *rgb = malloc((size_t)w * (size_t)h * 3);
    if (!rgb) return FV_FAIL(FV_ENOMEM, "no memory for an image of %" PRId32 " x %" PRId32, w, h);
    *out = (fv_image){.rgb = rgb, .w = w, .h = h};
    return FV_OK;
}

void fv_image_free(fv_image *img) {
    free(img->rgb);
    *img = (fv_image){0};
}

fv_status fv_image_decode(const void *bytes, size_t n, const fv_image_limits *lim, fv_image *out) {
    const fv_image_limits normal = fv_image_limits_default();
    if (!lim) lim = &normal;
    if (n > lim->bytes_max)
        return FV_FAIL(FV_EINVAL, "the image file has %zu bytes; at most %zu are accepted", n,
                       lim->bytes_max);
    enum { SIGNATURE = 12 }; /* bytes; no whole image of any format is that short */
    if (n < SIGNATURE) return FV_FAIL(FV_EDATA, "%zu bytes are too few to be an image", n);
    const uint8_t *p = bytes;
    if (memcmp(p, "\xff\xd8\xff", 3) == 0) return fv_image_decode_jpeg(p, n, lim, out);
    if (memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0) return fv_image_decode_png(p, n, lim, out);
    if (memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0)
        return fv_image_decode_webp(p, n, lim, out);
    return FV_FAIL(FV_EUNSUPPORTED,
                   "the image starts with bytes %02x %02x %02x %02x: it is not JPEG, PNG or WebP",
                   p[0], p[1], p[2], p[3]);
}
