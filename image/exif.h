#ifndef FOVEA_IMAGE_EXIF_H
#define FOVEA_IMAGE_EXIF_H

/* EXIF AND XMP: the orientation of an image, as Pillow's Image.getexif finds it. Input is untrusted; the work is
 * bounded. Pure functions; any thread. */
#include "image/tiff.h"

enum {
    FV_EXIF_PARTS_MAX = 16,     /* a JPEG splits EXIF of more than 64 KiB */
    FV_EXIF_TEXT_MAX = 1 << 20, /* bytes of a text that are searched or inflated */
    FV_ORIENTATION_ABSENT = 0,  /* nothing states one */
    FV_ORIENTATION_UPRIGHT = 1, /* stated, or stated as a value that does not exist */
};

/* Returns 1 to 8, or FV_ORIENTATION_ABSENT. Data may begin with "Exif\0\0", once or twice. */
int32_t fv_exif_orientation(const fv_byte_part *part, int32_t n_part);

/* Searches XMP for tiff:Orientation="6" or tiff:Orientation>6; the first one counts. */
int32_t fv_xmp_orientation(const uint8_t *text, size_t n);

/* Reads EXIF that ImageMagick writes into a text chunk of a PNG, a "raw profile": a line with a name, one with a length,
 * hexadecimal digits. */
int32_t fv_raw_profile_orientation(const uint8_t *text, size_t n);

#endif
