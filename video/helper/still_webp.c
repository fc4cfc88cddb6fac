/* Decodes the first frame of an animated WebP with libwebp's decoder of animations: the frame on a transparent canvas. */
#include "video/helper/still.h"

#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

static fv_status broken(void) {
    return FV_FAIL(FV_EDATA, "the WebP cannot be decoded: its data are corrupt, or end too early");
}

static fv_status read_first(WebPAnimDecoder *d, bool alpha, fv_pixels *out) {
    WebPAnimInfo info;
    uint8_t *canvas;
    int ms;
    if (!d || !WebPAnimDecoderGetInfo(d, &info) || !WebPAnimDecoderGetNext(d, &canvas, &ms))
        return broken();
    if (info.canvas_width != (uint32_t)out->w || info.canvas_height != (uint32_t)out->h)
        return broken();
    const size_t n = (size_t)out->w * (size_t)out->h;
    memcpy(out->rgba, canvas, 4 * n);
    for (size_t i = 0; !alpha && i < n; i++) out->rgba[4 * i + 3] = 255;
    return FV_OK;
}

fv_status fv_still_webp(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out) {
    const WebPData data = {bytes, n};
    WebPAnimDecoderOptions options;
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(bytes, n, &features) != VP8_STATUS_OK) return broken();
    FV_TRY(fv_pixels_alloc(features.width, features.height, l, out));
    if (!WebPAnimDecoderOptionsInit(&options))
        return FV_FAIL(FV_EUNSUPPORTED, "libwebp is not the version that this was built with");
    options.color_mode = MODE_RGBA;
    options.use_threads = 0;
    WebPAnimDecoder *d = WebPAnimDecoderNew(&data, &options);
    fv_status st = read_first(d, features.has_alpha, out);
    WebPAnimDecoderDelete(d);
    return st;
}
