/* CLIPImageProcessor (its PIL backend), bit for bit: RGB in, float CHW out.
 *
 *   [pad to a square] -> resize -> centre crop -> rescale -> normalise
 *
 * The last two steps depend on nothing but a byte and its channel, so they are done 768 times,
 * not once per pixel. numpy's types decide the bits: rescale multiplies in double and rounds to
 * float; normalise subtracts and divides in float. Black around an image that is smaller than
 * the crop is put there before these steps, as a byte of 0.
 *
 * The crop is known before the resize, which therefore computes nothing else. Any thread. */
#include "prefill-worker/image/internal.h"

#include <inttypes.h>
#include <string.h>

size_t fv_image_pixels_count(const fv_image_config *cfg) {
    return (size_t)3 * (size_t)cfg->crop_h * (size_t)cfg->crop_w;
}

static fv_status check_config(const fv_image_config *cfg) {
    if (cfg->crop_w < 1 || cfg->crop_h < 1)
        return FV_FAIL(FV_EINVAL, "crop_size %" PRId32 " x %" PRId32 " is empty", cfg->crop_w,
                       cfg->crop_h);
    const bool fixed = cfg->shortest_edge == 0;
    if (cfg->do_resize && (fixed ? cfg->resize_w < 1 || cfg->resize_h < 1 : cfg->shortest_edge < 1))
        return FV_FAIL(FV_EINVAL, "resize needs a size of at least 1 pixel");
    for (int c = 0; cfg->do_normalize && c < 3; c++)
        if (!(cfg->std[c] > 0))
            return FV_FAIL(FV_EINVAL, "image_std[%d] is %g; it divides, so it must be above 0", c,
                           (double)cfg->std[c]);
    for (int c = 0; cfg->pad_square && c < 3; c++)
        if (!(cfg->mean[c] >= 0 && cfg->mean[c] <= 1))
            return FV_FAIL(FV_EINVAL, "image_mean[%d] is %g; as a padding colour it is 0 to 1", c,
                           (double)cfg->mean[c]);
    return FV_OK;
}

/* LLaVA's expand2square: the image in the middle of a square, on the mean colour. */
static fv_status pad_to_square(const fv_image *in, const float mean[3], fv_image *out) {
    const int32_t side = in->w > in->h ? in->w : in->h;
    const fv_image_limits lim = fv_image_limits_default();
    fv_image square = {0};
    FV_TRY(fv_image_size_fits("the image, padded to a square,", side, side, &lim));
    FV_TRY(fv_image_alloc(side, side, &square));
    const uint8_t colour[3] = {(uint8_t)(mean[0] * 255.0), (uint8_t)(mean[1] * 255.0),
                               (uint8_t)(mean[2] * 255.0)};
    const size_t n = (size_t)side * (size_t)side;
    for (size_t i = 0; i < n; i++) memcpy(square.rgb + 3 * i, colour, 3);
    const size_t left = (size_t)(side - in->w) / 2, top = (size_t)(side - in->h) / 2;
    for (size_t y = 0; y < (size_t)in->h; y++)
        memcpy(square.rgb + ((top + y) * (size_t)side + left) * 3, in->rgb + y * (size_t)in->w * 3,
               (size_t)in->w * 3);
    *out = square;
    return FV_OK;
}

/* The shorter side becomes `edge`; the longer one is int(edge * long / short), as Python
 * divides: in double, rounded once. */
static fv_status size_after_resize(const fv_image *in, const fv_image_config *cfg, int32_t *w,
                                   int32_t *h) {
    *w = in->w;
    *h = in->h;
    if (!cfg->do_resize) return FV_OK;
    if (cfg->shortest_edge == 0) {
        *w = cfg->resize_w;
        *h = cfg->resize_h;
        return FV_OK;
    }
    const bool upright = in->w <= in->h;
    const int64_t shorter = upright ? in->w : in->h, longer = upright ? in->h : in->w;
    const int64_t edge = cfg->shortest_edge;
    const int64_t other = (int64_t)((double)(edge * longer) / (double)shorter);
    if (other > INT32_MAX)
        return FV_FAIL(FV_EINVAL,
                       "an image of %" PRId32 " x %" PRId32 " pixels is too narrow to resize",
                       in->w, in->h);
    *w = (int32_t)(upright ? edge : other);
    *h = (int32_t)(upright ? other : edge);
    return FV_OK;
}

