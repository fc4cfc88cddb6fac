/* Decodes image bytes to RGB: reads the header and calls the format's decoder.
 *
 * Sizes are checked here, in one place, before anything is decoded: a file of a hundred bytes can
 * claim ten gigapixels. Each decoder reads the header again, compares its size with the one checked
 * (fv_image_size_agrees), and only then allocates pixels. For any thread. */
#include "prefill-worker/image/internal.h"

#include <inttypes.h>
#include <stdlib.h>

fv_status fv_image_size_agrees(const fv_image_size *said, int64_t w, int64_t h) {
    if (w == said->w && h == said->h) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "the %s has %" PRId64 " x %" PRId64 " pixels, but its header says %" PRId32
                   " x %" PRId32,
                   fv_image_kind_name(said->kind), w, h, said->w, said->h);
}

fv_status fv_image_alloc(int32_t w, int32_t h, bool alpha, fv_image *out) {
    uint8_t *rgb = malloc((size_t)w * (size_t)h * (alpha ? 4 : 3));
    if (!rgb) return FV_FAIL(FV_ENOMEM, "no memory for an image of %" PRId32 " x %" PRId32, w, h);
    *out = (fv_image){.rgb = rgb, .w = w, .h = h};
    return FV_OK;
}

/* Blends like Pillow's alpha_composite over opaque white: (a v + (255 - a) 255) / 255, to the nearest. */
void fv_image_on_white(fv_image *img) {
    const uint8_t *rgba = img->rgb;
    uint8_t *rgb = img->rgb; /* in place: never ahead of `rgba` */
    for (size_t i = (size_t)img->w * (size_t)img->h; i > 0; i--, rgba += 4, rgb += 3)
        for (int c = 0; c < 3; c++)
            rgb[c] = (uint8_t)((rgba[3] * rgba[c] + (255 - rgba[3]) * 255 + 127) / 255);
}

void fv_image_free(fv_image *img) {
    free(img->rgb);
    *img = (fv_image){0};
}

fv_status fv_image_decode(const void *bytes, size_t n, const fv_image_limits *lim, fv_image *out) {
    fv_image_size said;
    FV_TRY(fv_image_size_check(bytes, n, lim, &said));
    switch (said.kind) {
    case FV_IMAGE_JPEG: return fv_image_decode_jpeg(bytes, n, &said, out);
    case FV_IMAGE_PNG: return fv_image_decode_png(bytes, n, &said, out);
    default: return fv_image_decode_webp(bytes, n, &said, out);
    }
}
