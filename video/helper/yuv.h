#ifndef FOVEA_VIDEO_HELPER_YUV_H
#define FOVEA_VIDEO_HELPER_YUV_H

/* YUV -> RGB for still images, by the stated matrix and range, in float. Chroma of half resolution is interpolated
 * as Pillow's decoder of AVIF does it (libavif, with libyuv: bilinear), or repeated as that of HEIC does (libheif).
 * 8 to 16 bits; YUV 4:2:0, 4:2:2, 4:4:4, grey, and RGB in planes. */
#include "video/helper/still.h"
#include "video/helper/still_av.h"

/* The colours that a file states; where it states none, the coded pixels do. */
typedef struct fv_yuv_form {
    bool nearest;      /* chroma is repeated, otherwise interpolated */
    bool stated, full; /* full: the range is 0 to 255, not 16 to 235 */
    int matrix;        /* ISO 23091-2 */
} fv_yuv_form;

/* Writes the frame's colours, opaque, into *out with its corner at (x, y); what lies outside is cut off.
 * FV_EUNSUPPORTED: pixels of another format, or an unknown matrix. */
fv_status fv_yuv_to_rgb(const AVFrame *f, const fv_yuv_form *form, int64_t x, int64_t y,
                        fv_pixels *out);

/* Writes the frame's brightness into the alpha of *out. */
fv_status fv_yuv_to_alpha(const AVFrame *f, int64_t x, int64_t y, fv_pixels *out);

#endif
