#ifndef FOVEA_PREFILL_WORKER_IMAGE_IMAGE_H
#define FOVEA_PREFILL_WORKER_IMAGE_IMAGE_H

/* IMAGE BYTES -> RGB -> pixel_values, bit-equal to Pillow and CLIPImageProcessor.
 *
 *   bytes --decode--> fv_image (uint8 RGB) --resize, crop, rescale, normalise--> float CHW
 *
 * Formats: JPEG (grayscale, YCbCr, CMYK, YCCK, progressive), PNG (all colour types and bit
 * depths, tRNS, interlaced), WebP (lossy, lossless, alpha dropped). The format is detected from the
 * bytes. EXIF orientation is not applied, as in transformers. Any thread. */
#include <stddef.h>
#include <stdint.h>

#include "common/image_size.h"
#include "model/config.h"

typedef struct fv_image {
    uint8_t *rgb; /* [h, w, 3], owned */
    int32_t w, h;
} fv_image; /* {0} is empty and may be freed */

/* Decodes n bytes. Size, sides and pixels are checked against `lim` (NULL = default) from the
 * header, before memory is taken for pixels. FV_EINVAL: over a limit; FV_EDATA: corrupt or
 * truncated (a truncated file is refused, not filled with grey), or of other sides than its header
 * says; FV_EUNSUPPORTED: not one of the formats. *out owns its pixels. */
fv_status fv_image_decode(const void *bytes, size_t n, const fv_image_limits *lim, fv_image *out);
void fv_image_free(fv_image *img);

/* Pillow's Image.resize for 8-bit RGB: `resample` 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic,
 * with antialiasing when shrinking (as Pillow). *out owns its pixels. */
fv_status fv_image_resize(const fv_image *in, int32_t w, int32_t h, int32_t resample,
                          fv_image *out);

/* The pixel values of the layout's tiles, view by view: (pad to a square), resize, crop with black
 * where the image ends, rescale, normalise. out [tiles, 3, tile's h, tile's w] F32, caller's memory of
 * fv_image_pixels_count(layout) floats. FV_EINVAL where cfg divides by 0, and for an image that is not
 * of the layout's size. */
fv_status fv_image_preprocess(const fv_image *img, const fv_layout *layout,
                              const fv_image_config *cfg, float *out);
size_t fv_image_pixels_count(const fv_layout *layout);

#endif
