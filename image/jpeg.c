/* Reads a JPEG's segments up to its first scan: the size is in the frame header (SOF), EXIF and XMP are in segments
 * APP1 before or after it. The number of segments and of stray bytes read is bounded.
 *
 * Pure functions; any thread. */
#include <string.h>

#include "image/exif.h"
#include "image/internal.h"

enum {
    /* 1 024 segments are 64 MiB of camera data. No program writes stray bytes between segments, but decoders
     * skip them. */
    SEGMENTS_MAX = 1024,
    STRAY_MAX = 4096,
    APP1 = 0xe1,
    EOI = 0xd9,
    SOS = 0xda,
};

/* The results so far. */
typedef struct found {
    fv_image_size size;
    bool has_size, cut_off;
    fv_byte_part exif[FV_EXIF_PARTS_MAX];
    int32_t n_exif;
    fv_byte_part xmp;
} found;

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

/* EXIF of several segments is one after another; of XMP the last segment counts. */
static void read_app1(const uint8_t *data, size_t n, found *f) {
    static const char exif[6] = "Exif\0", xmp[] = "http://ns.adobe.com/xap/1.0/";
    if (n >= sizeof exif && !memcmp(data, exif, sizeof exif)) {
        if (f->n_exif == FV_EXIF_PARTS_MAX) return;
        const size_t skip = f->n_exif ? sizeof exif : 0;
        f->exif[f->n_exif++] = (fv_byte_part){data + skip, n - skip};
    } else if (n >= sizeof xmp && !memcmp(data, xmp, sizeof xmp)) {
        f->xmp = (fv_byte_part){data + sizeof xmp, n - sizeof xmp};
    }
}

/* A segment is: marker, length (including itself), data. A frame header has length, precision,
 * height, width. */
static fv_status read_segments(const uint8_t *p, size_t n, found *f) {
    size_t at = 2;
    int32_t stray = 0;
    for (int32_t i = 0; i < SEGMENTS_MAX; i++) {
        uint8_t marker = next_marker(p, n, &at, &stray);
        f->cut_off = marker == 0 && at == n;
        if (marker == 0 || marker == EOI || marker == SOS) return FV_OK;
        if (has_no_length(marker)) continue;
        size_t length = n - at < 2 ? SIZE_MAX : be16(p + at);
        if (length < 2) length = 2; /* decoders continue after the length */
        f->cut_off = length > n - at || (is_frame(marker) && length < 7);
        if (f->cut_off) return FV_OK;
        if (is_frame(marker) && !f->has_size) {
            FV_TRY(fv_image_take_size(FV_IMAGE_JPEG, be16(p + at + 5), be16(p + at + 3), &f->size));
            f->has_size = true;
        }
        if (marker == APP1) read_app1(p + at + 2, length - 2, f);
        at += length;
    }
    return FV_OK;
}

fv_status fv_image_read_jpeg(const uint8_t *p, size_t n, fv_image_size *out) {
    found f = {0};
    FV_TRY(read_segments(p, n, &f));
    if (!f.has_size && f.cut_off) return fv_image_cut_off(FV_IMAGE_JPEG);
    if (!f.has_size)
        return FV_FAIL(FV_EDATA,
                       "the JPEG cannot be decoded: it has no frame header where one belongs");
    int32_t orientation = fv_exif_orientation(f.exif, f.n_exif);
    if (orientation == FV_ORIENTATION_ABSENT) orientation = fv_xmp_orientation(f.xmp.p, f.xmp.n);
    *out = f.size;
    fv_image_take_orientation(orientation, out);
    return FV_OK;
}
