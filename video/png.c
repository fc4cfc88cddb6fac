/* Uses libpng's simplified interface: no callbacks, errors as a message. */
#include "video/png.h"

#include <png.h>
#include <stdlib.h>

static fv_status failed(const png_image *p) {
    return FV_FAIL(FV_ENOMEM, "cannot write the image: %s", p->message);
}

fv_status fv_png_write(const uint8_t *rgb, int32_t w, int32_t h, uint8_t **png, size_t *n) {
    png_image p = {.version = PNG_IMAGE_VERSION,
                   .width = (png_uint_32)w,
                   .height = (png_uint_32)h,
                   .format = PNG_FORMAT_RGB,
                   .flags = PNG_IMAGE_FLAG_FAST};
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(p);
    uint8_t *out = malloc(bytes);
    if (!out) return FV_FAIL(FV_ENOMEM, "out of memory for an image");
    if (!png_image_write_to_memory(&p, out, &bytes, 0, rgb, 0, NULL)) {
        free(out);
        return failed(&p);
    }
    *png = out;
    *n = bytes;
    return FV_OK;
}
