/* Reads the whole file, decodes it, and writes one frame. */
#include "video/helper/still.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "video/helper/frames.h"

fv_status fv_pixels_alloc(int64_t w, int64_t h, const fv_video_limits *l, fv_pixels *out) {
    if (w < 1 || h < 1) return FV_FAIL(FV_EDATA, "the image has a side of 0 pixels");
    if (w > l->side_max || h > l->side_max || w > l->pixels_max / h)
        return FV_FAIL(FV_EINVAL,
                       "the image is %lldx%lld: the most are %lld pixels, and %d on a side",
                       (long long)w, (long long)h, (long long)l->pixels_max, l->side_max);
    uint8_t *rgba = calloc((size_t)w * (size_t)h, 4);
    if (!rgba) return FV_FAIL(FV_EINVAL, "the image needs more memory to decode than it may");
    *out = (fv_pixels){rgba, (int32_t)w, (int32_t)h};
    return FV_OK;
}

/* Blends like Pillow's alpha_composite over opaque white, in place: (a v + (255 - a) 255) / 255, to the nearest. */
static void put_on_white(fv_pixels *p) {
    const uint8_t *from = p->rgba;
    uint8_t *to = p->rgba;
    for (size_t i = (size_t)p->w * (size_t)p->h; i > 0; i--, from += 4, to += 3)
        for (int c = 0; c < 3; c++)
            to[c] = (uint8_t)((from[3] * from[c] + (255 - from[3]) * 255 + 127) / 255);
}

fv_status fv_still_read(const uint8_t *bytes, size_t n, fv_image_kind kind,
                        const fv_video_limits *l, fv_pixels *out) {
    static const fv_still_decoder decoders[FV_N_IMAGE_KIND] = {
        [FV_IMAGE_WEBP_ANIMATION] = fv_still_webp,
        [FV_IMAGE_GIF] = fv_still_gif,
        [FV_IMAGE_BMP] = fv_still_bmp,
        [FV_IMAGE_TIFF] = fv_still_tiff,
        [FV_IMAGE_AVIF] = fv_still_avif,
        [FV_IMAGE_HEIC] = fv_still_heic,
    };
    if ((unsigned)kind >= FV_N_IMAGE_KIND || !decoders[kind])
        return FV_FAIL(FV_EUNSUPPORTED, "images of this kind are not decoded here");
    fv_pixels made = {0};
    fv_status st = decoders[kind](bytes, n, l, &made);
    if (st != FV_OK) {
        free(made.rgba);
        return st;
    }
    put_on_white(&made);
    *out = made;
    return FV_OK;
}

static fv_status read_input(const fv_video_limits *l, uint8_t **bytes, size_t *n) {
    const off_t end = lseek(STDIN_FILENO, 0, SEEK_END);
    if (end < 1 || end > l->bytes_max || lseek(STDIN_FILENO, 0, SEEK_SET) != 0)
        return FV_FAIL(FV_EIO, "the image cannot be read");
    *n = (size_t)end;
    *bytes = malloc(*n);
    if (!*bytes) return FV_FAIL(FV_EINVAL, "the image needs more memory to decode than it may");
    for (size_t at = 0; at < *n;) {
        const ssize_t got = read(STDIN_FILENO, *bytes + at, *n - at);
        if (got <= 0) return FV_FAIL(FV_EIO, "the image cannot be read");
        at += (size_t)got;
    }
    return FV_OK;
}

fv_status fv_still_write(const fv_video_request *request) {
    const fv_video_frame frame = {0};
    uint8_t *bytes;
    size_t n;
    fv_pixels p;
    FV_TRY(read_input(&request->limits, &bytes, &n));
    FV_TRY(fv_still_read(bytes, n, request->still, &request->limits, &p));
    const fv_video_head head = {.n = 1, .w = p.w, .h = p.h, .n_source = 1, .fps = 1};
    fv_record_write(FV_VIDEO_HEAD, FV_OK, &head, sizeof head, NULL, 0);
    fv_record_write(FV_VIDEO_FRAME, FV_OK, &frame, sizeof frame, p.rgba,
                    3 * (size_t)p.w * (size_t)p.h);
    return FV_OK;
}
