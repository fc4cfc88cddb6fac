/* Reads the headers of image files. PNG and WebP have their size in the first 30 bytes. A JPEG has
 * it in its frame header (SOF), after any number of other segments. The number of segments and of
 * stray bytes read is bounded, because a router runs this on its loop for untrusted files.
 *
 * Pure functions; any thread. */
#include "common/image_size.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

enum {
    SIGNATURE = 12, /* bytes; no whole image of any format is that short */
    /* Limits before the frame header. 1 024 segments are 64 MiB of camera data. No program writes
     * stray bytes between segments, but decoders skip them. */
    SEGMENTS_MAX = 1024,
    STRAY_MAX = 4096,
};

const char *fv_image_kind_name(fv_image_kind kind) {
    static const char *const names[] = {"JPEG", "PNG", "WebP"};
    return (unsigned)kind < sizeof names / sizeof names[0] ? names[kind] : "image";
}

fv_image_limits fv_image_limits_default(void) {
    return (fv_image_limits){
        .bytes_max = (size_t)32 << 20, .side_max = 16384, .pixels_max = (int64_t)64 << 20};
}

static uint32_t be16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }
static uint32_t be32(const uint8_t *p) { return be16(p) << 16 | be16(p + 2); }
static uint32_t le16(const uint8_t *p) { return (uint32_t)p[1] << 8 | p[0]; }
static uint32_t le24(const uint8_t *p) { return (uint32_t)p[2] << 16 | le16(p); }

static fv_status take_size(fv_image_kind kind, uint32_t w, uint32_t h, fv_image_size *out) {
    if (w < 1 || h < 1 || w > INT32_MAX || h > INT32_MAX)
        return FV_FAIL(w < 1 || h < 1 ? FV_EDATA : FV_EINVAL,
                       "the %s header says %" PRIu32 " x %" PRIu32 " pixels",
                       fv_image_kind_name(kind), w, h);
    *out = (fv_image_size){kind, (int32_t)w, (int32_t)h};
    return FV_OK;
}

static fv_status cut_off(fv_image_kind kind) {
    return FV_FAIL(FV_EDATA, "the %s cannot be decoded: the file ends in its header",
                   fv_image_kind_name(kind));
}

/* ---- JPEG ------------------------------------------------------------------------------- */

/* SOF0 to SOF15, without DHT, JPG and DAC, which are in the same range. */
static bool is_frame(uint8_t marker) {
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static bool has_no_length(uint8_t marker) {
    return marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
}

/* Skips stray bytes and padding to the next marker, 0xff followed by neither 0xff nor 0. Sets *at
 * to the byte after it; returns 0 if there is none within the bound. */
static uint8_t next_marker(const uint8_t *p, size_t n, size_t *at, int32_t *stray) {
    for (; *at < n && *stray <= STRAY_MAX; ++*at, ++*stray) {
        if (p[*at] != 0xff || n - *at < 2 || p[*at + 1] == 0xff || p[*at + 1] == 0) continue;
        *at += 2;
        return p[*at - 1];
    }
    return 0;
}

/* A segment is: marker, length (including itself), data. A frame header has length, precision,
 * height, width. */
static fv_status read_jpeg(const uint8_t *p, size_t n, fv_image_size *out) {
    size_t at = 2;
    int32_t stray = 0;
    for (int32_t i = 0; i < SEGMENTS_MAX; i++) {
        uint8_t marker = next_marker(p, n, &at, &stray);
        if (marker == 0 && at == n) return cut_off(FV_IMAGE_JPEG);
        if (marker == 0 || marker == 0xd9 || marker == 0xda) break; /* stray bytes; EOI, SOS */
        if (has_no_length(marker)) continue;
        if (n - at < 2) return cut_off(FV_IMAGE_JPEG);
        size_t length = be16(p + at);
        if (length < 2) length = 2; /* decoders continue after the length */
        if (length > n - at) return cut_off(FV_IMAGE_JPEG);
        if (is_frame(marker)) {
            if (length < 7) return cut_off(FV_IMAGE_JPEG);
            return take_size(FV_IMAGE_JPEG, be16(p + at + 5), be16(p + at + 3), out);
        }
        at += length;
    }
    return FV_FAIL(FV_EDATA,
                   "the JPEG cannot be decoded: it has no frame header where one belongs");
}

/* ---- PNG, WebP -------------------------------------------------------------------------- */

/* The first chunk must be IHDR: length, name, width, height. */
static fv_status read_png(const uint8_t *p, size_t n, fv_image_size *out) {
    if (n < 24 || memcmp(p + 12, "IHDR", 4) != 0) return FV_FAIL(FV_EDATA, "the PNG has no header");
    return take_size(FV_IMAGE_PNG, be32(p + 16), be32(p + 20), out);
}

/* The first chunk after RIFF....WEBP: a lossy frame, a lossless one, or the canvas around either.
 *   VP8    name, length, frame tag (3), 9d 01 2a, width and height of 14 bits
 *   VP8L   name, length, 2f, width - 1 and height - 1 of 14 bits each
 *   VP8X   name, length, flags (4), width - 1 and height - 1 of 24 bits each */
static fv_status read_webp(const uint8_t *p, size_t n, fv_image_size *out) {
    const uint8_t *chunk = p + 12, *data = p + 20;
    bool lossless = n >= 25 && memcmp(chunk, "VP8L", 4) == 0;
    if (n < 30 && !lossless) return cut_off(FV_IMAGE_WEBP);
    if (memcmp(chunk, "VP8 ", 4) == 0 && memcmp(data + 3, "\x9d\x01\x2a", 3) == 0)
        return take_size(FV_IMAGE_WEBP, le16(data + 6) & 0x3fff, le16(data + 8) & 0x3fff, out);
    if (lossless && data[0] == 0x2f) {
        uint32_t bits = le16(data + 1) | le16(data + 3) << 16;
        return take_size(FV_IMAGE_WEBP, 1 + (bits & 0x3fff), 1 + (bits >> 14 & 0x3fff), out);
    }
    if (memcmp(chunk, "VP8X", 4) == 0)
        return take_size(FV_IMAGE_WEBP, 1 + le24(data + 4), 1 + le24(data + 7), out);
    return FV_FAIL(FV_EDATA, "the WebP cannot be decoded: its first chunk is no image");
}

fv_status fv_image_size_read(const void *bytes, size_t n, fv_image_size *out) {
    const uint8_t *p = bytes;
    if (n < SIGNATURE) return FV_FAIL(FV_EDATA, "%zu bytes are too few to be an image", n);
    if (memcmp(p, "\xff\xd8\xff", 3) == 0) return read_jpeg(p, n, out);
    if (memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0) return read_png(p, n, out);
    if (memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0) return read_webp(p, n, out);
    return FV_FAIL(FV_EUNSUPPORTED,
                   "the image starts with bytes %02x %02x %02x %02x: it is not JPEG, PNG or WebP",
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
    char what[16] = "the ";
    fv_image_size size;
    if (!lim) lim = &normal;
    if (lim->bytes_max && n > lim->bytes_max)
        return FV_FAIL(FV_EINVAL, "the image file has %zu bytes; at most %zu are accepted", n,
                       lim->bytes_max);
    FV_TRY(fv_image_size_read(bytes, n, &size));
    strcat(what, fv_image_kind_name(size.kind));
    FV_TRY(fv_image_size_fits(what, size.w, size.h, lim));
    *out = size;
    return FV_OK;
}
