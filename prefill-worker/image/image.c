/* Decodes image bytes to RGB: reads the header, calls the format's decoder, and turns the image upright.
 *
 * Sizes are checked here, in one place, before anything is decoded: a file of a hundred bytes can
 * claim ten gigapixels. Each decoder reads the header again, compares its size with the one checked
 * (fv_image_size_agrees), and only then allocates pixels. For any thread. */
#include "prefill-worker/image/internal.h"

#include <inttypes.h>
#include <stdlib.h>

#include "video/still.h"

fv_status fv_image_size_agrees(const fv_image_size *said, int64_t w, int64_t h) {
    const bool on_side = fv_image_is_on_side(said->orientation);
    const int32_t said_w = on_side ? said->h : said->w, said_h = on_side ? said->w : said->h;
    if (w == said_w && h == said_h) return FV_OK;
    return FV_FAIL(FV_EDATA,
                   "the %s has %" PRId64 " x %" PRId64 " pixels, but its header says %" PRId32
                   " x %" PRId32,
                   fv_image_kind_name(said->kind), w, h, said_w, said_h);
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

static fv_status decode_sandboxed(const void *bytes, size_t n, const fv_image_size *said,
                                  const fv_image_limits *lim, fv_image *out) {
    const fv_image_limits normal = fv_image_limits_default();
    fv_still still;
    FV_TRY(fv_still_decode(bytes, n, said->kind, lim ? lim : &normal, NULL, &still));
    fv_status st = fv_image_size_agrees(said, still.w, still.h);
    if (st == FV_OK)
        *out = (fv_image){.rgb = still.rgb, .w = still.w, .h = still.h};
    else
        free(still.rgb);
    return st;
}

fv_status fv_image_decode(const void *bytes, size_t n, const fv_image_limits *lim, fv_image *out) {
    fv_image_size said;
    fv_image stored;
    FV_TRY(fv_image_size_check(bytes, n, lim, &said));
    switch (said.kind) {
    case FV_IMAGE_JPEG: FV_TRY(fv_image_decode_jpeg(bytes, n, &said, &stored)); break;
    case FV_IMAGE_PNG: FV_TRY(fv_image_decode_png(bytes, n, &said, &stored)); break;
    case FV_IMAGE_WEBP: FV_TRY(fv_image_decode_webp(bytes, n, &said, &stored)); break;
    default: FV_TRY(decode_sandboxed(bytes, n, &said, lim, &stored));
    }
    return fv_image_turn(&stored, said.orientation, out);
}