/* Where the crop starts: floor((size - crop) / 2). */
static int32_t crop_offset(int32_t size, int32_t crop) {
    const int32_t more = size - crop;
    return more >= 0 ? more / 2 : -((1 - more) / 2);
}

/* One axis of the crop: output i shows pixel i + offset, or black where there is none. Pixels
 * [*from, *from + *n) are seen, the first of them at output *at. */
static void crop_axis(int32_t size, int32_t crop, int32_t *from, int32_t *n, int32_t *at) {
    const int32_t off = crop_offset(size, crop);
    *from = off > 0 ? off : 0;
    *at = off < 0 ? -off : 0;
    *n = size < crop ? size : crop;
}

static void value_table(const fv_image_config *cfg, float table[3][256]) {
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++) {
            float f = (float)v;
            if (cfg->do_rescale) f = (float)((double)v * cfg->rescale_factor);
            if (cfg->do_normalize) f = (f - cfg->mean[c]) / cfg->std[c];
            table[c][v] = f;
        }
}

static fv_status preprocess(const fv_image *img, const fv_image_config *cfg, float *out) {
    int32_t w, h, at_x, at_y;
    fv_image_rect part;
    FV_TRY(size_after_resize(img, cfg, &w, &h));
    if (!cfg->do_center_crop && (w != cfg->crop_w || h != cfg->crop_h))
        return FV_FAIL(FV_EINVAL,
                       "without a crop the image has %" PRId32 " x %" PRId32
                       " pixels, but the model needs %" PRId32 " x %" PRId32,
                       w, h, cfg->crop_w, cfg->crop_h);
    crop_axis(w, cfg->crop_w, &part.x, &part.w, &at_x);
    crop_axis(h, cfg->crop_h, &part.y, &part.h, &at_y);
    fv_image seen = {0};
    FV_TRY(fv_image_resize_part(img, w, h, cfg->resample, part, &seen));

    float table[3][256];
    value_table(cfg, table);
    const size_t plane = (size_t)cfg->crop_h * (size_t)cfg->crop_w;
    for (size_t c = 0; c < 3; c++) {
        float *p = out + c * plane;
        for (size_t i = 0; i < plane; i++) p[i] = table[c][0];
        for (int32_t y = 0; y < seen.h; y++) {
            const uint8_t *row = seen.rgb + (size_t)y * (size_t)seen.w * 3 + c;
            p = out + c * plane + (size_t)(at_y + y) * (size_t)cfg->crop_w + (size_t)at_x;
            for (int32_t x = 0; x < seen.w; x++) p[x] = table[c][row[3 * (size_t)x]];
        }
    }
    fv_image_free(&seen);
    return FV_OK;
}

fv_status fv_image_seen(const fv_image_config *cfg, int32_t w, int32_t h, fv_image_span *out) {
    fv_image square = {.w = w, .h = h};
    int32_t resized_w, resized_h;
    FV_TRY(check_config(cfg));
    if (w < 1 || h < 1) return FV_FAIL(FV_EINVAL, "the image is empty");
    if (cfg->pad_square) square.w = square.h = w > h ? w : h;
    FV_TRY(size_after_resize(&square, cfg, &resized_w, &resized_h));
    const double across = (double)square.w / resized_w, down = (double)square.h / resized_h;
    const int32_t left = (square.w - w) / 2, top = (square.h - h) / 2; /* of the padding */
    *out = (fv_image_span){across * crop_offset(resized_w, cfg->crop_w) - left,
                           down * crop_offset(resized_h, cfg->crop_h) - top, across * cfg->crop_w,
                           down * cfg->crop_h};
    return FV_OK;
}

fv_status fv_image_preprocess(const fv_image *img, const fv_image_config *cfg, float *out) {
    FV_TRY(check_config(cfg));
    if (img->w < 1 || img->h < 1) return FV_FAIL(FV_EINVAL, "the image is empty");
    if (!cfg->pad_square || img->w == img->h) return preprocess(img, cfg, out);
    fv_image square = {0};
    FV_TRY(pad_to_square(img, cfg->mean, &square));
    fv_status st = preprocess(&square, cfg, out);
    fv_image_free(&square);
    return st;
}
