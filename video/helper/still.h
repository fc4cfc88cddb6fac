#ifndef FOVEA_VIDEO_HELPER_STILL_H
#define FOVEA_VIDEO_HELPER_STILL_H

/* STILL IMAGES: a file on standard input -> its pixels, as stored, written to the caller (video/protocol.h). Each format has
 * one decoder, chosen by the kind that the caller has read from the header. */
#include "image/size.h"
#include "video/protocol.h"

/* Pixels of an image while it is decoded. */
typedef struct fv_pixels {
    uint8_t *rgba; /* [h, w, 4], malloc'ed */
    int32_t w, h;
} fv_pixels;

/* Allocates w x h pixels after a check against the limits; their bytes are 0. */
fv_status fv_pixels_alloc(int64_t w, int64_t h, const fv_video_limits *l, fv_pixels *out);

/* A decoder reads n bytes of a file. FV_EDATA: damaged; FV_EUNSUPPORTED: a variant that is not decoded; FV_EINVAL: over a
 * limit. Gives out->rgba, also after a failure if it is not NULL. */
typedef fv_status (*fv_still_decoder)(const uint8_t *bytes, size_t n, const fv_video_limits *l,
                                      fv_pixels *out);
fv_status fv_still_gif(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out);
fv_status fv_still_bmp(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out);
fv_status fv_still_tiff(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out);
fv_status fv_still_webp(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out);
fv_status fv_still_avif(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out);
fv_status fv_still_heic(const uint8_t *bytes, size_t n, const fv_video_limits *l, fv_pixels *out);

/* Decodes bytes of this kind; transparent pixels are put on white: out->rgba has [h, w, 3] at its beginning. Gives
 * out->rgba. */
fv_status fv_still_read(const uint8_t *bytes, size_t n, fv_image_kind kind,
                        const fv_video_limits *l, fv_pixels *out);

/* Does it for standard input, and writes the records; the process ends then, and nothing is freed. */
fv_status fv_still_write(const fv_video_request *request);

#endif
