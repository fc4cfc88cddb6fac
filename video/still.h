#ifndef FOVEA_VIDEO_STILL_H
#define FOVEA_VIDEO_STILL_H

/* STILL: an image of a format that is decoded in the sandbox of fovea-video: animated WebP and GIF (the first frame), BMP, TIFF
 * (the first page), AVIF, HEIC. Its process, its limits of memory, and the checks of what it writes are those of a video
 * (video/video.h). Any thread. */
#include "image/size.h"
#include "video/video.h"

typedef struct fv_still {
    uint8_t *rgb; /* [h, w, 3], malloc'ed, owned; pixels are as stored, transparent ones on white */
    int32_t w, h;
} fv_still;

/* Decodes n bytes, whose header says that they are of this kind (fv_image_is_sandboxed). `helper` is the path of
 * fovea-video; NULL: beside this program. Blocks until the helper has ended, at most 20 s of processor time and 60 s.
 * FV_EINVAL: over a limit; FV_EDATA: damaged, or it crashed the helper; FV_EUNSUPPORTED: a variant that is not
 * decoded, or there is no helper. Gives out->rgb. */
fv_status fv_still_decode(const void *bytes, size_t n, fv_image_kind kind,
                          const fv_image_limits *lim, const char *helper, fv_still *out);

#endif
