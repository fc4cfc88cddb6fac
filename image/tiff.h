#ifndef FOVEA_IMAGE_TIFF_H
#define FOVEA_IMAGE_TIFF_H

/* TIFF TAGS: width, height and orientation in the first directory of a TIFF file, which is also what EXIF consists
 * of. The directory is read as Pillow's ImageFileDirectory_v2 reads it: the first of several equal tags counts, a value
 * that lies outside the data ends the directory, and tags whose types are unknown are skipped. Pure functions; any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that are in several places of a file, one part after another. */
typedef struct fv_byte_part {
    const uint8_t *p;
    size_t n;
} fv_byte_part;

typedef struct fv_tiff_tags {
    uint64_t width, height; /* 0: the tag is absent, or is not an integer above 0 */
    bool has_orientation;
    int32_t orientation; /* 1 to 8, or 0 for all other values of the tag */
} fv_tiff_tags;

/* Reads at most 4096 entries. False: the data do not begin with a header of TIFF (or of BigTIFF if big_too). */
bool fv_tiff_read_tags(const fv_byte_part *part, int32_t n_part, bool big_too, fv_tiff_tags *out);

#endif
