#ifndef FOVEA_PREFILL_WORKER_IMAGE_IMAGE_H
#define FOVEA_PREFILL_WORKER_IMAGE_IMAGE_H

/* IMAGE BYTES -> RGB -> pixel_values, bit-equal to Pillow and transformers' image processors.
 *
 *   bytes --decode--> fv_image (uint8 RGB) --resize, pad, crop, cut, rescale, normalise--> float CHW
 *
 * Formats: JPEG (grayscale, YCbCr, CMYK, YCCK, progressive), PNG (all colour types and bit
 * depths, tRNS, interlaced; of an animation the default image), WebP (lossy, lossless); in the sandbox of fovea-video
 * (video/still.h) animated WebP and GIF (the first frame), BMP, TIFF (the first page), AVIF and HEIC. The format is
 * detected from the bytes. The orientation of EXIF is applied (image/size.h), and transparent pixels are put on white, as
 * in transformers. For any thread. */
#include <stddef.h>
#include <stdint.h>

#include "image/size.h"
#include "model/config.h"

typedef struct fv_image {
    uint8_t *rgb; /* [h, w, 3], owned */
    int32_t w, h;
} fv_image; /* {0} is empty and may be freed */

/* Decodes n bytes. Size, sides and pixels are checked against `lim` (NULL = default) from the
 * header, before memory is taken for pixels. FV_EINVAL: over a limit; FV_EDATA: corrupt or
 * truncated (a truncated file is refused, not filled with grey), or of other sides than its header
 * says; FV_EUNSUPPORTED: not one of the formats, or fovea-video is not beside this program and the format needs it.
 * *out owns its pixels. */
fv_status fv_image_decode(const void *bytes, size_t n, const fv_image_limits *lim, fv_image *out);
void fv_image_free(fv_image *img);

/* Resizes like Pillow's Image.resize for 8-bit RGB: `resample` 0 nearest, 1 lanczos, 2 bilinear, 3 bicubic,
 * with antialiasing when shrinking (as Pillow). *out owns its pixels. */
fv_status fv_image_resize(const fv_image *in, int32_t w, int32_t h, int32_t resample,
                          fv_image *out);

/* Computes the pixel values of a layout's tiles, in the order of its views, each in raster order: the
 * views' steps, then rescale and normalise. out [n_tile, 3, h, w] F32, caller's memory of
 * fv_image_pixels_count(l) floats. For a video's layout, img is one frame, and out [3, h, w] its part of
 * [n_tile, frames, 3, h, w]. FV_EINVAL: the layout is for an image of other sides; a number of c is
 * invalid. */
fv_status fv_image_preprocess(const fv_image *img, const fv_layout *l, const fv_image_config *c,
                              float *out);
size_t fv_image_pixels_count(const fv_layout *l);

#endif
