/* Reads a WebP's first chunk, which has the size, and in the extended format the chunks behind it for EXIF and XMP.
 *
 *   VP8    name, length, frame tag (3), 9d 01 2a, width and height of 14 bits
 *   VP8L   name, length, 2f, width - 1 and height - 1 of 14 bits each
 *   VP8X   name, length, flags (4), width - 1 and height - 1 of 24 bits each
 *
 * Pure functions; any thread. */
#include <string.h>

#include "image/exif.h"
#include "image/internal.h"

enum { CHUNKS_MAX = 1 << 12, ANIMATION = 0x02, XMP = 0x04, EXIF = 0x08 };

/* Returns the first chunk of this name that is whole. Lengths are padded to even numbers. */
static fv_byte_part find_chunk(const uint8_t *p, size_t n, const char name[4]) {
    size_t at = 12;
    for (int32_t i = 0; i < CHUNKS_MAX && n - at >= 8; i++) {
        const size_t bytes = le32(p + at + 4);
        if (bytes > n - at - 8) break;
        if (!memcmp(p + at, name, 4)) return (fv_byte_part){p + at + 8, bytes};
        at += 8 + bytes;
        if (bytes & 1 && at < n) at++;
    }
    return (fv_byte_part){0};
}

static int32_t orientation_of(const uint8_t *p, size_t n, uint8_t flags) {
    fv_byte_part exif = {0}, xmp = {0};
    if (flags & EXIF) exif = find_chunk(p, n, "EXIF");
    const int32_t orientation = fv_exif_orientation(&exif, 1);
    if (orientation != FV_ORIENTATION_ABSENT || !(flags & XMP)) return orientation;
    xmp = find_chunk(p, n, "XMP ");
    return fv_xmp_orientation(xmp.p, xmp.n);
}

fv_status fv_image_read_webp(const uint8_t *p, size_t n, fv_image_size *out) {
    const uint8_t *chunk = p + 12, *data = p + 20;
    if (memcmp(p, "RIFF", 4) != 0)
        return FV_FAIL(FV_EDATA, "the WebP cannot be decoded: it is not in a RIFF file");
    bool lossless = n >= 25 && memcmp(chunk, "VP8L", 4) == 0;
    if (n < 30 && !lossless) return fv_image_cut_off(FV_IMAGE_WEBP);
    if (memcmp(chunk, "VP8 ", 4) == 0 && memcmp(data + 3, "\x9d\x01\x2a", 3) == 0)
        return fv_image_take_size(FV_IMAGE_WEBP, le16(data + 6) & 0x3fff, le16(data + 8) & 0x3fff,
                                  out);
    if (lossless && data[0] == 0x2f) {
        uint32_t bits = le32(data + 1);
        return fv_image_take_size(FV_IMAGE_WEBP, 1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff),
                                  out);
    }
    if (memcmp(chunk, "VP8X", 4) != 0)
        return FV_FAIL(FV_EDATA, "the WebP cannot be decoded: its first chunk is no image");
    FV_TRY(fv_image_take_size(data[0] & ANIMATION ? FV_IMAGE_WEBP_ANIMATION : FV_IMAGE_WEBP,
                              1 + le24(data + 4), 1 + le24(data + 7), out));
    fv_image_take_orientation(orientation_of(p, n, data[0]), out);
    return FV_OK;
}
