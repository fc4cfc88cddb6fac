#ifndef FOVEA_PREFILL_WORKER_IMAGE_INTERNAL_H
#define FOVEA_PREFILL_WORKER_IMAGE_INTERNAL_H

/* Shared by the files of this folder only. */
#include "prefill-worker/image/image.h"

/* FV_EDATA if a decoder finds other sides, as stored, than the header that was checked against the limits. */
fv_status fv_image_size_agrees(const fv_image_size *said, int64_t w, int64_t h);

/* Allocates w x h pixels, owned by *out, contents undefined; FV_ENOMEM. With alpha there is room for
 * RGBA, which fv_image_on_white makes RGB. */
fv_status fv_image_alloc(int32_t w, int32_t h, bool alpha, fv_image *out);

/* Converts RGBA [h, w, 4] in *img to RGB: blends each pixel over white by its alpha. */
void fv_image_on_white(fv_image *img);

/* One decoder per format, for an image whose header says `said`. Errors and ownership are those of
 * fv_image_decode. */
fv_status fv_image_decode_jpeg(const uint8_t *bytes, size_t n, const fv_image_size *said,
                               fv_image *out);
fv_status fv_image_decode_png(const uint8_t *bytes, size_t n, const fv_image_size *said,
                              fv_image *out);
fv_status fv_image_decode_webp(const uint8_t *bytes, size_t n, const fv_image_size *said,
                               fv_image *out);

/* FV_EINVAL if the JPEG has more scans than any encoder writes, or more than an image of so many pixels
 * may have. */
enum { FV_JPEG_SCANS_MAX = 100 };
fv_status fv_image_check_scans(const uint8_t *bytes, size_t n, int64_t pixels);

/* Turns an image that is stored with this orientation of EXIF, as Pillow's exif_transpose does. Takes *stored, also on
 * failure. Gives *out. */
fv_status fv_image_turn(fv_image *stored, int32_t orientation, fv_image *out);

typedef struct fv_image_rect {
    int32_t x, y, w, h;
} fv_image_rect;

/* Computes only the rectangle `part`, inside w x h, of fv_image_resize(in, w, h, resample). *out owns the
 * pixels. */
fv_status fv_image_resize_part(const fv_image *in, int32_t w, int32_t h, int32_t resample,
                               fv_image_rect part, fv_image *out);

#endif
