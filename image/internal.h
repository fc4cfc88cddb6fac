#ifndef FOVEA_IMAGE_INTERNAL_H
#define FOVEA_IMAGE_INTERNAL_H

/* Shared by the files of this folder only: integers of both byte orders, and one reader for each format. */
#include "image/size.h"

static inline uint32_t be16(const uint8_t *p) { return (uint32_t)p[0] << 8 | p[1]; }
static inline uint32_t be32(const uint8_t *p) { return be16(p) << 16 | be16(p + 2); }
static inline uint64_t be64(const uint8_t *p) { return (uint64_t)be32(p) << 32 | be32(p + 4); }
static inline uint32_t le16(const uint8_t *p) { return (uint32_t)p[1] << 8 | p[0]; }
static inline uint32_t le24(const uint8_t *p) { return (uint32_t)p[2] << 16 | le16(p); }
static inline uint32_t le32(const uint8_t *p) { return le16(p + 2) << 16 | le16(p); }

/* Takes the size that a header states, for an image that is stored upright. FV_EDATA: a side is 0; FV_EINVAL: a side
 * is 2^31 or more. */
fv_status fv_image_take_size(fv_image_kind kind, uint64_t w, uint64_t h, fv_image_size *out);

/* Turns the size to an image of this orientation; 0 and numbers that are no orientation leave it upright. */
void fv_image_take_orientation(int32_t orientation, fv_image_size *size);

/* FV_EDATA: the file ends in its header. */
fv_status fv_image_cut_off(fv_image_kind kind);

/* Each reads the header of a file of n bytes, of which the first FV_IMAGE_SIGNATURE are there and name the format.
 * Errors are those of fv_image_size_read. */
enum { FV_IMAGE_SIGNATURE = 12 };
fv_status fv_image_read_jpeg(const uint8_t *p, size_t n, fv_image_size *out);
fv_status fv_image_read_png(const uint8_t *p, size_t n, fv_image_size *out);
fv_status fv_image_read_webp(const uint8_t *p, size_t n, fv_image_size *out);
fv_status fv_image_read_gif(const uint8_t *p, size_t n, fv_image_size *out);
fv_status fv_image_read_bmp(const uint8_t *p, size_t n, fv_image_size *out);
fv_status fv_image_read_tiff(const uint8_t *p, size_t n, fv_image_size *out);
fv_status fv_image_read_heif(const uint8_t *p, size_t n, fv_image_size *out);

#endif
