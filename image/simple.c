/* Reads the headers of GIF and BMP, whose sizes are in fixed places. Pure functions; any thread. */
#include <string.h>

#include "image/internal.h"

fv_status fv_image_read_gif(const uint8_t *p, size_t n, fv_image_size *out) {
    if (n < 13) return fv_image_cut_off(FV_IMAGE_GIF);
    return fv_image_take_size(FV_IMAGE_GIF, le16(p + 6), le16(p + 8), out);
}

/* A file header of 14 bytes, then the length of the second header. That of OS/2 has sides of 16 bits. In others a negative height
 * says that the first row is at the top. */
fv_status fv_image_read_bmp(const uint8_t *p, size_t n, fv_image_size *out) {
    if (n < 26) return fv_image_cut_off(FV_IMAGE_BMP);
    if (le32(p + 14) == 12)
        return fv_image_take_size(FV_IMAGE_BMP, le16(p + 18), le16(p + 20), out);
    const int64_t h = (int32_t)le32(p + 22);
    return fv_image_take_size(FV_IMAGE_BMP, le32(p + 18), (uint64_t)(h < 0 ? -h : h), out);
}
