/* Decodes WebP, lossy and lossless, to RGB with libwebp. Animations are decoded in a sandbox (video/still.h).
 * For any thread. */
#include "prefill-worker/image/internal.h"

#include <webp/decode.h>

static fv_status fail(VP8StatusCode code) {
    switch (code) {
    case VP8_STATUS_OUT_OF_MEMORY: return FV_FAIL(FV_ENOMEM, "no memory to decode a WebP");
    case VP8_STATUS_UNSUPPORTED_FEATURE:
        return FV_FAIL(FV_EUNSUPPORTED, "the WebP uses a feature that libwebp does not decode");
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
        return FV_FAIL(FV_EDATA, "the WebP cannot be decoded: the file ends too early");
    default: return FV_FAIL(FV_EDATA, "the WebP cannot be decoded: its data is corrupt");
    }
}

fv_status fv_image_decode_webp(const uint8_t *bytes, size_t n, const fv_image_size *said,
                               fv_image *out) {
    WebPDecoderConfig cfg;
    if (!WebPInitDecoderConfig(&cfg))
        return FV_FAIL(FV_EUNSUPPORTED, "libwebp is not the version that this was built with");
    VP8StatusCode code = WebPGetFeatures(bytes, n, &cfg.input);
    if (code != VP8_STATUS_OK) return fail(code);
    FV_TRY(fv_image_size_agrees(said, cfg.input.width, cfg.input.height));

    const bool alpha = cfg.input.has_alpha;
    const int32_t stride = cfg.input.width * (alpha ? 4 : 3);
    fv_image img = {0};
    FV_TRY(fv_image_alloc(cfg.input.width, cfg.input.height, alpha, &img));
    cfg.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
    cfg.output.is_external_memory = 1;
    cfg.output.u.RGBA =
        (WebPRGBABuffer){.rgba = img.rgb, .stride = stride, .size = (size_t)stride * (size_t)img.h};
    code = WebPDecode(bytes, n, &cfg);
    if (code != VP8_STATUS_OK) {
        fv_image_free(&img);
        return fail(code);
    }
    if (alpha) fv_image_on_white(&img);
    *out = img;
    return FV_OK;
}
