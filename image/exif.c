/* Finds orientations. EXIF is a TIFF file whose first directory has the tag; XMP is XML, of which Pillow reads
 * no more than one pattern. */
#include "image/exif.h"

#include <stdlib.h>
#include <string.h>

#include "image/internal.h"

int32_t fv_exif_orientation(const fv_byte_part *part, int32_t n_part) {
    static const char prefix[] = "Exif\0";
    fv_byte_part rest[FV_EXIF_PARTS_MAX];
    fv_tiff_tags tags;
    if (n_part < 1 || n_part > FV_EXIF_PARTS_MAX) return FV_ORIENTATION_ABSENT;
    memcpy(rest, part, (size_t)n_part * sizeof *part);
    for (int i = 0; i < 2 && rest->n >= sizeof prefix && !memcmp(rest->p, prefix, sizeof prefix);
         i++) {
        rest->p += sizeof prefix;
        rest->n -= sizeof prefix;
    }
    if (!fv_tiff_read_tags(rest, n_part, false, &tags) || !tags.has_orientation)
        return FV_ORIENTATION_ABSENT;
    return tags.orientation ? tags.orientation : FV_ORIENTATION_UPRIGHT;
}

int32_t fv_xmp_orientation(const uint8_t *text, size_t n) {
    static const char name[] = "tiff:Orientation";
    if (n == 0) return FV_ORIENTATION_ABSENT;
    const uint8_t *at = text, *end = text + (n < FV_EXIF_TEXT_MAX ? n : FV_EXIF_TEXT_MAX);
    while (at < end && (at = memmem(at, (size_t)(end - at), name, sizeof name - 1))) {
        at += sizeof name - 1;
        const uint8_t *digit = at;
        if (end - at > 2 && !memcmp(at, "=\"", 2)) digit = at + 2;
        if (end - at > 1 && *at == '>') digit = at + 1;
        if (digit == at || digit == end || *digit < '0' || *digit > '9') continue;
        return *digit >= '1' && *digit <= '8' ? *digit - '0' : FV_ORIENTATION_UPRIGHT;
    }
    return FV_ORIENTATION_ABSENT;
}

static int digit_of(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int32_t fv_raw_profile_orientation(const uint8_t *text, size_t n) {
    const uint8_t *end = text + (n < FV_EXIF_TEXT_MAX ? n : FV_EXIF_TEXT_MAX);
    size_t n_exif = 0;
    for (int line = 0; line < 3; line++) {
        const uint8_t *stop = memchr(text, '\n', (size_t)(end - text));
        if (!stop) return FV_ORIENTATION_ABSENT;
        text = stop + 1;
    }
    uint8_t *exif = malloc((size_t)(end - text) / 2 + 1);
    if (!exif) return FV_ORIENTATION_ABSENT;
    while (text < end) {
        if (*text == '\n' || *text == '\r' || *text == ' ') {
            text++;
            continue;
        }
        const int high = digit_of(*text), low = end - text > 1 ? digit_of(text[1]) : -1;
        if (high < 0 || low < 0) break;
        exif[n_exif++] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    const fv_byte_part whole = {exif, n_exif};
    const int32_t orientation = fv_exif_orientation(&whole, 1);
    free(exif);
    return orientation;
}
